"""The order and the names in which a program takes its operands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import attrs

from morello.ir.spec import LogicalSpec

T = TypeVar("T")


@attrs.frozen
class Signature:
    """The operands of a call, in its order: their names, and their numbers in the Spec.

    It is no part of the Spec: Specs that differ in nothing else are one, and have one program.
    """

    names: tuple[str, ...]
    operands: tuple[int, ...]
    #: How many first dimensions, of size 1, the text lacks, and with it what is said of its operands.
    implicit_dims: int = 0

    @classmethod
    def of(cls, logical: LogicalSpec, implicit_dims: int = 0) -> Signature:
        """Return the signature of a Spec that says nothing about it: its operation's names, in the Spec's order."""
        names = tuple(one.name for one in logical.declared)
        return cls(names, tuple(range(len(names))), implicit_dims)

    def text(self, logical: LogicalSpec, separator: str = ", ", inner: str = ", ") -> str:
        """Return a Spec in the words of its text; separators are as in `LogicalSpec.text`."""
        return logical.text(separator, inner, self.names, self.operands, self.implicit_dims)

    def in_spec_order(self, values: Sequence[T]) -> list[T]:
        """Return one value for each operand of a call in the order of the Spec."""
        return [value for _, value in sorted(zip(self.operands, values, strict=True), key=lambda pair: pair[0])]
