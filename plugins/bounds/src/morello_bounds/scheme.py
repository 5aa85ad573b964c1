"""Schemes: TTile's language for loops, a list of specifiers from the outermost to the innermost ([Tollenaere2021] §4).

`R` is a loop whose trips the size of the problem determines, `T` one of given trips, `U` one inside a microkernel, and
`V` the values of a vector. `λseq` are loops one after another, each with a number for the `T` or `U` of its dimension
inside. Dimensions are those of a Spec. Texts spell them as the paper does, or as TTile's files do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import prod
from typing import Literal, TypeAlias

import attrs

from morello.errors import Inapplicable, MorelloError
from morello.frontend.diagnostics import quoted
from morello.ir.ops.base import Operation
from morello.ir.ops.conv import Conv
from morello.ir.ops.matmul import Matmul

#: The letters of a Spec's dimensions in the paper, and in files. A kernel's pixels lie along h there, y in files; here
#: along w, whose pixels are neighbours in memory.
_LETTERS: dict[type[Operation], tuple[dict[str, str], dict[str, str]]] = {
    Matmul: ({"b": "b", "m": "i", "k": "k", "n": "j"}, {"b": "b", "m": "i", "k": "k", "n": "j"}),
    Conv: (
        {"b": "b", "f": "k", "c": "c", "h": "w", "w": "h", "fh": "s", "fw": "r"},
        {"b": "b", "f": "f", "c": "c", "h": "x", "w": "y", "fh": "w", "fw": "h"},
    ),
}
_HINT = "write [R_j, λseq_i α.[(2,6),(1,7)], T_{64,k}, U_{α,i}, U_{2,j}, V_j], or [V j; U(2,j); ...; R i] as in files"


@attrs.frozen
class Specifier:
    """A loop along a dimension. `R` has no count, and `T` and `U` have none if a λseq gives it."""

    kind: Literal["R", "T", "U", "V"]
    dim: str
    count: int | None = None


@attrs.frozen
class LoopSequence:
    """`λseq`: loops one after another, as pairs of trips and the number inside."""

    dim: str
    loops: tuple[tuple[int, int], ...]

    @property
    def total(self) -> int:
        """Return the sum of trips times numbers."""
        return sum(trips * number for trips, number in self.loops)


Scheme: TypeAlias = tuple[Specifier | LoopSequence, ...]


def letters(op: Operation, files: bool = False) -> Mapping[str, str]:
    """Return the letter of each dimension. Raises Inapplicable for other operations than products and convolutions."""
    if type(op) not in _LETTERS:
        raise Inapplicable(f"schemes are for Matmul and Conv, not for {op}", "write a schedule")
    return _LETTERS[type(op)][files]


def inner_sizes(scheme: Scheme, numbers: Mapping[str, int]) -> dict[str, int]:
    """Return the size of a tile along each dimension that the scheme has, given the numbers of outer sequences."""
    sizes: dict[str, int] = {}
    for one in reversed(scheme):
        count = one.total if isinstance(one, LoopSequence) else one.count or numbers.get(one.dim, 1)
        sizes[one.dim] = sizes.get(one.dim, 1) * count
    return sizes


def _along(dim: str, op: Operation) -> str:
    """Return a dimension by its letter in the paper, and in brackets its name in Specs, if that is another."""
    letter = letters(op)[dim]
    return f"along {letter}" if letter == dim else f"along {letter} ({dim} of the Spec)"


def resolved(scheme: Scheme, sizes: Mapping[str, int], values: int, op: Operation) -> Scheme:
    """Return the scheme of `T`, `U`, `V` and λseq for a problem of these sizes, with vectors of `values`.

    Raises Inapplicable if it does not cover the problem exactly.
    """
    scheme = tuple(attrs.evolve(one, count=values) if one == Specifier("V", one.dim) else one for one in scheme)
    _check(scheme, op)
    inner = inner_sizes(scheme, {})
    made: list[Specifier | LoopSequence] = []
    for one in scheme:
        if isinstance(one, Specifier) and one.kind == "R":
            trips, rest = divmod(sizes.get(one.dim, 0), inner[one.dim])
            if rest or not trips:
                rule = f"R {_along(one.dim, op)}: tiles of {inner[one.dim]} do not divide {sizes.get(one.dim, 0)}"
                raise Inapplicable(rule, "two sizes cover it exactly with λseq")
            one = Specifier("T", one.dim, trips)
        made.append(one)
    covered = inner_sizes(tuple(made), {})
    for dim, size in sizes.items():
        if covered.get(dim, 1) != size:
            rule = f"the scheme covers {covered.get(dim, 1)} of {size} {_along(dim, op)}"
            raise Inapplicable(rule, "add or change a T of that dimension")
    return tuple(made)


def _check(scheme: Scheme, op: Operation) -> None:
    """Raise Inapplicable for specifiers in a wrong place or number."""
    vectors = [place for place, one in enumerate(scheme) if isinstance(one, Specifier) and one.kind == "V"]
    if vectors and vectors != [len(scheme) - 1]:
        raise Inapplicable("V is the innermost specifier, and there is at most one", "move it to the end of the scheme")
    for dim in {one.dim for one in scheme}:
        own = [one for one in scheme if one.dim == dim]
        if sum(isinstance(one, Specifier) and one.kind == "R" for one in own) > 1:
            raise Inapplicable(f"there is more than one R {_along(dim, op)}", "give all but one of them as T")
        places = [place for place, one in enumerate(own) if isinstance(one, LoopSequence)]
        bound = [place for place, one in enumerate(own) if one in (Specifier("T", dim), Specifier("U", dim))]
        if len(places) != len(bound) or len(places) > 1 or (places and places[0] > bound[0]):
            rule = f"a λseq {_along(dim, op)} and one T or U inside that takes its number belong together"
            raise Inapplicable(rule, _HINT)


# Texts.


def scheme_text(scheme: Scheme, op: Operation, files: bool = False) -> str:
    """Return a scheme as the paper writes it, or as TTile's files do: from the innermost specifier to the outermost."""
    spelled = letters(op, files)
    if not files:
        return f"[{', '.join(_in_paper(one, spelled[one.dim]) for one in scheme)}]"
    words: list[str] = []
    for one in reversed(scheme):
        letter = spelled[one.dim]
        if isinstance(one, LoopSequence):
            loops = ";".join(f"(Iter {trips},Arg {number})" for trips, number in one.loops)
            words.append(f"Lambda_apply {letter} [{loops}]")
        elif one.count is None and one.kind in "TU":
            words.append(f"{one.kind}Lambda {letter}")
        else:
            words.append(f"{one.kind} {letter}" if one.kind in "RV" else f"{one.kind}({one.count},{letter})")
    return f"[{'; '.join(words)}]"


