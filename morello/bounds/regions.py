"""Tiles for all sizes at once: the program of `tiles` solved for parameters, as a table of regions.

Where loops have M^β_i points, the largest tile is an affine function of β on each of finitely many polytopes. They are
found one by one: solve the program at a point, see which constraints decide there, and go on outside of where these
decide ([Dinh2023] Algorithm 8). All numbers in the table are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations

import attrs

from morello.bounds.linear import Row, solved
from morello.bounds.lp import minimum
from morello.bounds.nest import Nest
from morello.errors import MorelloError

#: Regions narrower than this are left out: their points are on the boundary of others.
_THIN = 1e-6
_MOST_REGIONS = 5000


@attrs.frozen
class Affine:
    """An affine function of the parameters."""

    factors: tuple[Fraction, ...]
    constant: Fraction

    def at(self, point: Row) -> Fraction:
        """Return its value."""
        return self.constant + sum((a * b for a, b in zip(self.factors, point, strict=True)), Fraction(0))

    def minus(self, other: Affine) -> Affine:
        """Return the difference of two."""
        factors = tuple(a - b for a, b in zip(self.factors, other.factors, strict=True))
        return Affine(factors, self.constant - other.constant)


@attrs.frozen
class Region:
    """A polytope of parameters: all `inside` are at least 0 there; and the largest tile, each exponent affine."""

    inside: tuple[Affine, ...]
    exponents: tuple[Affine, ...]

    @property
    def value(self) -> Affine:
        """Return the sum of the exponents: the tile has M to the power of it points."""
        columns = zip(*(one.factors for one in self.exponents), strict=True)
        return Affine(
            tuple(sum(column, Fraction(0)) for column in columns),
            sum((one.constant for one in self.exponents), Fraction(0)),
        )

    def has(self, point: Row) -> bool:
        """Return True if the parameters are in the polytope."""
        return all(one.at(point) >= 0 for one in self.inside)


@attrs.frozen
class Table:
    """All regions of a nest, for parameters between 0 and `largest`."""

    regions: tuple[Region, ...]
    largest: Fraction

    def exponents(self, beta: Row) -> tuple[Fraction, ...]:
        """Return the exponents of the largest tile: a look-up without any solver.

        Raises MorelloError for parameters that are not in the table.
        """
        region = next((one for one in self.regions if one.has(beta)), None)
        if region is None:
            raise MorelloError(f"no region has these sizes: {', '.join(map(str, beta))}", f"0 to {self.largest} each")
        return tuple(one.at(beta) for one in region.exponents)


def table(nest: Nest, largest: Fraction | int = 3) -> Table:
    """Return the regions of the largest tiles of a nest, for loops of up to M^`largest` points.

    Values have one byte. Raises MorelloError where there are too many regions.
    """
    count = len(nest.loops)
    zero = (Fraction(0),) * count
    units = [tuple(Fraction(int(at == loop)) for at in range(count)) for loop in range(count)]
    # Constraints as bound − row · λ ≥ 0; the bound is affine in the parameters.
    constraints = [(_support(nest, array), Affine(zero, Fraction(1))) for array in range(len(nest.arrays))]
    constraints += [(list(unit), Affine(unit, Fraction(0))) for unit in units]
    constraints += [([-value for value in unit], Affine(zero, Fraction(0))) for unit in units]
    box = [Affine(unit, Fraction(0)) for unit in units]
    box += [Affine(tuple(-value for value in unit), Fraction(largest)) for unit in units]
    found: list[Region] = []
    waiting = [box]
    while waiting:
        polytope = waiting.pop()
        point = _inner_point(polytope)
        if point is None:
            continue
        region = _region_at(point, constraints, count)
        found.append(region)
        if len(found) > _MOST_REGIONS:
            raise MorelloError(f"there are more than {_MOST_REGIONS} regions", "fewer loops have fewer")
        kept = [*polytope]
        for facet in region.inside:
            waiting.append([*kept, Affine(tuple(-value for value in facet.factors), -facet.constant)])
            kept.append(facet)
        found[-1] = attrs.evolve(region, inside=tuple(dict.fromkeys((*polytope, *region.inside))))
    return Table(tuple(found), Fraction(largest))


def _support(nest: Nest, array: int) -> list[Fraction]:
    if not nest.arrays[array].projective:
        raise MorelloError(
            f"{nest.arrays[array].name} has a dimension that is a sum of loops", "tables are for dimensions of one loop"
        )
    return [Fraction(int(loop in nest.arrays[array].support)) for loop in range(len(nest.loops))]


def _inner_point(polytope: Sequence[Affine]) -> tuple[Fraction, ...] | None:
    """Return a point well inside, rational; None for a polytope that is empty or thin."""
    count = len(polytope[0].factors)
    rows = [
        [*map(float, one.factors), -(float(sum(value * value for value in one.factors)) ** 0.5)]
        for one in polytope
        if any(one.factors)
    ]
    right = [-float(one.constant) for one in polytope if any(one.factors)]
    if any(one.constant < 0 for one in polytope if not any(one.factors)):
        return None
    try:
        *point, radius = minimum([*[0.0] * count, -1.0], rows, right)
    except MorelloError:
        return None
    if radius < _THIN:
        return None
    # Off the middle a little, so that it is on no boundary that symmetric regions share.
    off = radius / (4 * count)
    return tuple(
        Fraction(value + off * (place + 1) / count).limit_denominator(10**7) for place, value in enumerate(point)
    )


def _region_at(point: Row, constraints: Sequence[tuple[Row, Affine]], count: int) -> Region:
    """Return the region around a point in which the same constraints decide."""
    rows = [[-float(value) for value in row] for row, _ in constraints]
    right = [-float(bound.at(point)) for _, bound in constraints]
    near = minimum([-1.0] * count, rows, right)
    tight = [
        at
        for at, (row, bound) in enumerate(zip(rows, right, strict=True))
        if abs(sum(a * b for a, b in zip(row, near, strict=True)) - bound) < 1e-9
    ]
    basis = _deciding([constraints[at] for at in tight], count)
    matrix = [row for row, _ in basis]
    columns = [solved(matrix, [bound.factors[place] for _, bound in basis]) or () for place in range(len(point))]
    constants = solved(matrix, [bound.constant for _, bound in basis])
    assert constants is not None, "a basis has one solution"
    exponents = tuple(Affine(tuple(column[loop] for column in columns), constants[loop]) for loop in range(count))
    inside: list[Affine] = []
    for row, bound in constraints:
        slack = bound
        for value, one in zip(row, exponents, strict=True):
            scaled = Affine(tuple(value * factor for factor in one.factors), value * one.constant)
            slack = slack.minus(scaled)
        if any(slack.factors):
            inside.append(slack)
    return Region(tuple(dict.fromkeys(inside)), exponents)


def _deciding(tight: Sequence[tuple[Row, Affine]], count: int) -> list[tuple[Row, Affine]]:
    """Return constraints that prove the tile to be the largest wherever they decide: no price is below 0."""
    for chosen in combinations(tight, count):
        prices = solved([[row[loop] for row, _ in chosen] for loop in range(count)], [1] * count)
        if prices is not None and min(prices) >= 0:
            return [*chosen]
    raise MorelloError("a linear program has no vertex", "this is a bug: please report it")
