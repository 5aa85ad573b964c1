"""`--jobs`: parallel searches find the same as sequential ones."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SPECS = "".join(f"spec {name} = Matmul(1×{m}×8×8, L1, L1, L1, serial)\n" for name, m in (("a", 8), ("b", 5), ("c", 3)))
#: The search for each solves Specs that the others have, too.
RELATED = """\
spec product = Matmul(1×48×40×24, GL, GL, GL, serial)
spec softmax = Softmax(8×24, GL, GL, serial)
spec relu = Relu(8×24, GL, GL, serial)
"""
LONG = "".join(
    f"spec {name} = Conv(1×64×64×{size}×56×3×3, (f32, GL), (f32, GL), (f32, GL), serial)\n"
    for name, size in (("a", 56), ("b", 55))
)


@pytest.mark.slow
def test_programs_are_the_same(cli, write, tmp_path: Path) -> None:
    file = write(SPECS)
    for jobs in ("1", "2"):
        result = cli("compile", file, "-d", str(tmp_path / jobs), "--no-db", "--jobs", jobs)
        assert result.exit_code == 0, result.stderr
    for path in (tmp_path / "1").iterdir():
        assert path.read_bytes() == (tmp_path / "2" / path.name).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(("effort", "rows"), [("400", False), ("700", True)])
def test_an_effort_gives_the_same_programs(cli, write, tmp_path: Path, effort: str, rows: bool) -> None:
    """No search sees what the others of its command store, which may end it sooner, or with another program."""
    file, start, found = write(RELATED), tmp_path / "start.db", []
    if rows:
        assert cli("compile", file, "--spec", "relu", "--db", str(start)).exit_code == 0
    for jobs in ("1", "2", "3"):
        db, out = tmp_path / f"{jobs}.db", tmp_path / jobs
        if rows:
            shutil.copy(start, db)
        result = cli(
            *("compile", file, "-d", str(out), "--db", str(db), "--profile", "zen5"),
            *("--effort", effort, "--jobs", jobs),
        )
        said = [line for line in result.stderr.splitlines() if "proven" in line or "error" in line]  # no progress
        found.append((result.exit_code, said, {one.name: one.read_bytes() for one in out.glob("*")}))
    assert found == found[:1] * 3


@pytest.mark.slow
def test_the_first_goal_that_fails_is_named(cli, write, refused, tmp_path: Path) -> None:
    file = write(SPECS + "spec none = (Matmul(1×8×8×8, GL, GL, GL, serial), [0, 0, 0, 0, 0, 0])\n")
    refused(cli("compile", file, "-d", str(tmp_path / "out"), "--no-db", "--jobs", "2"), "none: ")
    assert not [*tmp_path.glob("out/*.c")]


@pytest.mark.slow
def test_bench_times_the_same_programs(cli, write) -> None:
    file, found = write(SPECS), []
    for jobs in ("1", "2"):
        result = cli("bench", file, "--no-db", "--min-time", "0", "--against", "none", "--jobs", jobs)
        assert result.exit_code == 0, result.stderr
        found.append([line.split()[0] for line in result.stdout.splitlines()])
    assert found[0] == found[1]
    assert found[0][1:] == ["a", "b", "c"]


@contextmanager
def searching(file: str, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """Yield a command with two workers that search, and its children: the workers, and a tracker of their resources."""
    command = [sys.executable, "-m", "morello", "compile", file, "-d", str(tmp_path / "out"), "--prove"]
    with subprocess.Popen([*command, "--no-db", "--jobs", "2"], stderr=subprocess.PIPE, text=True) as running:
        children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
        started = time.monotonic()
        while len(children.read_text().split()) < 3 and time.monotonic() < started + 60:
            time.sleep(0.1)
        below = [int(child) for child in children.read_text().split()]
        assert len(below) >= 3
        yield running, below
    ended = time.monotonic() + 30
    while any(map(_is_running, below)) and time.monotonic() < ended:
        time.sleep(0.1)
    assert not [child for child in below if _is_running(child)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL], ids=lambda one: one.name
)
def test_no_process_outlives_a_command(number: signal.Signals, write, tmp_path: Path) -> None:
    with searching(write(LONG), tmp_path) as (running, _):
        # Ctrl-C in a shell reaches the workers too; a signal from elsewhere does not.
        running.send_signal(number)
        message = running.communicate(timeout=60)[1]
        if number == signal.SIGINT:
            assert "interrupted the searches" in message
        assert running.returncode == (130 if number == signal.SIGINT else -number)


@pytest.mark.slow
def test_a_worker_that_the_system_ends_is_reported(write, tmp_path: Path) -> None:
    with searching(write(LONG), tmp_path) as (running, below):
        for child in below:
            if "spawn_main" in Path(f"/proc/{child}/cmdline").read_text():
                os.kill(child, signal.SIGKILL)
                break
        message = running.communicate(timeout=60)[1]
        assert "the system ended a process of --jobs" in message
        assert "Traceback" not in message
        assert running.returncode == 1


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
def test_a_script_without_a_guard_is_told_so(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from morello import api\n"
        "goals = [api.goal_from(f'Relu({size}×8, GL, GL, serial)', 'reference_c') for size in (8, 16)]\n"
        "api.synthesize_all(goals, None, api.SearchBudget(expansions=1), 2)\n",
        encoding="utf-8",
    )
    made = subprocess.run([sys.executable, script], stderr=subprocess.PIPE, text=True, timeout=60)
    assert made.returncode == 1
    assert 'write `if __name__ == "__main__":`' in made.stderr.splitlines()[-1]
