"""Random small Specs of any operation, data types, layouts, levels, vectors and limits."""

from __future__ import annotations

import itertools
import random

import attrs

from morello.errors import SpecError
from morello.ir import dtypes as types
from morello.ir.dtypes import DType
from morello.ir.limits import Limits
from morello.ir.numbers import product
from morello.ir.ops import Operation
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.testing.generate import random_parameters, random_spec
from tools.fuzz.graphs import random_compose
from tools.fuzz.reach import Reach

#: The most points of an iteration space and values of an operand: small, so that proofs are fast.
_VOLUMES = (4, 8, 16, 32, 64)
_SIZES = (1, 1, 2, 3, 4, 5, 6, 7, 8)
_LAST_SIZES = (*_SIZES, 8, 16)
#: Repetitions of a draw that is invalid or infeasible.
_REDRAWS = 40
#: The share of Specs without a reachable microkernel that are kept.
_HOPELESS = 0.15


def drawn_spec(target: Target, seed: int, number: int) -> Spec:
    """Return Spec number `number` of a seed, on one target; it depends on nothing else.

    Most Specs drawn may have a program: most draws that no step leads to a microkernel are repeated.
    """
    rng = random.Random(f"{seed} {number} {target.name}")
    reach = Reach(target)
    spec = None
    while spec is None:
        name = rng.choice((*sorted(target.operations), "Compose"))
        keep = rng.random() < _HOPELESS
        for _ in range(_REDRAWS):
            found = _draw(rng, target, name)
            spec = found or spec
            if found and (keep or not reach.hopeless(found.logical)):
                break
    return attrs.evolve(spec, limits=random_limits(rng, target))


def random_limits(rng: random.Random, target: Target) -> Limits:
    """Draw memory limits: all there is, none, or little, level by level."""
    if rng.random() < 0.5:
        return target.full_limits()
    chosen = []
    for level in target.levels:
        few = level.unit * rng.randint(0, 4) if level.is_register else level.unit << rng.randint(0, 4)
        chosen.append(rng.choice([level.capacity, level.capacity, few, 0]))
    return target.limits(chosen)


def _draw(rng: random.Random, target: Target, name: str) -> Spec | None:
    """Draw a Spec of an operation, None if what was drawn contradicts itself."""
    volume = rng.choice(_VOLUMES)
    levels = [level.name for level in target.levels]
    among = rng.choice([levels[-1:], levels[-2:], levels[-2:-1] or levels, levels[:-1] or levels, levels, levels])
    if name == "Compose":
        op, shape = random_compose(rng, stages=rng.choice([2, 2, 3]), largest=rng.choice([2, 3]))
        dtypes: tuple[DType, ...] | None = (types.F32,) * len(op.operands(len(shape)))
    else:
        op = random_parameters(rng, target.operations[name])
        shape = _shape(rng, op.rank or rng.choice([1, 2, 2, 3, 4]), volume)
        dtypes = _dtypes(rng, op, shape)
    operands = op.operands(len(shape))
    if dtypes is None or any(not 1 <= product(one.shape(shape)) <= 4 * max(_VOLUMES) for one in operands):
        return None
    try:
        spec = random_spec(rng, target, op, shape, dtypes, among, any_layout=rng.random() < 0.5)
    except SpecError:
        return None
    return attrs.evolve(spec, logical=attrs.evolve(spec.logical, serial=rng.random() < 0.6))


def _shape(rng: random.Random, rank: int, volume: int) -> tuple[int, ...]:
    sizes = [1] * rank
    for dim in rng.sample(range(rank), rank):
        pool = _LAST_SIZES if dim == rank - 1 else _SIZES
        sizes[dim] = rng.choice([size for size in pool if size * product(sizes) <= volume])
    return tuple(sizes)


def _dtypes(rng: random.Random, op: Operation, shape: tuple[int, ...]) -> tuple[DType, ...] | None:
    """Draw data types that the operation takes, one for all operands as often as not; None if there are none."""
    if op.only_types is not None:
        return op.only_types
    count = len(op.operands(len(shape)))
    tries = [rng.choice(types.ALL)] * count if rng.random() < 0.5 else rng.choices(types.ALL, k=count)
    for pick in itertools.islice(itertools.chain([tries], iter(lambda: rng.choices(types.ALL, k=count), None)), 12):
        if op.check(shape, pick) is None:
            return tuple(pick)
    return next((pair for one in types.ALL if op.check(shape, pair := (one,) * count) is None), None)
