"""Random Composes, chains and graphs alike, for tests of rewrites and targets."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence

import attrs

from morello.ir.dtypes import F32
from morello.ir.ops.base import Operation
from morello.ir.ops.binary import Add, Maximum, Mul, Sub
from morello.ir.ops.broadcast import Broadcast
from morello.ir.ops.compose import Compose, arranged
from morello.ir.ops.conv import Conv
from morello.ir.ops.functions import Clip, Function, LeakyRelu
from morello.ir.ops.matmul import Matmul
from morello.ir.ops.max import Max, Min
from morello.ir.ops.move import Move
from morello.ir.ops.reduce import Mean, Sum
from morello.ir.ops.softmax import Softmax
from morello.ir.ops.unary import Relu, Scale, Shift
from morello.ir.ops.views import Concat, Slice, Transpose
from morello.ir.ops.wiring import ComposeStage

Shape = tuple[int, ...]


def random_compose(rng: random.Random, stages: int = 4, largest: int = 5) -> tuple[Compose, Shape]:
    """Return a Compose of two to `stages` operations on floats, and a shape for it.

    It is made from the inputs on: each operation takes tensors that are there, or new ones.
    """
    while True:
        drawn = _Drawn(rng, largest, images=rng.random() < 0.3)
        for _ in range(rng.randint(2, stages)):
            drawn.add()
        if (found := drawn.compose()) is not None:
            return found


@attrs.define
class _Drawn:
    """Operations in the order in which they run, and the shapes of all tensors, by entry."""

    rng: random.Random
    largest: int
    images: bool
    stages: list[ComposeStage] = attrs.field(factory=list)
    shapes: list[Shape] = attrs.field(factory=list)
    tensors: dict[int, Shape] = attrs.field(factory=dict)

    def add(self) -> None:
        """One more operation, most often on what the last one made."""
        number = len(self.stages)
        first = ~(number - 1) if number and self.rng.random() < 0.8 else self._any(lambda _: True)
        own = self.tensors[first]
        op, rank, entries, shape = self._conv(first) if self.images else self._operation(first, own)
        if op is None:
            return
        self.stages.append(ComposeStage(op, rank, tuple(entries)))
        self.shapes.append(shape)
        self.tensors[~number] = self.stages[-1].output.shape(shape)

    def _operation(self, first: int, shape: Shape) -> tuple[Operation, int, Iterable[int], Shape]:
        rank, rng = len(shape), self.rng
        kind = rng.choice(["matmul", "matmul", "unary", "binary", "over", "reduce", "broadcast", "view"])
        if kind == "matmul":
            b, m, k = shape
            n = self._size()
            return Matmul(), 4, (first, self._like((b, k, n))), (b, m, k, n)
        if kind == "binary":
            other = self._like(shape)
            pair = (first, other) if rng.random() < 0.5 else (other, first)
            return rng.choice([Add(), Mul(), Maximum()]), rank, pair, shape
        if kind == "over":
            over = tuple(dim for dim in range(rank) if rng.random() < 0.5)
            small = tuple(1 if dim in over else size for dim, size in enumerate(shape))
            pair = (first, self._like(small))
            if rng.random() < 0.3:
                return Sub(over_lhs=over), rank, pair[::-1], shape
            return rng.choice([Add(over=over), Sub(over=over)]), rank, pair, shape
        if kind == "reduce":
            dims = rng.sample(range(rank), rng.choice([1, 1, 1, 2]))
            return rng.choice([Mean, Sum, Max, Min])(dim=tuple(sorted(dims))).normal(rank), rank, (first,), shape
        if kind == "view":
            return self._view(first, shape)
        if kind == "broadcast" and 1 in shape:
            wide = list(shape)
            dim = rng.choice([dim for dim, size in enumerate(shape) if size == 1])
            wide[dim] = self._size()
            return Broadcast(dim=dim), rank, (first,), tuple(wide)
        softmax = Softmax(dim=rng.randrange(rank))
        functions = [
            Relu(),
            Scale(by=0.5),
            Shift(by=1.0),
            Clip(low=-0.5, high=1.5),
            Function("Sin"),
            LeakyRelu(by=0.25),
        ]
        return rng.choice([*functions, Move(), softmax]), rank, (first,), shape

    def _view(self, first: int, shape: Shape) -> tuple[Operation, int, Iterable[int], Shape]:
        rank, rng = len(shape), self.rng
        kind, dim = rng.choice(["transpose", "slice", "concat"]), rng.randrange(rank)
        if kind == "transpose":
            order = tuple(rng.sample(range(rank), rank))
            return Transpose(order=order), rank, (first,), tuple(shape[each] for each in order)
        if kind == "concat":
            sizes = shape[dim], self._size()
            pair = (first, self._like((*shape[:dim], sizes[1], *shape[dim + 1 :])))
            return Concat(dim=dim, sizes=sizes), rank, pair, (*shape[:dim], sum(sizes), *shape[dim + 1 :])
        start = tuple(rng.randrange(size) for size in shape)
        step = tuple(rng.randint(1, 2) for _ in shape)
        most = (-((at - size) // each) for size, at, each in zip(shape, start, step, strict=True))
        made = tuple(rng.randint(1, count) for count in most)
        op = Slice(start=start, step=step).configured({"of": shape}, made)
        return op, rank, (first,), made

    def _conv(self, first: int) -> tuple[Operation | None, int, Iterable[int], Shape]:
        shape, rng = self.tensors[first], self.rng
        if rng.random() < 0.3:
            return rng.choice([Relu(), Softmax(dim=1)]), 4, (first,), shape
        if rng.random() < 0.3:
            return Add(), 4, (first, self._like(shape)), shape
        stride, dilation = rng.choice([1, 1, 2]), rng.choice([1, 1, 2])
        padding = rng.choice([0, 0, 0, 1, (1, 0, 0, 1)])
        op = Conv(stride=stride, dilation=dilation, padding=padding)
        sizes = []
        for size, pads in zip(shape[2:], ((0, 2), (1, 3)), strict=True):
            padded = size + sum(op.pads[side] for side in pads)
            fits = [
                (1 + (padded - 1 - dilation * (window - 1)) // stride, window)
                for window in (1, 2, 3)
                if padded > dilation * (window - 1) and (padded - 1 - dilation * (window - 1)) % stride == 0
            ]
            if not fits:
                return None, 0, (), ()
            sizes.append(rng.choice(fits))
        (h, fh), (w, fw) = sizes
        filters = self._size()
        return op, 7, (first, self._like((filters, shape[1], fh, fw))), (shape[0], filters, shape[1], h, w, fh, fw)

    def _size(self) -> int:
        return self.rng.randint(1, self.largest)

    def _like(self, shape: Shape) -> int:
        """Return a tensor of this shape: mostly one that is there."""
        return self._any(lambda other: other == shape, shape)

    def _any(self, fits: Callable[[Shape], bool], shape: Shape | None = None) -> int:
        known = [entry for entry, other in self.tensors.items() if fits(other)]
        if known and self.rng.random() < 0.6:
            return self.rng.choice(known)
        entry = sum(entry >= 0 for entry in self.tensors)
        if shape is None:
            sizes = [self._size() + 4 * self.images for _ in range(2)]
            shape = (self.rng.randint(1, 2), *([self._size()] if self.images else []), *sizes)
        self.tensors[entry] = shape
        return entry

    def compose(self) -> tuple[Compose, Shape] | None:
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
        types = [F32] * len(found.compose.operands(len(shape)))
        return None if found.compose.refusal(shape, types) else (found.compose, shape)


def _renumbered(stages: Sequence[ComposeStage], order: Sequence[int]) -> list[ComposeStage]:
    local = {~old: ~new for new, old in enumerate(order)}
    return [attrs.evolve(one, inputs=tuple(local.get(entry, entry) for entry in one.inputs)) for one in stages]
