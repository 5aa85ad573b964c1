"""one_group: a grouped convolution of one group is a convolution, alone and in a graph."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, ClassVar

import attrs

from morello.ir.ops.base import Operation
from morello.ir.ops.binary import Binary
from morello.ir.ops.compose import Compose
from morello.ir.ops.conv import Conv, GroupedConv
from morello.ir.ops.unary import Unary
from morello.ir.ops.wiring import ComposeStage
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import DimMap
from morello.kernels.machine import Machine
from morello.rewrites.base import Example, masked, require, select_cells
from morello.rewrites.pipeline import PipelinePlan, PipelineRewrite, Stage

B, G = range(2)
#: The dimensions of the operands without that of groups.
_IMAGE, _FILTERS = (0, 2, 3, 4), (1, 2, 3, 4)


@attrs.frozen(cache_hash=True)
class OneGroup(PipelineRewrite[GroupedConv | Compose]):
    """`one_group`: a GroupedConv of one group as the Conv of its channels and filters.

    In a Compose, functions of each value may follow it.
    """

    keyword: ClassVar[str] = "one_group"
    order: ClassVar[int] = 170
    example: ClassVar[Example] = Example(GroupedConv(), (1, 1, 2, 2, 3, 3, 1, 2))
    subject: ClassVar[str] = "GroupedConv"

    @classmethod
    def accepts(cls, logical: LogicalSpec) -> bool:
        return _of_a_group(logical.op) is not None

    @classmethod
    def blocks_until(cls, op: Operation) -> tuple[int, ...] | None:
        # Images and groups share no data.
        return (B, G) if _of_a_group(op) else None

    def pipelines(self, op: GroupedConv | Compose, logical: LogicalSpec, target: Machine) -> Iterator[PipelinePlan]:
        found = _of_a_group(op)
        assert found is not None
        one, maps = found
        cells = masked(None, require(logical.shape[G] == 1, "there are several groups", "tile them by 1"))
        kept = select_cells(logical, cells)
        shape = (kept.shape[0], *kept.shape[G + 1 :])
        yield PipelinePlan([Stage(one, shape, tuple(range(len(maps))), maps)], cells=cells)


@cache
def _of_a_group(op: Operation) -> tuple[Operation, tuple[DimMap, ...]] | None:
    """Return the operation on one group, and the dimensions of its operands; None for others.

    In both, groups are the second iteration dimension, which the operation on one group lacks.
    """
    if isinstance(op, GroupedConv):
        return Conv(**attrs.asdict(op, recurse=False)), (_IMAGE, _FILTERS, _IMAGE)
    if not isinstance(op, Compose) or op.outputs:
        return None
    *stages, conv = op.stages
    if not isinstance(conv.op, GroupedConv) or not all(isinstance(one.op, (Unary, Binary)) for one in stages):
        return None
    filters, users = conv.inputs[1], [one for one in op.stages if conv.inputs[1] in one.inputs]
    if filters < 0 or len(users) > 1 or conv.inputs[0] == filters:
        return None
    inner = Conv(**attrs.asdict(conv.op, recurse=False))
    made = Compose((*map(_without_groups, stages), ComposeStage(inner, inner.rank, conv.inputs)))
    maps = [_IMAGE] * len(made.operands(made.rank))
    maps[filters] = _FILTERS
    return made, tuple(maps)


def _without_groups(stage: ComposeStage) -> ComposeStage:
    """Return a function of each value without the dimension of groups."""
    repeated: dict[str, Any] = {}
    if isinstance(stage.op, Binary):
        for name in ("over", "over_lhs"):
            repeated[name] = tuple(dim - (dim > G) for dim in getattr(stage.op, name) if dim != G)
    return ComposeStage(attrs.evolve(stage.op, **repeated), stage.rank - 1, stage.inputs)
