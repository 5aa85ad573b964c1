"""The tiles of tensors in one state, for all cuts: pairs of a tensor and a tile of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from morello.ir.layout import Layout
from morello.ir.numbers import Num, is_batch, numbered
from morello.ir.tensor import OperandState
from morello.search.arrays import Bools, Ints

#: Numbers of kinds of tiles, [cuts].
Kinds = npt.NDArray[np.int16]
#: Small numbers, in the narrowest type that holds them.
_Small = npt.NDArray[np.integer[Any]]


@attrs.frozen(eq=False)
class Tiles:
    """The tiles of one state: `kinds`, [cuts], and the number of each kind's state or pattern, `made`, [kinds].

    Kind -1 means no tile. States whose tiles have the same kinds share the array.
    """

    kinds: Kinds
    made: npt.NDArray[np.int32]

    def __attrs_post_init__(self) -> None:
        assert len(self.made) <= np.iinfo(self.kinds.dtype).max, "more kinds than int16 holds"


#: `States.described_by` for one rank.
DescribedBy = Callable[[Layout | None, int, int | None], Bools]


@attrs.frozen(eq=False)
class _Codes:
    """The distinct `tile_codes` of a state; `number`, [facts], is the index of the codes that follow from each facts.

    `form`, [codes], numbers the layout and contiguity of a tile in `forms`, from 1; 0: it cuts through strips.
    """

    distinct: list[tuple[int, ...]]
    number: Ints
    form: Ints
    forms: list[tuple[Layout | None, int]]


class CutGroup:
    """Cuts of tensors of one rank with the same `sliding` dimensions.

    `whole` and `tile`, [cuts], number tensors, whose sizes are `dims`, [rank, tensors].
    """

    def __init__(self, sliding: Sequence[bool], whole: Ints, tile: Ints, dims: Ints):
        self._sliding, self._whole, self._tile, self._tensors = sliding, whole, tile, dims.shape[1]
        self._shape, self._part = [*dims[:, whole]], [*dims[:, tile]]
        #: Per dimension the distinct sizes of tensors and tiles, [2, distinct], and the column of each cut, [cuts].
        self._sizes: list[tuple[Ints, Ints]] = []
        for sizes in zip(self._shape, self._part, strict=True):
            distinct, which = numbered(sizes)
            self._sizes.append((np.array(distinct, dtype=np.int64).T, which))
        #: The distinct `tile_facts`, [facts] of arrays [distinct], and the place of each cut's, [cuts].
        self._facts: dict[tuple[object, ...], tuple[list[Ints], _Small]] = {}
        self._codes: dict[tuple[object, ...], _Codes] = {}

    def kinds(
        self, state: OperandState, alignment: int, described_by: DescribedBy, first: int
    ) -> tuple[list[tuple[int, ...]], Kinds]:
        """Return the `tile_codes` of each kind of tile of a state, and the kind of each cut, [cuts], from `first` on.

        `alignment` is that of the state's level, in bytes.
        """
        facts, which = self._distinct_facts(state, alignment)
        codes = self._distinct_codes(state, alignment, facts)
        there: Bools = described_by(state.layout, state.contig, state.vector).take(self._whole)
        if state.vector is not None:
            # A tile must consist of whole vectors.
            described = [described_by(*form, state.vector) for form in codes.forms]
            rows = np.concatenate([np.zeros(self._tensors, dtype=np.bool_), *described])
            first_of_row: Ints = np.take(codes.form[codes.number] * self._tensors, which)
            there &= rows.take(first_of_row + self._tile)
        # Numbered from 1; 0: no tile.
        own: _Small = (which + which.dtype.type(1)) * there
        met = codes.number[np.flatnonzero(np.bincount(own, minlength=len(codes.number) + 1)[1:])]
        found = [each for each in sorted({*met.tolist()}) if codes.form[each]]
        place = np.full(len(codes.distinct), -1, dtype=np.int16)
        place[found] = np.arange(first, first + len(found))
        return [codes.distinct[each] for each in found], np.take(np.append(np.int16(-1), place[codes.number]), own)

    def _distinct_codes(self, state: OperandState, alignment: int, facts: Sequence[Ints]) -> _Codes:
        key = *self._facts_key(state, alignment), state.contig, state.aligned, state.spacing
        if key not in self._codes:
            distinct, number = _numbered(state.codes_of(facts), 1)
            forms: dict[tuple[Layout | None, int], int] = {}
            known: dict[tuple[int, ...], int] = {}
            for codes in distinct:
                # The layout does not depend on alignment and spacing.
                if (dims := codes[:-2]) not in known:
                    broken = state.breaks_strips(codes)
                    known[dims] = 0 if broken else forms.setdefault(state.tiled_layout(codes), len(forms) + 1)
            form = np.array([known[codes[:-2]] for codes in distinct])
            self._codes[key] = _Codes(distinct, number, form, [*forms])
        return self._codes[key]

    def _facts_key(self, state: OperandState, alignment: int) -> tuple[object, ...]:
        """Return the fields on which `tile_facts` depend."""
        return state.layout, state.dtype.bytes, state.vector if any(self._sliding) else None, alignment

    def _distinct_facts(self, state: OperandState, alignment: int) -> tuple[list[Ints], _Small]:
        """Return the distinct `tile_facts` of the cuts of a state, and the place of each cut's, [cuts]."""
        key = self._facts_key(state, alignment)
        if key not in self._facts:
            # Tensors that the layout does not describe are ignored later.
            with np.errstate(divide="ignore"):
                codes = self._layout_codes(state.layout) if state.layout else None
                facts = state.tile_facts(self._shape, self._part, alignment, None, self._sliding, codes)
            distinct, which = _numbered(facts, len(self._whole))
            columns = [*np.array(distinct, dtype=np.int64).T]
            self._facts[key] = columns, which.astype(np.min_scalar_type(len(distinct)))
        return self._facts[key]

    def _layout_codes(self, layout: Layout) -> list[Num]:
        """Return a layout's `tile_codes`, [cuts] each. The code of a dimension depends on its sizes alone."""
        codes: Sequence[Num] = layout.tile_codes(
            [whole for (whole, _), _ in self._sizes], [tile for (_, tile), _ in self._sizes]
        )
        return [
            np.take(code, self._sizes[one.dim][1]) if isinstance(code, np.ndarray) else code
            for one, code in zip(layout.dims, codes, strict=True)
        ]


def _numbered(codes: Sequence[Num], count: int) -> tuple[list[tuple[int, ...]], Ints]:
    """Return the distinct tuples of codes of `count` cells, and the place of each cell's."""
    return numbered(codes) if is_batch(codes) else ([tuple(map(int, codes))], np.zeros(count, dtype=np.int64))
