"""Kinds of tiles, computed for all tilings at once, equal those of single tiles."""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from morello.ir.dtypes import F32
from morello.ir.layout import Layout, OddEven, Packed, col_major, row_major
from morello.ir.tensor import OperandState, TensorSpec
from morello.search.arrays import Bools
from morello.search.tables.tiles import CutGroup

SHAPES: list[tuple[int, ...]] = [*itertools.product((1, 2, 4, 6, 16), repeat=2)]
#: Pairs of a tensor and a tile of it, by number.
CUTS = [
    (whole, tile)
    for whole, tile in itertools.permutations(range(len(SHAPES)), 2)
    if all(part <= size for part, size in zip(SHAPES[tile], SHAPES[whole], strict=True))
]
ROWS = row_major(2).dims
LAYOUTS = [row_major(2), col_major(2), *(Layout((*ROWS, one)) for one in (Packed(0, 2), Packed(1, 4), OddEven(1, 4)))]
#: The alignment of the values that tiles are compared with, in bytes.
ALIGNMENT = 32


def states() -> st.SearchStrategy[OperandState]:
    def of(layout: Layout, fewer: int, aligned: bool, vector: int | None, spacing: int) -> OperandState:
        return OperandState(
            F32, "L1", layout, max(0, len(layout.dims) - fewer), aligned, vector, spacing if fewer else 0
        )

    return st.builds(
        of,
        st.sampled_from(LAYOUTS),
        st.integers(0, 3),
        st.booleans(),
        st.sampled_from([None, 2, 4]),
        st.sampled_from([0, 2048]),
    )


@cache
def described(state: OperandState) -> Bools:
    """Return the shapes that have a state, in normal form and whole vectors, one by one."""
    layout = state.layout
    assert layout is not None

    def fits(shape: tuple[int, ...]) -> bool:
        codes = layout.tile_codes(shape, shape)
        normal = layout.applies(shape) and layout.tiled(state.contig, codes) == (layout, state.contig)
        return bool(normal and TensorSpec(shape, state).has_whole_vectors())

    return np.array([fits(shape) for shape in SHAPES])


@given(state=states(), sliding=st.tuples(st.booleans(), st.booleans()), first=st.integers(0, 3))
def test_kinds_are_those_of_single_tiles(state: OperandState, sliding: tuple[bool, bool], first: int) -> None:
    whole, tile = (np.array(column) for column in zip(*CUTS, strict=True))
    group = CutGroup(sliding, whole, tile, np.array(SHAPES, dtype=np.int64).T)

    def described_by(layout: Layout | None, contig: int, vector: int | None) -> Bools:
        return described(OperandState(F32, "L1", layout, contig, vector=vector))

    codes, kinds = group.kinds(state, ALIGNMENT, described_by, first)
    found = [codes[kind - first] if kind >= 0 else None for kind in kinds.tolist()]
    expected = [single(state, SHAPES[one], SHAPES[other], sliding) for one, other in CUTS]
    assert found == expected
    assert {*codes} == {*expected} - {None}


def single(
    state: OperandState, shape: tuple[int, ...], tile: tuple[int, ...], sliding: tuple[bool, ...]
) -> tuple[int, ...] | None:
    """Return the codes of one tile of one tensor, or None if it has no state."""
    if not described(state)[SHAPES.index(shape)]:
        return None
    codes = tuple(map(int, state.tile_codes(shape, tile, ALIGNMENT, None, sliding)))
    if state.breaks_strips(codes) or not TensorSpec(tile, state.tiled(codes)).has_whole_vectors():
        return None
    return codes
