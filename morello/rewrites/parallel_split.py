"""parallel_split: a reduction in parts, whose results go to a new tensor, so that threads can share it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Self

import attrs

from morello.errors import Inapplicable
from morello.ir.numbers import CellIndices, Mask, anywhere, product
from morello.ir.ops.base import Operand
from morello.ir.ops.common import Accumulating
from morello.ir.ops.matmul import B, Matmul
from morello.ir.ops.max import Extremum
from morello.ir.ops.reduce import Prod, Sum
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import Block, DimMap
from morello.kernels.machine import Machine
from morello.rewrites.base import Example, argument, largest, masked, require, select_cells
from morello.rewrites.pipeline import BufferedPipelineRewrite, NewTensor, PipelinePlan, Stage

#: Search splits reductions from this length on, as shorter ones take less time than waking threads, with at most so
#: many results for each thread: threads share the tiles of more.
_LONG, _RESULTS = 1 << 16, 32
#: The parts of each thread that search tries, at least: threads that wait for the system leave some to others.
_PARTS = 4


@attrs.frozen(cache_hash=True)
class ParallelSplit(BufferedPipelineRewrite[Accumulating]):
    """`parallel_split to GL 4096`: the results of parts of 4096 go to a new tensor, and are then reduced themselves.

    The parts take the place of a dimension of size 1, the batch of a product, which threads can then share.
    """

    keyword: ClassVar[str] = "parallel_split"
    order: ClassVar[int] = 95
    example: ClassVar[Example] = Example(Sum(dim=1), (1, 1 << 16))
    subject: ClassVar[str] = "products, and Sum, Prod, Max and Min along one dimension"
    size: int = argument(int, default=4096)

    @classmethod
    def accepts(cls, logical: LogicalSpec) -> bool:
        op = logical.op
        return isinstance(op, (Matmul, Sum, Prod, Extremum)) and len(op.reductions(len(logical.shape))) == 1

    @classmethod
    def steps(cls, logical: LogicalSpec, target: Machine) -> Iterator[Self]:
        if target.weights.threads == 1 or logical.serial or not cls.accepts(logical):
            return
        [axis] = logical.op.reductions(len(logical.shape))
        longest = largest(logical.shape[axis])
        # The rest of other lengths is cut off by `split`, whose sizes are powers of two, too.
        sizes = [1 << bit for bit in range(1, longest.bit_length()) if longest >= _LONG]
        # Threads cannot share registers, so that only memory is of use.
        levels = [level.name for level in target.levels if level.kind == "memory"]
        steps = (cls(level, size=size) for level in levels for size in sizes)
        yield from (step for step in steps if anywhere(step.worth_trying(logical, target)))

    def worth_trying(self, logical: LogicalSpec, target: Machine) -> Mask:
        [axis] = logical.op.reductions(len(logical.shape))
        length, threads = logical.shape[axis], target.weights.threads
        results = product(size for other, size in enumerate(logical.shape) if other != axis)
        least = self.size * _PARTS * threads
        return (results <= _RESULTS * threads) & (length >= _LONG) & (least <= length) & (length < 2 * least)

    def pipelines(self, op: Accumulating, logical: LogicalSpec, target: Machine) -> Iterator[PipelinePlan]:
        [axis] = op.reductions(len(logical.shape))
        length, multiple = logical.shape[axis], op.tile_multiple(axis)
        if self.size < 2 or self.size % multiple:
            raise Inapplicable(f"a part of {op} is no multiple of {max(2, multiple)}: {self.size}", "for example 4096")
        dtype = logical.states[-1].dtype
        if dtype.is_bits:
            raise Inapplicable(f"`{self.keyword}` would round results of parts to {dtype}", "use convert first")
        left = require(
            (length % self.size == 0) & (length > self.size),
            f"{logical.dims[axis]} of {op} is not several parts of {self.size} values",
            "choose a smaller size that divides it, or cut off the rest with split",
        )
        applies = False
        for dim in (B,) if isinstance(op, Matmul) else range(len(logical.shape)):
            mask = left & (logical.shape[dim] == 1)
            cells = masked(None, mask)
            if mask is not False and (cells is None or len(cells)):
                applies, left = True, left & (logical.shape[dim] != 1)
                yield self._plan(op, dim, axis, select_cells(logical, cells), cells)
        if not applies:
            raise Inapplicable(f"{op} has no dimension of size 1 for its parts", "tile one by 1, or write 1×n for n")

    def _plan(self, op: Accumulating, dim: int, axis: int, logical: LogicalSpec, cells: CellIndices) -> PipelinePlan:
        """Return the pipeline whose parts are along `dim`, of size 1 so far."""
        shape = list(logical.shape)
        shape[dim], shape[axis] = shape[axis] // self.size, self.size
        first = attrs.evolve(op, accumulate=False)
        last = Sum(dim=dim, accumulate=op.accumulate) if isinstance(op, Matmul) else attrs.evolve(op, dim=dim)
        *inputs, out = first.operands(len(shape))
        maps = (_in_parts(one, dim, axis, self.size) for one in inputs)
        count, results = len(inputs), NewTensor("parts", out.shape(shape), logical.states[-1].dtype)
        stages = [
            Stage(first, tuple(shape), (*range(count), count + 1), (*maps, tuple(range(len(out.dims))))),
            Stage(last, results.shape, (count + 1, count)),
        ]
        return PipelinePlan(stages, [results], cells)


def _in_parts(operand: Operand, dim: int, axis: int, size: int) -> DimMap:
    """Return the dimensions of an operand with the parts of `axis` along `dim`."""
    own = [terms[0][0] for terms in operand.dims]
    return tuple(Block(own.index(axis), size) if each == dim else at for at, each in enumerate(own))
