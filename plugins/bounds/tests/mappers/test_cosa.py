"""cosa: the numbers of [Dinh2023] §6.1, and tiles that fit."""

from __future__ import annotations

import ctypes
import importlib
import math
from itertools import permutations
from itertools import product as every
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from morello_bounds.mappers.cosa import assign_factors, factors_of, padded
from morello_bounds.nest import Nest, nest_of
from morello_bounds.tiles import times_loaded

from morello import api


def product(m: int, k: int, n: int) -> Nest:
    text = f"Matmul(1×{m}×{k}×{n}, (f32, GL), (f32, GL), (f32, GL), serial)"
    return nest_of(api.goal(text, target="x86_avx2", profile="base").spec)


def test_the_order_says_how_often_tiles_are_loaded() -> None:
    """With k going on first, then n, then m: 2^3, 2^3 and 2^2 times; in each order 2^8 times in all."""
    arrays = product(2, 2, 2).arrays
    assert [times_loaded(array, (1, 2, 2, 2), (2, 3, 1)) for array in arrays] == [8, 8, 4]
    for order in permutations((1, 2, 3)):
        assert math.prod(times_loaded(array, (1, 2, 2, 2), order) for array in arrays) == 2**8


def test_single_values_are_loaded_as_often_as_the_order_says() -> None:
    """For 2×2×2 there is one loop that an array stays for, and the logarithms add up to 8 in every order."""
    found = assign_factors(product(2, 2, 2), ((4.0,) * 3,))
    assert found is not None
    assert found.tiles == ((1, 1, 1, 1),)
    assert sorted(round(one, 6) for one in found.loaded[0]) == [2, 3, 3]


def test_sums_stay_while_k_goes_on() -> None:
    """Of 64×512×128 with 2,730 words for each array, the tile is 64×32×32, longest along m."""
    found = assign_factors(product(64, 512, 128), ((4.0 * 2730,) * 3,))
    assert found is not None
    assert found.tiles[0] == (1, 64, 32, 32)
    assert found.orders[0][0] == 2
    for array, loaded in zip(product(64, 512, 128).arrays, found.loaded[0], strict=True):
        assert 2**loaded == pytest.approx(times_loaded(array, (1, 1, 16, 4), found.orders[0]))


@pytest.mark.parametrize("sizes", [(8, 4, 8), (4, 16, 2), (2, 2, 16)])
def test_no_tile_moves_less(sizes: tuple[int, int, int]) -> None:
    """No tile whose sizes divide has a lower sum of logarithms in any order."""
    nest = product(*sizes)
    found = assign_factors(nest, ((64.0,) * 3,))
    assert found is not None

    def worth(tile: tuple[int, ...], order: tuple[int, ...]) -> float:
        trips = [size // part for size, part in zip(nest.sizes, tile, strict=True)]
        held = [math.prod(tile[loop] for loop in array.support) for array in nest.arrays]
        loaded = [times_loaded(array, trips, order) for array in nest.arrays]
        moved = sum(math.log2(one * often) for one, often in zip(held, loaded, strict=True))
        return moved - 0.1 * sum(map(math.log2, held)) if max(held) <= 16 else math.inf

    tiles = every(*([1 << at for at in range(size.bit_length())] for size in nest.sizes))
    least = min(worth(tile, order) for tile in tiles for order in permutations((1, 2, 3)))
    assert worth(found.tiles[0], found.orders[0]) == pytest.approx(least, abs=0.02)


def test_threads_share_tiles_that_levels_lie_in() -> None:
    nest = product(64, 64, 64)
    found = assign_factors(nest, ((256.0,) * 3, (4096.0,) * 3), threads=4, free=frozenset({1, 3}))
    assert found is not None
    inner, outer = found.tiles
    assert all(one <= other <= share for one, other, share in zip(inner, outer, found.shared, strict=True))
    assert math.prod(64 // one for one in found.shared[1:]) == 4
    assert found.shared[2] == 64


@pytest.mark.slow
@settings(max_examples=5, deadline=None)
@given(*[st.integers(1, 20)] * 3, st.integers(2, 9))
def test_tiles_fit_and_grow(m: int, k: int, n: int, bits: int) -> None:
    nest = product(m, k, n)
    room = 4.0 * 2**bits
    found = assign_factors(nest, ((room,) * 3, (4 * room,) * 3))
    assert found is not None
    for capacity, tile in zip((room, 4 * room), found.tiles, strict=True):
        for array in nest.arrays:
            held = math.prod(tile[loop] for form in array.index for loop, _ in form)
            assert array.bytes * held <= capacity
    assert all(inner <= outer for inner, outer in zip(*found.tiles, strict=True))


def test_what_does_not_fit_has_no_tiles() -> None:
    assert assign_factors(product(4, 4, 4), ((4.0,) * 3,), kept=frozenset([1])) is None


def test_the_solver_prints_nothing(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """HiGHS writes to standard output at times, past Python."""
    optimize = importlib.import_module("scipy.optimize")
    solve = optimize.milp

    def noisy(*given: Any, **options: Any) -> Any:
        ctypes.CDLL(None).puts(b"noise")
        return solve(*given, **options)

    monkeypatch.setattr(optimize, "milp", noisy)
    assert assign_factors(product(2, 2, 4), ((4.0,) * 3,)) is not None
    print("after")
    assert capfd.readouterr().out == "after\n"


@given(st.integers(1, 500))
def test_factors_are_small_primes(size: int) -> None:
    assert math.prod(prime**count for prime, count in factors_of(size)) == padded(size) >= size
    assert {prime for prime, _ in factors_of(size)} <= {2, 3, 5, 7}