def _in_paper(one: Specifier | LoopSequence, letter: str) -> str:
    if isinstance(one, LoopSequence):
        return f"λseq_{letter} α.[{', '.join(f'({trips},{number})' for trips, number in one.loops)}]"
    if one.kind in "RV":
        return f"{one.kind}_{letter}"
    return f"{one.kind}_{{{'α' if one.count is None else one.count},{letter}}}"


_NUMBERS = r"\[\s*((?:\(.*?\)[\s,;]*)+)\]"
_PAPER = re.compile(
    rf"(?:λseq|lambda_?seq|Lseq)_?(?P<seq>\w)\s+(?P<name>[^\W\d]+)\s*\.\s*{_NUMBERS}"
    r"|(?P<kind>[TU])_?\{?\s*(?P<count>\d+|[^\W\d]+)\s*,\s*(?P<dim>\w)\s*\}?"
    r"|(?P<plain>[RV])_?(?P<of>\w)"
)
_FILES = re.compile(
    rf"Lambda_apply\s+(?P<seq>\w)\s*{_NUMBERS}"
    r"|(?P<bound>[TU])Lambda\s+(?P<name>\w)"
    r"|(?P<kind>[TU])\s*\(\s*(?P<count>\d+)\s*,\s*(?P<dim>\w)\s*\)"
    r"|(?P<plain>[RV])\s+(?P<of>\w)"
    r"|(?P<hoist>Hoist_vars)\s*\[.*?\]"
)


def parse_scheme(text: str, op: Operation) -> Scheme:
    """Return the scheme of a text as in the paper, or as in files if `;` separates its specifiers.

    `Hoist_vars` of files is left out: kernels keep sums in registers anyway. Raises MorelloError for other text.
    """
    inside = text.strip()
    if not (inside.startswith("[") and inside.endswith("]")):
        raise MorelloError(f"{quoted(text)} is not a scheme: it begins with [ and ends with ]", _HINT)
    inside = inside[1:-1].strip()
    files = re.match(r"(V\s|\w+Lambda\s|[TU]\s*\(|R\s|Hoist)", inside) is not None
    dims = {letter: dim for dim, letter in letters(op, files).items()}
    found = [_specifier(match, dims, op) for match in _matches(inside, _FILES if files else _PAPER, files)]
    scheme = tuple(one for one in (reversed(found) if files else found) if one is not None)
    _check(scheme, op)
    return scheme


def _matches(text: str, pattern: re.Pattern[str], files: bool) -> Iterator[re.Match[str]]:
    """Yield one match for each specifier. Raises MorelloError for text that is none."""
    place = 0
    while place < len(text):
        match = pattern.match(text, place)
        if match is None:
            rest = text[place:]
            raise MorelloError(f"{quoted(rest.split(';' if files else ' ')[0])} is not a specifier of a scheme", _HINT)
        yield match
        place = match.end()
        gap = re.compile(r"\s*;\s*" if files else r"\s*,\s*").match(text, place)
        if gap is None and text[place:].strip():
            raise MorelloError(f"no separator before {quoted(text[place:].split()[0])}", _HINT)
        place = gap.end() if gap else len(text)


def _specifier(match: re.Match[str], dims: Mapping[str, str], op: Operation) -> Specifier | LoopSequence | None:
    """Return the specifier of a match, None for Hoist_vars. Raises MorelloError for an unknown dimension or a 0."""
    part = match.groupdict()
    if part.get("hoist"):
        return None
    letter = part["seq"] or part["dim"] or part["of"] or part.get("name", "")
    if letter not in dims:
        raise MorelloError(
            f"{op} has no dimension {quoted(letter)} in schemes", f"its dimensions are {', '.join(dims)}"
        )
    dim = dims[letter]
    if part["seq"]:
        numbers = [int(one) for one in re.findall(r"\d+", match.group(match.lastindex or 0))]
        loops = tuple(zip(numbers[::2], numbers[1::2], strict=False))
        if len(loops) < 2 or len(numbers) % 2 or not prod(numbers):
            raise MorelloError(f"{quoted(match.group())}: a sequence has at least two pairs of positive numbers", _HINT)
        return LoopSequence(dim, loops)
    if part["plain"]:
        return Specifier("R" if part["plain"] == "R" else "V", dim)
    kind = part["kind"] or part["bound"]
    count = int(part["count"]) if part["count"] and part["count"].isdecimal() else None
    if count == 0:
        raise MorelloError(f"{quoted(match.group())}: a loop has at least one trip", "write a count of at least 1")
    return Specifier("U" if kind == "U" else "T", dim, count)
