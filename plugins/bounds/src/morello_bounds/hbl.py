"""Exponents that bound the points of a set by its values: |V| ≤ ∏ L_i^ζ_i · ∏ |φ_j(V)|^s_j ([Dinh2023] §2.3.3).

φ_j maps points to the index of array j, and the projections x ↦ x_i count as arrays of L_i values. The inequality holds
for all sets V if for each subspace H: rank H ≤ Σ s_j · rank φ_j(H) + Σ ζ_i · rank x_i(H). It suffices to check those
H that are sums and intersections of the maps' kernels; if the maps split into separate groups of loops, those of each
group.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

import attrs

from morello_bounds.linear import image_rank, lattice, null_space, reduced
from morello_bounds.nest import Nest
from morello_bounds.programs import exact_minimum

#: The limit of subspaces of one group of loops; operations have a handful.
MOST_SUBSPACES = 200


@attrs.frozen
class Exponents:
    """The exponents of an inequality: `s` for each array, `zeta` for each loop."""

    s: tuple[Fraction, ...]
    zeta: tuple[Fraction, ...]

    @property
    def sigma(self) -> Fraction:
        """Return the sum of the exponents of arrays."""
        return sum(self.s, Fraction(0))


@attrs.frozen
class RankConstraint:
    """The constraint of one subspace: its rank, and the ranks of its images under each array's map and each loop's."""

    rank: int
    arrays: tuple[int, ...]
    loops: tuple[int, ...]

    def holds(self, exponents: Exponents) -> bool:
        """Return True if the exponents are large enough for the subspace."""
        terms = [*zip(self.arrays, exponents.s, strict=True), *zip(self.loops, exponents.zeta, strict=True)]
        return sum((rank * exponent for rank, exponent in terms), Fraction(0)) >= self.rank


def groups(nest: Nest) -> list[tuple[int, ...]]:
    """Return the loops in groups: loops in one dimension of an array are in one group."""
    group = {loop: {loop} for loop in range(len(nest.loops))}
    for form in (form for array in nest.arrays for form in array.index):
        together = set().union(*(group[loop] for loop, _ in form))
        group |= dict.fromkeys(together, together)
    return sorted({tuple(sorted(one)) for one in group.values()})


@lru_cache(maxsize=1024)
def constraints(nest: Nest) -> tuple[RankConstraint, ...]:
    """Return the constraints on exponents. Raises MorelloError for too many subspaces."""
    found: dict[RankConstraint, None] = {}
    for group in groups(nest):
        width = len(group)
        maps = [_rows(nest, array, group) for array in range(len(nest.arrays))]
        units = [[[int(at == loop) for at in range(width)]] for loop in range(width)]
        kernel = [null_space(rows, width) for rows in (*maps, *units)]
        # The whole space of the group counts, even if no sum yields it.
        whole = reduced(unit[0] for unit in units)
        for space in lattice([*kernel, whole], width, MOST_SUBSPACES):
            inside = {loop: image_rank(units[place], space) for place, loop in enumerate(group)}
            found[
                RankConstraint(
                    len(space),
                    tuple(image_rank(rows, space) for rows in maps),
                    tuple(inside.get(loop, 0) for loop in range(len(nest.loops))),
                )
            ] = None
    return tuple(found)


def _rows(nest: Nest, array: int, group: Sequence[int]) -> list[list[int]]:
    """Return the dimensions of an array that depend on a group of loops, as a matrix over them."""
    rows = nest.arrays[array].rows(len(nest.loops))
    return [[row[loop] for loop in group] for row in rows if any(row[loop] for loop in group)]


def is_valid(nest: Nest, exponents: Exponents) -> bool:
    """Return True if the exponents make an inequality that holds for all sets of points."""
    values = [*exponents.s, *exponents.zeta]
    if (len(exponents.s), len(exponents.zeta)) != (len(nest.arrays), len(nest.loops)):
        return False
    return all(0 <= value <= 1 for value in values) and all(one.holds(exponents) for one in constraints(nest))


def least_sigma(nest: Nest) -> Exponents:
    """Return exponents of the arrays alone with the least sum, for large loops."""
    rows = [one.arrays for one in constraints(nest)]
    count = len(nest.arrays)
    caps = [[-int(at == place) for at in range(count)] for place in range(count)]
    x = exact_minimum([1] * count, [*rows, *caps], [*(one.rank for one in constraints(nest)), *[-1] * count])
    return Exponents(x, (Fraction(0),) * len(nest.loops))
