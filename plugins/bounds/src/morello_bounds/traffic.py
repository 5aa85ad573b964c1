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
from collections.abc import Iterator
from fractions import Fraction
from functools import cached_property, lru_cache

import attrs
import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.special import xlogy

from morello.errors import MorelloError
from morello.ir.impl import Alloc, Impl, KernelCall, Leaf, walk
from morello.kernels.target import Target
from morello_bounds.hbl import Exponents, constraints, is_valid
from morello_bounds.linear import rational_near, reduced
from morello_bounds.nest import Nest
from morello_bounds.programs import minimum

Floats = npt.NDArray[np.float64]

#: Sizes of segments that are tried, in multiples of the memory.
_SEGMENTS = [2.0 ** (at / 2) for at in range(-6, 13)]
#: The number of most promising sizes of segments that are proven in exact arithmetic.
_EXACT = 3
#: Denominators that free exponents may have.
_DENOMINATORS = (1, 2, 6, 12, 60)
#: The largest common denominator of exponents.
_LARGEST = 3600
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
    def bytes(self) -> int:
        """Return the bytes that the complete segments of any program load."""
        return self.loaded * math.floor(self.share)

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
        exponents = np.array([*self.exponents.zeta, *self.exponents.s], dtype=float)
        return math.exp(_Segment(self.nest, self.resident, self.held).log_points(exponents))

    @property
    def held(self) -> int:
        """Return the most bytes that a segment touches: its last value may exceed T."""
        return self.memory + self.loaded + _slack(self.nest, self.resident)

    def allows(self, segments: Fraction) -> bool:
        """Return True if this number of segments may have all points of the nest, in exact arithmetic."""
        s = [*zip(self.nest.arrays, self.exponents.s, strict=True)]
        outside = [one for number, one in enumerate(s) if number not in self.resident]
        sigma = sum((one for _, one in outside), Fraction(0))
        powers: list[tuple[Fraction | int, Fraction]] = [
            (segments, Fraction(1)),
            *zip(self.nest.sizes, self.exponents.zeta, strict=True),
            *((self.nest.most(s[number][0]), s[number][1]) for number in self.resident),
            *((one / array.bytes, one) for array, one in outside if one),
            *([(self.held / sigma, sigma)] if sigma else []),
        ]
        # Raised to the common denominator, all exponents are whole.
        whole = math.lcm(*(exponent.denominator for _, exponent in powers))
        most = math.prod(Fraction(base) ** int(whole * exponent) for base, exponent in powers)
        return most >= Fraction(self.nest.points - self.nest.lost) ** whole


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
    unit, slack = _unit(nest, resident), _slack(nest, resident)
    tried: list[tuple[float, int, Floats]] = []
    for loaded in sorted({max(1, round(factor * memory / unit)) * unit for factor in _SEGMENTS}):
        segment = _Segment(lifted, resident, memory + loaded + slack)
        exponents = segment.best_exponents()
        tried.append((loaded * (math.exp(segment.log_share(exponents)) - 1), loaded, exponents))
    likely = sorted(tried, key=lambda one: one[0])[-_EXACT:]
    proofs = [
        proof
        for worth, loaded, exponents in likely
        if worth > 0
        for proof in _proofs(lifted, memory, resident, loaded, exponents)
    ]
    best = max(proofs, key=lambda one: (one.loaded * (one.share - 1), -one.loaded), default=None)
    return best if best is not None and best.share > 1 and not best.allows(best.share) else None


def _unit(nest: Nest, resident: frozenset[int]) -> int:
    return math.gcd(*(array.bytes for number, array in enumerate(nest.arrays) if number not in resident))


def _slack(nest: Nest, resident: frozenset[int]) -> int:
    """Return the bytes by which the last value of a segment may exceed its size."""
    largest = max((array.bytes for number, array in enumerate(nest.arrays) if number not in resident), default=0)
    return largest - _unit(nest, resident) if largest else 0


def _proofs(nest: Nest, memory: int, resident: frozenset[int], loaded: int, best: Floats) -> Iterator[Segments]:
    """Yield proofs with exponents of each denominator near the best ones, for segments that load `loaded` bytes."""
    rows, right = _all_rows(nest)
    tight = rows @ best - right < 1e-5
    basis = reduced(np.column_stack([rows, right])[tight].tolist())
    known: set[Exponents] = set()
    for denominator in _DENOMINATORS:
        values = rational_near(basis, best.tolist(), denominator)
        if values is None:
            continue
        exponents = Exponents(tuple(values[len(nest.loops) :]), tuple(values[: len(nest.loops)]))
        if exponents in known or not is_valid(nest, exponents):
            continue
        known.add(exponents)
        proof = Segments(nest, memory, resident, loaded, exponents, Fraction(0))
        share = (nest.points - nest.lost) / proof.largest()
        # Rounded down; checked exactly in the end.
        yield attrs.evolve(proof, share=Fraction(math.ceil(share * (1 - 1e-9) * _PARTS) - 1, _PARTS))


