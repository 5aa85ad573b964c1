"""Lower bounds on the bytes that any program moves, with constants and proofs, and the bytes that a program moves.

A program is cut into segments that load T bytes each. A segment touches values that were in the M bytes of fast memory
when it began, or that it loads: Σ p_j·|φ_j(V)| ≤ M + T, with p_j the bytes of a value of array j. With exponents of
`hbl`, no segment has more points than

    U(T) = ∏ L_i^ζ_i · ((M + T)/σ)^σ · ∏ (s_j/p_j)^s_j,    σ = Σ s_j,

so that at least ⌈points/U(T)⌉ − 1 segments are complete and load T bytes each. Arrays that stay in fast memory count
like loops: by |A_j|^s_j, outside of σ. In addition, each value touched is loaded or stored once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cached_property, lru_cache

import attrs
from scipy.optimize import minimize

from morello.errors import MorelloError
from morello.ir.impl import Alloc, Impl, KernelCall, Leaf
from morello.kernels.target import Target
from morello_bounds.hbl import Exponents, constraints, is_valid
from morello_bounds.linear import rational_near, reduced
from morello_bounds.lp import minimum
from morello_bounds.nest import Array, Nest

#: Sizes of segments that are tried, in multiples of the memory.
_SEGMENTS = [2.0 ** (at / 2) for at in range(-6, 13)]
#: The number of most promising sizes of segments that are proven in exact arithmetic.
_EXACT = 3
#: Denominators that free exponents may have.
_DENOMINATORS = (1, 2, 6, 12, 60)
#: Shares of segments are multiples of 1/_PARTS.
_PARTS = 64


@attrs.frozen
class Segments:
    """A proof that loads are many: each segment that loads `loaded` bytes has few points, and `share` of them too few.

    `exponents` belong to `nest`, whose arrays `resident` (by number) need not be loaded.
    """

    nest: Nest
    memory: int
    resident: frozenset[int]
    loaded: int
    exponents: Exponents
    share: Fraction

    @property
    def full(self) -> int:
        """Return a lower bound on the number of complete segments of any program."""
        return math.floor(self.share)

    @property
    def bytes(self) -> int:
        return self.loaded * self.full

    @property
    def term(self) -> str:
        nest = self.nest
        bases = [*((f"|{array.name}|", 2) for array in nest.arrays), *zip(nest.loops, nest.sizes, strict=True)]
        powers = [
            f"{name}^{exponent}" if exponent != 1 else name
            for (name, size), exponent in zip(bases, (*self.exponents.s, *self.exponents.zeta), strict=True)
            if exponent and size > 1
        ]
        return f"points ≤ {' · '.join(powers)}"

    def largest(self) -> float:
        """Return U(T), the most points of a segment, up to rounding."""
        values = [*map(float, self.exponents.zeta), *map(float, self.exponents.s)]
        return math.exp(_Segment(self.nest, self.resident, self.held).log_points(values))

    @property
    def held(self) -> int:
        """Return the most bytes that a segment touches: its last value may exceed T."""
        return self.memory + self.loaded + _slack(self.nest, self.resident)

    def allows(self, segments: Fraction) -> bool:
        """Return True if this number of segments may have all points of the nest, in exact arithmetic."""
        outside = [array for array in range(len(self.nest.arrays)) if array not in self.resident]
        s, zeta = self.exponents.s, self.exponents.zeta
        sigma = sum((s[array] for array in outside), Fraction(0))
        # Raised to the common denominator, all exponents are whole.
        power = math.lcm(*(exponent.denominator for exponent in (*s, *zeta)))
        most = segments**power
        for size, exponent in zip(self.nest.sizes, zeta, strict=True):
            most *= Fraction(size) ** int(power * exponent)
        for array in self.resident:
            most *= Fraction(self.nest.most(self.nest.arrays[array])) ** int(power * s[array])
        if sigma:
            most *= (Fraction(self.held) / sigma) ** int(power * sigma)
        for array in outside:
            if s[array]:
                most *= (s[array] / self.nest.arrays[array].bytes) ** int(power * s[array])
        return most >= Fraction(self.nest.points - self.nest.lost) ** power


@attrs.frozen
class Traffic:
    """A lower bound on the bytes moved between `memory` bytes of fast memory and slow memory, with its proof."""

    nest: Nest
    memory: int
    resident: frozenset[int]
    compulsory: int
    segments: Segments | None

    @cached_property
    def bytes(self) -> int:
        """Return the least bytes moved; accumulators are loaded and stored, sums that begin at zero only stored."""
        if self.segments is None:
            return self.compulsory
        again = sum(
            self.nest.touched(array) * array.bytes
            for number, array in enumerate(self.nest.arrays)
            if array.reads and array.writes and number not in self.resident
        )
        return max(self.compulsory, self.segments.bytes + again)

    @property
    def binding(self) -> str:
        if self.segments is None or self.bytes == self.compulsory:
            return "all that is touched"
        return self.segments.term


def traffic(nest: Nest, memory: int, resident: frozenset[int] = frozenset(), *, single: bool = True) -> Traffic:
    """Return the best lower bound found on the bytes that programs of a nest move.

    Arrays `resident`, by number, and indirect ones stay in fast memory. Points that are not `single` stand for several
    operations: then only values touched count.
    """
    resident |= nest.indirect
    compulsory = sum(
        nest.touched(array) * array.bytes * (array.reads + array.writes)
        for number, array in enumerate(nest.arrays)
        if number not in resident
    )
    segments = best_segments(nest, memory, resident) if single else None
    return Traffic(nest, memory, resident, compulsory, segments)


@lru_cache(maxsize=4096)
def best_segments(nest: Nest, memory: int, resident: frozenset[int]) -> Segments | None:
    """Return the best proof found; None if none is better than the compulsory bytes."""
    lifted = nest.lifted()
    try:
        constraints(lifted)
    except MorelloError:
        return None
    if any(not array.support for array in nest.arrays) or nest.points <= nest.lost or len(resident) == len(nest.arrays):
        return None
    if any(nest.points == nest.touched(array) for array in nest.arrays):
        return None  # An array with a value for each point is loaded once, which is the whole bound.
    segments = {loaded: _Segment(lifted, resident, held) for loaded, held in _loads(nest, memory, resident)}
    floats = {loaded: one.best_exponents() for loaded, one in segments.items()}
    worth = {loaded: loaded * (math.exp(one.log_share(floats[loaded])) - 1) for loaded, one in segments.items()}
    likely = sorted(worth, key=worth.__getitem__)[-_EXACT:]
    found = [
        one
        for loaded in likely
        if worth[loaded] > 0
        for one in _proofs(lifted, memory, resident, loaded, floats[loaded])
    ]
    best = max(found, key=lambda one: (one.loaded * (one.share - 1), -one.loaded), default=None)
    return best if best is not None and best.share > 1 and not best.allows(best.share) else None


def _loads(nest: Nest, memory: int, resident: frozenset[int]) -> list[tuple[int, int]]:
    """Return the sizes of segments to try, multiples of all sizes of values, each with the bytes that it may touch."""
    unit = _unit(nest, resident)
    loads = sorted({max(1, round(factor * memory / unit)) * unit for factor in _SEGMENTS})
    return [(loaded, memory + loaded + _slack(nest, resident)) for loaded in loads]


def _unit(nest: Nest, resident: frozenset[int]) -> int:
    return math.gcd(*(array.bytes for number, array in enumerate(nest.arrays) if number not in resident))


def _slack(nest: Nest, resident: frozenset[int]) -> int:
    """Return the bytes by which the last value of a segment may exceed its size."""
    largest = max((array.bytes for number, array in enumerate(nest.arrays) if number not in resident), default=0)
    return largest - _unit(nest, resident) if largest else 0


def _proofs(nest: Nest, memory: int, resident: frozenset[int], loaded: int, best: Sequence[float]) -> list[Segments]:
    """Return proofs with exponents of each denominator near the best ones, for segments that load `loaded` bytes."""
    segment = _Segment(nest, resident, memory + loaded + _slack(nest, resident))
    proofs: dict[Exponents, Segments] = {}
    rows, right = _all_rows(nest)
    slacks = _slacks(rows, right, best)
    basis = reduced([*rows[at], right[at]] for at, slack in enumerate(slacks) if slack < 1e-5)
    for denominator in _DENOMINATORS:
        values = rational_near(basis, best, denominator)
        if values is None:
            continue
        exponents = Exponents(tuple(values[len(nest.loops) :]), tuple(values[: len(nest.loops)]))
        if exponents in proofs or not is_valid(nest, exponents):
            continue
        share = math.exp(segment.log_share([float(value) for value in values]))
        # Rounded down; checked exactly in the end.
        least = Fraction(math.ceil(share * (1 - 1e-9) * _PARTS) - 1, _PARTS)
        proofs[exponents] = Segments(nest, memory, resident, loaded, exponents, least)
    return [*proofs.values()]


@attrs.frozen
class _Segment:
    """Segments of a nest that touch `held` bytes; exponents are those of loops, then of arrays."""

    nest: Nest
    resident: frozenset[int]
    held: int

    def log_points(self, values: Sequence[float]) -> float:
        """Return the logarithm of U."""
        zeta, s = values[: len(self.nest.loops)], values[len(self.nest.loops) :]
        total = sum(one * math.log(size) for one, size in zip(zeta, self.nest.sizes, strict=True))
        sigma = 0.0
        for number, (one, array) in enumerate(zip(s, self.nest.arrays, strict=True)):
            if number in self.resident:
                total += one * math.log(self.nest.most(array))
            elif one > 0:
                total += one * math.log(one / array.bytes)
                sigma += one
        return total + sigma * math.log(self.held / sigma) if sigma else total

    def log_share(self, values: Sequence[float]) -> float:
        """Return the logarithm of the least number of segments."""
        return math.log(self.nest.points - self.nest.lost) - self.log_points(values)

    def slopes(self, of_array: Callable[[int, Array], float]) -> list[float]:
        """Return the slopes of log U, given those of arrays outside."""
        arrays = enumerate(self.nest.arrays)
        own = [math.log(self.nest.most(one)) if at in self.resident else of_array(at, one) for at, one in arrays]
        return [*map(math.log, self.nest.sizes), *own]

    def gradient(self, values: Sequence[float]) -> list[float]:
        s = values[len(self.nest.loops) :]
        sigma = max(sum(one for number, one in enumerate(s) if number not in self.resident), 1e-9)
        return self.slopes(lambda at, array: math.log(max(s[at], 1e-9) / array.bytes) + math.log(self.held / sigma))

    def best_exponents(self) -> list[float]:
        """Return exponents that minimize the convex log U, up to rounding, from a linear program without entropy."""
        rows, right = _all_rows(self.nest)
        start = minimum(self.slopes(lambda _, array: math.log(max(1.0, self.held / array.bytes))), rows, right)
        answer = minimize(
            self.log_points,
            start,
            jac=self.gradient,
            bounds=[(0.0, 1.0)] * len(start),
            constraints=[{"type": "ineq", "fun": lambda x: _slacks(rows, right, x), "jac": lambda x: rows}],
            method="SLSQP",
            options={"maxiter": 60, "ftol": 1e-9},
        )
        found = [min(1.0, max(0.0, float(value))) for value in answer.x]
        better = self.log_points(found) < self.log_points(start)
        return found if better and min(_slacks(rows, right, found)) > -1e-6 else [*start]


def _all_rows(nest: Nest) -> tuple[list[list[int]], list[int]]:
    """Return the constraints on exponents of loops, then arrays: rows · x ≥ right, with 0 ≤ x ≤ 1 included."""
    count = len(nest.loops) + len(nest.arrays)
    units = [[int(at == place) for at in range(count)] for place in range(count)]
    rows = [[*one.loops, *one.arrays] for one in constraints(nest)]
    rows += [*units, *([-value for value in unit] for unit in units)]
    return rows, [*(one.rank for one in constraints(nest)), *[0] * count, *[-1] * count]


def _slacks(rows: Sequence[Sequence[int]], right: Sequence[int], x: Sequence[float]) -> list[float]:
    return [sum(a * b for a, b in zip(row, x, strict=True)) - bound for row, bound in zip(rows, right, strict=True)]


def smooth(nest: Nest, memory: int, exponents: Exponents) -> float:
    """Return the bound without rounding, at the best T = M/(σ − 1), as in [Dinh2023]. Raises MorelloError for σ ≤ 1."""
    sigma = float(exponents.sigma)
    if sigma <= 1 or not is_valid(nest, exponents):
        raise MorelloError("these exponents do not bound traffic", "σ must exceed 1, and all constraints must hold")
    value = (sigma - 1) ** (sigma - 1) * (nest.points - nest.lost) / memory ** (sigma - 1)
    for array, one in zip(nest.arrays, map(float, exponents.s), strict=True):
        value *= (array.bytes / one) ** one if one else 1.0
    for size, one in zip(nest.sizes, map(float, exponents.zeta), strict=True):
        value /= size**one
    return value - memory / (sigma - 1)


def estimate(nest: Nest, memory: int) -> float:
    """Return an estimate of the bytes of `traffic`, without proof: one linear program, for segments of M bytes."""
    lifted = nest.lifted()
    rows, right = _all_rows(lifted)
    segment = _Segment(lifted, frozenset(), 2 * memory)
    values = minimum(segment.slopes(lambda _, array: math.log(max(1.0, 2 * memory / array.bytes))), rows, right)
    sigma = sum(values[len(lifted.loops) :])
    if sigma <= 1 + 1e-9:
        return nest.compulsory
    loaded = memory / (sigma - 1)
    segments = math.exp(_Segment(lifted, frozenset(), round(memory + loaded)).log_share(values)) - 1
    return max(nest.compulsory, loaded * segments)


def check(bound: Traffic) -> None:
    """Verify a bound in exact arithmetic from its nest. Raises MorelloError that names the first fault."""
    if not bound.nest.indirect <= bound.resident:
        raise _refused("it counts an operand that points may compute without")
    compulsory = traffic(bound.nest, bound.memory, bound.resident, single=False).compulsory
    if bound.compulsory != compulsory:
        raise _refused(f"operands hold {compulsory:,} bytes, not {bound.compulsory:,}")
    proof = bound.segments
    if proof is None:
        return
    if (proof.memory, proof.resident) != (bound.memory, bound.resident) or proof.nest not in (
        bound.nest,
        bound.nest.lifted(),
    ):
        raise _refused("its proof is for another nest or another memory")
    if proof.loaded < 1 or proof.loaded % _unit(proof.nest, proof.resident) or proof.share < 0:
        raise _refused(f"segments do not load {proof.loaded} bytes")
    if not is_valid(proof.nest, proof.exponents):
        raise _refused("the inequality of its exponents is invalid")
    if proof.allows(proof.share):
        raise _refused(f"{float(proof.share):,.1f} segments may have all points")


def _refused(why: str) -> MorelloError:
    return MorelloError(f"this bound is not proven: {why}", "compute a new one: `morello bound FILE`")


def program_traffic(impl: Impl, target: Target, level: int) -> int:
    """Return the bytes that a program moves between levels before number `level` and the others, by the cost model.

    Operands of kernels beyond the cut count once per call. Specs without an implementation count as 0.
    """
    if isinstance(impl, Leaf):
        return 0
    numbers = {one.name: number for number, one in enumerate(target.levels)}
    logical, expansion = impl.spec.logical, impl.expansion
    total = 0
    if isinstance(expansion, KernelCall):
        for one, tensor in zip(logical.declared, logical.operands, strict=True):
            if numbers[tensor.state.level] >= level:
                total += int(tensor.bytes) * (one.reads + one.writes)
    elif isinstance(expansion, Alloc) and expansion.view:
        one, source = logical.declared[expansion.operand], logical.operand(expansion.operand)
        if numbers[expansion.tensors[0].state.level] < level <= numbers[source.state.level]:
            total += int(source.bytes) * (one.reads + one.writes)
    for part, child in zip(expansion.parts, impl.children, strict=True):
        runs = part.tiles if part.ranges is not None else part.times
        total += int(runs) * program_traffic(child, target, level)
    return total


def reads_beyond(impl: Impl, target: Target, level: int) -> bool:
    """Return True if a computing kernel has an operand beyond the cut, which it may read more than once."""
    if isinstance(impl, Leaf):
        return False
    if isinstance(impl.expansion, KernelCall):
        numbers = {one.name: number for number, one in enumerate(target.levels)}
        op = impl.spec.op
        beyond = any(numbers[state.level] >= level for state in impl.spec.logical.states)
        return beyond and not (op.moves_data or op.initializes)
    return any(reads_beyond(child, target, level) for child in impl.children)
