"""Tables as HTML, for notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from rich.text import Text

from morello.report.tables import Column, Row

_LEFT, _RIGHT = "text-align: left", "text-align: right"
#: Guides of trees join only in letters of one width, whose spaces are kept.
_PLAIN = "white-space: pre; font-family: monospace"


def table_html(columns: Sequence[Column], rows: Sequence[Row]) -> str:
    """Return a table as HTML, with the text of cells escaped."""
    styles = [_RIGHT if column.number else f"{_LEFT}; {_PLAIN}" for column in columns]
    heads = "".join(
        f'<th style="{_RIGHT if one.number else _LEFT}">{escape(one.heading)}</th>' for one in columns
    )  # fmt: skip
    body = "\n".join(f"<tr>{_cells(row, styles)}</tr>" for row in rows)
    return f"<table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def facts_html(facts: Mapping[str, str]) -> str:
    """Return names and their texts as a table of two columns, without empty texts."""
    rows = [
        f'<tr><th style="{_LEFT}">{escape(name)}</th><td style="{_LEFT}; {_PLAIN}">{escape(text)}</td></tr>'
        for name, text in facts.items()
        if text
    ]
    return "\n".join(["<table>", *rows, "</table>"])


def _cells(row: Row, styles: Sequence[str]) -> str:
    plain = [cell.plain if isinstance(cell, Text) else cell for cell in row]
    return "".join(f'<td style="{style}">{escape(cell)}</td>' for cell, style in zip(plain, styles, strict=True))
