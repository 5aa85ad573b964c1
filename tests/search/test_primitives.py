"""Search finds a program exactly where docs/primitives.md promises one: for a small Spec of every fifteenth cell.

`python -m tools.fuzz.cells` searches for every cell.
"""

from __future__ import annotations

import pytest

from tools.fuzz.cells import PageRow, mistakes, rows, sample
from tools.primitives import FLOATS, GRAPHS, ORDER, TARGETS, operations, types_of


def test_every_cell_of_the_page_is_read() -> None:
    cells = [cell for row in rows() for _, cell in row.cells]
    assert {*cells} <= {*ORDER}
    assert len(cells) == len(TARGETS) * (sum(len(types_of(op)) for op in operations()) + len(FLOATS) * len(GRAPHS))
    assert {row.target for row in rows()} == {*TARGETS}


@pytest.mark.slow
@pytest.mark.parametrize("row", [*sample(15)], ids=str)
def test_a_program_is_found_for_every_fifteenth_cell(row: PageRow) -> None:
    assert not mistakes(row)
