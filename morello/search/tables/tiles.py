"""The tiles of tensors in one state, for all ways that tensors are cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from morello.ir.layout import Layout
from morello.ir.numbers import Num, partition
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


class Cuts:
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
        there = np.flatnonzero(valid[self._whole])
        cuts = slice(None) if len(there) == len(self._whole) else there
        shape, part = self._shape[:, cuts], self._part[:, cuts]
        codes = [each[cuts] for each in self._layout_codes(state)]
        spacings = [each[self._whole[cuts]] for each in self._layout_spacings(state)]
        found: list[tuple[int, ...]] = []
        group = np.full(len(there), -1, dtype=np.int16)
        sizes, tiles = tuple(shape), tuple(part)
        every = state.tile_codes(sizes, tiles, alignment, None, self._sliding, codes, spacings)
        for distinct, cells in partition(every):
            if state.breaks_strips(distinct):
                continue
            filled: Ints = np.arange(len(there), dtype=np.int64) if cells is None else cells
            if state.vector is not None:
                filled = filled[TensorSpec(tuple(part[:, filled]), state.tiled(distinct)).has_whole_vectors()]
            if len(filled):
                group[filled] = len(found)
                found.append(distinct)
        kinds = np.full(len(self._whole), -1, dtype=np.int16)
        kinds[cuts] = group
        return found, kinds

    def _layout_codes(self, state: OperandState) -> Sequence[_Small]:
        """Return the `TileCode` of each physical dimension of a state's layout, [cuts] each."""
        if state.layout is None:
            return ()
        if state.layout not in self._codes:
            codes = state.layout.tile_codes(tuple(self._shape), tuple(self._part))
            self._codes[state.layout] = self._small(codes, self._whole.shape)
        return self._codes[state.layout]

    def _layout_spacings(self, state: OperandState) -> Sequence[_Small]:
        """Return the spacings of each physical dimension of a state's layout, [tensors] each."""
        if state.layout is None:
            return ()
        key = state.layout, state.dtype.bytes
        if key not in self._spacings:
            # Of tensors that the layout does not describe, nothing is asked.
            with np.errstate(divide="ignore"):
                self._spacings[key] = self._small(state.spacings(tuple(self._dims)), self._dims[0].shape)
        return self._spacings[key]

    @staticmethod
    def _small(numbers: Sequence[Num], shape: tuple[int, ...]) -> list[_Small]:
        return [np.broadcast_to(np.asarray(each, dtype=np.int8), shape) for each in numbers]
