"""pad: a convolution with padding gets an image that has the zeros around it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Self

import attrs

from morello.ir.ops.base import Operation
from morello.ir.ops.conv import Conv, Conv3d, Convolution
from morello.ir.ops.pad import Pad
from morello.ir.spec import LogicalSpec
from morello.kernels.machine import Machine
from morello.kernels.target import Target
from morello.rewrites.base import Example, pending_dims
from morello.rewrites.pipeline import BufferedPipelineRewrite, NewTensor, PipelinePlan, Stage, TensorPlace, places


@attrs.frozen(cache_hash=True)
class PadStep(BufferedPipelineRewrite[Convolution]):
    """`pad to L1 as row_major`: the image and its padding go to a new tensor; the convolution becomes unpadded.

    Rows, columns and filters can only be tiled after that.
    """

    keyword: ClassVar[str] = "pad"
    order: ClassVar[int] = 160
    example: ClassVar[Example] = Example(Conv(padding=(1, 1, 1, 1)), (1, 2, 2, 3, 3, 3, 3))
    subject: ClassVar[str] = "convolutions with padding"

    @classmethod
    def accepts(cls, logical: LogicalSpec) -> bool:
        return isinstance(logical.op, Convolution) and any(logical.op.pads)

    @classmethod
    def blocks_until(cls, op: Operation) -> tuple[int, ...] | None:
        # Images of a Conv3d share filters alone; other tiles are those without padding.
        return (0,) if isinstance(op, Conv3d) and any(op.pads) else None

    @classmethod
    def steps(cls, logical: LogicalSpec, target: Target) -> Iterator[Self]:
        if cls.blocks_until(logical.op) or pending_dims(logical.op, target) is None:
            yield from super().steps(logical, target)

    @classmethod
    def places(cls, logical: LogicalSpec, target: Machine) -> Iterator[TensorPlace]:
        found = places(target, logical.states[0].dtype, len(logical.declared[0].dims))
        return (place for place in found if not target.level(place[0]).is_register)

    def pipelines(self, op: Convolution, logical: LogicalSpec, target: Machine) -> Iterator[PipelinePlan]:
        image, plain = logical.states[0], op.unpadded()
        whole = plain.operands(len(logical.shape))[0].shape(logical.shape)
        others = range(1, len(logical.states))
        stages = [Stage(Pad(op.pads), whole, (0, 3)), Stage(plain, logical.shape, (3, *others))]
        yield PipelinePlan(stages, [NewTensor("padded", whole, image.dtype)])
