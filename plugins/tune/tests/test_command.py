"""`morello tune`: its output, files, database and end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import attrs
import pytest
from morello_tune import TuningOptions
from morello_tune.beam import BeamState
from morello_tune.cli import TuneDisplay
from morello_tune.evaluate import Evaluator
from morello_tune.recorded import machine_of
from morello_tune.tuner import Tuner

from morello import api
from morello.codegen.forms import key_of
from morello.db import measured as measured_db
from morello.db.measured import Measured
from morello.db.store import SpecStore
from morello.host import missing_features
from morello.search.session import SearchSession
from tools.fixtures import Cli, Write

pytestmark = pytest.mark.skipif(
    bool(missing_features(("avx2", "fma"))), reason="this machine cannot run programs for x86_avx2"
)
SLOW = """\
spec one = Relu(64×64, (f32, GL), (f32, GL), serial)
schedule one {
    move 0 to GL as col_major
    move 1 to GL as col_major
    synthesize
}
"""
QUICK = ("--plans", "3", "--implementations", "1", "--iterations", "2", "--dropout", "0.2")


@pytest.mark.slow
def test_it_prints_writes_and_keeps_the_best(cli: Cli, write: Write, tmp_path: Path) -> None:
    best, db = tmp_path / "best.spec", tmp_path / "a.db"
    # The program is kept for the Spec, and used where nothing is scheduled.
    result = cli("tune", write(SLOW), "--db", str(db), "--budget", "12", "-o", str(best), *QUICK)
    assert result.exit_code == 0, result.stderr
    for word in ("start ", "best ", "samples  ", "noise ", "cost ", "times as fast", "item "):
        assert word in result.stdout
    assert f"kept     as measured in {db}" in result.stdout
    assert (tmp_path / "best.c").read_text().startswith("/*")
    open_ = write("spec one = Relu(64×64, (f32, GL), (f32, GL), serial)\n", name="open.spec")
    made = cli("compile", open_, "--db", str(db), "--emit", "schedule")
    assert made.exit_code == 0, made.stderr
    assert made.stdout == best.read_text()
    assert "nothing is proven: measured on" in made.stderr
    assert "--no-measured searches" in made.stderr
    plain = cli("compile", open_, "--db", str(db), "--no-measured", "--emit", "schedule")
    assert "nothing is proven" not in plain.stderr
    ran = cli("run", open_, "--db", str(db), "--against", "none")
    assert "search   tuned before, nothing to search" in ran.stdout
    assert "proof    nothing is proven: measured on" in ran.stdout
    counted = cli("db", "stats", str(db))
    assert "measured programs: 1 for x86_avx2" in counted.stdout
    assert json.loads(cli("db", "stats", str(db), "--json").stdout)["measured"] == {"x86_avx2": 1}
    dropped = cli("db", "measured", str(db), "--drop", "--yes")
    assert "Relu" in dropped.stdout
    assert "dropped 1 measured program" in dropped.stdout
    assert "no measured programs are stored" in cli("db", "measured", str(db)).stdout


@pytest.mark.slow
def test_json_has_the_printed_facts(cli: Cli, write: Write) -> None:
    result = cli("tune", write(SLOW), "--no-db", "--json", "--budget", "3", *QUICK)
    (found,) = json.loads(result.stdout)
    assert found["samples"] == 3
    assert sum(found["verdicts"].values()) == 3
    assert found["start"] > 0


@pytest.mark.slow
def test_the_k_best_of_the_model_are_compared_with_the_clock(cli: Cli, write: Write) -> None:
    text = "spec one = (Matmul(1×6×4×16, GL, GL, GL, serial), [64, 512, 512, 4096, 0, 1048576])\n"
    result = cli("tune", write(text), "--no-db", "--proposer", "kbest", "--top", "4")
    assert result.exit_code == 0, result.stderr
    assert "clock and model order" in result.stdout
    assert "programs examined" in result.stdout
    assert "samples  4 in" in result.stdout


def test_lists_of_proposers_and_items(cli: Cli, write: Write) -> None:
    listed = cli("tune", write(), "--list")
    for word in ("offline", "evolution", "kbest", "openai", "command", "ensemble:A,B", "register_tile", "stream"):
        assert word in listed.stdout
    assert "register_tile" in cli("tune", write(), "--list", "--json").stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--reuse", "missing.db"), "no database missing.db"),
        (("--trace", "/missing/trace"), "cannot write the trace"),
        (("-o", "/missing/best.spec"), "/missing/best.spec"),
        (("-o", "."), "cannot write .: it is a directory"),
        (("-o", "best.c"), "name a .spec file"),
    ],
)
def test_faults_are_reported(cli: Cli, write: Write, options: tuple[str, ...], word: str) -> None:
    result = cli("tune", write(), "--no-db", *options)
    assert result.exit_code == 1
    assert word in result.stderr


def test_unknown_proposers_are_wrong_arguments(cli: Cli, write: Write) -> None:
    result = cli("tune", write(), "--no-db", "--proposer", "none")
    assert (result.exit_code, "has no proposer 'none'" in result.stderr) == (2, True)


@pytest.mark.parametrize("budget", ["many", "0", "1.5", "10 m"])
def test_budgets_are_samples_or_times(cli: Cli, write: Write, budget: str) -> None:
    result = cli("tune", write(), "--budget", budget)
    assert result.exit_code == 2
    assert "neither a number of samples, such as 100, nor a time" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_tune_that_is_ended_loses_no_measured_result(write: Write, tmp_path: Path, how: signal.Signals) -> None:
    trace, db, file = tmp_path / "trace.jsonl", tmp_path / "a.db", write(SLOW)
    program = [sys.executable, "-m", "morello"]
    command = [*program, "tune", file, "--db", str(db), "--trace", str(trace)]
    command += ["--plans", "2", "--implementations", "1", "--budget", "5m"]

    def lines() -> list[str]:
        return trace.read_text().splitlines() if trace.exists() else []

    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as one:
        deadline = time.monotonic() + 60
        while len(lines()) < 4 and one.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        one.send_signal(how)
        out, err = one.communicate(timeout=60)
    events = [json.loads(line) for line in lines() if line.endswith("}")]
    assert len(events) >= 4, err
    kept = [event for event in events if event.get("verdict") == "accepted"]
    if how == signal.SIGINT:
        assert one.returncode == 0, err
        assert "interrupted" in out
        assert events[-1]["event"] == "end"
    # The next run continues from there: it times nothing again, and prints the best.
    again = subprocess.run([*command[:-1], "1"], capture_output=True, text=True, timeout=60, check=True)
    assert "samples  1 " in again.stdout
    if kept:
        assert measured_db.counts(SpecStore(db).file) == {"x86_avx2": 1}


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    """A database with a measured program, which is not the cheapest under the model."""
    goal = api.goal("Relu(64×64, (f32, GL), (f32, GL), serial)", target="x86_avx2", profile="base")
    done = goal.apply("move 0 to GL as col_major").synthesize(db=False)
    program = goal.target.emitter.emit(done.impl, goal.target, "kernel")
    kept = Measured(
        machine=machine_of(api.compile(done, db=False)),
        schedule=done.schedule,
        key=key_of(program.source),
        **dict.fromkeys(("value", "start", "gain"), 1.0),
        spread=0.01,
        samples=1,
    )
    store = SpecStore(tmp_path / "measured.db")
    store.keep_measured(goal.target, goal.spec, kept)
    store.close()
    return store.path


@pytest.mark.slow
@pytest.mark.parametrize("command", ["run", "check", "bench", "explain", "bound", "compile"])
def test_commands_act_on_the_measured_program(
    command: str, cli: Cli, write: Write, measured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SearchSession, "search_within", lambda *_: pytest.fail("it searches"))
    file = write("spec one = Relu(64×64, (f32, GL), (f32, GL), serial)\n")
    result = cli(command, file, "--db", str(measured), *(["--against", "none"] if command in ("run", "bench") else []))
    assert result.exit_code == 0, result.stderr


@pytest.mark.slow
def test_parallel_searches_leave_measured_programs(cli: Cli, write: Write, measured: Path, tmp_path: Path) -> None:
    file = write(
        "".join(f"spec {name} = Relu({m}×64, (f32, GL), (f32, GL), serial)\n" for name, m in (("a", 64), ("b", 8)))
    )
    made = []
    for jobs in ("1", "2"):
        result = cli("compile", file, "-d", str(tmp_path / jobs), "--db", str(measured), "--jobs", jobs)
        assert "a: nothing is proven: measured on" in result.stderr
        made.append({one.name: one.read_bytes() for one in (tmp_path / jobs).iterdir()})
    assert made[0] == made[1]


@pytest.mark.slow
def test_progress_fits_into_a_narrow_line() -> None:
    goal = api.goal("Relu(64×64, (f32, GL), (f32, GL), serial)", target="x86_avx2", profile="base")
    goal = attrs.evolve(goal, name="a_name_that_is_much_longer_than_there_is_room_for")
    lines: list[str] = []

    class Watched(TuneDisplay):
        def __call__(self, state: BeamState, evaluator: Evaluator) -> None:
            super().__call__(state, evaluator)
            lines.append(self.describe())

    with Watched(goal.name) as display:
        lines.append(display.describe())
        options = TuningOptions(plans=1, implementations=1, iterations=2)
        start = goal.apply("move 0 to GL as col_major").synthesize(db=False, progress=False)
        Tuner(start, options, on_sample=display).run()
    assert len(lines) >= 3
    assert max(map(len, lines)) <= 58
    assert "samples" in lines[-1]
    assert "GFLOP/s" in lines[-1]
