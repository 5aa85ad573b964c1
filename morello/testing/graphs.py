"""Random Composes, chains and graphs alike, for tests of rewrites and targets."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import attrs

from morello.frontend.infer import iteration_shape
from morello.ir.dtypes import BOOL, F32, I32, DType
from morello.ir.ops import BY_NAME
from morello.ir.ops.base import Operation
from morello.ir.ops.compose import Compose, arranged
from morello.ir.ops.quantized import Quantized
from morello.ir.ops.views import Concat, Slice, Transpose
from morello.ir.ops.wiring import ComposeStage
from morello.testing.generate import random_parameters

Shape = tuple[int, ...]
Types = tuple[DType, ...]

#: The number of dimensions that most operations without a fixed one accept.
_SOME_RANK = 4


def _composable(op: Operation) -> bool:
    """Return True for an operation with inputs and just one output, which it does not read."""
    *read, output = op.operands(op.rank or _SOME_RANK)
    return bool(read) and not any(one.writes for one in read) and not output.reads


#: The operations that any place of a Compose can have.
COMPOSABLE = tuple(op for op in BY_NAME.values() if _composable(op))
#: These operations by the module that defines them, so that each kind is drawn as often.
_KINDS = [[*ops] for _, ops in itertools.groupby(COMPOSABLE, key=lambda op: type(op).__module__)]
#: Those of a fixed rank by the dimensions of a tensor that they read.
_OF_A_RANK = {
    dims: [op for op in COMPOSABLE if op.rank and any(len(one.dims) == dims for one in op.operands(op.rank)[:-1])]
    for dims in range(1, 6)
}


def random_compose(
    rng: random.Random, stages: int = 4, largest: int = 5, numbers: Sequence[DType] = (F32,)
) -> tuple[Compose, Shape, Types]:
    """Return a Compose of two to `stages` operations, a shape for it, and data types of its operands.

    It is made from the inputs on: each operation takes tensors that are there, or new ones. Operands of numbers are
    f32, or of types among `numbers` where operations take these.
    """
    while True:
        drawn = _Drawn(rng, largest, rank=rng.choice([1, 2, 3, 3, 3, 4, 5]))
        count = rng.randint(2, stages)
        while len(drawn.stages) < count:
            drawn.add()
        if (found := drawn.compose(numbers)) is not None:
            return found


@attrs.frozen
class _Tensor:
    shape: Shape
    dtype: DType


@attrs.define
class _Drawn:
    """Operations in the order in which they run, their iteration shapes, and all tensors, by entry."""

    rng: random.Random
    largest: int
    rank: int
    stages: list[ComposeStage] = attrs.field(factory=list)
    shapes: list[Shape] = attrs.field(factory=list)
    tensors: dict[int, _Tensor] = attrs.field(factory=dict)

    def add(self) -> None:
        """Add an operation, most often on what the last one made, if the draw fits."""
        last = ~(len(self.stages) - 1)
        source = self.tensors[last] if self.stages and self.rng.random() < 0.8 else None
        given = source.shape if source else tuple(self._size() for _ in range(self.rank))
        op = self._configured(self._kind(source, len(given)), given)
        place = self.rng.randrange(len(op.operands(op.rank or _SOME_RANK)) - 1)
        shape = self._shape(op, place, given, linked=source is not None)
        if shape is None or any(size < 1 for one in op.operands(len(shape)) for size in one.shape(shape)):
            return
        operands = op.operands(len(shape))
        types = _types(op, shape, place, source and source.dtype)
        if types is None:
            return
        *read, output = (_Tensor(one.shape(shape), dtype) for one, dtype in zip(operands, types, strict=True))
        entries = (last if source and at == place else self._like(one) for at, one in enumerate(read))
        self.stages.append(ComposeStage(op, len(shape), tuple(entries)))
        self.shapes.append(shape)
        self.tensors[~(len(self.stages) - 1)] = output

    def _kind(self, source: _Tensor | None, rank: int) -> Operation:
        """Return an operation without parameters, one that may read the source."""
        ranked = _OF_A_RANK.get(rank)
        ops = ranked if ranked and self.rng.random() < 0.3 else self.rng.choice(_KINDS)
        if source and source.dtype.is_bool:
            ops = [op for op in ops if op.takes_bool] or [op for op in COMPOSABLE if op.takes_bool]
        return self.rng.choice(ops)

    def _configured(self, op: Operation, shape: Shape) -> Operation:
        """Return the operation with parameters that may fit a source of this shape."""
        rng = self.rng
        if isinstance(op, Transpose):
            return Transpose(order=tuple(rng.sample(range(len(shape)), len(shape))))
        if isinstance(op, Concat):
            dim = rng.randrange(len(shape))
            sizes = [shape[dim], *(self._size() for _ in range(rng.choice([0, 1, 1, 2])))]
            return Concat(dim=dim, sizes=tuple(rng.sample(sizes, len(sizes)))).normal(len(shape))
        if isinstance(op, Slice):
            start = tuple(rng.randrange(size) for size in shape)
            step = tuple(rng.randint(1, 2) for _ in shape)
            most = (-((at - size) // each) for size, at, each in zip(shape, start, step, strict=True))
            made = tuple(rng.randint(1, count) for count in most)
            return Slice(start=start, step=step).configured({"of": shape}, made).normal(len(shape))
        if isinstance(op, Quantized):
            return attrs.evolve(op, bits=rng.choice([4, 8]), group=rng.choice([0, 2, 4]))
        return random_parameters(rng, op).normal(op.rank or len(shape))

    def _shape(self, op: Operation, place: int, given: Shape, *, linked: bool) -> Shape | None:
        """Return iteration sizes, at which a linked operand has the given shape; None if the draw does not fit."""
        rank = op.rank or _rank(op, place, len(given))
        if not linked and not isinstance(op, Concat | Slice):
            return tuple(self._size() for _ in range(rank))
        one = op.operands(rank)[place]
        if len(one.dims) != len(given):
            return None
        sizes = [0] * rank
        for terms, cut, size in zip(one.dims, one.shrink or (0,) * len(given), given, strict=True):
            left = size + cut - 1
            for dim, factor in terms[1:]:
                sizes[dim] = sizes[dim] or self.rng.randint(1, 3)
                left -= factor * (sizes[dim] - 1)
            if not terms and left:
                return None
            for dim, factor in terms[:1]:
                if left < 0 or left % factor or sizes[dim] not in (0, left // factor + 1):
                    return None
                sizes[dim] = left // factor + 1
        if isinstance(op, Concat):
            sizes[op.axis(rank)] = sum(op.sizes)
        return tuple(size or self._size() for size in sizes)

    def _size(self) -> int:
        return self.rng.randint(1, self.largest)

    def _like(self, tensor: _Tensor) -> int:
        """Return a tensor of this shape and type: mostly one that is there."""
        known = [entry for entry, other in self.tensors.items() if other == tensor]
        if known and self.rng.random() < 0.6:
            return self.rng.choice(known)
        entry = sum(entry >= 0 for entry in self.tensors)
        self.tensors[entry] = tensor
        return entry

    def compose(self, numbers: Sequence[DType]) -> tuple[Compose, Shape, Types] | None:
        """Return a Compose of all that the last operation needs; None if that is not two operations."""
        last = len(self.stages) - 1
        needed = {last}
        for number in range(last, -1, -1):
            if number in needed:
                needed.update(~entry for entry in self.stages[number].inputs if entry < 0)
        order = sorted(needed, reverse=True)
        if len(order) < 2:
            return None
        # Sometimes an intermediate is an output, too.
        also = [number for number in range(1, len(order)) if self.rng.random() < 0.1]
        found = arranged(_renumbered([self.stages[number] for number in order], order), also)
        own = [self.shapes[order[number]] for number in found.order]
        shape = tuple(own[stage][dim] for stage, dim in found.compose.wiring.origins)
        if (
            iteration_shape(
                found.compose, found.compose.rank, [one.shape(shape) for one in found.compose.operands(len(shape))]
            )
            is None
        ):
            return None
        outputs = [~order[number] for number in (*(also[at] for at in found.outputs), 0)]
        types = tuple(self.tensors[entry].dtype for entry in (*found.inputs, *outputs))
        among = self.rng.choice([(F32,), [self.rng.choice(numbers)], numbers])
        varied = tuple(self.rng.choice(among) if one == F32 else one for one in types)
        accepted = (each for each in (varied, types) if found.compose.refusal(shape, each) is None)
        return next(((found.compose, shape, each) for each in accepted), None)


def _rank(op: Operation, place: int, dims: int) -> int:
    """Return the rank at which this operand has `dims` dimensions, if it is that or the next one."""
    return dims + (len(op.operands(dims)[place].dims) != dims)


def _types(op: Operation, shape: Shape, place: int, dtype: DType | None) -> Types | None:
    """Return data types that an operation takes, with this one at a place if given; None if there are none."""
    count = len(op.operands(len(shape)))
    offered = [op.only_types] if op.only_types else itertools.product((F32, BOOL, I32), repeat=count)
    return next((one for one in offered if dtype in (None, one[place]) and op.refusal(shape, one) is None), None)


def _renumbered(stages: Sequence[ComposeStage], order: Sequence[int]) -> list[ComposeStage]:
    local = {~old: ~new for new, old in enumerate(order)}
    return [attrs.evolve(one, inputs=tuple(local.get(entry, entry) for entry in one.inputs)) for one in stages]
