"""The campaign draws the same Specs each time, passes on a sample, and finds what is wrong."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import attrs
import pytest

from morello.errors import NoImplementation
from morello.frontend.parser import parse_spec
from morello.frontend.sizes import Sizes
from morello.ir.impl import Impl
from morello.ir.ops.fill import FillZero
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.plugins.registry import Registry, installed
from morello.search.session import SearchSession
from tools.fuzz import campaign
from tools.fuzz.examine import OutOfTime, within
from tools.fuzz.specs import drawn_sizes, drawn_spec
from tools.fuzz.sweep import toy_plugin

COMMAND = [sys.executable, "-m", "tools.fuzz.campaign"]


def counts(told: str) -> dict[str, int]:
    """The counts of all targets together, by column."""
    titles, row = (re.search(rf"^[┃│] {start}.*$", told, re.MULTILINE) for start in ("target", "all"))
    assert titles
    assert row
    columns = zip(re.split("[┃│]", titles[0])[2:-1], re.split("[┃│]", row[0])[2:-1], strict=True)
    return {title.strip(): int(count) for title, count in columns}


def test_draws_depend_on_seed_and_number_alone(avx2: Target) -> None:
    first = [drawn_spec(avx2, 5, number) for number in range(40)]
    assert [drawn_spec(avx2, 5, number) for number in reversed(range(40))] == first[::-1]
    assert drawn_spec(avx2, 6, 0) != first[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["x86_avx2", "reference_c"])
def test_draws_reach_everything_there_is(name: str) -> None:
    target = installed().target(name)
    specs = [drawn_spec(target, 0, number) for number in range(120)]
    states = [state for spec in specs for state in spec.logical.states]
    assert {state.level for state in states} == {level.name for level in target.levels}
    assert {state.dtype for state in states} == {*target.dtypes.values()}
    assert len({type(spec.op) for spec in specs}) > 30
    assert {spec.logical.serial for spec in specs} == {True, False}
    assert {spec.limits == target.full_limits() for spec in specs} == {True, False}
    assert {state.aligned for state in states} == {state.contiguous for state in states} == {True, False}
    sizes = [drawn_sizes(0, number, spec) for number, spec in enumerate(specs)]
    assert len({type(spec.op) for spec, one in zip(specs, sizes, strict=True) if one}) > 3
    assert {one.low == one.high for one in sizes if one} == {True, False}


@pytest.fixture
def toy() -> Any:
    """The plugin object of toy_cpu, on which search takes little."""
    return toy_plugin()


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Any:
    """Runs a campaign on a plugin object; its exit code and what it prints."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def go(plugin: Any, *options: str) -> tuple[int, str]:
        registry = Registry.of(toy_cpu=plugin)
        monkeypatch.setattr(campaign, "installed", lambda: registry)
        code = campaign.main(["--specs", "20", "--seed", "3", *options])
        return code, capsys.readouterr().out

    return go


@pytest.mark.slow
def test_nothing_is_wrong_with_the_toy(run: Any, toy: Any) -> None:
    code, told = run(toy, "--seconds", "0.3", "--seed", "1")
    assert code == 0
    assert counts(told)["verified"] > 0
    assert counts(told)["no program"] > 0
    assert counts(told)["Specs"] == 20


@pytest.fixture
def specs(toy: Any, monkeypatch: pytest.MonkeyPatch) -> list[Spec]:
    """Draw these Specs instead: they have programs, and sizes from 1 up."""
    target = Registry.of(toy_cpu=toy).target("toy_cpu")
    found = [parse_spec(f"FillZero({size}, (f32, C), serial)", target) for size in range(1, 11)]
    monkeypatch.setattr("tools.fuzz.examine.drawn_spec", lambda target, seed, number, op=None: found[number])
    monkeypatch.setattr("tools.fuzz.examine.drawn_sizes", lambda seed, number, spec: None)
    return found