@attrs.frozen
class _Segment:
    """Segments of a nest that touch `held` bytes. Exponents are those of loops, then of arrays."""

    nest: Nest
    resident: frozenset[int]
    held: float

    @cached_property
    def _outside(self) -> npt.NDArray[np.bool_]:
        """Return True for the exponents of arrays that are not resident."""
        return np.array([*[False] * len(self.nest.loops), *(at not in self.resident for at in self._arrays)])

    @property
    def _arrays(self) -> range:
        return range(len(self.nest.arrays))

    @cached_property
    def _factors(self) -> Floats:
        """Return the factors of the exponents in log U."""
        arrays = self.nest.arrays
        bases = [self.nest.most(arrays[at]) if at in self.resident else 1 / arrays[at].bytes for at in self._arrays]
        return np.log(np.array([*self.nest.sizes, *bases], dtype=float))

    def log_points(self, exponents: Floats) -> float:
        """Return the logarithm of U."""
        s = np.maximum(exponents[self._outside], 0.0)
        return float(self._factors @ exponents + xlogy(s, s).sum() - xlogy(s.sum(), s.sum() / self.held))

    def log_share(self, exponents: Floats) -> float:
        """Return the logarithm of the least number of segments."""
        return math.log(self.nest.points - self.nest.lost) - self.log_points(exponents)

    def gradient(self, exponents: Floats) -> Floats:
        """Return the gradient of log U."""
        s = np.maximum(exponents, 1e-9)
        return self._factors + self._outside * np.log(s * self.held / s[self._outside].sum())

    def vertex(self) -> Floats:
        """Return the exponents that minimize log U without its entropy."""
        return minimum(np.maximum(self._factors + self._outside * math.log(self.held), 0.0), *_all_rows(self.nest))

    def best_exponents(self) -> Floats:
        """Return exponents that minimize the convex log U, up to rounding."""
        rows, right = _all_rows(self.nest)
        start = self.vertex()
        answer = minimize(
            self.log_points,
            start,
            jac=self.gradient,
            bounds=[(0.0, 1.0)] * len(start),
            constraints=[{"type": "ineq", "fun": lambda x: rows @ x - right, "jac": lambda x: rows}],
            method="SLSQP",
            options={"maxiter": 60, "ftol": 1e-9},
        )
        found = np.clip(answer.x, 0.0, 1.0)
        better = self.log_points(found) < self.log_points(start) and (rows @ found - right).min() > -1e-6
        return found if better else start


def _all_rows(nest: Nest) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the constraints on exponents of loops, then arrays: rows · x ≥ right, with 0 ≤ x ≤ 1 included."""
    units = np.eye(len(nest.loops) + len(nest.arrays), dtype=np.int64)
    rows = np.vstack([*([*one.loops, *one.arrays] for one in constraints(nest)), units, -units])
    return rows, np.array([*(one.rank for one in constraints(nest)), *[0] * len(units), *[-1] * len(units)])


def smooth(nest: Nest, memory: int, exponents: Exponents) -> float:
    """Return the bound without rounding, at the best T = M/(σ − 1), as in [Dinh2023]. Raises MorelloError for σ ≤ 1."""
    if exponents.sigma <= 1 or not is_valid(nest, exponents):
        raise MorelloError("these exponents do not bound traffic", "σ must exceed 1, and all constraints must hold")
    return _smooth(nest, memory, np.array([*exponents.zeta, *exponents.s], dtype=float))


def _smooth(nest: Nest, memory: int, exponents: Floats) -> float:
    loaded = memory / (exponents[len(nest.loops) :].sum() - 1)
    return loaded * (math.exp(_Segment(nest, frozenset(), memory + loaded).log_share(exponents)) - 1)


def estimate(nest: Nest, memory: int) -> float:
    """Return an estimate of the bytes of `traffic`, without proof: one linear program, for segments of M bytes."""
    lifted = nest.lifted()
    exponents = _Segment(lifted, frozenset(), 2 * memory).vertex()
    if exponents[len(lifted.loops) :].sum() <= 1 + 1e-9:
        return nest.compulsory
    return max(nest.compulsory, _smooth(lifted, memory, exponents))


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
    # Its check raises numbers to the common denominator.
    exponents = (*proof.exponents.s, *proof.exponents.zeta)
    if (proof.share * _PARTS).denominator > 1 or math.lcm(*(one.denominator for one in exponents)) > _LARGEST:
        raise _refused(
            f"shares are multiples of 1/{_PARTS}, and the common denominator of exponents at most {_LARGEST}"
        )
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
    numbers = {one.name: number for number, one in enumerate(target.levels)}
    return any(
        isinstance(one.expansion, KernelCall)
        and any(numbers[state.level] >= level for state in one.spec.logical.states)
        and not (one.spec.op.moves_data or one.spec.op.initializes)
        for one in walk(impl)
        if not isinstance(one, Leaf)
    )
