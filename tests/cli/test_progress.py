"""Search displays its progress, and reports its state when it is stopped."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from morello import progress
from morello.progress import SearchDisplay, Spinner, kept_in, short
from morello.search.progress import Phase, Progress


def shown(*seen: Any, name: str = "matmul", phase: Phase = Phase.SEARCH) -> str:
    display = SearchDisplay(name, before=5)
    display(Progress(*seen, phase=phase))
    return display.describe()


def test_how_far_search_is() -> None:
    known = 2005, 99.0, 40, 10, 91_234_567
    assert shown(*known, 92_110_132) == "searching matmul, 0 s, cost 91.23M to 92.11M, gap 1.0 %"
    assert shown(*known) == "searching matmul, 0 s, cost at least 91.23M, 2,000 Specs"
    assert shown(5, 0.0) == "searching matmul, 0 s, 0 Specs"
    assert shown(5, 0.0, phase=Phase.BOUNDS) == "making bounds for matmul, 0 s"
    assert shown(5, 0.0, 0, 0, 1, 2005, phase=Phase.BOUNDS) == "making bounds for matmul, 0 s, cost at most 2,005"
    assert shown(5, 0.0, 0, 0, 0, 2005) == "searching matmul, 0 s, cost at most 2,005, 0 Specs"


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("high", [None, 10**15 - 1, 9_876_543_219_876_543])
def test_lines_are_narrow(high: int | None, phase: Phase) -> None:
    text = shown(123_456_789, 1e5, 1, 1, 10**15 - 1, high, name="a_name_that_goes_on_" * 4, phase=phase)
    assert len(text) <= progress.WIDTH
    assert " a_name_" in text


def test_numbers_are_short() -> None:
    assert [*map(short, (0, 9_999, 10_000, 123_456, 2**53))] == ["0", "9,999", "10k", "123.5k", "9.007P"]


def test_the_display_updates_between_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    monkeypatch.setattr(progress, "UPDATE_SECONDS", 0.001)
    lines: list[str] = []
    enough = threading.Event()

    def echo(text: str, *, err: bool) -> None:
        assert err
        lines.append(text)
        if len(lines) == 3:
            enough.set()

    monkeypatch.setattr(progress.click, "echo", echo)
    with Spinner("building one"):
        assert enough.wait(60)
    assert lines[:3] == ["building one, 0 s"] * 3


@pytest.mark.slow
def test_every_phase_of_a_run_is_displayed(cli, write, runnable, monkeypatch) -> None:
    seen: list[str] = []
    heard, began = SearchDisplay.__call__, Spinner.__init__

    def listen(display: SearchDisplay, state: Progress) -> None:
        seen.append(state.phase.value)
        heard(display, state)

    def begin(display: Spinner, what: str, ended: str = "") -> None:
        seen.append(what)
        began(display, what, ended)

    monkeypatch.setattr(SearchDisplay, "__call__", listen)
    monkeypatch.setattr(Spinner, "__init__", begin)
    # So small a product would be proved without finer bounds.
    monkeypatch.setattr("morello.search.session.REFINE_AFTER", 0)
    assert cli("run", write(target=runnable), "--no-db").exit_code == 0
    phases = [one.value for one in Phase]
    assert [*dict.fromkeys(seen)] == [*phases, "building one", "verifying one", "timing one"]


def test_interrupt_reports_saved_answers():
    def solve() -> None:
        with SearchDisplay("one", 0, "solved.db") as display:
            display(Progress(1234, 1.0))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        solve()
    text = str(caught.value)
    assert text.startswith("interrupted the search for one: 1,234 Specs had been solved in ")
    assert text.endswith("; solved Specs are stored in solved.db, and the next run continues from there")


def test_interrupt_without_a_database_promises_nothing():
    assert kept_in(None, KeyboardInterrupt()) == ""


def test_interrupt_while_saving_is_reported():
    def solve() -> None:
        with SearchDisplay("one", 0, "solved.db"):
            try:
                raise KeyboardInterrupt
            finally:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        solve()
    assert "not all of it is stored in solved.db" in str(caught.value)


@pytest.mark.slow
def test_ctrl_c_saves_solved_specs(write, tmp_path):
    path, db = write("spec large = Conv(1×64×64×56×56×3×3, GL, GL, GL, serial)\n"), tmp_path / "solved.db"
    command = [sys.executable, "-m", "morello", "explain", path, "--db", str(db)]
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
    assert f"stored in {db}" in err
    assert "Traceback" not in err
