"""pad: a convolution with padding gets an image that has the zeros around it, alone and in a graph."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import ClassVar, Self

import attrs

from morello.ir.layout import Dynamic, Layout
from morello.ir.ops.base import Operation
from morello.ir.ops.binary import Binary
from morello.ir.ops.compose import Compose
from morello.ir.ops.conv import Conv, Conv3d, Convolution, GroupedConv
from morello.ir.ops.pad import Pad
from morello.ir.ops.unary import Unary
from morello.ir.spec import LogicalSpec
from morello.kernels.machine import Machine
from morello.kernels.target import Target
from morello.rewrites.base import Example, pending_dims
from morello.rewrites.pipeline import BufferedPipelineRewrite, NewTensor, PipelinePlan, Stage, TensorPlace, places

#: The order of an image of groups whose channels lie side by side, as depthwise kernels read it.
_CHANNELS_LAST = Layout(tuple(map(Dynamic, (0, 3, 4, 1, 2))))


@attrs.frozen(cache_hash=True)
class PadStep(BufferedPipelineRewrite[Convolution | Compose]):
    """`pad to L1 as row_major`: the image and its padding go to a new tensor; the convolution becomes unpadded.

    Rows, columns and filters can only be tiled after that. In a Compose, functions of each value may follow it.
    """

    keyword: ClassVar[str] = "pad"
    order: ClassVar[int] = 160
    example: ClassVar[Example] = Example(Conv(padding=(1, 1, 1, 1)), (1, 2, 2, 3, 3, 3, 3))
    subject: ClassVar[str] = "convolutions with padding"

    @classmethod
    def accepts(cls, logical: LogicalSpec) -> bool:
        return _unpadded(logical.op) is not None

    @classmethod
    def blocks_until(cls, op: Operation) -> tuple[int, ...] | None:
        # Images of a Conv3d share filters alone; other tiles are those without padding.
        if isinstance(op, Conv3d):
            return (0,) if any(op.pads) else None
        return () if isinstance(op, Compose) and _unpadded(op) else None

    @classmethod
    def steps(cls, logical: LogicalSpec, target: Target) -> Iterator[Self]:
        if cls.blocks_until(logical.op) is not None or pending_dims(logical.op, target) is None:
            yield from super().steps(logical, target)

    @classmethod
    def places(cls, logical: LogicalSpec, target: Machine) -> Iterator[TensorPlace]:
        found = _unpadded(logical.op)
        assert found is not None
        plain, image, _ = found
        made = places(target, logical.states[image].dtype, len(logical.declared[image].dims))
        yield from (place for place in made if not target.level(place[0]).is_register)
        if isinstance(plain.stages[-1].op if isinstance(plain, Compose) else plain, GroupedConv):
            levels = (level.name for level in target.operand_levels if not level.is_register)
            yield from ((level, _CHANNELS_LAST, None) for level in levels)

    def pipelines(self, op: Convolution | Compose, logical: LogicalSpec, target: Machine) -> Iterator[PipelinePlan]:
        found = _unpadded(op)
        assert found is not None
        plain, image, pads = found
        whole = plain.operands(len(logical.shape))[image].shape(logical.shape)
        new = len(logical.states)
        operands = tuple(new if at == image else at for at in range(new))
        stages = [Stage(Pad(pads), whole, (image, new)), Stage(plain, logical.shape, operands)]
        yield PipelinePlan(stages, [NewTensor("padded", whole, logical.states[image].dtype)])


@cache
def _unpadded(op: Operation) -> tuple[Operation, int, tuple[int, ...]] | None:
    """Return the operation on an image that includes its padding, the number of the image, and the padding.

    None for operations without padding, and graphs in which the image is not that of one convolution alone.
    """
    if isinstance(op, Convolution):
        return (op.unpadded(), 0, op.pads) if any(op.pads) else None
    if not isinstance(op, Compose) or op.outputs:
        return None
    *stages, last = op.stages
    if not isinstance(last.op, Convolution) or not any(last.op.pads):
        return None
    image = last.inputs[0]
    users = [entry for stage in op.stages for entry in stage.inputs]
    if image < 0 or users.count(image) > 1 or not all(isinstance(one.op, (Unary, Binary)) for one in stages):
        return None
    made = Compose((*stages, attrs.evolve(last, op=last.op.unpadded())))
    return (made, image, last.op.pads) if made.wiring.origins == op.wiring.origins else None
