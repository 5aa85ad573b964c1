"""Random whole programs: any operation, data types, shape, operand states and schedule that a target has."""

from __future__ import annotations

import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import attrs

from morello.errors import SpecError
from morello.ir.dtypes import DType
from morello.ir.impl import Impl, KernelCall, Node, walk
from morello.ir.numbers import product
from morello.ir.ops import Operation
from morello.ir.ops.softmax_per_part import SoftmaxDenominatorAndMaxPerPart
from morello.ir.ops.views import Concat, Slice, Transpose
from morello.kernels.microkernel import Microkernel
from morello.kernels.target import Target
from morello.testing.generate import RandomPrograms, random_parameters, random_spec
from morello.testing.graphs import random_compose
from morello.testing.reach import Reach

Types: TypeAlias = tuple[DType, ...]

#: What draws of Compose, which has no name of its own, count as.
COMPOSE = "Compose"
#: Sizes of dimensions: small and odd ones, and some that fill vectors.
_SIZES = (1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 15, 16, 17, 24, 31, 32, 33, 40, 64)
#: How many points an iteration space has at most, and how many values an operand; fewer if some may be in registers.
_VOLUME, _IN_REGISTERS = 3000, 300
#: Programs that print more calls of kernels take long to compile, above all under the sanitizers.
_MOST_CALLS = 150
#: Operations with more than three operands have too many combinations of data types, so some are drawn.
_DRAWN_TYPES = 200
#: An operation, or its combination of data types, is skipped after this number of draws without a program.
_PATIENCE_OP, _PATIENCE_TYPES = 80, 8


