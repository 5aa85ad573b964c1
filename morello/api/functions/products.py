"""Plans of einsum: expressions of two arrays as products of matrices.

Letters in both operands and the result are the batch. Letters in one operand and the result are rows or columns.
Letters that the result lacks are summed over. Several letters of a kind become one dimension if one stride steps
through them, in a copy if need be.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from string import ascii_letters

import attrs
import numpy as np

from morello.api.functions.calls import FunctionPlan
from morello.api.functions.views import ArrayView, dtype_of, merged, result_like
from morello.errors import ArgumentError
from morello.ir.ops.binary import Mul
from morello.ir.ops.matmul import Matmul

#: Replaces the letter of an axis of size 1, which belongs to no dimension.
_NONE = " "


@attrs.frozen
class Term:
    """An array with a letter for each axis, and its name in messages."""

    seen: ArrayView
    letters: str
    name: str

    @classmethod
    def of(cls, seen: ArrayView, letters: str, name: str) -> Term:
        kept = (_NONE if size == 1 else one for one, size in zip(letters, seen.shape, strict=True))
        return cls(seen, "".join(kept), name)

    def order(self, groups: Sequence[str]) -> list[int]:
        """Return the axes in the order of groups of letters, those without a letter first."""
        ones = [axis for axis, one in enumerate(self.letters) if one == _NONE]
        return ones + [self.letters.index(one) for group in groups for one in group if one in self.letters]

    def scattered(self, groups: Sequence[str]) -> str | None:
        """Return the first group that no stride steps through, or that the term has only in part; None without one."""
        for group in groups:
            present = [self.letters.index(one) for one in group if one in self.letters]
            if 0 < len(present) < len(group) or not self.seen.joins(present):
                return group
        return None

    def viewed(self, batch: str, groups: Sequence[str], sizes: Mapping[str, int], what: str) -> ArrayView:
        """Return the array with a dimension for the batch, if not empty, and for each group; scattered ones in a copy.

        An array without letters of the batch is repeated.
        """
        own = (batch, *groups) if set(batch) & set(self.letters) else groups
        ordered = self.seen.ordered(self.order(own))
        if group := self.scattered(own):
            place = itertools.count(len(ordered.shape) - len(self.letters.replace(_NONE, "")))
            letters = "".join(own)
            aligned = ordered.grouped([[next(place)] if one in self.letters else [] for one in letters])
            ordered = aligned.copy(self._error(what, group, own), [sizes[one] for one in letters])
        place = itertools.count(len(ordered.shape) - sum(map(len, own)))
        grouped = ordered.grouped([[next(place) for _ in group] for group in own])
        repeats = math.prod(sizes[one] for one in batch)
        return grouped.repeated(repeats) if batch and len(own) == len(groups) else grouped

    def _error(self, what: str, group: str, groups: Sequence[str]) -> ArgumentError:
        """Return the error for a group that is scattered in memory, or that the term has only in part."""
        letters = "".join(groups)
        if not set(group) <= set(self.letters):
            return ArgumentError(f"{what}: {self.name} has only a part of the batch", "repeat it first: numpy.repeat")
        copy = f"numpy.ascontiguousarray(array.transpose({tuple(self.order(groups))})), with the letters {letters!r}"
        ours = self.name.startswith("operand")
        return ArgumentError(
            f"{what}: {', '.join(group)} are one dimension of the product, but are not adjacent in {self.name}",
            f"pass a copy: {copy}" if ours else f"write the result as {letters!r} and transpose it",
        )


def plan_product(name: str, expression: str, arrays: Sequence[np.ndarray], out: np.ndarray | None) -> FunctionPlan:
    """Return the plan of an expression of two arrays for the function `name`.

    Raises ArgumentError if the expression is not a product.
    """
    what = name if name != "einsum" else f"einsum {expression!r}"
    *inputs, result = _letters(what, expression, [array.ndim for array in arrays])
    terms = [
        Term.of(ArrayView.of(array, f"{what}: operand {place}"), letters, f"operand {place}")
        for place, (array, letters) in enumerate(zip(arrays, inputs, strict=True))
    ]
    sizes = _sizes(what, terms)
    _check_letters(what, inputs, terms, result)
    shape = tuple(sizes.get(one, 1) for one in result)
    target = result_like(what, dtype_of(np.result_type(*arrays), f"{what}: the result"), shape, out)
    return _plan(name, what, terms, Term.of(target, result, "the result" if out is None else "out"), sizes)


def _plan(name: str, what: str, terms: Sequence[Term], out: Term, sizes: Mapping[str, int]) -> FunctionPlan:
    if 0 in sizes.values():
        return FunctionPlan(name, Matmul(), (), (), out.seen, out.seen.shape)
    left, right = terms
    kept = out.letters.replace(_NONE, "")
    rows, columns = ("".join(one for one in kept if one not in term.letters) for term in (right, left))
    if not rows and not columns and set(left.letters) == set(right.letters) == set(out.letters) and kept:
        return _values(name, terms, out, kept)
    # The result's last axis gives the columns, so that its rows are vectors; a matrix times a vector is a row, too.
    places = (1, 0) if kept and kept[-1] in rows else (0, 1)
    lhs, rhs = (terms[place] for place in places)
    parts = ((lhs, (1, 2)), (rhs, (2, 3)), (out, (1, 3)))
    choices = [
        (dims, [term.viewed(dims[0], [dims[one] for one in own], sizes, what) for term, own in parts])
        for dims in _dimensions(lhs, rhs, kept)
    ]
    dims, views = min(choices, key=lambda choice: sum(math.prod(view.shape) for view in choice[1] if view.copied))
    shape = tuple(math.prod(sizes[one] for one in letters) for letters in dims)
    inputs = tuple(zip(places, views, strict=False))
    return FunctionPlan(name, Matmul(), shape if dims[0] else shape[1:], inputs, views[2], out.seen.shape)


def _dimensions(lhs: Term, rhs: Term, kept: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield the letters of batch, rows, sum and columns. The first rows and columns may move to the batch."""
    rows, columns = ("".join(one for one in kept if one not in term.letters) for term in (rhs, lhs))
    sums = [
        "".join(one for one in term.letters if one in other.letters and one not in kept and one != _NONE)
        for term, other in ((lhs, rhs), (rhs, lhs))
    ]
    splits = [(first, second) for first in range(len(rows) + 1) for second in range(len(columns) + 1)]
    for first, second in sorted(splits, key=sum):
        m, n = rows[first:], columns[second:]
        batch = "".join(one for one in kept if one not in m + n)
        for k in dict.fromkeys(sums):
            yield batch, m, k, n


