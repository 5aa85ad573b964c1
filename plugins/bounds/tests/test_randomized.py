"""Bounds on products with random matrices: known values, and where working numbers out again pays."""

from __future__ import annotations

import math

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from morello_bounds.certificate import certificate, cuts_of, verify
from morello_bounds.nest import nest_of
from morello_bounds.randomized import RandomProduct, random_products
from morello_bounds.traffic import check, traffic

from morello.api.goals import Goal
from morello.errors import MorelloError
from morello.frontend.parser import parse_spec
from morello.ir.impl import cost_and_peak
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.plugins.registry import installed

KNOWN = RandomProduct(rows=2550, inner=1000, columns=640, memory=16384, generating=0.25)


def spec(target: Target, m: int, k: int, n: int) -> Spec:
    return parse_spec(f"RandMatmul(1×{m}×{k}×{n}, (u32, GL), (u32, GL), (f32, GL), (f32, GL), serial)", target)


def test_known_values() -> None:
    """The bound is within its 2M of 2·points·√(h/M) = 12,750,000, and tiles come near it."""
    assert KNOWN.tile == (255, 64)
    assert KNOWN.memory == 255 * 64 + 64
    assert KNOWN.cost == 12_775_000
    assert KNOWN.bytes == 4 * (12_750_000 - 2 * 16384)


def test_numbers_as_dear_as_moves_are_those_of_a_product() -> None:
    as_dear = attrs.evolve(KNOWN, generating=1.0)
    assert as_dear.bytes == pytest.approx(4 * (2 * KNOWN.points / 128 - 2 * KNOWN.memory))
    assert attrs.evolve(KNOWN, generating=9.0).bytes == as_dear.bytes
    # Numbers cheaper than 1/M of a move: only the matrices count.
    free = attrs.evolve(KNOWN, generating=0.1 / KNOWN.memory)
    assert free.bytes == pytest.approx(4 * (KNOWN.points / KNOWN.memory - KNOWN.memory), abs=1)
    # Up to 1/M a tile has one column, whose cost is about that of the bound on either side of it.
    for generating in (0.1, 1.0):
        one = attrs.evolve(KNOWN, generating=generating / KNOWN.memory)
        assert one.tile == (KNOWN.memory - 1, 1)
        assert one.cost <= 2.01 * KNOWN.points / KNOWN.memory + KNOWN.inner * KNOWN.columns
    assert attrs.evolve(KNOWN, generating=4 / KNOWN.memory).tile[1] == 2


@given(
    st.tuples(*[st.integers(1, 4096)] * 3),
    st.integers(4, 1 << 16),
    st.floats(1e-6, 8),
)
def test_tiles_are_above_the_bound(sizes: tuple[int, int, int], memory: int, generating: float) -> None:
    made = RandomProduct(*sizes, memory, generating)
    rows, columns = made.tile
    assert rows * columns + columns <= memory
    with_numbers = 2 * made.points * math.sqrt(min(generating, 1.0) / memory) - 2 * memory
    bound = max(0.0, with_numbers, made.points / memory - memory)
    assert made.cost >= bound
    assert made.bytes == pytest.approx(4 * bound, rel=1e-9, abs=1)


def test_memory_without_tiles() -> None:
    with pytest.raises(MorelloError, match="no tile"):
        _ = RandomProduct(1, 1, 1, 1, 1.0).tile


@pytest.fixture(scope="module")
def avx2() -> Target:
    return installed().target("x86_avx2", "base")


def test_counters_are_no_part_of_proofs(avx2: Target) -> None:
    """A program may keep the numbers in place of counters, so that only the two matrices bound a segment."""
    nest = nest_of(spec(avx2, 64, 64, 64))
    bound = traffic(nest, 1 << 10)
    assert bound.resident == {0, 1}
    check(bound)
    with pytest.raises(MorelloError, match="points may compute without"):
        check(attrs.evolve(bound, resident=frozenset()))


@pytest.mark.slow
def test_no_program_costs_less_than_certified(avx2: Target) -> None:
    one = spec(avx2, 4, 8, 16)
    certified = certificate(one, avx2)
    verify(certified)
    assert 1 < certified.cost <= cost_and_peak(Goal.of(one, avx2).synthesize(db=False).impl).cost
    made = random_products(one, avx2, cuts_of(one, avx2))
    assert [each.rows for each in made.values()] == [4, 4, 4, 4]
    assert made[2].generating > made[4].generating > 0
