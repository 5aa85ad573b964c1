"""Certificates: lower bounds on the cost of all programs, proven by prices, without search and its bounds.

A program consists of kernel calls, and of allocations that move operands between levels. The bytes that cross each
*cut* between faster and slower levels are bounded by `traffic`, the points of each family of operations by `calls`. A
certificate has prices: for each point of a family, and for each byte at a cut, once if it is touched (`touch`) and once
if it is moved again (`again`). No allocation and no call costs less than its worth at these prices, so no program costs
less than the worth of all required points and bytes:

    allocation:  Σ bytes · (touch + again) over the cuts it crosses            ≤ m(source) + m(destination)
    call:        points · price + Σ touch · bytes beyond a cut                 ≤ its cost
                 − Σ again · τ · points over cuts that no operand is beyond

The last line is for points computed with all operands on the fast side: by `Segments`, they move at least
τ · points − T bytes across the cut. Calls that read beyond the cut pay for the bytes they read. Parallel loops run a
body as often as one thread does, so that all work is divided by the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from math import ceil, inf

import attrs
import numpy as np

from morello.errors import MorelloError
from morello.ir.dtypes import DType, by_name
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.rewrites.convert import Convert
from morello_bounds.calls import CallTable, Ints, RequiredWork, work_of
from morello_bounds.nest import Nest, is_single, nest_of
from morello_bounds.programs import minimum
from morello_bounds.traffic import Traffic, check, traffic

#: Prices are multiples of 1/_UNIT.
_UNIT = 1 << 24
#: Calls that violate a price by less than this share of their cost are left to rounding.
_CLOSE = 1e-7
_MOST_ROUNDS = 60


@attrs.frozen
class Cut:
    """The boundary before `level`; `made` bytes of values appear on its fast side without a move."""

    level: int
    traffic: Traffic
    made: int

    @property
    def touched(self) -> int:
        """Return the bytes touched on the slow side."""
        nest, resident = self.traffic.nest, self.traffic.resident
        return sum(nest.touched(one) * one.bytes for number, one in enumerate(nest.arrays) if number not in resident)

    @cached_property
    def rate(self) -> Fraction:
        """Return the bytes that each point computed on the fast side moves across, but for those `spared`."""
        proof = self.traffic.segments
        return proof.loaded * proof.share / (proof.nest.points - proof.nest.lost) if proof else Fraction(0)

    @property
    def spared(self) -> Fraction:
        """Return the bytes spared by the last segment, padding and converted values."""
        proof = self.traffic.segments
        return proof.loaded + self.rate * proof.nest.lost + self.made if proof else Fraction(0)

    def between(self, target: Target) -> str:
        """Return the names of the levels on either side: `GL ⇄ L2`."""
        return f"{target.levels[self.level].name} ⇄ {target.levels[self.level - 1].name}"


@attrs.frozen
class Certificate:
    """A proof that every program of a Spec costs at least `cost`. Prices are in units of cost."""

    spec: Spec
    target: Target = attrs.field(repr=False, eq=False)
    cuts: tuple[Cut, ...]
    #: The prices of a point of each family of operations.
    work: tuple[Fraction, ...]
    #: The prices of a byte at each cut.
    touch: tuple[Fraction, ...]
    again: tuple[Fraction, ...]

    @property
    def required(self) -> RequiredWork:
        return work_of(self.spec, self.target)

    @property
    def threads(self) -> int:
        """Return the number of threads that may share the work."""
        return 1 if self.spec.logical.serial else max(1, self.target.weights.threads)

    @property
    def cost(self) -> int:
        """Return the lower bound on cost; at least 1, as every program has a kernel."""
        prices = zip(self._worth, (*self.work, *self.touch, *self.again), strict=True)
        return max(1, ceil(sum((worth * price for worth, price in prices), Fraction(0))))

    @property
    def _worth(self) -> list[Fraction]:
        """Return the cost that a unit of each price adds to the bound."""
        shared = [*self.required.points, *(cut.touched for cut in self.cuts)]
        return [*(Fraction(one, self.threads) for one in shared), *(-cut.spared for cut in self.cuts)]

    def priced(self) -> Certificate:
        """Return the certificate with the best prices found. Those of bytes are rounded down until feasible."""
        prices = _best_prices(self, [float(one) for one in self._worth])
        families, count = len(self.required.points), len(self.cuts)
        for cautious in (1e-9, 1e-6, 1e-3, 1.0):
            inside = [Fraction(int(value * (1 - cautious) * _UNIT), _UNIT) for value in prices[families:]]
            made = attrs.evolve(self, touch=tuple(inside[:count]), again=tuple(inside[count:]))
            if _too_cheap(made) is None:
                return attrs.evolve(made, work=_prices_of_work(made, prices[:families]))
        raise MorelloError("no feasible prices of bytes", "this is a bug: please report it")


def certificate(spec: Spec, target: Target) -> Certificate:
    """Return the best certificate found for a Spec. Raises MorelloError for targets with rewrites of their own."""
    return Certificate(spec, target, cuts_of(spec, target), (), (), ()).priced()


def memory_inside(spec: Spec, target: Target, level: int) -> int:
    """Return the bytes that programs of a Spec may hold in levels before `level`, with each register full."""
    widest = max(state.dtype.bytes for state in spec.logical.states)
    total = 0
    for one, limit in zip(target.levels[:level], spec.limits, strict=False):
        total += int(limit) // one.unit * max(one.unit, widest) if one.kind == "scalar" else int(limit)
    return total


def cuts_of(spec: Spec, target: Target) -> tuple[Cut, ...]:
    """Return the cuts between levels, fastest first, beginning behind all registers."""
    return tuple(
        cut_of(level, traffic(bare.nest, bare.memory, bare.resident, single=is_single(spec)), spec, target)
        for level, bare in sides(spec, target).items()
    )


def sides(spec: Spec, target: Target) -> dict[int, Traffic]:
    """Return the compulsory traffic of each cut, by the number of the level behind it."""
    nest = _narrowest(spec, target)
    numbers = {level.name: number for number, level in enumerate(target.levels)}
    home = [numbers[state.level] for state in spec.logical.states]
    found: dict[int, Traffic] = {}
    for level in range(1, len(target.levels)):
        if not target.levels[level].is_register:
            resident = frozenset(operand for operand, own in enumerate(home) if own < level)
            found[level] = traffic(nest, memory_inside(spec, target, level), resident, single=False)
    return found


def _narrowest(spec: Spec, target: Target) -> Nest:
    """Return the nest of a Spec with inputs of the narrowest type that casts on moves allow; wider ones move more."""
    nest = nest_of(spec)
    arrays = tuple(
        array if array.writes else attrs.evolve(array, bytes=min(one.bytes for one in _casts(state.dtype, target)))
        for array, state in zip(nest.arrays, spec.logical.states, strict=True)
    )
    return attrs.evolve(nest, arrays=arrays)


def _casts(dtype: DType, target: Target) -> set[DType]:
    """Return the types that moves may cast a value to, and its own."""
    found = {dtype}
    casts = [[by_name(name, target.dtypes) for name in cast] for cast in target.info.casts]
    while more := {to for start, to in casts if start in found} - found:
        found |= more
    return found


def cut_of(level: int, found: Traffic, spec: Spec, target: Target) -> Cut:
    """Return the cut before a level with the proven traffic."""
    # Converted results appear without a move.
    converts = Convert in target.rewrites and next(iter(Convert.steps(spec.logical, target)), None) is not None
    nest = found.nest
    return Cut(level, found, sum(nest.touched(one) * one.bytes for one in nest.arrays if one.writes) if converts else 0)


@attrs.frozen
class BoundaryMove:
    """A move between two levels, by number: the boundaries that it crosses inwards, and its cost per byte."""

    source: int
    into: int
    cuts: tuple[int, ...]
    cost: Fraction


def crossings(target: Target, levels: Sequence[int]) -> list[BoundaryMove]:
    """Return the moves that cross some of the boundaries before `levels`."""
    numbers = {level.name: number for number, level in enumerate(target.levels)}
    found: list[BoundaryMove] = []
    for source, level in enumerate(target.levels):
        for into in (numbers[name] for name in level.destinations):
            crossed = tuple(at for at, cut in enumerate(levels) if into < cut <= source)
            found.append(
                BoundaryMove(source, into, crossed, cost_per_byte(target, source) + cost_per_byte(target, into))
            )
    return [one for one in found if one.cuts]


def cost_per_byte(target: Target, level: int) -> Fraction:
    """Return the least cost that a byte of a tensor adds to its move."""
    one = target.levels[level]
    return Fraction(0) if one.is_register else Fraction(one.hit_cost, one.unit)


def _best_prices(made: Certificate, worth: list[float]) -> list[float]:
    """Return prices of points, then of bytes at cuts, of about the largest worth. Violated calls join the program."""
    if not any(worth):
        return [0.0] * len(worth)
    target, cuts, work = made.target, made.cuts, made.required
    families, moves = len(work.points), crossings(target, [cut.level for cut in cuts])
    at_cut = [[float(at in move.cuts) for at in range(len(cuts))] for move in moves]
    rows = [[*[0.0] * families, *one, *one] for one in at_cut]
    right = [float(move.cost) for move in moves]
    # Prices that no move across a cut or no call limits: then no program exists.
    price_limit = float(sum(cost_per_byte(target, level) for level in range(len(target.levels))))
    called = {family for call in work.calls for family in call.work}
    limits = [0.0 if family not in called else inf for family in range(families)] + [price_limit] * len(cuts)
    # Without a proof of more than compulsory bytes, none is moved again.
    limits += [price_limit if cut.rate else 0.0 for cut in cuts]
    limited = np.isfinite(limits)
    rows += np.eye(len(worth))[limited].tolist()
    right += np.array(limits)[limited].tolist()
    calls = [(call, _columns(call, cuts, families)) for call in work.calls]
    worst = [int(np.argmin(call.cost / np.maximum(1, matrix[:families].sum(axis=0)))) for call, matrix in calls]
    new = [*zip(calls, worst, strict=True)]
    values: list[float] = []
    for _ in range(_MOST_ROUNDS + 1):
        rows += [matrix[:, at].tolist() for (_, matrix), at in new]
        right += [float(call.cost[at]) for (call, _), at in new]
        values = _solve(worth, rows, right)
        over = [np.asarray(values) @ matrix - call.cost * (1 + _CLOSE) for call, matrix in calls]
        new = [(one, int(np.argmax(amount))) for one, amount in zip(calls, over, strict=True) if amount.max() > 0]
        if not new:
            break
    return values


def _columns(call: CallTable, cuts: Sequence[Cut], families: int) -> np.ndarray:
    """Return the amounts of each price in calls, [prices, calls]."""
    none = np.zeros(len(call.cost))
    work = [call.work.get(family, none).astype(float) for family in range(families)]
    outside = [call.outside(cut.level).astype(float) for cut in cuts]
    again = [
        # Copies may move values in; computations with all operands inside need them.
        beyond if call.moves else -float(cut.rate) * sum(work, none) if call.is_inside(cut.level) else none
        for cut, beyond in zip(cuts, outside, strict=True)
    ]
    return np.stack([*work, *outside, *again])


def _solve(worth: Sequence[float], rows: Sequence[Sequence[float]], right: Sequence[float]) -> list[float]:
    """Return the prices with the largest worth. Rows and columns are scaled to be comparable."""
    size = np.maximum(right, 1.0)
    matrix = np.array(rows) / size[:, None]
    scale = np.maximum(np.abs(matrix).max(axis=0), 1e-12)
    costs, limits = -np.array(worth) / scale / max(map(abs, worth)), -np.array(right) / size
    return np.maximum(0.0, minimum(costs, -matrix / scale, limits) / scale).tolist()


def _too_cheap(made: Certificate) -> str | None:
    """Return in words a move or call that costs less than its worth at the prices of bytes; None if feasible."""
    for move in crossings(made.target, [cut.level for cut in made.cuts]):
        if sum((made.touch[at] + made.again[at] for at in move.cuts), Fraction(0)) > move.cost:
            return f"moves across {len(move.cuts)} cuts cost {float(move.cost):g} a byte"
    for call in made.required.calls:
        if (_left(call, made) < 0).any():
            return f"a call for {call.op} costs less than the bytes it moves are worth"
    return None


def _left(call: CallTable, made: Certificate) -> Ints:
    """Return the cost that calls leave for their points, [calls], as exact integers in units of 1/_UNIT."""
    left = call.cost.astype(object) * _UNIT
    for cut, touch, again in zip(made.cuts, made.touch, made.again, strict=True):
        beyond = call.outside(cut.level).astype(object)
        left = left - beyond * int(touch * _UNIT)
        if call.moves:
            left = left - beyond * int(again * _UNIT)
        elif call.is_inside(cut.level):
            # Rounded down, as it raises the prices of points.
            per_point = int(again * cut.rate * _UNIT)
            for points in call.work.values():
                left = left + points.astype(object) * per_point
    return left


def _worth(call: CallTable, prices: Sequence[Fraction | int]) -> Ints:
    """Return the worth of the points of calls, [calls], at these prices."""
    return sum((points.astype(object) * prices[family] for family, points in call.work.items()), 0 * call.cost)


def _prices_of_work(made: Certificate, wanted: Sequence[float]) -> tuple[Fraction, ...]:
    """Return feasible prices of points: the wanted ones, all scaled down if necessary."""
    units = [int(value * _UNIT) for value in wanted]
    share = min(
        (
            Fraction(int(free), int(price))
            for call in made.required.calls
            if call.work
            for free, price in zip(_left(call, made), _worth(call, units), strict=True)
            if free < price
        ),
        default=Fraction(1),
    )
    return tuple(share * Fraction(unit, _UNIT) for unit in units)


def verify(made: Certificate) -> None:
    """Verify a certificate in exact arithmetic. Raises MorelloError that names the first fault."""
    spec, target = made.spec, made.target
    bare = sides(spec, target)
    if [*bare] != [cut.level for cut in made.cuts]:
        raise _refused("there must be one cut between each two levels")
    for cut in made.cuts:
        if attrs.evolve(cut.traffic, segments=None) != bare[cut.level]:
            raise _refused("a cut is of another Spec, or has another memory")
        if cut.traffic.segments is not None and not is_single(spec):
            raise _refused("a graph of operations has no points that touch all of its operands")
        check(cut.traffic)
        if cut_of(cut.level, cut.traffic, spec, target) != cut:
            raise _refused("a cut does not follow from its bound")
    if len(made.work) != len(made.required.points) or {len(made.touch), len(made.again)} != {len(made.cuts)}:
        raise _refused("the number of prices is wrong")
    if min([*made.work, *made.touch, *made.again, Fraction(0)]) < 0:
        raise _refused("a price is negative")
    if any((price * _UNIT).denominator > 1 for price in (*made.touch, *made.again)):
        raise _refused(f"a price of bytes is not a multiple of 1/{_UNIT}")
    if any(price and not cut.rate for price, cut in zip(made.again, made.cuts, strict=True)):
        raise _refused("a price is for bytes that need not be moved again")
    if wrong := _too_cheap(made):
        raise _refused(wrong)
    units = [price * _UNIT for price in made.work]
    for call in made.required.calls:
        if call.work and (_left(call, made) < _worth(call, units)).any():
            raise _refused(f"a call for {call.op} costs less than its points and bytes are worth")


def _refused(why: str) -> MorelloError:
    return MorelloError(f"this certificate is not proven: {why}", "compute a new one: `morello bound FILE`")
