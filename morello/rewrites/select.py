"""select: a microkernel implements the whole Spec (paper §2)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Self

import attrs

from morello.errors import Inapplicable
from morello.ir.impl import KernelCall
from morello.ir.spec import LogicalSpec
from morello.rewrites.base import Case, Rewrite, Word, argument, masked, require, select_cells

if TYPE_CHECKING:
    from morello.plugins.target import Target


@attrs.frozen(cache_hash=True)
class Select(Rewrite):
    """`select BroadcastVecMultAdd`: this microkernel does it."""

    keyword: ClassVar[str] = "select"
    kernel: str = argument(Word)

    @classmethod
    def steps(cls, logical: LogicalSpec, target: Target) -> Iterator[Self]:
        yield from (cls(kernel.name) for kernel in target.kernels if kernel.matches(logical))

    def cases(self, logical: LogicalSpec, target: Target) -> Iterator[Case]:
        kernel = target.kernels_by_name.get(self.kernel)
        if kernel is None:
            known = ", ".join(one.name for one in target.kernels if one.op == logical.op) or "none"
            raise Inapplicable(f"{target.name} has no microkernel {self.kernel!r}", f"for {logical.op} it has {known}")
        mask = require(
            kernel.accepts(logical),
            f"{self.kernel} does not implement this {logical.op}",
            f"it takes {describe(kernel)}",
        )
        cells = masked(None, mask)
        needs = tuple(kernel.registers.get(level.name, 0) * level.unit for level in target.levels)
        cost = kernel.cost(select_cells(logical, cells), target)
        yield Case(cells, KernelCall(self, cost, needs, (), kernel=self.kernel))


def describe(kernel: object) -> str:
    """A microkernel's pattern in words, for messages."""
    from morello.plugins.microkernel import Microkernel, Multiple

    assert isinstance(kernel, Microkernel)
    operands = []
    for pattern in kernel.operands:
        words = ["/".join(pattern.dtypes), "/".join(pattern.levels), "" if pattern.layout == "any" else pattern.layout]
        words += ["contiguous" if pattern.contiguous else "", "/".join(f"v{size}" for size in pattern.vectors)]
        operands.append(f"({' '.join(filter(None, words))})")
    sizes = ["any" if s is None else f"{s.of}·i" if isinstance(s, Multiple) else str(s) for s in kernel.shape or ()]
    where = f" of {'×'.join(sizes)}" if sizes else ""
    return f"{kernel.op}{where} on {', '.join(operands)}"
