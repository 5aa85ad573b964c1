"""Groups of cells: few of them are found one by one, many by arrays, and both are the same groups."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from morello.ir.numbers import anywhere, numbered, partition

rows = st.lists(st.tuples(st.integers(-2, 3), st.integers(0, 1), st.integers(0, 2**40)), min_size=1, max_size=20)


@pytest.mark.parametrize("times", [1, pytest.param(100, marks=pytest.mark.slow)])
@given(cells=rows)
def test_cells_are_numbered_by_their_codes_in_order(times: int, cells: list[tuple[int, int, int]]) -> None:
    every = cells * times
    first, second, third = (np.array(column, dtype=np.int64) for column in zip(*every, strict=True))
    distinct, which = numbered([first, 7, second, third])
    assert distinct == sorted({(one, 7, two, three) for one, two, three in every})
    assert [distinct[number] for number in which] == [(one, 7, two, three) for one, two, three in every]


@pytest.mark.parametrize("times", [1, pytest.param(100, marks=pytest.mark.slow)])
@given(cells=rows)
def test_groups_hold_every_cell_once(times: int, cells: list[tuple[int, int, int]]) -> None:
    every = cells * times
    groups = [*partition([np.array(column, dtype=np.int64) for column in zip(*every, strict=True)])]
    found = {cell: codes for codes, group in groups if group is not None for cell in group.tolist()}
    assert [found[cell] for cell in range(len(every))] == every
    assert sum(len(group) for _, group in groups if group is not None) == len(every)


@given(mask=st.lists(st.booleans(), max_size=5))
def test_conditions_hold_somewhere(mask: list[bool]) -> None:
    assert anywhere(np.array(mask, dtype=np.bool_)) == any(mask)
    assert all(anywhere(one) is one for one in mask)
