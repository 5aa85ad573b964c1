"""gradient: slopes agree with differences, and tiles with known minima."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from morello_bounds.mappers.gradient import descend, log_held, log_moved
from morello_bounds.nest import Nest, parse_nest
from morello_bounds.traffic import traffic

LAYER = parse_nest(
    dict(zip("bckwhrs", (2, 16, 32, 14, 14, 3, 3), strict=True)), "In[b,c,2w+r,2h+s] F[k,c,r,s] Out[b,k,w,h]"
)
PRODUCT = parse_nest({"m": 2048, "k": 2048, "n": 2048}, "A[m,k] B[k,n] C[m,n]")


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=7, max_size=7), st.integers(0, 6), st.sampled_from([1, 64]))
def test_gradients_are_slopes(places: list[float], inner: int, unit: int) -> None:
    logs = np.array([one * math.log(size) for one, size in zip(places, LAYER.sizes, strict=True)])
    for function in (
        lambda at: log_moved(LAYER, inner, np.exp(at), unit),
        lambda at: log_held(LAYER.arrays[0], np.exp(at), unit),
    ):
        _, slope = function(logs)
        for loop in range(7):
            step = np.zeros(7)
            step[loop] = 1e-6
            rise = (function(logs + step)[0] - function(logs - step)[0]) / 2e-6
            assert slope[loop] == pytest.approx(rise, abs=1e-5)


def test_sums_stay_in_square_tiles() -> None:
    """Of 8192 values most are those of an output tile, whose sides are the same; little more moves than the bound."""
    tile = descend(PRODUCT, 8192, 1)
    assert tile is not None
    assert tile[0] == pytest.approx(tile[2], rel=1e-3)
    assert 80 < tile[0] < 90
    moved = math.exp(log_moved(PRODUCT, 1, np.array(tile), 1)[0])
    assert traffic(PRODUCT, 8192).bytes <= moved <= 1.12 * traffic(PRODUCT, 8192).bytes


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=3, max_size=3), st.integers(0, 2), st.integers(64, 10_000))
def test_no_tile_that_fits_moves_less(places: list[float], inner: int, memory: int) -> None:
    sizes = np.array([size**one for one, size in zip(places, PRODUCT.sizes, strict=True)])
    held = sum(math.exp(log_held(array, sizes, 1)[0]) for array in PRODUCT.arrays)
    best = descend(PRODUCT, memory, inner)
    assert best is not None
    taken = sum(math.exp(log_held(array, np.array(best), 1)[0]) for array in PRODUCT.arrays)
    assert taken <= memory * (1 + 1e-6)
    if held <= memory:
        least, other = (log_moved(PRODUCT, inner, np.array(one), 1)[0] for one in (best, sizes))
        # A larger tile may move a little more.
        assert least <= other + 0.05 * float(np.log(np.array(best) / sizes).sum()) + 1e-6


def test_of_tiles_that_move_the_least_it_is_the_largest() -> None:
    """All of it fits."""
    assert descend(PRODUCT, 10**9, 1) == pytest.approx(PRODUCT.sizes)


def test_what_stays_whole_and_what_does_not_fit() -> None:
    small: Nest = parse_nest({"m": 64, "k": 64, "n": 64}, "A[m,k] B[k,n] C[m,n]")
    tile = descend(small, 1000, 0, 1, frozenset({1}))
    assert tile is not None
    assert tile[1] == pytest.approx(64)
    assert descend(small, 100, 0, 1, frozenset({1})) is None
