"""Search finds a program exactly where docs/primitives.md promises one: for a small Spec of every third cell.

`python -m tools.fuzz.cells` searches for every cell.
"""

from __future__ import annotations

import re

import pytest

from tools.fuzz.cells import PAGE, PageRow, mistakes, rows, sample
from tools.primitives import ORDER, TARGETS

#: Cells that are not empty: none may get lost on the way from the page to a Spec.
COUNT = 948


def test_every_cell_of_the_page_is_read() -> None:
    text = PAGE.read_text(encoding="utf-8").split("\n## ", 1)[1]
    cells = [cell for row in rows() for _, cell in row.cells]
    assert len(cells) == len(re.findall(rf"\|(?= (?:{'|'.join(ORDER)}) \|)", text)) == COUNT
    assert {*cells} <= {*ORDER}
    assert {row.target for row in rows()} == {*TARGETS}


@pytest.mark.slow
@pytest.mark.parametrize("row", [*sample(3)], ids=str)
def test_a_program_is_found_for_every_third_cell(row: PageRow) -> None:
    assert not mistakes(row)
