"""The tiles of tensors in one state, for all ways that tensors are cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from morello.ir.numbers import is_batch, numbered
from morello.ir.tensor import OperandState, TensorSpec
from morello.search.arrays import Bools, Ints

#: Numbers of kinds: there is one for each state and each way to cut a tensor.
Kinds = npt.NDArray[np.int16]


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
        self._sliding, self._whole = sliding, whole
        self._shape, self._part = dims[:, whole], dims[:, tile]
        #: The distinct `tile_facts` of cuts, [facts] of arrays [distinct], and which of them each cut has, [cuts].
        self._facts: dict[tuple[object, ...], tuple[list[Ints], npt.NDArray[Any]]] = {}

    def kinds(self, state: OperandState, valid: Bools, alignment: int) -> tuple[list[tuple[int, ...]], Kinds]:
        """Return the `tile_codes` of each kind of tile that a state of the tensors that are `valid` has, and the kinds.

        `alignment` is that of its level, in bytes.
        """
        facts, which = self._distinct_facts(state, alignment)
        codes, number = numbered(state.codes_of(facts)) if facts else ([()], np.zeros(1, dtype=np.int64))
        there = valid[self._whole]
        if state.vector is not None:
            cuts = np.flatnonzero(there)
            there[cuts] = self._filled(state, codes, number[which[cuts]], self._part[:, cuts])
        # Most states are of all tensors.
        occurring = range(len(codes)) if there.all() else np.unique(number[which[there]]).tolist()
        found = [each for each in occurring if not state.breaks_strips(codes[each])]
        place = np.full(len(codes), -1, dtype=np.int16)
        place[found] = np.arange(len(found))
        kinds = place[number][which]
        kinds[~there] = -1
        return [codes[each] for each in found], kinds

    def _filled(self, state: OperandState, codes: Sequence[tuple[int, ...]], group: Ints, part: Ints) -> Bools:
        """Return which tiles, [n], of sizes `part` consist of whole vectors; `group`, [n], numbers their codes."""
        filled = np.zeros(len(group), dtype=np.bool_)
        for number, own in enumerate(codes):
            cells = np.flatnonzero(group == number)
            if len(cells) and not state.breaks_strips(own):
                filled[cells] = TensorSpec(tuple(part[:, cells]), state.tiled(own)).has_whole_vectors()
        return filled

    def _distinct_facts(self, state: OperandState, alignment: int) -> tuple[list[Ints], npt.NDArray[Any]]:
        """Return the distinct `tile_facts` of the cuts of a state, and which of them each cut has, [cuts].

        Many states differ in nothing that these depend on.
        """
        key = state.layout, state.dtype.bytes, state.vector if any(self._sliding) else None, alignment
        if key not in self._facts:
            # Of tensors that the layout does not describe, nothing is asked.
            with np.errstate(divide="ignore"):
                facts = state.tile_facts(tuple(self._shape), tuple(self._part), alignment, None, self._sliding)
            distinct, which = (
                numbered(facts) if is_batch(facts) else ([tuple(map(int, facts))], np.zeros_like(self._whole))
            )
            columns = [*np.array(distinct, dtype=np.int64).T]
            self._facts[key] = columns, which.astype(np.min_scalar_type(len(distinct)))
        return self._facts[key]
