"""The order and the names in which a program takes its operands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import attrs

from morello.ir.spec import LogicalSpec

T = TypeVar("T")


@attrs.frozen
class Signature:
    """The operands of a call, in call order: their names, and their numbers in the Spec.

    It is not part of the Spec: Specs that differ only in their signature are equal and share a program.
    """

    names: tuple[str, ...]
    operands: tuple[int, ...]
    #: The number of leading dimensions, of size 1, that the text and its operands omit.
    implicit_dims: int = 0
    #: The input, by its number, in whose memory the output is stored: calls take no output. None for none.
    overwritten: int | None = None

    @classmethod
    def of(cls, logical: LogicalSpec, implicit_dims: int = 0) -> Signature:
        """Return the default signature: the operation's names, in the Spec's order."""
        names = tuple(one.name for one in logical.declared)
        return cls(names, tuple(range(len(names))), implicit_dims)

    def text(self, logical: LogicalSpec, separator: str = ", ", inner: str = ", ") -> str:
        """Return the Spec as text with these names; separators are as in `LogicalSpec.text`."""
        return logical.text(separator, inner, self.names, self.operands, self.implicit_dims, self.overwritten)

    def in_spec_order(self, values: Sequence[T]) -> list[T]:
        """Return values in call order reordered to the order of the Spec."""
        return [value for _, value in sorted(zip(self.operands, values, strict=True), key=lambda pair: pair[0])]