def _values(name: str, terms: Sequence[Term], out: Term, kept: str) -> FunctionPlan:
    """Return the plan of an elementwise product."""
    every = [
        term.seen.ordered(term.order(kept)).grouped([[axis] for axis in range(-len(kept), 0)]) for term in (*terms, out)
    ]
    groups = merged(every)
    lhs, rhs, made = (one.grouped(groups) for one in every)
    return FunctionPlan(name, Mul(), made.shape, ((0, lhs), (1, rhs)), made, out.seen.shape)


def _letters(what: str, expression: str, ranks: Sequence[int]) -> list[str]:
    """Return a letter for each axis of the operands, then of the result. Raises ArgumentError for invalid text."""
    if not isinstance(expression, str):
        raise ArgumentError(
            f"einsum: expected an expression, got {type(expression).__name__}", "pass it first, as text"
        )
    match = re.fullmatch(r"([a-zA-Z.]*(?:,[a-zA-Z.]*)*)(?:->([a-zA-Z.]*))?", expression.replace(" ", ""))
    if match is None:
        raise ArgumentError(f"{what} is not an expression", "write letters of axes, as in 'bmk,bkn->bmn'")
    texts = match[1].split(",")
    if len(texts) != len(ranks):
        raise ArgumentError(f"{what} names {len(texts)} operands and got {len(ranks)}", "pass an array for each")
    if len(ranks) == 1:
        raise ArgumentError(f"{what} has one operand, a product has two", "views and sums of one: numpy.einsum")
    if len(ranks) != 2:
        raise ArgumentError(f"{what} has {len(ranks)} operands, a product has two", "call it for each pair")
    if match[2] is None:
        once = (one for one in set(match[1]) - {",", "."} if match[1].count(one) == 1)
        texts.append(("..." if "..." in match[1] else "") + "".join(sorted(once)))
    else:
        texts.append(match[2])
    if stray := next((text for text in texts if "." in text.replace("...", "", 1)), None):
        raise ArgumentError(f"{what}: {stray!r} has stray dots", "write '...' once, for all axes without a letter")
    free = [one for one in ascii_letters if one not in expression]
    more = [rank - len(text.replace("...", "")) for text, rank in zip(texts, ranks, strict=False)]
    for place, (text, rank, rest) in enumerate(zip(texts, ranks, more, strict=False)):
        if rest < 0 or (rest and "..." not in text):
            raise ArgumentError(
                f"{what}: operand {place} has {rank} axes, not those of {text!r}", "write a letter for each"
            )
    most = max(rest for rest, text in zip(more, texts, strict=False)) if "..." in match[1] else 0
    dots = ["".join(free[most - rest : most]) for rest in (*more, most)]
    found = [text.replace("...", some, 1) for text, some in zip(texts, dots, strict=True)]
    for text, letters in zip(texts, found, strict=True):
        if twice := next((one for one in letters if letters.count(one) > 1), None):
            raise ArgumentError(f"{what}: {twice} occurs twice in {text!r}", "take the diagonal first: numpy.diagonal")
    return found


def _sizes(what: str, terms: Sequence[Term]) -> dict[str, int]:
    """Return sizes by letter, without those of size 1. Raises ArgumentError if operands contradict each other."""
    sizes: dict[str, int] = {}
    for term in terms:
        for one, size in zip(term.letters, term.seen.shape, strict=True):
            if one != _NONE and sizes.setdefault(one, size) != size:
                raise ArgumentError(
                    f"{what}: {one} is {sizes[one]} in operand 0 and {size} in {term.name}, of shapes "
                    f"{terms[0].seen.shape} and {terms[1].seen.shape}",
                    "give axes of one letter the same size, or size 1",
                )
    return sizes


def _check_letters(what: str, inputs: Sequence[str], terms: Sequence[Term], result: str) -> None:
    """Raise ArgumentError for letters that only the result has, or only one operand."""
    for one in result:
        if one not in inputs[0] + inputs[1]:
            raise ArgumentError(f"{what}: {one} is in the result, but in no operand", "leave it out of the result")
    for term, other in (terms, terms[::-1]):
        for one in term.letters:
            if one != _NONE and one not in result and one not in other.letters:
                raise ArgumentError(
                    f"{what}: {one} is only in {term.name}, and not in the result",
                    "sum over it first: numpy.sum",
                )
