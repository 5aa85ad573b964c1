"""Search shows how far it is, and says how far it came when it is stopped."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from morello.cli import progress
from morello.cli.progress import SearchDisplay, kept_in, work
from morello.search.progress import Progress


def test_how_far_search_is():
    told = work(Progress(2500, 99.0, tables=40, tables_done=10, low=1000, high=2000), 2000, 10.0)
    assert told == "2,000 Specs solved, 200/s, 10 of 40 tables done, the cost is between 1,000 and 2,000"
    told = work(Progress(2500, 99.0, tables=40, tables_done=10, low=1000), 2000, 10.0)
    assert told == "2,000 Specs solved, 200/s, 10 of 40 tables done, the cost is at least 1,000"
    assert work(Progress(0, 0.0), 0, 0.0) == "0 Specs solved, 0/s"


def test_lines_come_now_and_then(capsys, monkeypatch):
    with SearchDisplay("one", before=5) as display:
        display(Progress(6, 0.1, 3, 1, 70, 90))
        assert capsys.readouterr().err == ""
        monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
        display(Progress(7, 0.2, 3, 1, 70, 90))
    shown = capsys.readouterr().err
    assert shown.startswith("searching one: 2 Specs solved, ")
    assert ", 1 of 3 tables done, the cost is between 70 and 90, 0 s\n" in shown


def test_interrupt_says_what_is_kept():
    def solve() -> None:
        with SearchDisplay("one", 0, Path("solved.db")) as display:
            display(Progress(1234, 1.0))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        solve()
    text = str(caught.value)
    assert text.startswith("interrupted the search for one: 1,234 Specs had been solved in ")
    assert text.endswith("; what was solved is kept in solved.db, and the next run goes on from there")


def test_interrupt_without_a_database_promises_nothing():
    assert kept_in(None, KeyboardInterrupt()) == ""


def test_interrupt_while_saving_is_told():
    def solve() -> None:
        with SearchDisplay("one", 0, Path("solved.db")):
            try:
                raise KeyboardInterrupt
            finally:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        solve()
    assert "not all of it is kept in solved.db" in str(caught.value)


@pytest.mark.slow
def test_ctrl_c_keeps_what_was_solved(write, tmp_path):
    path, db = write("spec large = Matmul(1×49×2048×512, GL, GL, GL, serial)\n"), tmp_path / "solved.db"
    command = [sys.executable, "-m", "morello.cli", "explain", path, "--db", str(db)]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    deadline = time.monotonic() + 60
    while not db.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.startswith("interrupted the search for large: ")
    assert f"kept in {db}" in err
    assert "Traceback" not in err
