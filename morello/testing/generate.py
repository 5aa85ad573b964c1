"""Random Specs and random programs, for tests of targets and rewrites."""

from __future__ import annotations

import contextlib
import itertools
import random
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import get_args

import attrs

from morello.errors import Inapplicable, SpecError
from morello.ir.dtypes import DType
from morello.ir.impl import Expansion, Impl, Node, Part, expand
from morello.ir.layout import Dynamic, Layout
from morello.ir.ops.base import PARAMETER, Operation, Value
from morello.ir.ops.softmax_parts import SoftmaxDenominatorAndMax
from morello.ir.spec import LogicalSpec, Spec
from morello.ir.tensor import TensorSpec
from morello.kernels.target import Target
from morello.rewrites import Rewrite
from morello.rewrites.base import layout_name, rewrites_of
from morello.rewrites.move import MoveStep
from morello.rewrites.parallel_split import ParallelSplit
from morello.rewrites.select import Select
from morello.rewrites.softmax_per_part import ParallelSplitSoftmax
from morello.rewrites.split import Split
from morello.rewrites.tile import Tile


def random_tensor(
    rng: random.Random,
    target: Target,
    shape: tuple[int, ...],
    dtype: DType,
    levels: Sequence[str],
    layouts: Sequence[Layout] = (),
) -> TensorSpec | None:
    """Return a tensor spec of this shape in one of `levels`, None if the draw does not fit the shape.

    Its layout is one of `layouts`, by default of those that the target offers.
    """
    level = target.level(rng.choice(levels))
    layout = rng.choice(layouts or target.layouts(dtype, len(shape)))
    if not layout.applies(shape):
        return None
    vector = rng.choice(target.vector_sizes(level, dtype)) if level.kind == "vector" else None
    tensor = TensorSpec(shape, target.state(level.name, dtype, layout, vector=vector)).canonical()
    if rng.random() < 0.3 and tensor.state.layout and not level.is_register:
        run = rng.randint(0, len(tensor.state.layout.dims))
        aligned = rng.random() < 0.7
        state = target.state(level.name, dtype, tensor.state.layout, contig=run, aligned=aligned)
        tensor = TensorSpec(shape, state)
    return tensor if tensor.has_whole_vectors() else None


def random_spec(
    rng: random.Random,
    target: Target,
    op: Operation,
    shape: tuple[int, ...],
    dtypes: Sequence[DType],
    levels: Sequence[str],
    *,
    any_layout: bool = False,
) -> Spec:
    """Return a Spec of `op` whose operands have random states in `levels`, of random serial flag, with full limits.

    Layouts are those that the target offers, or also all orders of dimensions.
    """
    states = []
    for one, dtype in zip(op.operands(len(shape)), dtypes, strict=True):
        tensor = None
        layouts = layout_choices(target, dtype, len(one.dims)) if any_layout else ()
        while tensor is None:
            tensor = random_tensor(rng, target, one.shape(shape), dtype, levels, layouts)
        states.append(tensor.state)
    return target.spec(LogicalSpec(op, shape, tuple(states), serial=rng.random() < 0.8))


def random_parameters(rng: random.Random, op: Operation) -> Operation:
    """Return the operation with some of its parameters, if it has any, drawn at random."""
    for field in attrs.fields(type(op)):
        kinds = field.metadata.get(PARAMETER, ())
        if kinds and rng.random() < 0.5:
            with contextlib.suppress(SpecError):
                op = op.configured({field.name: _value(rng, field, rng.choice(kinds))})
    return op


def _value(rng: random.Random, field: attrs.Attribute, kind: type) -> Value:
    if kind is int and "Literal" in str(field.type):
        return int(rng.choice(re.findall(r"\d+", str(field.type))))
    if kind is str:
        # The words that there are stand in the field's type.
        return rng.choice(get_args(field.type) or re.findall(r"['\"](\w+)['\"]", str(field.type)) or [field.default])
    values: dict[type, Value] = {
        bool: True,
        int: rng.randint(0, 3),
        float: rng.choice([0.5, -2.0, 3.0]),
        tuple: tuple(rng.randint(0, 2) for _ in range(rng.choice([1, 2, 2, 4]))),
    }
    return values[kind]


def layout_choices(target: Target, dtype: DType, rank: int) -> tuple[Layout, ...]:
    """Layouts to draw from: those that the target offers, and every order of up to four dimensions."""
    return tuple(dict.fromkeys((*target.layouts(dtype, rank), *_permuted(rank))))


@cache
def _permuted(rank: int) -> tuple[Layout, ...]:
    orders = itertools.permutations(range(rank)) if rank <= 4 else ()
    return tuple(Layout(tuple(map(Dynamic, order))) for order in orders)


#: Wildness of the last try: microkernels first, then loops down to single values.
_CAREFUL = -1
#: Steps that are tried with each wildness.
_ATTEMPTS = 250


