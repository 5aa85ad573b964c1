"""Tiles for all sizes at once: a multiparametric linear program, solved as a table of regions.

If loops have M^β_i points, the largest tile is an affine function of β on each of finitely many polytopes. A polytope
is found from the constraints that are tight in the solution at a point; others lie behind its facets ([Dinh2023]
Algorithm 8). Each loop has a weight slightly above 1, so that the largest tile is unique and polytopes do not overlap.
All numbers in the table are exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import TypeAlias

import attrs
import numpy as np

from morello.errors import MorelloError
from morello_bounds.linear import Row, dot, reduced, solved
from morello_bounds.nest import Nest
from morello_bounds.programs import TIGHT, minimum

#: Facets narrower than this are ignored.
_THIN = 1e-6
#: The distance behind a facet at which its neighbour is sampled.
_BEHIND = 1e-4
_MOST_REGIONS = 5000

#: An affine function of the parameters: its factors, then its constant.
Affine: TypeAlias = tuple[Fraction, ...]


def value_at(form: Affine, point: Row) -> Fraction:
    """Return the value of an affine function."""
    return dot(form, [*point, 1])


@attrs.frozen
class Region:
    """A polytope of parameters, where all `inside` are at least 0, and the affine exponents of its largest tile."""

    inside: tuple[Affine, ...]
    exponents: tuple[Affine, ...]

    @property
    def value(self) -> Affine:
        """Return the sum of the exponents: the tile has M to the power of it points."""
        return tuple(sum(column, Fraction(0)) for column in zip(*self.exponents, strict=True))

    def has(self, point: Row) -> bool:
        """Return True if the polytope contains the parameters."""
        return all(value_at(one, point) >= 0 for one in self.inside)


#: A row of loops, and an affine upper bound on the sum of their exponents.
TileConstraint: TypeAlias = tuple[tuple[Fraction, ...], Affine]


@attrs.define
class TileTable:
    """The known regions of a program's largest tiles; others are computed on demand."""

    constraints: tuple[TileConstraint, ...]
    #: The weight of each loop.
    weights: tuple[Fraction, ...]
    _regions: dict[tuple[Affine, ...], Region] = attrs.field(
        factory=dict["tuple[Affine, ...]", Region], init=False, repr=False
    )

    @classmethod
    def of(cls, nest: Nest, widths: bool = False) -> TileTable:
        """Return an empty table; with `widths`, each array adds a parameter: its values have M to that power bytes."""
        count = len(nest.loops)
        parameters = count + (len(nest.arrays) if widths else 0)
        # Affine functions: each parameter alone, the constant 1 and the constant 0.
        units = [tuple(Fraction(int(at == one)) for at in range(parameters + 1)) for one in range(parameters + 1)]
        zero = (Fraction(0),) * (parameters + 1)
        held = {
            (
                tuple(Fraction(int(loop in chosen)) for loop in range(count)),
                (*(-value for value in units[count + at][:-1]), Fraction(1)) if widths else units[-1],
            )
            for at, array in enumerate(nest.arrays)
            for chosen in array.choices
        }
        constraints = [*sorted(held), *((unit[:count], unit) for unit in units[:count])]
        constraints += [(tuple(-one for one in unit[:count]), zero) for unit in units[:count]]
        weights = tuple(1 + Fraction(1, 500 + loop * (41 + loop)) for loop in range(count))
        return cls(tuple(constraints), weights)

    @property
    def regions(self) -> tuple[Region, ...]:
        return tuple(self._regions.values())

    def exponents(self, beta: Row) -> tuple[Fraction, ...]:
        """Return the exponents of the largest tile. Raises MorelloError for parameters below 0."""
        if min(beta) < 0:
            raise MorelloError(f"no region has these sizes: {', '.join(map(str, beta))}", "0 or more each")
        return tuple(value_at(one, beta) for one in self.region(beta).exponents)

    def region(self, beta: Row) -> Region:
        """Return the region of these parameters."""
        known = next((one for one in self._regions.values() if one.has(beta)), None)
        if known is None:
            known = self._found(beta)
            self._regions[known.exponents] = known
        return known

    def _found(self, beta: Row) -> Region:
        """Compute the region around parameters, where the same constraints are tight."""
        rows = -np.array([row for row, _ in self.constraints], dtype=float)
        right = -np.array([value_at(bound, beta) for _, bound in self.constraints], dtype=float)
        slack = rows @ minimum(-np.array(self.weights, dtype=float), rows, right) - right
        basis = self._tight_basis([one for one, left in zip(self.constraints, slack, strict=True) if left < TIGHT])
        matrix = [row for row, _ in basis]
        columns = [solved(matrix, column) or () for column in zip(*(bound for _, bound in basis), strict=True)]
        exponents = tuple(zip(*columns, strict=True))
        inside = [
            tuple(limit - dot(row, column) for limit, column in zip(bound, columns, strict=True))
            for row, bound in self.constraints
        ]
        return Region(tuple(dict.fromkeys(one for one in inside if any(one[:-1]))), exponents)

    def _tight_basis(self, tight: Sequence[TileConstraint]) -> list[TileConstraint]:
        """Return a basis of the tight constraints whose dual variables are not negative."""
        rows, weights = np.array([row for row, _ in tight], dtype=float).T, np.array(self.weights, dtype=float)
        prices = minimum(np.ones(len(tight)), np.vstack([rows, -rows]), np.concatenate([weights, -weights]))
        basis: list[TileConstraint] = []
        for at in sorted(range(len(tight)), key=lambda one: prices[one] < TIGHT):
            if len(reduced([*(row for row, _ in basis), tight[at][0]])) > len(basis):
                basis.append(tight[at])
        exact = solved([*zip(*(row for row, _ in basis), strict=True)], self.weights)
        if exact is None or min(exact) < 0:
            raise MorelloError("a linear program has no vertex", "this is a bug: please report it")
        return basis


