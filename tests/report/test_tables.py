"""Tables fit the terminal, are complete in pipes, and have escapes in terminals only."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from morello.report import tables
from morello.report.tables import Column, print_table, table_text

COLUMNS = [
    Column("name"),
    Column("count", number=True),
    Column("about them", wraps=True, spare=1),
    Column("x", spare=2),
]
ROWS = [("one", "1,000", "a text of several words that is long", "far"), ("another", "2", "short", "away")]

words = st.text("abcdefgh ", max_size=60).map(lambda text: " ".join(text.split()))


def printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int | None) -> tuple[str, str]:
    monkeypatch.delenv("COLUMNS", raising=False)
    if width is not None:
        monkeypatch.setenv("COLUMNS", str(width))
    print_table(COLUMNS, ROWS)
    return capsys.readouterr()


def test_rows_are_lines_without_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = printed(capsys, monkeypatch, None)
    assert out.splitlines() == [
        "name     count  about them                            x",
        "one      1,000  a text of several words that is long  far",
        "another      2  short                                 away",
    ]
    assert err == ""
    assert table_text(COLUMNS, ROWS) == out


@pytest.mark.parametrize(
    ("width", "left_out", "wrapped"),
    [(80, [], False), (50, [], True), (40, ["x"], True), (30, ["about them", "x"], False)],
)
def test_text_is_wrapped_and_then_spare_columns_go(
    width: int, left_out: list[str], wrapped: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, err = printed(capsys, monkeypatch, width)
    lines = out.splitlines()
    assert max(map(len, lines)) <= width
    assert (len(lines) > 3) == wrapped
    assert [heading in lines[0] for heading in ("about them", " x")] == [
        heading not in left_out for heading in ("about them", "x")
    ]
    assert err == (f"no room for {', '.join(left_out)}: a wider terminal shows more\n" if left_out else "")


@given(st.lists(st.tuples(words, words, words), min_size=1, max_size=5), st.integers(12, 100))
def test_nothing_is_cut_off(rows: list[tuple[str, str, str]], width: int) -> None:
    """However narrow, every letter of the columns that stay is there, in its order within a column."""
    columns = [Column("a", wraps=True), Column("b"), Column("c", number=True)]
    text = tables._text(columns, rows, width, False)
    assert all(len(line) <= width for line in text.splitlines())
    shown = sorted(text.replace("\n", "").replace(" ", ""))
    assert shown == sorted("abc" + "".join("".join(row) for row in rows).replace(" ", ""))


#: Prints a table on a terminal of 60 columns, whose other end is read.
ON_A_TERMINAL = """
from rich.text import Text
from morello.report.tables import Column, print_table
print_table([Column("name"), Column("what", wraps=True)], [(Text("one", "bold"), "a word " * 20)])
"""


def on_a_terminal(**environment: str) -> str:
    ours, theirs = pty.openpty()
    names = ("COLUMNS", "NO_COLOR", "FORCE_COLOR", "TERM")
    own = {**{name: value for name, value in os.environ.items() if name not in names}, **environment}
    os.system(f"stty cols 60 rows 24 < {os.ttyname(theirs)}")
    command = [sys.executable, "-c", ON_A_TERMINAL]
    subprocess.run(command, stdin=theirs, stdout=theirs, stderr=theirs, env=own, check=True, timeout=60)
    os.close(theirs)
    found = b""
    while True:
        try:
            chunk = os.read(ours, 4096)
        except OSError:
            break
        if not chunk:
            break
        found += chunk
    os.close(ours)
    return found.decode()


def test_the_width_is_the_terminals() -> None:
    plain = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in on_a_terminal(TERM="xterm").splitlines()]
    assert 50 < max(map(len, plain)) <= 60
    assert "\x1b[1m" in on_a_terminal(TERM="xterm")
    assert max(map(len, on_a_terminal(TERM="xterm", COLUMNS="40", NO_COLOR="1").splitlines())) <= 40


@pytest.mark.parametrize("environment", [{"TERM": "xterm", "NO_COLOR": "1"}, {"TERM": "dumb"}], ids=str)
def test_no_escapes_without_colour(environment: dict[str, str]) -> None:
    assert "\x1b" not in on_a_terminal(**environment)


def test_no_escapes_of_progress_either(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from morello.progress import Spinner

    def shown() -> str:
        with Spinner("building one"):
            time.sleep(0.5)
        return capsys.readouterr().err

    monkeypatch.setattr("morello.progress.LINE_SECONDS", 0.1)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[" in shown()
    monkeypatch.setenv("NO_COLOR", "1")
    assert "building one" in (lines := shown())
    assert "\x1b" not in lines
