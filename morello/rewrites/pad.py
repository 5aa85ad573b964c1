"""pad: a convolution with padding gets an image that has the zeros around it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Self

import attrs

from morello.ir.ops.conv import Conv, GroupedConv
from morello.ir.ops.pad import Pad
from morello.ir.spec import LogicalSpec
from morello.kernels.machine import Machine
from morello.kernels.target import Target
from morello.rewrites.base import pending_dims, wrong_operation
from morello.rewrites.pipeline import BufferedPipelineRewrite, NewTensor, PipelinePlan, Stage, places


@attrs.frozen(cache_hash=True)
class PadStep(BufferedPipelineRewrite):
    """`pad to L1 as row_major`: the image and zeros around it go to a new tensor, which a convolution without
    padding reads. Only then can rows, columns and filters be tiled."""

    keyword: ClassVar[str] = "pad"

    @classmethod
    def steps(cls, logical: LogicalSpec, target: Target) -> Iterator[Self]:
        op = logical.op
        if isinstance(op, (Conv, GroupedConv)) and any(op.pads) and pending_dims(op, target) is None:
            rank = len(logical.op.operands(len(logical.shape))[0].dims)
            for level, layout, vector in places(target, logical.states[0].dtype, rank):
                if not target.level(level).is_register:
                    yield cls(level, layout, vector)

    def plans(self, logical: LogicalSpec, target: Machine) -> Iterator[PipelinePlan]:
        op = logical.op
        if not isinstance(op, (Conv, GroupedConv)) or not any(op.pads):
            raise wrong_operation(self, "convolutions with padding", op)
        image, plain = logical.states[0], op.unpadded()
        whole = plain.operands(len(logical.shape))[0].shape(logical.shape)
        others = tuple(range(1, len(logical.states)))
        stages = [Stage(Pad(op.pads), whole, (0, 3)), Stage(plain, logical.shape, (3, *others))]
        yield PipelinePlan(stages, [NewTensor("padded", whole, image.dtype)])