def table(nest: Nest, largest: Fraction | int = 3) -> TileTable:
    """Return the table of a nest for loops of up to M^`largest` points. Raises MorelloError for too many regions."""
    made = TileTable.of(nest)
    count = len(nest.loops)
    waiting = [made.region([Fraction(largest, 3 + loop) for loop in range(count)])]
    for region in waiting:
        for beta in _behind(region, Fraction(largest)):
            if len(made.regions) > _MOST_REGIONS:
                raise MorelloError(f"this nest has more than {_MOST_REGIONS} regions", "take a nest of fewer loops")
            known = len(made.regions)
            neighbour = made.region(beta)
            if len(made.regions) > known:
                waiting.append(neighbour)
    return made


def _behind(region: Region, largest: Fraction) -> Iterator[list[Fraction]]:
    """Yield parameters just behind each facet of a region, within 0 to `largest`."""
    count = len(region.exponents)
    units = [tuple(Fraction(int(at == loop)) for at in range(count)) for loop in range(count)]
    box = [(*(-value for value in unit), largest) for unit in units]
    forms = [*dict.fromkeys((*region.inside, *box))]
    normals = np.array([one[:-1] for one in forms], dtype=float)
    # The last variable is the radius of a ball inside the polytope.
    rows = np.column_stack([normals, -np.linalg.norm(normals, axis=1)])
    right = -np.array([one[-1] for one in forms], dtype=float)
    for at in range(len(region.inside)):
        normal, facet = normals[at], np.append(normals[at], 0.0)
        others = np.vstack([np.delete(rows, at, axis=0), facet, -facet])
        try:
            found = minimum([*[0.0] * count, -1.0], others, [*np.delete(right, at), right[at], -right[at]])
        except MorelloError:
            continue
        point, radius = found[:-1], found[-1]
        # Slightly off the center, to avoid boundaries between symmetric regions.
        aside = radius * np.arange(1, count + 1) / (4 * count**2)
        beta = point - _BEHIND * normal / (normal @ normal) + np.where(normal == 0, aside, 0.0)
        if radius > _THIN and all(0 <= value <= largest for value in beta):
            yield [Fraction(value).limit_denominator(10**9) for value in beta]
