"""Index expressions: integer polynomials over loop counters, with floor-division and remainder.

They print as C, and simplify by the bounds of their counters: `(16·i + j) mod 16` is `j` if j < 16. Counters are not
negative, so C's `/` and `%` agree with Python's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import attrs


@attrs.frozen(cache_hash=True, order=True)
class Symbol:
    """A loop counter from 0 to extent - 1, or, without an extent, a number known only at run time."""

    name: str
    extent: int | None = None

    def bounds(self) -> tuple[int, int] | None:
        return None if self.extent is None else (0, self.extent - 1)

    def __str__(self) -> str:
        return self.name


@attrs.frozen(cache_hash=True)
class Quotient:
    """inner // by."""

    inner: IndexExpr
    by: int

    def bounds(self) -> tuple[int, int] | None:
        inner = self.inner.bounds()
        return None if inner is None else (inner[0] // self.by, inner[1] // self.by)

    def __str__(self) -> str:
        return f"{self.inner.grouped()} / {self.by}"


@attrs.frozen(cache_hash=True)
class Remainder:
    """inner mod by."""

    inner: IndexExpr
    by: int

    def bounds(self) -> tuple[int, int] | None:
        return 0, self.by - 1

    def __str__(self) -> str:
        return f"{self.inner.grouped()} % {self.by}"


Atom: TypeAlias = Symbol | Quotient | Remainder
#: A product of atoms; the empty one is the constant 1.
Monomial: TypeAlias = tuple[Atom, ...]


@attrs.frozen(cache_hash=True)
class IndexExpr:
    """A sum of monomials with integer coefficients."""

    terms: tuple[tuple[Monomial, int], ...] = ()

    def symbols(self) -> Iterator[Symbol]:
        """Yield the counters and run-time numbers in it, once for each occurrence."""
        for monomial, _ in self.terms:
            for atom in monomial:
                yield from [atom] if isinstance(atom, Symbol) else atom.inner.symbols()

    def divisions(self) -> Iterator[Quotient | Remainder]:
        """Yield the divisions in it, nested ones too, once for each occurrence."""
        for monomial, _ in self.terms:
            for atom in monomial:
                if not isinstance(atom, Symbol):
                    yield atom
                    yield from atom.inner.divisions()

    @property
    def constant(self) -> int | None:
        """Return the value if it is constant, else None."""
        if not self.terms:
            return 0
        return self.terms[0][1] if len(self.terms) == 1 and not self.terms[0][0] else None

    def __add__(self, other: IndexExpr | int) -> IndexExpr:
        sums: dict[Monomial, int] = {}
        for monomial, factor in (*self.terms, *as_index(other).terms):
            sums[monomial] = sums.get(monomial, 0) + factor
        return IndexExpr(tuple((monomial, factor) for monomial, factor in sums.items() if factor))

    __radd__ = __add__

    def __mul__(self, other: IndexExpr | int) -> IndexExpr:
        result = IndexExpr()
        for mine, factor in self.terms:
            for theirs, times in as_index(other).terms:
                monomial = tuple(sorted((*mine, *theirs), key=str))
                result = result + IndexExpr(((monomial, factor * times),))
        return result

    __rmul__ = __mul__

    def __floordiv__(self, by: int) -> IndexExpr:
        whole, rest = self._divide(by)
        bounds = rest.bounds()
        if bounds is not None and bounds[0] >= 0 and bounds[1] < by:
            return whole
        return whole + IndexExpr((((Quotient(rest, by),), 1),))

    def __mod__(self, by: int) -> IndexExpr:
        _, rest = self._divide(by)
        bounds = rest.bounds()
        if bounds is not None and bounds[0] >= 0 and bounds[1] < by:
            return rest
        return IndexExpr((((Remainder(rest, by),), 1),))

    def _divide(self, by: int) -> tuple[IndexExpr, IndexExpr]:
        """Return (whole, rest) with self = by·whole + rest, where no term of the rest is a multiple of `by`."""
        whole: list[tuple[Monomial, int]] = []
        rest: list[tuple[Monomial, int]] = []
        for monomial, factor in self.terms:
            quotient, remainder = divmod(factor, by)
            if not monomial or remainder == 0:
                whole.append((monomial, quotient))
                rest.append((monomial, remainder))
            else:
                rest.append((monomial, factor))
        keep = [tuple(term for term in terms if term[1]) for terms in (whole, rest)]
        return IndexExpr(keep[0]), IndexExpr(keep[1])

    def bounds(self) -> tuple[int, int] | None:
        """Return the smallest and largest value, None if unknown."""
        low = high = 0
        for monomial, factor in self.terms:
            first, last = 1, 1
            for atom in monomial:
                bounds = atom.bounds()
                if bounds is None or bounds[0] < 0:
                    return None
                first, last = first * bounds[0], last * bounds[1]
            low += min(factor * first, factor * last)
            high += max(factor * first, factor * last)
        return low, high

    def grouped(self) -> str:
        """Return it as C, in parentheses unless it is a single name or number."""
        text = str(self)
        alone = len(self.terms) == 1 and self.terms[0][1] == 1 and len(self.terms[0][0]) == 1
        return text if alone or text.isdigit() else f"({text})"

    def __str__(self) -> str:
        if not self.terms:
            return "0"
        # Largest strides first, the constant last.
        ordered = sorted(self.terms, key=lambda term: (not term[0], -abs(term[1])))
        parts = [_term(monomial, factor) for monomial, factor in ordered]
        return " + ".join(parts).replace("+ -", "- ")


def _term(monomial: Monomial, factor: int) -> str:
    if not monomial:
        return str(factor)
    atoms = [str(atom) if isinstance(atom, Symbol) else f"({atom})" for atom in monomial]
    return " * ".join([*([] if factor == 1 else [str(factor)]), *atoms])


def as_index(value: IndexExpr | Symbol | int) -> IndexExpr:
    """Return a counter or number as an index expression."""
    if isinstance(value, IndexExpr):
        return value
    if isinstance(value, Symbol):
        return IndexExpr((((value,), 1),))
    return IndexExpr((((), value),)) if value else IndexExpr()
