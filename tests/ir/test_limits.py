"""Limits on grids: laws of rounding, also for numbered limits."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from morello.ir.limits import LimitGrid, lower, raise_peak
from morello.kernels.machine import MemoryLevel
from morello.plugins.registry import installed
from morello.search.tables.limits import LimitCodes
from tools.fuzz.sweep import NAMES, target_named

grids = st.builds(
    lambda units, unit, divisions: LimitGrid(units * unit, unit, divisions),
    st.integers(1, 300) | st.integers(1, 1 << 40),
    st.sampled_from([1, 4, 24, 32, 64]),
    st.integers(1, 40),
)
CACHE = MemoryLevel(name="L1", kind="cache", capacity=48 << 10, unit=64)
KIB = 1024


def held(grid: LimitGrid) -> st.SearchStrategy[int]:
    """Amounts that programs hold: none, a few units, any number of bytes, or too much."""
    few = st.integers(0, 9).map(lambda units: units * grid.unit)
    return few | st.integers(0, 2 * grid.capacity) | st.sampled_from(grid.values)


@given(grids)
def test_values_are_whole_units_from_zero_to_capacity(grid: LimitGrid) -> None:
    assert grid.values[0] == 0
    assert grid.values[-1] == grid.capacity
    assert grid.unit in grid.values
    assert all(value % grid.unit == 0 for value in grid.values)
    assert [*grid.values] == sorted({*grid.values})
    assert len(grid.values) <= grid.divisions + grid.capacity.bit_length() + 1


@given(grids)
def test_rounding_is_by_less_than_a_division_or_half(grid: LimitGrid) -> None:
    """From one value to the next is at most a division, or twice as much, but for units that are not cut."""
    for less, more in zip(grid.values[1:], grid.values[2:], strict=False):
        assert more - less < grid.capacity / grid.divisions + grid.unit or more < 2 * (less + grid.unit)


@given(grids, st.data())
def test_remaining_limits_never_grow_and_keep_order(grid: LimitGrid, data: st.DataObject) -> None:
    limits = data.draw(st.lists(st.sampled_from(grid.values), min_size=2, max_size=2).map(sorted))
    used = sorted([data.draw(held(grid)), data.draw(held(grid))])
    left = {(i, j): lower((limits[i],), (used[j],), (grid,))[0] for i in (0, 1) for j in (0, 1)}
    for (i, j), value in left.items():
        assert value <= limits[i] - used[j]
        assert value in grid.values or value < 0
        assert (value < 0) == (used[j] > limits[i])
    assert left[0, 0] <= left[1, 0]
    assert left[0, 1] <= left[0, 0]
    assert lower((limits[1],), (0,), (grid,)) == (limits[1],)


@given(grids, st.data())
def test_a_peak_fits_the_rest_exactly_if_the_raised_peak_fits(grid: LimitGrid, data: st.DataObject) -> None:
    peak, used = data.draw(st.sampled_from(grid.values)), data.draw(held(grid))
    (raised,) = raise_peak((peak,), (used,), (grid,))
    for limit in grid.values:
        assert (lower((limit,), (used,), (grid,))[0] >= peak) == (limit >= raised)
    assert raised == min((value for value in grid.values if value >= peak + used), default=peak + used)


@given(grids, st.data())
def test_arrays_are_rounded_as_single_numbers_are(grid: LimitGrid, data: st.DataObject) -> None:
    limits = data.draw(st.lists(st.sampled_from(grid.values), min_size=1, max_size=5))
    used = [data.draw(held(grid)) for _ in limits]
    for one in (lower, raise_peak):
        (found,) = one((np.array(limits),), (np.array(used),), (grid,))
        singly = [one((limit,), (amount,), (grid,))[0] for limit, amount in zip(limits, used, strict=True)]
        assert isinstance(found, np.ndarray)
        assert found.tolist() == singly


@pytest.mark.parametrize("name", NAMES)
def test_codes_of_limits_are_limits(name: str) -> None:
    """Every code of every level decreases with its limit, for any memory held."""
    target = target_named(name)
    codes = LimitCodes(target)
    assert codes.values[0][-1] == target.levels[0].capacity
    for level, grid in enumerate(target.grids):
        numbers = np.arange(codes.counts[level])
        limits = codes.values[level]
        assert limits.tolist() == [*grid.values]
        near = [limit + off for limit in grid.values for off in (-1, 0, 1)]
        used = np.unique(np.maximum([*near, grid.unit, 3 * grid.unit, 1 << 62], 0))
        left = np.asarray(codes.lower(level, numbers[:, None], used))
        expected = np.asarray(lower((limits[:, None],), (used,), (grid,))[0])
        assert np.array_equal(left < 0, expected < 0)
        assert np.array_equal(codes.values[level][left][left >= 0], expected[left >= 0])
    for number in range(max(codes.counts)):
        own = np.minimum(number, codes.full)
        limits = tuple(int(codes.values[level][code]) for level, code in enumerate(own))
        assert codes.encode(limits).tolist() == own.tolist()
        assert target.limits(limits) == limits


def test_kinds_of_levels_count_as_they_are_used() -> None:
    eighths = [6 * KIB * share for share in range(1, 9)]
    assert CACHE.grid.values == (0, 64, 192, 384, 768, 1536, 3 * KIB, *eighths)
    assert attrs.evolve(CACHE, kind="memory").grid.values == (
        0,
        *(192 // 3 * units for units in (1, 3)),
        384,
        768,
        *(1536 << bit for bit in range(6)),
    )
    assert MemoryLevel(name="R", kind="scalar", capacity=24, unit=4).grid.values == (0, 4, 8, 12, 16, 20, 24)
    assert attrs.evolve(CACHE, divisions=3).grid.values[-4:] == (8 * KIB, 16 * KIB, 32 * KIB, 48 * KIB)


def test_a_cache_of_48_kib_holds_more_than_one_of_32() -> None:
    target = installed().target("x86_avx2")
    larger = attrs.evolve(
        target, levels=tuple(attrs.evolve(one, capacity=48 * KIB) if one.name == "L1" else one for one in target.levels)
    )
    place = [one.name for one in target.levels].index("L1")
    live = [33 * KIB if index == place else 0 for index in range(len(target.levels))]
    assert lower(target.full_limits(), live, target.grids)[place] == 32 * KIB - 33 * KIB
    assert lower(larger.full_limits(), live, larger.grids)[place] == 12 * KIB
