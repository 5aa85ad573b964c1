"""Search finds a program exactly where docs/primitives.md promises one: for a small Spec of every ninth cell.

`python -m tools.fuzz.cells` searches for every cell.
"""

from __future__ import annotations

import pytest

from tools.fuzz.cells import PageRow, mistakes, rows, sample
from tools.primitives import GRAPHS, ORDER, TARGETS, operations, types_of


def test_every_cell_of_the_page_is_read() -> None:
    cells = [cell for row in rows() for _, cell in row.cells]
    assert {*cells} <= {*ORDER}
    assert len(cells) == len(TARGETS) * (sum(len(types_of(op)) for op in operations()) + 2 * len(GRAPHS))
    assert {row.target for row in rows()} == {*TARGETS}


@pytest.mark.slow
@pytest.mark.parametrize("row", [*sample(9)], ids=str)
def test_a_program_is_found_for_every_ninth_cell(row: PageRow) -> None:
    assert not mistakes(row)
