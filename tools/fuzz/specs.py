"""Random small Specs of any operation, data types, layouts, levels, vectors and limits."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import attrs

from morello.errors import SpecError
from morello.frontend.sizes import Sizes, fault
from morello.ir.dtypes import F32, DType
from morello.ir.layout import row_major
from morello.ir.limits import Limits
from morello.ir.numbers import product
from morello.ir.ops import Operation
from morello.ir.ops.constants import Constants
from morello.ir.spec import LogicalSpec, Spec
from morello.ir.tensor import TensorSpec
from morello.kernels.target import Target
from morello.testing.generate import random_parameters, random_spec
from morello.testing.graphs import random_compose
from morello.testing.reach import Reach


@attrs.frozen
class Scale:
    """The size of drawn Specs, and the share of ordinary ones."""

    #: The most points of an iteration space; sizes of a dimension, and of the last one.
    volumes: tuple[int, ...]
    sizes: tuple[int, ...]
    last_sizes: tuple[int, ...]
    #: Sizes of the last two dimensions of convolutions, if they are special.
    windows: tuple[int, ...] = ()
    #: The share of Specs of `usual` operations, the share of row-major f32 in one level, and that of less memory.
    usual: tuple[str, ...] = ()
    plain: float = 0.0
    limited: float = 0.5
    #: The share of those that get a constant operand if they have two inputs.
    constant: float = 0.0


#: So small that proofs are fast, and brute force may end.
SMALL = Scale((4, 8, 16, 32, 64), sizes := (1, 1, 2, 3, 4, 5, 6, 7, 8), (*sizes, 8, 16), constant=0.15)
#: The rank of convolutions, or of those of groups, one more.
_CONVOLUTION = 7
#: Repetitions of a draw that is invalid or infeasible.
_REDRAWS = 40
#: The share of Specs without a reachable microkernel that are kept, and that of sizes known at run time where possible.
_HOPELESS, _SIZED = 0.15, 0.1


def drawn_spec(target: Target, seed: int, number: int, scale: Scale = SMALL, op: str | None = None) -> Spec:
    """Return Spec number `number` of a seed, on one target, of any operation or of `op`; it depends on nothing else.

    Most Specs drawn may have a program: most draws that no step leads to a microkernel are repeated.
    """
    rng = random.Random(f"{seed} {number} {target.name}")
    reach = Reach(target)
    spec = None
    while spec is None:
        usual = scale.usual and rng.random() < 0.5
        name = op or rng.choice(scale.usual if usual else (*sorted(target.operations), "Compose"))
        keep = rng.random() < _HOPELESS
        for _ in range(_REDRAWS):
            found = _draw(rng, target, name, scale)
            spec = found or spec
            if found and (keep or not reach.hopeless(found.logical)):
                break
    spec = attrs.evolve(spec, limits=random_limits(rng, target, scale.limited))
    if rng.random() < scale.constant:
        return attrs.evolve(spec, logical=_with_constants(rng, spec.logical, target))
    return spec


def drawn_sizes(seed: int, number: int, spec: Spec) -> Sizes | None:
    """Return sizes of a dimension of Spec number `number` that are known at run time; for most Specs, None."""
    rng = random.Random(f"sizes {seed} {number}")
    logical = spec.logical
    dims = [dim for dim, size in enumerate(logical.shape) if size > 1 and not _refused(logical, dim)]
    if not dims or rng.random() >= _SIZED:
        return None
    dim = rng.choice(dims)
    high = int(logical.shape[dim])
    return Sizes("size", rng.randint(1, high), high, dim)


def _refused(logical: LogicalSpec, dim: int) -> bool:
    """Return True if a dimension cannot have a size that is known at run time."""
    one, other = (
        attrs.evolve(logical, shape=(*logical.shape[:dim], int(logical.shape[dim]) + more, *logical.shape[dim + 1 :]))
        for more in (1, 2)
    )
    return fault("size", dim, one, other) is not None


def _with_constants(rng: random.Random, logical: LogicalSpec, target: Target) -> LogicalSpec:
    """Return a Spec one of whose inputs is constant, row major; the same if it has no two inputs."""
    inputs = [at for at, one in enumerate(logical.declared) if one.reads and not one.writes]
    if len(inputs) < 2:
        return logical
    chosen, states = rng.choice(inputs), [*logical.states]
    shape = logical.operand(chosen).shape
    state = target.state(target.levels[-1].name, states[chosen].dtype, row_major(len(shape)))
    states[chosen] = TensorSpec(shape, state).canonical().state
    return attrs.evolve(logical, op=Constants(logical.op, (chosen,)), states=tuple(states))


def random_limits(rng: random.Random, target: Target, limited: float) -> Limits:
    """Draw memory limits: all there is, none, or little, level by level; less than all for a share of Specs."""
    if rng.random() < 1 - limited:
        return target.full_limits()
    chosen = []
    for level in target.levels:
        few = level.unit * rng.randint(0, 4) if level.is_register else level.unit << rng.randint(0, 4)
        chosen.append(rng.choice([level.capacity, level.capacity, few, 0]))
    return target.limits(chosen)


def _draw(rng: random.Random, target: Target, name: str, scale: Scale) -> Spec | None:
    """Draw a Spec of an operation, None if what was drawn contradicts itself."""
    volume = rng.choice(scale.volumes)
    plain = bool(scale.plain) and rng.random() < scale.plain
    levels = [level.name for level in target.operand_levels]
    among = rng.choice([levels[-1:], levels[-2:], levels[-2:-1] or levels, levels[:-1] or levels, levels, levels])
    if name == "Compose":
        numbers = [one for one in target.dtypes.values() if not one.is_bool]
        op, shape, dtypes = random_compose(rng, rng.choice([2, 2, 3]), rng.choice([2, 3]), numbers)
    else:
        op = random_parameters(rng, target.operations[name])
        shape = _shape(rng, op.rank or rng.choice([1, 2, 2, 3, 4]), volume, scale)
        dtypes = _dtypes(rng, op, shape, [*target.dtypes.values()], plain=plain)
    operands = op.operands(len(shape))
    if dtypes is None or any(not 1 <= product(one.shape(shape)) <= 4 * max(scale.volumes) for one in operands):
        return None
    if plain:
        level = rng.choice([one for one in target.levels if not one.is_register]).name
        pairs = zip(operands, dtypes, strict=True)
        states = [target.state(level, dtype, row_major(len(one.dims))) for one, dtype in pairs]
        return target.spec(LogicalSpec(op, shape, tuple(states), serial=rng.random() < 0.6))
    try:
        spec = random_spec(rng, target, op, shape, dtypes, among, any_layout=rng.random() < 0.5)
    except SpecError:
        return None
    return attrs.evolve(spec, logical=attrs.evolve(spec.logical, serial=rng.random() < 0.6))


def _shape(rng: random.Random, rank: int, volume: int, scale: Scale) -> tuple[int, ...]:
    shape = [1] * rank
    for dim in rng.sample(range(rank), rank):
        pool = scale.last_sizes if dim == rank - 1 else scale.sizes
        pool = scale.windows if scale.windows and rank >= _CONVOLUTION and dim >= rank - 2 else pool
        shape[dim] = rng.choice([size for size in pool if size * product(shape) <= volume])
    return tuple(shape)


def _dtypes(
    rng: random.Random, op: Operation, shape: tuple[int, ...], known: Sequence[DType], *, plain: bool
) -> tuple[DType, ...] | None:
    """Draw data types among the `known` ones that the operation takes; None if there are none.

    They are one for all operands as often as not, f32 if `plain`.
    """
    if op.only_types is not None:
        return op.only_types
    count = len(op.operands(len(shape)))
    if plain:
        tries = [F32] * count
    else:
        tries = [rng.choice(known)] * count if rng.random() < 0.5 else rng.choices(known, k=count)
    for pick in itertools.islice(itertools.chain([tries], iter(lambda: rng.choices(known, k=count), None)), 12):
        if op.refusal(shape, pick) is None:
            return tuple(pick)
    return next((pair for one in known if op.refusal(shape, pair := (one,) * count) is None), None)
