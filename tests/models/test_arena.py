"""Buffers that are alive at the same time do not overlap, and the least size of the arena is reported."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from morello.models.arena import ALIGNMENT, placed

LIVES = st.tuples(st.integers(0, 9), st.integers(0, 9)).map(lambda pair: (min(pair), max(pair)))


@given(st.lists(st.tuples(st.integers(0, 1000), LIVES), max_size=12))
def test_no_overlap(drawn):
    sizes = {number: size for number, (size, _) in enumerate(drawn)}
    lives = {number: life for number, (_, life) in enumerate(drawn)}
    arena = placed(sizes, lives)
    for call in range(10):
        used = sorted((arena.starts[one], sizes[one]) for one, (first, last) in lives.items() if first <= call <= last)
        assert sum(size for _, size in used) <= arena.least <= arena.size
        assert all(low + size <= start for (low, size), (start, _) in pairwise(used) if size)
    assert all(start % ALIGNMENT == 0 for start in arena.starts.values())


def test_a_chain_takes_two_buffers():
    sizes = dict.fromkeys("abcd", 4096)
    arena = placed(sizes, {name: (number, number + 1) for number, name in enumerate("abcd")})
    assert arena.size == arena.least == 8192
