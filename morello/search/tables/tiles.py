"""The tiles of tensors in one state, for all ways that tensors are cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from morello.ir.layout import Layout
from morello.ir.numbers import Num, is_batch, numbered
from morello.ir.tensor import OperandState, TensorSpec
from morello.search.arrays import Bools, Ints

#: Numbers of kinds: there is one for each state and each way to cut a tensor.
Kinds = npt.NDArray[np.int16]
#: Bytes: there are few codes, and as few spacings.
_Small = npt.NDArray[Any]


@attrs.frozen(eq=False)
class Tiles:
    """States of tiles, or patterns: `kinds`, [cuts], says which kind each tile is of, and `made`, [kinds], what it is.

    A kind of -1: there is no tile. Many states have tiles of the same kinds, and share the array.
    """

    kinds: Kinds
    made: npt.NDArray[np.int32]

    def __attrs_post_init__(self) -> None:
        assert len(self.made) <= np.iinfo(self.kinds.dtype).max, "there are few kinds"


class CutGroup:
    """Ways to take tiles from the tensors of a rank, along which the same dimensions are `sliding`.

    `numbers`, [cuts], are theirs; `whole` and `tile`, [cuts], are the numbers of tensors, whose sizes are `dims`,
    [rank, tensors].
    """

    def __init__(self, sliding: Sequence[bool], numbers: Ints, whole: Ints, tile: Ints, dims: Ints):
        self.numbers = numbers
        self._sliding, self._whole, self._dims = sliding, whole, dims
        self._shape, self._part = dims[:, whole], dims[:, tile]
        #: States of one layout differ in other things, and those of some bytes a value in yet others.
        self._codes: dict[Layout, list[_Small]] = {}
        self._spacings: dict[tuple[Layout, int], list[_Small]] = {}

    def kinds(self, state: OperandState, valid: Bools, alignment: int) -> tuple[list[tuple[int, ...]], Kinds]:
        """Return the `tile_codes` of each kind of tile that a state of the tensors that are `valid` has, and the kinds.

        `alignment` is that of its level, in bytes.
        """
        there = valid[self._whole]
        cuts = slice(None) if there.all() else np.flatnonzero(there)
        kinds = np.full(len(there), -1, dtype=np.int16)
        if not there.any():
            return [], kinds
        shape, part = tuple(self._shape[:, cuts]), tuple(self._part[:, cuts])
        codes = [each[cuts] for each in self._layout_codes(state)]
        spacings = [each[cuts] for each in self._layout_spacings(state)]
        every = state.tile_codes(shape, part, alignment, None, self._sliding, codes, spacings)
        if is_batch(every):
            distinct, group = numbered(every)
        else:
            distinct, group = [tuple(map(int, every))], np.zeros(np.count_nonzero(there), dtype=np.int64)
        if state.vector is not None:
            group = np.where(self._filled(state, distinct, group, part), group, -1)
        counts = np.bincount(group + 1, minlength=len(distinct) + 1)[1:]
        found = [number for number, one in enumerate(distinct) if counts[number] and not state.breaks_strips(one)]
        place = np.full(len(distinct) + 1, -1, dtype=np.int16)
        place[found] = np.arange(len(found))
        kinds[cuts] = place[group]
        return [distinct[number] for number in found], kinds

    def _filled(
        self, state: OperandState, distinct: Sequence[tuple[int, ...]], group: Ints, part: Sequence[Ints]
    ) -> Bools:
        """Return which tiles, [n], of sizes `part` consist of whole vectors; `group`, [n], numbers their codes."""
        filled = np.zeros(len(group), dtype=np.bool_)
        for number, codes in enumerate(distinct):
            cells = np.flatnonzero(group == number)
            if not state.breaks_strips(codes):
                tiles = TensorSpec(tuple(size[cells] for size in part), state.tiled(codes))
                filled[cells] = tiles.has_whole_vectors()
        return filled

    def _layout_codes(self, state: OperandState) -> Sequence[_Small]:
        """Return the `TileCode` of each physical dimension of a state's layout, [cuts] each."""
        if state.layout is None:
            return ()
        if state.layout not in self._codes:
            codes = state.layout.tile_codes(tuple(self._shape), tuple(self._part))
            self._codes[state.layout] = self._small(codes, self._whole.shape)
        return self._codes[state.layout]

    def _layout_spacings(self, state: OperandState) -> Sequence[_Small]:
        """Return the spacings of each physical dimension of the layout of whole tensors, [cuts] each."""
        if state.layout is None:
            return ()
        key = state.layout, state.dtype.bytes
        if key not in self._spacings:
            # Of tensors that the layout does not describe, nothing is asked.
            with np.errstate(divide="ignore"):
                of_tensors = self._small(state.spacings(tuple(self._dims)), self._dims[0].shape)
            self._spacings[key] = [each[self._whole] for each in of_tensors]
        return self._spacings[key]

    @staticmethod
    def _small(numbers: Sequence[Num], shape: tuple[int, ...]) -> list[_Small]:
        return [np.broadcast_to(np.asarray(each, dtype=np.int8), shape) for each in numbers]
