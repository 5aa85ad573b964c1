"""Print tables that fit the terminal; into pipes and files, each row is a line."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TypeAlias

import attrs
import click
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from morello.progress import without_escapes

#: The least width of wrapped text, if it is that long.
_LEAST = 20
_GAP = 2

Row: TypeAlias = Sequence[str | Text]


@attrs.frozen
class Column:
    """A column: numbers are right-aligned; text that `wraps` takes several lines if there is little room.

    If room is still lacking, columns are left out by `spare`, the largest first; 0 stays.
    """

    heading: str
    number: bool = False
    wraps: bool = False
    spare: int = 0


def print_table(columns: Sequence[Column], rows: Sequence[Row]) -> None:
    """Print a table, no wider than the terminal or COLUMNS; list columns left out on stderr."""
    width = _width()
    shown = range(len(columns)) if width is None else _fitting(columns, rows, width)
    chosen = [[row[at] for at in shown] for row in rows]
    # Rich has left colours out if the output is not a terminal.
    click.echo(_text([columns[at] for at in shown], chosen, width, not without_escapes()), nl=False, color=True)
    left_out = [column.heading for at, column in enumerate(columns) if at not in shown]
    if left_out:
        click.echo(f"no room for {', '.join(left_out)}: a wider terminal shows more", err=True)


def table_text(columns: Sequence[Column], rows: Sequence[Row]) -> str:
    """Return a table as plain text, a line for each row."""
    return _text(columns, rows, None, False)


def _width() -> int | None:
    """Return the width of the terminal; None for a pipe or file, where a row is a line."""
    given = os.environ.get("COLUMNS", "")
    return Console().width if sys.stdout.isatty() or given.isdigit() else None


def _fitting(columns: Sequence[Column], rows: Sequence[Row], width: int) -> list[int]:
    """Return the numbers of the columns that fit."""
    shown = [*range(len(columns))]
    least = [_least(column, [row[at] for row in rows]) for at, column in enumerate(columns)]
    while sum(least[at] + _GAP for at in shown) - _GAP > width:
        # The last one among equals.
        candidate = max(shown, key=lambda at: (columns[at].spare, at))
        if not columns[candidate].spare:
            break
        shown.remove(candidate)
    return shown


def _least(column: Column, cells: Row) -> int:
    """Return the least width of a column."""
    longest = max(map(_length, cells), default=0)
    return max(cell_len(column.heading), min(longest, _LEAST) if column.wraps else longest)


def _length(cell: str | Text) -> int:
    return cell.cell_len if isinstance(cell, Text) else cell_len(cell)


def _text(columns: Sequence[Column], rows: Sequence[Row], width: int | None, colours: bool) -> str:
    cells = [[row[at] for row in rows] for at in range(len(columns))]
    natural = sum(max(map(_length, [one.heading, *own])) + _GAP for one, own in zip(columns, cells, strict=True))
    least = sum(_least(one, own) + _GAP for one, own in zip(columns, cells, strict=True)) - _GAP
    # Nothing is cut off: without room, even numbers continue in the next line.
    room = width is None or least <= width
    table = Table(box=None, pad_edge=False, header_style="bold")
    for one in columns:
        justify = "right" if one.number else "left"
        table.add_column(one.heading, justify=justify, overflow="fold", no_wrap=room and not one.wraps)
    for row in rows:
        table.add_row(*row)
    system = "auto" if colours else None
    screen = Console(width=width or natural, markup=False, highlight=False, emoji=False, color_system=system)
    with screen.capture() as captured:
        screen.print(table)
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())
