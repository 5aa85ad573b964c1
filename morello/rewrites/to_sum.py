"""to_sum: a Mean is a Sum whose result is scaled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Self

import attrs

from morello.ir.dtypes import F32
from morello.ir.numbers import CellIndices
from morello.ir.ops.reduce import Mean, Sum
from morello.ir.ops.unary import Scale
from morello.ir.spec import LogicalSpec
from morello.kernels.machine import Machine
from morello.rewrites.base import Case, by_group, select_cells, within, wrong_operation
from morello.rewrites.staged import Job, NewTensor, Placed, places


@attrs.frozen(cache_hash=True)
class ToSum(Placed):
    """`to_sum to L1`: sums go to a new tensor, and from there to the output, divided by how many were added."""

    keyword: ClassVar[str] = "to_sum"

    @classmethod
    def steps(cls, logical: LogicalSpec, target: Machine) -> Iterator[Self]:
        if isinstance(logical.op, Mean):
            for level, layout, vector in places(target, F32, len(logical.shape)):
                if layout == "row_major":
                    yield cls(level, layout, vector)

    def cases(self, logical: LogicalSpec, target: Machine) -> Iterator[Case]:
        op = logical.op
        if not isinstance(op, Mean):
            raise wrong_operation(self, "Mean", op)
        axis = op.axis(len(logical.shape))

        def of_length(group: tuple[int, ...], cells: CellIndices) -> Iterator[Case]:
            batch = select_cells(logical, cells)
            sums = tuple(1 if dim == axis else size for dim, size in enumerate(batch.shape))
            scale = Scale(by=1 / group[0])

            def jobs(kept: LogicalSpec) -> list[Job]:
                out = tuple(1 if dim == axis else size for dim, size in enumerate(kept.shape))
                return [Job(Sum(dim=op.dim), kept.shape, (0, 2)), Job(scale, out, (2, 1))]

            for case in self.placed(batch, [NewTensor("sum", sums, F32)], jobs, target):
                yield Case(within(cells, case.cells), case.expansion)

        # How many values are added up is part of what Scale does, not a number of its Spec.
        yield from by_group([logical.shape[axis]], of_length)
