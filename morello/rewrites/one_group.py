"""one_group: a grouped convolution of one group is a convolution."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import attrs

from morello.ir.ops.base import Operation
from morello.ir.ops.conv import Conv, GroupedConv
from morello.ir.spec import LogicalSpec
from morello.kernels.machine import Machine
from morello.rewrites.base import Example, masked, require, select_cells
from morello.rewrites.pipeline import PipelinePlan, PipelineRewrite, Stage

B, G = range(2)
#: The dimensions of the operands without that of groups.
_IMAGE, _FILTERS = (0, 2, 3, 4), (1, 2, 3, 4)


@attrs.frozen(cache_hash=True)
class OneGroup(PipelineRewrite[GroupedConv]):
    """`one_group`: a GroupedConv of one group as the Conv of its channels and filters."""

    keyword: ClassVar[str] = "one_group"
    order: ClassVar[int] = 170
    example: ClassVar[Example] = Example(GroupedConv(), (1, 1, 2, 2, 3, 3, 1, 2))
    takes: ClassVar[type[Operation]] = GroupedConv

    @classmethod
    def blocks_until(cls, op: Operation) -> tuple[int, ...] | None:
        # Images and groups share no data.
        return (B, G) if isinstance(op, GroupedConv) else None

    def pipelines(self, op: GroupedConv, logical: LogicalSpec, target: Machine) -> Iterator[PipelinePlan]:
        cells = masked(None, require(logical.shape[G] == 1, "there are several groups", "tile them by 1"))
        kept = select_cells(logical, cells)
        conv = Conv(**attrs.asdict(op, recurse=False))
        shape = (kept.shape[0], *kept.shape[G + 1 :])
        yield PipelinePlan([Stage(conv, shape, (0, 1, 2), (_IMAGE, _FILTERS, _IMAGE))], cells=cells)
