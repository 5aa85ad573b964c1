"""Softmax statistics of long rows in parts, which threads compute side by side."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Self

import attrs

from morello.errors import Inapplicable
from morello.ir.dtypes import widest
from morello.ir.ops.base import Operation
from morello.ir.ops.softmax_parts import SoftmaxDenominatorAndMax, SoftmaxDenominatorAndMaxFromParts
from morello.ir.ops.softmax_per_part import SoftmaxDenominatorAndMaxPerPart
from morello.ir.spec import LogicalSpec
from morello.kernels.machine import Machine
from morello.rewrites.base import Example, argument, largest, masked, require, select_cells
from morello.rewrites.pipeline import BufferedPipelineRewrite, NewTensor, PipelinePlan, PipelineRewrite, Stage

#: Search splits rows from this length on, into parts of at least `_SHORTEST` values.
_LONG, _SHORTEST = 4096, 64


@attrs.frozen(cache_hash=True)
class ParallelSplitSoftmax(BufferedPipelineRewrite[SoftmaxDenominatorAndMax]):
    """`parallel_split_softmax 1024 to GL`: maxima and denominators of parts of 1024 values go to new tensors."""

    keyword: ClassVar[str] = "parallel_split_softmax"
    order: ClassVar[int] = 90
    example: ClassVar[Example] = Example(SoftmaxDenominatorAndMax(), (4, 8))
    takes: ClassVar[type[Operation]] = SoftmaxDenominatorAndMax
    size: int = argument(int, default=1024)

    @classmethod
    def accepts(cls, logical: LogicalSpec) -> bool:
        return isinstance(logical.op, SoftmaxDenominatorAndMax) and not logical.op.accumulate

    @classmethod
    def steps(cls, logical: LogicalSpec, target: Machine) -> Iterator[Self]:
        op = logical.op
        if not isinstance(op, SoftmaxDenominatorAndMax) or op.accumulate or logical.serial or op.dim is not None:
            return
        length = largest(logical.shape[-1])
        # Threads cannot share registers, so that only memory is of use.
        levels = [level.name for level in target.levels if level.kind == "memory"]
        sizes = [1 << bit for bit in range(length.bit_length()) if _SHORTEST <= 1 << bit < length]
        yield from (cls(level, size=size) for level in levels for size in (sizes if length >= _LONG else ()))

    def pipelines(self, op: SoftmaxDenominatorAndMax, logical: LogicalSpec, target: Machine) -> Iterator[PipelinePlan]:
        if op.axis(len(logical.shape)) != len(logical.shape) - 1:
            raise Inapplicable(
                f"`{self.keyword}` is for rows along the last dimension, not along {op.dim}",
                "use another step, such as to_max_and_denominator",
            )
        if self.size < 1:
            raise Inapplicable(f"a part has at least 1 value, not {self.size}", "for example 1024")
        length = logical.shape[-1]
        fine = require(
            (length % self.size == 0) & (length > self.size),
            f"rows are not several parts of {self.size} values",
            "choose a smaller size that divides theirs",
        )
        cells = masked(None, fine)
        shape = select_cells(logical, cells).shape
        parts, dtype = (*shape[:-1], shape[-1] // self.size), widest(state.dtype for state in logical.states)
        stages = [
            Stage(SoftmaxDenominatorAndMaxPerPart(of=self.size), (*parts, self.size), (0, 3, 4)),
            Stage(SoftmaxDenominatorAndMaxFromParts(), parts, (3, 4, 1, 2)),
        ]
        yield PipelinePlan(stages, [NewTensor(name, parts, dtype) for name in ("part_max", "part_denom")], cells)


@attrs.frozen(cache_hash=True)
class OnePart(PipelineRewrite[SoftmaxDenominatorAndMaxPerPart]):
    """`one_part`: the statistics of the only part of each row are those of the row."""

    keyword: ClassVar[str] = "one_part"
    order: ClassVar[int] = 100
    example: ClassVar[Example] = Example(SoftmaxDenominatorAndMaxPerPart(of=4), (2, 1, 4))
    takes: ClassVar[type[Operation]] = SoftmaxDenominatorAndMaxPerPart

    def pipelines(
        self, op: SoftmaxDenominatorAndMaxPerPart, logical: LogicalSpec, target: Machine
    ) -> Iterator[PipelinePlan]:
        cells = masked(None, require(logical.shape[-2] == 1, "rows have several parts", "tile them by 1 part"))
        kept = select_cells(logical, cells)
        shape = (*kept.shape[:-2], kept.shape[-1])
        yield PipelinePlan([Stage(SoftmaxDenominatorAndMax(), shape, (0, 1, 2))], cells=cells)
