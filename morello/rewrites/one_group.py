"""one_group: a grouped convolution of one group is a convolution."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Self

import attrs

from morello.ir.ops.base import Operation
from morello.ir.ops.conv import Conv, GroupedConv
from morello.ir.spec import LogicalSpec
from morello.kernels.machine import Machine
from morello.rewrites.base import masked, require, select_cells, wrong_operation
from morello.rewrites.pipeline import PipelinePlan, PipelineRewrite, Stage

B, G = range(2)
#: The dimensions of the operands without that of groups.
_IMAGE, _FILTERS = (0, 2, 3, 4), (1, 2, 3, 4)


@attrs.frozen(cache_hash=True)
class OneGroup(PipelineRewrite):
    """`one_group` sees a GroupedConv of one group as the Conv of its channels and filters."""

    keyword: ClassVar[str] = "one_group"

    @classmethod
    def steps(cls, logical: LogicalSpec, target: Machine) -> Iterator[Self]:
        if isinstance(logical.op, GroupedConv):
            yield cls()

    @classmethod
    def blocks_until(cls, op: Operation) -> tuple[int, ...] | None:
        # Images and groups share no data.
        return (B, G) if isinstance(op, GroupedConv) else None

    def plans(self, logical: LogicalSpec, target: Machine) -> Iterator[PipelinePlan]:
        op = logical.op
        if not isinstance(op, GroupedConv):
            raise wrong_operation(self, "GroupedConv", op)
        cells = masked(None, require(logical.shape[G] == 1, "there are several groups", "tile them by 1"))
        kept = select_cells(logical, cells)
        dim_maps = (_IMAGE, _FILTERS, _IMAGE)
        conv = Conv(**attrs.asdict(op, recurse=False))
        shape = (kept.shape[0], *kept.shape[G + 1 :])
        yield PipelinePlan([Stage(conv, shape, (0, 1, 2), dim_maps)], cells=cells)
