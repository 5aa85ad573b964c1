"""Layouts are bijections, and layouts of tiles describe the tiles."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Sequence

import attrs
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from morello.errors import Inapplicable, SpecError
from morello.ir.dtypes import F32, I8
from morello.ir.layout import Dynamic, Layout, OddEven, Packed, PhysicalDim, TileCode, col_major, nhwc, row_major
from morello.ir.numbers import Num
from morello.ir.tensor import Block, Every, OperandState, TensorSpec


@st.composite
def tensors(draw: st.DrawFn) -> tuple[Layout, tuple[int, ...]]:
    """A layout with up to one strip per dimension, and a shape it describes."""
    rank = draw(st.integers(1, 3))
    dims: list[PhysicalDim] = [Dynamic(dim) for dim in draw(st.permutations(range(rank)))]
    shape = []
    for dim in range(rank):
        strip = draw(st.sampled_from([None, None, Packed(dim, 2), Packed(dim, 4), OddEven(dim, 2), OddEven(dim, 4)]))
        if strip:
            place = draw(st.integers(dims.index(Dynamic(dim)) + 1, len(dims)))
            dims.insert(place, strip)
        shape.append(draw(st.integers(1, 4)) * (strip.size or 1 if strip else 1))
    return Layout(tuple(dims)), tuple(shape)


def cell_of(sizes: Sequence[Num], cell: int) -> tuple[int, ...]:
    """The sizes of one cell of a batch."""
    return tuple(int(np.ravel(size)[min(cell, np.size(size) - 1)]) for size in sizes)


def points(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    return list(itertools.product(*map(range, shape)))


@given(tensors())
def test_offsets_are_a_bijection(case: tuple[Layout, tuple[int, ...]]) -> None:
    layout, shape = case
    offsets = [layout.offset(point, shape) for point in points(shape)]
    assert sorted(offsets) == list(range(len(offsets)))
    assert [layout.point(offset, shape) for offset in offsets] == points(shape)


@given(tensors())
def test_leaving_out_unit_dimensions_keeps_every_offset(case: tuple[Layout, tuple[int, ...]]) -> None:
    layout, shape = case
    canonical = TensorSpec(shape, OperandState(F32, "GL", layout, len(layout.dims))).canonical().state
    assert canonical.contiguous
    assert canonical.layout is not None
    assert all(shape[physical.dim] > 1 for physical in canonical.layout.dims)
    for point in points(shape):
        assert canonical.layout.offset(point, shape) == layout.offset(point, shape)


def true_run(offsets: list[int]) -> int:
    """Return the largest number of values that lie next to each other in each equal piece of a tile."""
    count = len(offsets)
    fitting = (
        run
        for run in range(count, 0, -1)
        if count % run == 0
        and all(
            offsets[start : start + run] == list(range(offsets[start], offsets[start] + run))
            for start in range(0, count, run)
        )
    )
    return next(fitting)


@given(tensors(), st.data())
def test_values_lie_evenly_apart_along_each_physical_dimension_of_a_tile(
    case: tuple[Layout, tuple[int, ...]], data: st.DataObject
) -> None:
    layout, shape = case
    whole = TensorSpec(shape, OperandState(F32, "GL", layout, len(layout.dims))).canonical().state
    tile = tuple(data.draw(st.integers(1, size)) for size in shape)
    codes = whole.tile_codes(shape, tile, 1)
    assume(not whole.breaks_strips(codes))
    part = whole.tiled(codes).layout
    assert part is not None
    places = [part.point(place, tile) for place in range(math.prod(tile))]
    offsets = np.reshape([layout.offset(point, shape) for point in places], (*part.physical_shape(tile), 1))
    for axis in range(offsets.ndim):
        assert len(np.unique(np.diff(offsets, axis=axis))) <= 1


@pytest.mark.slow
@given(tensors(), st.data())
def test_a_tile_has_the_contiguity_and_alignment_it_claims(
    case: tuple[Layout, tuple[int, ...]], data: st.DataObject
) -> None:
    layout, shape = case
    whole = TensorSpec(shape, OperandState(F32, "GL", layout, len(layout.dims))).canonical()
    assert whole.state.layout is not None
    tile = tuple(data.draw(st.integers(1, size)) for size in shape)
    first = tuple(data.draw(st.integers(0, size - own) | st.just(0)) for size, own in zip(shape, tile, strict=True))
    codes = whole.state.tile_codes(shape, tile, 16, first)
    assume(not whole.state.breaks_strips(codes))
    part = TensorSpec(tile, whole.state.tiled(codes))
    assert part.state.layout is not None
    ranges = [range(at, size - own + 1, own) for at, size, own in zip(first, shape, tile, strict=True)]
    for start in itertools.product(*ranges):
        order = [part.state.layout.point(position, tile) for position in range(int(part.volume))]
        offsets = [
            whole.state.layout.offset([a + b for a, b in zip(start, point, strict=True)], shape) for point in order
        ]
        assert true_run(offsets) % part.run == 0
        if part.state.aligned:
            assert offsets[0] * 4 % 16 == 0


@given(tensors(), st.data())
def test_every_so_many_values_have_the_contiguity_that_is_claimed(
    case: tuple[Layout, tuple[int, ...]], data: st.DataObject
) -> None:
    layout, shape = case
    assume(max(shape) > 2)
    whole = TensorSpec(shape, OperandState(F32, "GL", layout, len(layout.dims))).canonical().state
    dim = data.draw(st.sampled_from([dim for dim, size in enumerate(shape) if size > 2]))
    step = data.draw(st.integers(2, shape[dim] - 1))
    order = data.draw(st.permutations(range(len(shape))))
    kept = tuple((size - 1) // step + 1 if own == dim else size for own, size in enumerate(shape))
    try:
        state = whole.under(tuple(Every(own, step) if own == dim else own for own in order))
    except Inapplicable:
        assert whole.layout is not None
        assert any(physical.dim == dim and physical.size for physical in whole.layout.dims)
        return
    seen = TensorSpec(tuple(kept[own] for own in order), state)
    assert state.layout is not None
    assert whole.layout is not None
    offsets = []
    for position in range(int(seen.volume)):
        point = dict(zip(order, state.layout.point(position, tuple(map(int, seen.shape))), strict=True))
        offsets.append(
            whole.layout.offset([point[own] * (step if own == dim else 1) for own in range(len(shape))], shape)
        )
    assert true_run(offsets) % seen.run == 0
    assert seen.canonical().state == state


@given(tensors(), st.data())
def test_blocks_of_a_dimension_lie_as_is_claimed(case: tuple[Layout, tuple[int, ...]], data: st.DataObject) -> None:
    layout, shape = case
    cuts = [(dim, step) for dim, size in enumerate(shape) for step in range(2, size // 2 + 1) if size % step == 0]
    assume(cuts)
    dim, step = data.draw(st.sampled_from(cuts))
    whole = TensorSpec(shape, OperandState(F32, "GL", layout, len(layout.dims))).canonical().state
    assert whole.layout is not None
    try:
        state = whole.under((Block(dim, step), *range(len(shape))))
    except Inapplicable:
        assert any(physical.dim == dim and physical.size for physical in whole.layout.dims)
        return
    cut = (shape[dim] // step, *(step if own == dim else size for own, size in enumerate(shape)))
    assert state.layout is not None
    offsets = []
    for position in range(math.prod(cut)):
        block, *point = state.layout.point(position, cut)
        point[dim] += block * step
        offsets.append(whole.layout.offset(point, shape))
    assert TensorSpec(cut, state).canonical().state == state
    assert true_run(offsets) % TensorSpec(cut, state).run == 0


@given(tensors(), st.data())
def test_tiling_in_two_steps_claims_no_more_than_in_one(
    case: tuple[Layout, tuple[int, ...]], data: st.DataObject
) -> None:
    layout, shape = case
    whole = TensorSpec(shape, OperandState(F32, "GL", layout, len(layout.dims))).canonical().state
    middle = tuple(data.draw(st.sampled_from([d for d in range(1, size + 1) if size % d == 0])) for size in shape)
    inner = tuple(data.draw(st.sampled_from([d for d in range(1, size + 1) if size % d == 0])) for size in middle)
    at_once, first = whole.tile_codes(shape, inner, 1), whole.tile_codes(shape, middle, 1)
    assume(not whole.breaks_strips(at_once) and not whole.breaks_strips(first))
    between = whole.tiled(first)
    second = between.tile_codes(middle, inner, 1)
    assume(not between.breaks_strips(second))
    assert between.tiled(second).layout == whole.tiled(at_once).layout
    assert between.tiled(second).contig <= whole.tiled(at_once).contig


@pytest.mark.parametrize(
    ("shape", "tile", "spacing"),
    [
        ((8, 1024), (8, 16), 4096),
        ((8, 1024), (4, 1024), 0),
        ((8, 1024), (1, 16), 0),
        ((8, 1024), (8, 1), 0),
        ((8, 3072), (2, 100), 4096),
        ((8, 512), (8, 16), 2048),
        ((8, 1536), (8, 16), 2048),
        ((8, 768), (8, 16), 0),
        ((3, 4, 1024), (3, 4, 16), 4096),
        ((3, 4, 1024), (3, 1, 16), 0),
        ((3, 32, 32), (3, 16, 32), 4096),
    ],
)
def test_a_tile_has_the_spacing_of_its_rows(shape: tuple[int, ...], tile: tuple[int, ...], spacing: int) -> None:
    state = OperandState(F32, "GL", row_major(len(shape)), len(shape))
    assert state.tiled(state.tile_codes(shape, tile, 1)).spacing == spacing


def test_tiles_of_tiles_keep_their_spacing() -> None:
    whole = OperandState(F32, "GL", row_major(2), 2)
    rows = whole.tiled(whole.tile_codes((8, 1024), (8, 16), 1))
    assert rows.tiled(rows.tile_codes((8, 16), (4, 8), 1)).spacing == 4096
    alone = rows.tiled(rows.tile_codes((8, 16), (1, 8), 1))
    assert alone.contiguous
    assert not alone.spacing
    halves = attrs.evolve(whole, contig=1)
    assert not halves.tiled(halves.tile_codes((8, 1024), (8, 16), 1)).spacing


@given(tensors(), st.data())
def test_codes_of_a_batch_are_those_of_its_cells(case: tuple[Layout, tuple[int, ...]], data: st.DataObject) -> None:
    layout, shape = case
    factors = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    batch = tuple(np.array([size * factor for factor in factors]) for size in shape)
    state = OperandState(F32, "GL", layout, len(layout.dims))
    tiles = tuple(size if data.draw(st.booleans()) else whole for size, whole in zip(shape, batch, strict=True))
    together = np.stack(np.broadcast_arrays(*state.tile_codes(batch, tiles, 16)), axis=-1)
    alone = [state.tile_codes(cell_of(batch, cell), cell_of(tiles, cell), 16) for cell in range(len(factors))]
    assert together.tolist() == [list(codes) for codes in alone]


def test_named_layouts() -> None:
    assert str(row_major(3)) == "layout[0, 1, 2]"
    assert str(col_major(3)) == "layout[0, 2, 1]"
    assert str(nhwc(4)) == "layout[0, 2, 3, 1]"
    with pytest.raises(SpecError, match="4 dimensions"):
        nhwc(3)


def test_odd_even_puts_even_values_first() -> None:
    layout = Layout((OddEven(0, 8),))
    assert [layout.point(offset, (8,))[0] for offset in range(8)] == [0, 2, 4, 6, 1, 3, 5, 7]


@pytest.mark.parametrize(
    ("dims", "rule"),
    [
        ((Packed(0, 4), Dynamic(0)), "whole"),
        ((Dynamic(0), Dynamic(0)), "whole"),
        ((Dynamic(0), Packed(0, 1)), "at least 2"),
        ((Dynamic(0), OddEven(0, 3)), "even size"),
    ],
)
def test_impossible_layouts(dims: tuple[PhysicalDim, ...], rule: str) -> None:
    with pytest.raises(SpecError, match=rule):
        Layout(dims)


def test_lines_count_each_run_of_a_tile() -> None:
    state = OperandState(F32, "GL", row_major(2), 2)
    whole = TensorSpec((8, 32), state)
    assert whole.lines(64) == 8 * 32 * 4 // 64
    column = TensorSpec((8, 4), state.tiled(state.tile_codes((8, 32), (8, 4), 1)))
    assert not column.state.contiguous
    assert column.lines(64) == 8
    assert TensorSpec((8, 32), OperandState(I8, "GL", row_major(2), 2)).lines(64) == 4


def test_numpy_runs_no_python_code_for_codes() -> None:
    """numpy drops errors of Python code that it runs to look for its protocols, so that Ctrl-C would be lost."""
    codes, called = np.arange(5), list[str]()
    sys.setprofile(lambda frame, event, _: called.append(frame.f_code.co_name) if event == "call" else None)
    try:
        found = codes >= TileCode.WHOLE
    finally:
        sys.setprofile(None)
    assert found.tolist() == [False, False, False, True, True]
    assert called == []