class RandomPrograms:
    """Draws complete programs at random: any that a target's rewrites and microkernels allow.

    The first `wild` steps from the root down are drawn from all that apply, and from more that search does not
    try: tiles and splits of any size, moves to any layout. Below, steps that lead to microkernels soon are
    preferred, and dead ends are backed out of. `hopeless` returns True for Specs that have no program.
    """

    def __init__(
        self,
        target: Target,
        rng: random.Random,
        wild: int = 4,
        hopeless: Callable[[LogicalSpec], bool] = lambda logical: False,
    ):
        self._target, self._rng, self._wild = target, rng, wild
        self._steps: dict[LogicalSpec, list[Rewrite]] = {}
        self._expansions: dict[tuple[LogicalSpec, Rewrite], Expansion | None] = {}
        self._no_program = hopeless
        self._dead: set[LogicalSpec] = set()
        self._left = self._wild_now = 0

    def draw(self, spec: Spec) -> Impl | None:
        """Return a random program for `spec`; None if a bounded number of attempts, ever less wild, found none."""
        if self._no_program(spec.logical):
            return None
        for wild in (*range(self._wild, 0, -2), 0, _CAREFUL):
            self._left, self._wild_now = _ATTEMPTS, wild
            found = self._any(spec, ())
            if found or self._left > 0:
                return found
        return None

    def _any(self, spec: Spec, above: tuple[LogicalSpec, ...]) -> Impl | None:
        if spec.logical in above or spec.logical in self._dead or self._left <= 0:
            return None
        for step in self._drawn(spec.logical, len(above) < self._wild_now):
            self._left -= 1
            if self._left <= 0:
                return None
            expansion = self._expansion(spec.logical, step)
            node = expand(spec, expansion, self._target.grids) if expansion else None
            if expansion is None or node is None or any(map(self._hopeless, expansion.parts)):
                continue
            children = []
            for leaf in node.children:
                child = self._any(leaf.spec, (*above, spec.logical))
                if child is None:
                    break
                children.append(child)
            else:
                return Node(spec, expansion, tuple(children), node.grids)
        if self._left > 0:
            # With more memory, or from elsewhere, there might be one: then this draw misses it.
            self._dead.add(spec.logical)
        return None

    def _hopeless(self, part: Part) -> bool:
        return part.logical in self._dead or self._no_program(part.logical)

    def _drawn(self, logical: LogicalSpec, wild: bool) -> Iterator[Rewrite]:
        """Steps to try on a Spec, in random order."""
        if wild:
            yield from self._invented(logical)
        if logical not in self._steps:
            tried = (step for rewrite in rewrites_of(self._target) for step in rewrite.steps(logical, self._target))
            self._steps[logical] = [*tried]
        steps = list(self._steps[logical])
        self._rng.shuffle(steps)
        careful = self._wild_now == _CAREFUL
        if careful or (not wild and self._rng.random() < 0.9):
            order = [2, 1, 3, 4] if not careful and self._rng.random() < 0.2 else [1, 2, 3, 4]
            steps.sort(key=lambda step: order[self._family(step, logical)] if not isinstance(step, Select) else 0)
        yield from steps

    def _family(self, step: Rewrite, logical: LogicalSpec) -> int:
        """Return the family: loops and the like, moves into vectors, all else, or moves within a level."""
        if not isinstance(step, MoveStep):
            return 0 if step.structural else 2
        if step.level == logical.states[step.operand].level:
            return 3
        return 1 if self._target.level(step.level).kind == "vector" else 2

    def _invented(self, logical: LogicalSpec) -> Iterator[Rewrite]:
        """Yield, now and then, a step that search does not try; none before constants are packed."""
        if logical.op.constants:
            return
        rng, rank = self._rng, len(logical.shape)
        sizes = [int(size) for size in logical.shape]
        summed = [sizes[dim] for dim in logical.op.reductions(rank)] or [1]
        makers: dict[type[Rewrite], Callable[[], Rewrite | None]] = {
            Tile: lambda: Tile(tuple(rng.choice([0, rng.randint(1, size), 1, size]) for size in sizes)),
            Split: lambda: Split(rng.randint(1, rng.choice(summed))),
            MoveStep: lambda: self._move(logical),
        }
        level = self._target.levels[-1].name
        if ParallelSplit.accepts(logical):
            makers[ParallelSplit] = lambda: ParallelSplit(level, size=rng.randint(1, summed[0]))
        if isinstance(logical.op, SoftmaxDenominatorAndMax):
            makers[ParallelSplitSoftmax] = lambda: ParallelSplitSoftmax(level, size=rng.randint(1, sizes[-1]))
        usable = [make for rewrite, make in makers.items() if rewrite in self._target.rewrites]
        if usable and rng.random() < 0.4:
            for _ in range(3):
                step = rng.choice(usable)()
                if step:
                    yield step

    def _move(self, logical: LogicalSpec) -> MoveStep | None:
        """Return any operand to anywhere it can go, in any layout."""
        rng = self._rng
        index = rng.randrange(len(logical.states))
        tensor = logical.operand(index)
        destinations = self._target.level(tensor.state.level).destinations
        if not destinations:
            return None
        level = self._target.level(rng.choice(destinations))
        if level.kind == "scalar":
            return MoveStep(index, level.name)
        dtype = tensor.state.dtype
        layout = rng.choice(layout_choices(self._target, dtype, len(tensor.shape)))
        vector = rng.choice(self._target.vector_sizes(level, dtype)) if level.kind == "vector" else None
        return MoveStep(index, level.name, layout_name(layout, len(tensor.shape)) or layout, vector)

    def _expansion(self, logical: LogicalSpec, step: Rewrite) -> Expansion | None:
        """Return what a step makes of a Spec, None if it does not apply."""
        if (logical, step) not in self._expansions:
            try:
                self._expansions[logical, step] = step.expansion(logical, self._target)
            except Inapplicable:
                self._expansions[logical, step] = None
        return self._expansions[logical, step]
