"""Random Specs and random programs, for tests of targets and rewrites."""

from __future__ import annotations

import random
from collections.abc import Sequence

from morello.ir.dtypes import DType
from morello.ir.impl import Expansion, Impl, KernelCall, Loop, Node, expand
from morello.ir.layout import Layout
from morello.ir.ops.base import Operation
from morello.ir.spec import LogicalSpec, Spec
from morello.ir.tensor import TensorSpec
from morello.plugins.target import MemoryLevel, Target
from morello.search.exhaustive import expansions


def random_tensor(
    rng: random.Random, target: Target, shape: tuple[int, ...], dtype: DType, levels: Sequence[str]
) -> TensorSpec | None:
    """A tensor spec of this shape in one of `levels`, None if the draw does not fit the shape."""
    level = target.level(rng.choice(levels))
    layout = rng.choice(target.layouts(dtype, len(shape)))
    if not layout.applies(shape):
        return None
    tensor = TensorSpec(shape, _state(rng, target, level, dtype, layout)).canonical()
    if rng.random() < 0.3 and tensor.state.layout and not level.is_register:
        run = rng.randint(0, len(tensor.state.layout.dims))
        aligned = rng.random() < 0.7
        state = target.state(level.name, dtype, tensor.state.layout, contig=run, aligned=aligned)
        tensor = TensorSpec(shape, state)
    return tensor if tensor.has_whole_vectors() else None


def _state(rng: random.Random, target: Target, level: MemoryLevel, dtype: DType, layout: Layout):
    vector = rng.choice(target.vector_sizes(level, dtype)) if level.kind == "vector" else None
    return target.state(level.name, dtype, layout, vector=vector)


def random_spec(
    rng: random.Random,
    target: Target,
    op: Operation,
    shape: tuple[int, ...],
    dtypes: Sequence[DType],
    levels: Sequence[str],
) -> Spec:
    """A Spec of `op` whose operands have random states in `levels`, of random serial flag, with full limits."""
    states = []
    for one, dtype in zip(op.operands(len(shape)), dtypes, strict=True):
        tensor = None
        while tensor is None:
            tensor = random_tensor(rng, target, one.shape(shape), dtype, levels)
        states.append(tensor.state)
    return target.spec(LogicalSpec(op, shape, tuple(states), serial=rng.random() < 0.8))


class RandomPrograms:
    """Draws complete programs at random: any that a target's rewrites and microkernels allow.

    The first `wild` steps from the root down are drawn from all that apply; below, steps that lead to
    microkernels soon are preferred, and dead ends are backed out of.
    """

    def __init__(self, target: Target, rng: random.Random, wild: int = 4, attempts: int = 150):
        self._target, self._rng, self._wild, self._attempts = target, rng, wild, attempts
        self._expansions: dict[LogicalSpec, list[Expansion]] = {}
        self._left = 0

    def draw(self, spec: Spec) -> Impl | None:
        """A random program for `spec`, None if none was found in a bounded number of attempts."""
        self._left = self._attempts
        return self._any(spec, ())

    def _any(self, spec: Spec, above: tuple[LogicalSpec, ...]) -> Impl | None:
        if spec.logical in above or self._left <= 0:
            return None
        self._left -= 1
        if spec.logical not in self._expansions:
            self._expansions[spec.logical] = list(expansions(spec.logical, self._target))
        found = list(self._expansions[spec.logical])
        self._rng.shuffle(found)
        if len(above) >= self._wild:
            found.sort(key=lambda one: 0 if isinstance(one, KernelCall) else 1 if isinstance(one, Loop) else 2)
        for expansion in found:
            node = expand(spec, expansion, self._target.exact)
            if node is None:
                continue
            children = []
            for leaf in node.children:
                child = self._any(leaf.spec, (*above, spec.logical))
                if child is None:
                    break
                children.append(child)
            else:
                return Node(spec, expansion, tuple(children), node.exact)
        return None
