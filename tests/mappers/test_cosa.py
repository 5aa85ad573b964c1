"""cosa: the numbers that [Dinh2023] §6.1 comes to, and tiles that fit."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from morello import api
from morello.bounds.nest import Nest, nest_of
from morello.mappers.cosa import dealt, factors_of, padded


def product(m: int, k: int, n: int) -> Nest:
    text = f"Matmul(1×{m}×{k}×{n}, (f32, GL), (f32, GL), (f32, GL), serial)"
    return nest_of(api.goal(text, target="x86_avx2", profile="base").spec)


def test_single_values_are_loaded_as_often_as_the_order_says() -> None:
    """For 2×2×2 there is one loop that an array stays for, and the logarithms add up to 8 in every order."""
    found = dealt(product(2, 2, 2), ((4.0,) * 3,))
    assert found is not None
    assert found.tiles == ((1, 1, 1, 1),)
    assert sorted(round(one, 6) for one in found.loaded[0]) == [2, 3, 3]


def test_sums_stay_while_k_goes_on() -> None:
    """Of 64×512×128 with 2,730 words for each array, tiles have 64×32×32 points; rows and columns may change places."""
    found = dealt(product(64, 512, 128), ((4.0 * 2730,) * 3,))
    assert found is not None
    _, m, k, n = found.tiles[0]
    assert (sorted((m, n)), k) == ([32, 64], 32)
    assert found.orders[0][0] == 2
    assert math.prod(2**one for one in found.loaded[0]) == pytest.approx(2**14)


@settings(max_examples=5, deadline=None)
@given(*[st.integers(1, 40)] * 3, st.integers(2, 9))
def test_tiles_fit_and_grow(m: int, k: int, n: int, bits: int) -> None:
    nest = product(m, k, n)
    room = 4.0 * 2**bits
    found = dealt(nest, ((room,) * 3, (4 * room,) * 3))
    assert found is not None
    for capacity, tile in zip((room, 4 * room), found.tiles, strict=True):
        for array in nest.arrays:
            held = math.prod(tile[loop] for form in array.index for loop, _ in form)
            assert array.bytes * held <= capacity
    assert all(inner <= outer for inner, outer in zip(*found.tiles, strict=True))


def test_what_does_not_fit_has_no_tiles() -> None:
    assert dealt(product(4, 4, 4), ((4.0,) * 3,), kept=frozenset([1])) is None


@given(st.integers(1, 500))
def test_factors_are_small_primes(size: int) -> None:
    assert math.prod(prime**count for prime, count in factors_of(size)) == padded(size) >= size
    assert {prime for prime, _ in factors_of(size)} <= {2, 3, 5, 7}