def made_for(op: Operation, shape: tuple[int, ...]) -> Operation:
    """Return the operation as it is at this shape: with parts as long as the shape's last dimension, for example."""
    rank = len(shape)
    if isinstance(op, SoftmaxDenominatorAndMaxPerPart):
        return attrs.evolve(op, of=shape[-1])
    if isinstance(op, Transpose) and op.order:
        return attrs.evolve(op, order=tuple(random.Random(f"{op} {shape}").sample(range(rank), rank)))
    if isinstance(op, Slice):
        given = ((name, getattr(op, name)) for name in op.parameters if hasattr(op, name))
        return attrs.evolve(op, **{name: ((*own,) * rank)[:rank] for name, own in given})
    if isinstance(op, Concat):
        op = attrs.evolve(op, dim=op.axis(rank) % rank)
        size = shape[op.axis(rank)]
        count = min(len(op.sizes), size)
        return attrs.evolve(op, sizes=(*(size // count,) * (count - 1), size - size // count * (count - 1)))
    return op


@attrs.frozen
class Drawn:
    """A random program, and its index among those of its seed."""

    index: int
    op: Operation
    dtypes: Types
    impl: Node

    @property
    def kernels(self) -> set[str]:
        """Names of the microkernels in it."""
        nodes = (node.expansion for node in walk(self.impl) if isinstance(node, Node))
        return {expansion.kernel for expansion in nodes if isinstance(expansion, KernelCall)}

    @property
    def rewrites(self) -> set[str]:
        """Keywords of the rewrites in it."""
        return {str(node.expansion.step).split()[0] for node in walk(self.impl) if isinstance(node, Node)}


@attrs.define(eq=False)
class Draws:
    """Draws programs for a target, from a seed: over all operations, or those of `names`, and all data types.

    A draw without a program is counted in `redrawn` and repeated. Combinations of operation and data
    types for which none is ever found are given up after a while: see `given_up`.
    """

    target: Target
    seed: int = 0
    names: Sequence[str] = ()
    #: Programs found, by operation and data types; and draws in vain.
    found: Counter[tuple[str, Types]] = attrs.field(factory=Counter, init=False)
    redrawn: Counter[tuple[str, Types]] = attrs.field(factory=Counter, init=False)
    #: How many programs were left out because their C is long.
    long: int = attrs.field(default=0, init=False)
    _reach: Reach = attrs.field(init=False)
    _untried: dict[str, list[Types]] = attrs.field(factory=dict, init=False)
    _good: dict[str, list[Types]] = attrs.field(factory=lambda: defaultdict(list), init=False)

    def __attrs_post_init__(self) -> None:
        self._reach = Reach(self.target)

    def programs(self, count: int) -> Iterator[Drawn]:
        """Yield the first `count` programs; the same each time for the same target and seed."""
        rng = random.Random(f"{self.seed} {self.target.name}")
        names = [name for name in (*sorted(self.target.operations), COMPOSE) if not self.names or name in self.names]
        index = 0
        while index < count:
            names = [name for name in names if self._hopeful(name)]
            if not names:
                raise SpecError(
                    f"{self.target.name} has no programs for any of the operations asked for",
                    "ask for other operations",
                )
            drawn = self._draw(rng, rng.choice(names), index)
            if drawn:
                index += 1
                yield drawn

    def given_up(self) -> list[tuple[str, Types]]:
        """Operations and data types for which no program was found, however often it was tried."""
        return [key for key in self.redrawn if not self.found[key]]

    def _hopeful(self, name: str) -> bool:
        """Return True if there are programs for an operation, or it is too early to say."""
        if self._good[name]:
            return True
        return sum(self.redrawn[key] for key in self.redrawn if key[0] == name) < _PATIENCE_OP

    def _draw(self, rng: random.Random, name: str, index: int) -> Drawn | None:
        drawing = random.Random(rng.random())
        levels = [level.name for level in self.target.operand_levels]
        among = drawing.choice([levels[-1:], levels[-2:], levels[-2:-1] or levels, levels, levels])
        volume = _IN_REGISTERS if any(self.target.level(one).is_register for one in among) else _VOLUME
        if name == COMPOSE:
            numbers = [one for one in self.target.dtypes.values() if not one.is_bool]
            configured, shape, dtypes = random_compose(drawing, stages=3, largest=4, numbers=numbers)
            among = levels[-1:]
        else:
            op = self.target.operations[name]
            configured = random_parameters(drawing, op)
            shape = _shape(drawing, op.rank or drawing.choice([1, 2, 2, 2, 3, 3, 4]), volume)
            configured = made_for(configured, shape)
            dtypes = self._dtypes(drawing, op, configured, shape)
        if dtypes is None or any(product(one.shape(shape)) > volume for one in configured.operands(len(shape))):
            return None
        spec = random_spec(drawing, self.target, configured, shape, dtypes, among, any_layout=drawing.random() < 0.5)
        impl = RandomPrograms(
            self.target, drawing, wild=drawing.choice([0, 2, 4, 6]), hopeless=self._reach.hopeless
        ).draw(spec)
        key = (name, dtypes)
        if not isinstance(impl, Node):
            self.redrawn[key] += 1
            return None
        if _calls(impl, self.target) > _MOST_CALLS:
            self.long += 1
            return None
        if not self.found[key]:
            self._good[name].append(dtypes)
        self.found[key] += 1
        return Drawn(index, configured, dtypes, impl)

    def _dtypes(self, rng: random.Random, op: Operation, configured: Operation, shape: tuple[int, ...]) -> Types | None:
        """Return data types that the operation takes: often ones that had a program, else ones not tried enough."""
        if op.name not in self._untried:
            self._untried[op.name] = self._candidates(rng, op, len(shape))
        good, untried = self._good[op.name], self._untried[op.name]
        untried[:] = [
            one for one in untried if not self.found[op.name, one] and self.redrawn[op.name, one] < _PATIENCE_TYPES
        ]
        pool = good if good and (not untried or rng.random() < 0.8) else untried[:4]
        if op.variadic:
            count = len(configured.operands(len(shape))) - 1
            pool = [(*(one[:-1] * count)[:count], one[-1]) for one in pool]
        fitting = [one for one in pool if configured.refusal(shape, one) is None]
        if not fitting:
            untried[:] = untried[4:] + untried[:4]
            self.redrawn[op.name, ()] += 1
            return None
        return rng.choice(fitting)

    def _candidates(self, rng: random.Random, op: Operation, rank: int) -> list[Types]:
        """Return every combination of data types, those first that kernels name or that are all the same."""
        count = len(op.operands(rank))
        variants = [one for one in (op, op.accumulating()) if one]
        kernels = [kernel for kernel in self.target.kernels if any(map(kernel.implements, variants))]
        known = [*self.target.dtypes.values()]
        if op.only_types is not None:
            every = [op.only_types]
        elif count <= 3:
            every = [*itertools.product(known, repeat=count)]
        else:
            floats = [one for one in known if one.is_float]
            drawn = [tuple(rng.choices(known, k=count)) for _ in range(_DRAWN_TYPES)]
            every = [*itertools.product(floats, repeat=count), *((one,) * count for one in known), *drawn]
        samples = [(random_parameters(rng, op), _shape(rng, rank, _VOLUME)) for _ in range(4)]
        # Those of the first draw may all have too few dimensions.
        samples += [(op, (4,) * most) for most in (rank, op.rank or 4)]
        configured = [(made_for(each, shape), shape) for each, shape in samples]
        every = [
            one for one in dict.fromkeys(every) if any(each.refusal(shape, one) is None for each, shape in configured)
        ]
        rng.shuffle(every)
        return sorted(every, key=lambda one: 0 if _named(kernels, one) else 1 if len({*one}) == 1 else 2)


def _calls(impl: Impl, target: Target) -> int:
    """About how many calls of kernels its C has: loops over registers are unrolled."""
    if not isinstance(impl, Node):
        return 0
    logical = impl.spec.logical
    operands = logical.op.operands(len(logical.shape))
    unrolled = [
        one for one, state in zip(operands, logical.states, strict=True) if target.level(state.level).is_register
    ]
    total = int(isinstance(impl.expansion, KernelCall))
    for part, child in zip(impl.expansion.parts, impl.children, strict=True):
        trips = [
            int(tile_range.trips)
            for dim, tile_range in enumerate(part.ranges or ())
            if any(one.uses(dim) for one in unrolled)
        ]
        total += product(trips) * _calls(child, target)
    return total


def _named(kernels: Sequence[Microkernel], dtypes: Sequence[DType]) -> bool:
    """Return True if some kernel takes operands of these types."""
    return any(
        all(not one.dtypes or dtype.name in one.dtypes for one, dtype in zip(kernel.operands, dtypes, strict=True))
        and ("dtype" not in kernel.same or len({*dtypes}) == 1)
        for kernel in kernels
    )


def _shape(rng: random.Random, rank: int, volume: int) -> tuple[int, ...]:
    """Return a shape whose iteration space holds at most `volume` points."""
    sizes = [1] * rank
    for dim in rng.sample(range(rank), rank):
        choices = [size for size in _SIZES if size * product(sizes) <= volume]
        sizes[dim] = rng.choice(choices)
    return tuple(sizes)