@pytest.mark.usefixtures("specs")
def test_faults_of_search_are_told(run: Any, toy: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Search raises, dies, denies that there is a program, or takes its time: each is counted, and all else goes on."""
    real = SearchSession.synthesize

    def synthesize(self: SearchSession, spec: Spec) -> Impl:
        fate = int(spec.shape[0]) % 5
        if fate == 0:
            raise IndexError("planted")
        if fate == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if fate == 2:
            raise NoImplementation("planted")
        while fate == 3:
            time.process_time()
        return real(self, spec)

    monkeypatch.setattr(SearchSession, "synthesize", synthesize)
    code, told = run(toy, "--specs", "10", "--seconds", "0.2", "--patience", "60", "--jobs", "2")
    assert code == 1
    found = counts(told)
    assert (found["Specs"], found["verified"], found["out of time"], found["failed"]) == (10, 2, 2, 6)
    kinds = {kind: int(count) for count, kind in re.findall(r"^(\d+) × (.*?); first", told, re.MULTILINE)}
    (place,) = [kind for kind in kinds if kind.startswith("IndexError at test_campaign.py:")]
    assert kinds == {place: 2, "worker dies: SIGKILL": 2, "brute force disagrees": 2}
    assert told.count("repeat it with: ") == 6
    assert told.count("search says no program, brute force ") == 2
    (path,) = {*re.findall(r"the report is in (\S+)", told.split("IndexError: planted")[1])}
    bundle = Path(path).read_text()
    assert Path(path).is_relative_to(tmp_path)
    assert "IndexError: planted" in bundle
    assert "target toy_cpu\n\nspec failing = FillZero(" in bundle


@pytest.mark.usefixtures("specs")
@pytest.mark.slow
def test_a_hang_and_a_crash_are_told_with_the_place(run: Any, toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def synthesize(self: SearchSession, spec: Spec) -> Impl:
        if spec.shape[0] == 1:
            time.sleep(1000)
        os.abort()

    monkeypatch.setattr(SearchSession, "synthesize", synthesize)
    monkeypatch.setattr(campaign, "_SILENCE", 2.0)
    _, told = run(toy, "--specs", "2")
    assert re.search(r"Spec 0 on toy_cpu: worker hangs\n(?s:.*?)test_campaign.py\", line \d+ in synthesize", told)
    assert re.search(
        r"Spec 1 on toy_cpu: worker dies: SIGABRT\n(?s:.*?)test_campaign.py\", line \d+ in synthesize", told
    )


def test_the_command_told_repeats_a_failure(run: Any, toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def synthesize(self: SearchSession, spec: Spec) -> Impl:
        raise IndexError(str(spec.shape))

    monkeypatch.setattr(SearchSession, "synthesize", synthesize)
    _, told = run(toy, "--specs", "3", "--first", "7")
    stories = re.findall(r"^IndexError: (.*)$", told, re.MULTILINE)
    again = re.findall(r"repeat it with: python -m tools.fuzz.campaign (.*)$", told, re.MULTILINE)
    assert len(stories) == len(again) == 3
    assert f"IndexError: {stories[-1]}\n" in run(toy, *again[-1].split())[1]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("{out} = 7;", "wrong result"),
        ("{out} = 7; __builtin_trap();", "program crashes"),
        ("nothing;", "C does not compile"),
    ],
)
def test_faults_of_kernels_are_told(run: Any, toy: Any, specs: list[Spec], code: str, kind: str) -> None:
    kernels = [attrs.evolve(one, emit=None, template=code) if one.op == FillZero() else one for one in toy.kernels]
    target = Registry.of(toy_cpu=toy).target("toy_cpu")
    specs[1] = parse_spec("Move(4, MEM, MEM)", target)
    exit_code, told = run(attrs.evolve(toy, kernels=tuple(kernels)), "--specs", "2")
    assert exit_code == 1
    assert f"1 × {kind}; first: Spec 0 on toy_cpu" in told
    assert "select Zero" in told
    assert counts(told)["verified"] == 1


@pytest.mark.usefixtures("specs")
@pytest.mark.parametrize("wrong", [False, True])
def test_sizes_known_at_run_time(run: Any, toy: Any, wrong: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part is that of brute force, and the function is right in several sizes."""
    monkeypatch.setattr("tools.fuzz.examine.drawn_sizes", lambda seed, number, spec: Sizes("size", 2, 3, 0))
    kernels = [
        attrs.evolve(one, template=None, emit=lambda site: site.line(f"*{site.operand(0).pointer()} = 7;"))
        if wrong and one.op == FillZero()
        else one
        for one in toy.kernels
    ]
    code, told = run(attrs.evolve(toy, kernels=tuple(kernels)), "--specs", "1", "--first", "2", "--patience", "60")
    found = counts(told)
    assert (code, found["verified"], found["brute force: equal"]) == (int(wrong), int(not wrong), int(not wrong))
    assert ("1 × wrong result; first: Spec 2" in told) == wrong
    assert ("for size in 2..3" in told) == wrong


@pytest.mark.slow
def test_an_interrupt_leaves_the_counts(tmp_path: Path) -> None:
    command = [*COMMAND, "--specs", "100000", "--seed", "1", "--target", "reference_c"]
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout
        assert any(line.startswith("60 of 100,000 Specs examined") for line in process.stdout)
        process.send_signal(signal.SIGINT)
        try:
            told, _ = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    assert counts(told)["verified"] >= 50


def test_time_is_up_whatever_is_suppressed() -> None:
    def stubborn() -> None:
        while True:
            try:
                time.process_time()
            except Exception:
                continue

    with pytest.raises(OutOfTime):
        within(0.05, stubborn)
    assert within(5, lambda: 3) == 3
    assert signal.getitimer(signal.ITIMER_PROF)[0] == 0
