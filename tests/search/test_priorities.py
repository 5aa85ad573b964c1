"""Priorities packed into ints keep their order, and can be taken apart again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from morello.search.tables.priorities import Priority

priorities = st.builds(Priority, st.integers(0, 200), st.integers(0, 10**6), st.integers(0, 100))


@given(priorities, priorities)
def test_packing_keeps_the_order(first: Priority, second: Priority) -> None:
    def place(one: Priority) -> tuple[int, int, int]:
        return one.rewrite, one.operand, one.step

    assert (first.pack() < second.pack()) == (place(first) < place(second))
    assert Priority.unpack(first.pack()) == first
