"""Exact linear algebra: subspaces of rational vectors, as matrices in reduced row echelon form."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

from morello.errors import MorelloError

#: A row of rationals or integers.
Row = Sequence[Fraction | int]
#: The basis of a subspace in reduced row echelon form: equal subspaces have equal bases.
Subspace = tuple[tuple[Fraction, ...], ...]


def reduced(rows: Iterable[Row]) -> Subspace:
    """Return the basis of the rows' span in reduced row echelon form."""
    matrix = [[Fraction(value) for value in row] for row in rows]
    width = len(matrix[0]) if matrix else 0
    top = 0
    for column in range(width):
        pivot = next((at for at in range(top, len(matrix)) if matrix[at][column]), None)
        if pivot is None:
            continue
        matrix[top], matrix[pivot] = matrix[pivot], matrix[top]
        leading = matrix[top][column]
        matrix[top] = [value / leading for value in matrix[top]]
        for at, row in enumerate(matrix):
            if at != top and row[column]:
                factor = row[column]
                matrix[at] = [value - factor * above for value, above in zip(row, matrix[top], strict=True)]
        top += 1
    return tuple(tuple(row) for row in matrix[:top])


def null_space(rows: Sequence[Row], width: int) -> Subspace:
    """Return the vectors of `width` values that all rows, as linear forms, map to zero."""
    basis = reduced(rows)
    pivots = [next(at for at, value in enumerate(row) if value) for row in basis]
    vectors: list[list[Fraction]] = []
    for column in (column for column in range(width) if column not in pivots):
        vector = [Fraction(int(at == column)) for at in range(width)]
        for pivot, row in zip(pivots, basis, strict=True):
            vector[pivot] = -row[column]
        vectors.append(vector)
    return reduced(vectors)


def common(one: Subspace, other: Subspace, width: int) -> Subspace:
    """Return the intersection of two subspaces of vectors of `width` values."""
    return null_space([*null_space(one, width), *null_space(other, width)], width)


def dot(one: Row, other: Row) -> Fraction:
    """Return the scalar product of two rows."""
    return sum((Fraction(a) * b for a, b in zip(one, other, strict=True)), Fraction(0))


def image_rank(forms: Sequence[Row], space: Subspace) -> int:
    """Return the dimension of the image of a subspace under linear forms."""
    return len(reduced([dot(form, vector) for form in forms] for vector in space)) if forms else 0


def lattice(generators: Iterable[Subspace], width: int, most: int) -> list[Subspace]:
    """Return the closure of subspaces under sums and intersections. Raises MorelloError if it has more than `most`."""
    found = dict.fromkeys(space for space in generators if space)
    done: list[Subspace] = []
    while len(done) < len(found):
        new = [*found][len(done)]
        for other in done:
            for made in (reduced([*new, *other]), common(new, other, width)):
                if made:
                    found.setdefault(made)
        done.append(new)
        if len(found) > most:
            raise MorelloError(
                f"accesses have more than {most} subspaces, perhaps infinitely many",
                "only the size of its operands bounds such a program",
            )
    return done


def solved(rows: Sequence[Row], right: Row) -> tuple[Fraction, ...] | None:
    """Return the unique solution of rows · x = right; None if it is not unique or does not exist."""
    width = len(rows[0]) if rows else 0
    basis = reduced([[*row, value] for row, value in zip(rows, right, strict=True)])
    if len(basis) != width or any(not any(row[:width]) for row in basis):
        return None
    return tuple(row[width] for row in basis)


def rational_near(basis: Subspace, near: Sequence[float], denominator: int) -> list[Fraction] | None:
    """Return a solution near a point; free variables get this denominator. Return None if it does not exist.

    `basis` has equations in reduced row echelon form, right-hand sides last.
    """
    x = [Fraction(round(value * denominator), denominator) for value in near]
    for *row, value in reversed(basis):
        pivot = next((at for at, one in enumerate(row) if one), None)
        if pivot is None:
            return None
        x[pivot] = value - sum((one * x[at] for at, one in enumerate(row) if at != pivot), Fraction(0))
    return x
