"""The beam search with invented times: its beam, its samples, its traces, and the items that menus drop."""

from __future__ import annotations

import json
import random
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from morello_tune import MenuItem, PlanRequest, Proposal, ProposerSession, TuningSample
from morello_tune.beam import BeamOptions, BeamSearch, BeamState, drop_items
from morello_tune.evaluate import Rejection
from morello_tune.interface import BuiltProgram, MeasuredProgram
from morello_tune.trace import Trace

from morello.errors import MorelloError
from morello.run.paired import Paired
from morello.schedule import Schedule

from .conftest import candidate

ITEMS = [MenuItem(name=f"item{number}", text="", edits=lambda candidate: ()) for number in range(17)]


def invented(key: str, value: float, relative: float = 1.0) -> MeasuredProgram:
    built: Any = type("Invented", (), {"key": key, "cost": 1})()
    return MeasuredProgram(built, candidate("product"), value, 0.0, relative)


@attrs.define
class Fake(ProposerSession):
    """Proposes one more than requested, which must not count, and records requests and samples."""

    requests: list[PlanRequest] = attrs.field(factory=list[PlanRequest])
    samples: list[TuningSample] = attrs.field(factory=list[TuningSample])

    def propose(self, requests: Sequence[PlanRequest]) -> list[Sequence[Proposal]]:
        self.requests += requests
        one = Proposal(item="item0", plan="a plan", schedule=())
        return [[one] * (request.implementations + 1) for request in requests]

    def learn(self, samples: Sequence[TuningSample]) -> None:
        self.samples += samples


@attrs.define
class Times:
    """Invents times and programs; some programs cannot be built."""

    rng: random.Random
    always: float | None = None
    count: int = 0
    seconds: float = 0.0

    def prepare(self, schedules: Sequence[Schedule], known: Callable[[str], bool]) -> list[Any]:
        found: list[Any] = []
        for _ in schedules:
            self.count += 1
            lost = self.always is None and self.rng.random() < 0.2
            found.append(Rejection("no program", "bad luck") if lost else invented(f"key{self.count}", 1.0).built)
        return found

    def verify(self, built: BuiltProgram) -> Rejection | None:
        return Rejection("wrong", "bad luck") if self.always is None and self.rng.random() < 0.1 else None

    def measure(
        self, built: BuiltProgram, parent: MeasuredProgram, known: Paired | None = None
    ) -> tuple[MeasuredProgram, Paired]:
        time.sleep(self.seconds)
        gain = self.always or self.rng.lognormvariate(0, 0.2)
        found = known or Paired(parent.value, parent.value / gain, gain, gain, gain)
        return invented(built.key, found.second, parent.relative * found.gain), found

    def verdict(self, found: Paired) -> Rejection | None:
        return None if found.gain > 1 else Rejection("slower", "")


def run(options: BeamOptions, times: Any = None, **more: Any) -> tuple[BeamState, Fake]:
    start, session = invented("start", 1.0), Fake()
    evaluator: Any = times or Times(random.Random(options.seed))
    search = BeamSearch(evaluator, session, ITEMS, options, **more)
    return search.run(BeamState(start, [start])), session


def test_dropout_keeps_as_many_items_as_it_says() -> None:
    """A1: of 17 items 5.1 are kept with a dropout of 0.7, the same for the same seed."""
    kept = [drop_items(ITEMS, 0.7, seed) for seed in range(4000)]
    assert statistics.mean(map(len, kept)) == pytest.approx(5.1, abs=0.1)
    assert kept == [drop_items(ITEMS, 0.7, seed) for seed in range(4000)]
    assert min(map(len, kept)) == 1
    counts = [sum(item in menu for menu in kept) for item in ITEMS]
    assert max(counts) < 1.2 * min(counts)
    assert [len(drop_items(ITEMS, share, 1)) for share in (0.0, 1.0)] == [17, 1]


@pytest.mark.slow
@pytest.mark.parametrize(("plans", "implementations", "iterations", "most"), [(6, 2, 15, 1020), (6, 2, 10, 660)])
def test_samples_are_at_most_those_of_the_paper(plans: int, implementations: int, iterations: int, most: int) -> None:
    """A2: with all that is proposed faster, the beam is full after the first iteration, and all samples are taken."""
    options = BeamOptions(plans=plans, implementations=implementations, iterations=iterations)
    state, session = run(options, Times(random.Random(0), always=1.01))
    assert len(state.samples) == most == len(session.samples)
    assert len(session.requests) == plans + (iterations - 1) * 6 * plans


@settings(max_examples=25)
@given(
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(1, 2),
    st.integers(0, 4),
    st.none() | st.integers(0, 40),
    st.integers(0, 99),
)
def test_beams_hold_programs_that_beat_their_parents(
    beam: int, plans: int, implementations: int, iterations: int, samples: int | None, seed: int
) -> None:
    """A2: nothing slower than its parent, no more than the beam or the budget."""
    options = BeamOptions(
        beam=beam, plans=plans, implementations=implementations, iterations=iterations, samples=samples, seed=seed
    )
    seen: list[BeamState] = []

    def check(state: BeamState) -> None:
        assert len(state.beam) <= beam
        assert [one.relative for one in state.beam] == sorted((one.relative for one in state.beam), reverse=True)
        seen.append(state)

    state, session = run(options, on_sample=check)
    once = plans * implementations
    most = once + (iterations - 1) * beam * once if iterations else 0
    assert len(state.samples) <= min(most, most if samples is None else samples)
    assert len(seen) == len(state.samples)
    entered = {one.measured.built.key for one in state.samples if one.verdict == "accepted" and one.measured}
    assert {one.built.key for one in state.beam} <= entered | {"start"}
    for one in state.samples:
        assert (one.verdict == "accepted") == (one.paired is not None and one.paired.gain > 1)
    again, _ = run(options)
    assert [one.facts for one in again.samples] == [one.facts for one in state.samples]
    assert len({request.seed for request in session.requests}) == len(session.requests)


def test_the_time_limit_ends_the_search_between_samples() -> None:
    state, _ = run(BeamOptions(seconds=0.1), Times(random.Random(0), always=1.01, seconds=0.02))
    # A busy machine sleeps for longer, so that there may be fewer.
    assert 1 <= len(state.samples) <= 6


def test_programs_not_measured_in_time_are_not_samples() -> None:
    class Late(Times):
        def measure(
            self, built: BuiltProgram, parent: MeasuredProgram, known: Paired | None = None
        ) -> tuple[MeasuredProgram, Paired]:
            if built.key == "key3":
                raise TimeoutError
            return super().measure(built, parent, known)

    state, session = run(BeamOptions(iterations=1), Late(random.Random(0), always=1.01))
    assert [one.measured.built.key for one in state.samples if one.measured] == ["key1", "key2"]
    assert len(session.samples) == 2


def test_the_way_to_a_program_names_its_items() -> None:
    state, _ = run(BeamOptions(iterations=3), Times(random.Random(0), always=1.1))
    assert [item for item, _ in state.best.way] == ["item0"] * 3
    assert state.best.relative == pytest.approx(1.1**3)


TASK = {name: name for name in ("spec", "target", "profile", "cpu", "compiler", "threads", "metric")}


def test_traces_have_all_samples_and_their_times_are_used_again(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    trace = Trace.open(path, TASK)
    trace.write("start", **TASK)
    state, _ = run(BeamOptions(iterations=2, samples=20), trace=trace)
    lines = [json.loads(one) for one in path.read_text().splitlines()]
    assert [one["event"] for one in lines] == ["start"] + ["sample"] * 20
    assert [one["verdict"] for one in lines[1:]] == [one.verdict for one in state.samples]
    assert all({"iteration", "parent", "item", "plan", "edit", "reason", "feedback"} <= {*one} for one in lines[1:])
    # A process that is killed leaves a part of a line; times are kept, and not measured again.
    path.write_text(path.read_text() + '{"event": "sam')
    known = Trace.open(path, TASK)
    measured = [one for one in state.samples if one.paired]
    assert len(known.known) == len(measured)

    same, _ = run(BeamOptions(iterations=1, samples=len(state.samples)), _Replayed(state), trace=known)
    first = state.samples[: len(same.samples)]
    assert [one.paired for one in same.samples] == [one.paired for one in first]
    known.write("end")
    assert [json.loads(one) for one in path.read_text().splitlines() if one != '{"event": "sam'][-1] == {"event": "end"}
    with pytest.raises(MorelloError, match="another task: its cpu is 'cpu', not 'other'"):
        Trace.open(path, {**TASK, "cpu": "other"})
    with pytest.raises(MorelloError, match="cannot write the trace"):
        Trace.open(tmp_path / "none" / "trace", TASK)


START = json.dumps({"event": "start", **TASK})
SAMPLE = '{"event": "sample", "parent": "a", "key": "b", "paired": [2, 1.0, 2, 1.9, 2.1, 0.01]}'


@pytest.mark.parametrize(
    ("lines", "rule"),
    [
        (["no trace"], ":1: not a line of a trace: Expecting value"),
        (["[]"], ":1: not a line of a trace: a line is a JSON object with an event"),
        ([START, '{"event": "more"}', SAMPLE], ":2: not a line of a trace: a line is a JSON object with an event"),
        ([SAMPLE, START], ":1: a result before the start of its task"),
        ([START, SAMPLE, '{"event": "sam', SAMPLE], ":3: not a line of a trace: Invalid control character"),
        ([START, '{"event": "sam'], ":2: not a line of a trace: Invalid control character"),
        ([START, SAMPLE, START.replace('"cpu"', '"gpu"')], "is the trace of another task: its cpu is None, not 'cpu'"),
        ([START, SAMPLE.replace("1.0", "NaN")], ":2: not a line of a trace: NaN is not a finite number"),
        ([START, SAMPLE.replace("1.0", "NaN"), START], ":2: not a line of a trace: NaN is not a finite number"),
        ([START, SAMPLE.replace("1.0", "1e999")], ":2: not a line of a trace: 1e999 is not a finite number"),
        ([START, SAMPLE.replace("1.0", "9" * 10**6)], ":2: not a line of a trace: a number has 1,000,000 digits"),
        ([START, SAMPLE.replace("1.0", "[" * 10**5)], ":2: not a line of a trace: it is nested deeper than 50"),
        ([START, SAMPLE.replace("1.0", "-1")], ":2: not a line of a trace: times are positive"),
        ([START, SAMPLE.replace("1.9", "2.05")], ":2: not a line of a trace: times are positive, and a gain lies"),
        ([START, SAMPLE.replace("1.0", '"fast"')], ":2: not a line of a trace: `paired` is a list of six numbers"),
        ([START, SAMPLE.replace("1.0, ", "")], ":2: not a line of a trace: `paired` is a list of six numbers"),
        ([START, SAMPLE.replace('"b"', "7")], ":2: not a line of a trace: `parent` and `key` are texts"),
    ],
)
def test_texts_that_are_no_trace(tmp_path: Path, lines: list[str], rule: str) -> None:
    path = tmp_path / "trace.jsonl"
    text = "".join(f"{line}\n" for line in lines)
    path.write_text(text)
    with pytest.raises(MorelloError) as caught:
        Trace.open(path, TASK)
    assert str(path) in caught.value.message
    assert rule in caught.value.message
    assert caught.value.hint == "give another path with --trace"
    assert path.read_text() == text


def test_traces_that_were_cut_go_on(tmp_path: Path) -> None:
    """Also where the next process was killed as well, and where plans have odd characters."""
    path = tmp_path / "trace.jsonl"
    odd = SAMPLE.replace('"b"', '"\u2028\x85"')
    path.write_text("\n".join([START, SAMPLE, '{"event": "sa', '{"e', START, odd, "{"]), encoding="utf-8")
    trace = Trace.open(path, TASK)
    assert [*trace.known] == [("a", "b"), ("a", "\u2028\x85")]
    trace.write("start", **TASK)
    trace.write("sample", plan="\ud800")
    assert [*Trace.open(path, TASK).known] == [*trace.known]


def test_traces_may_be_devices_and_pipes() -> None:
    """They are not read, which would wait or go on for ever."""
    for path in ("/dev/null", "/dev/zero"):
        trace = Trace.open(path, TASK)
        trace.write("start", **TASK)
        assert not trace.known


class _Replayed(Times):
    """Makes the same programs again, but no times."""

    def __init__(self, state: BeamState):
        super().__init__(random.Random(0))
        self.programs = [
            one.measured.built if one.measured else Rejection("no program", one.reason) for one in state.samples
        ]

    def prepare(self, schedules: Sequence[Schedule], known: Callable[[str], bool]) -> list[Any]:
        made, self.programs = self.programs[: len(schedules)], self.programs[len(schedules) :]
        return made

    def verify(self, built: BuiltProgram) -> Rejection | None:
        raise AssertionError("it was verified before")

    def measure(
        self, built: BuiltProgram, parent: MeasuredProgram, known: Paired | None = None
    ) -> tuple[MeasuredProgram, Paired]:
        assert known, "it was timed before"
        return super().measure(built, parent, known)


@pytest.mark.parametrize("name", ["beam", "plans", "implementations", "iterations"])
@pytest.mark.parametrize("size", [-1, 10_001])
def test_sizes_have_limits(name: str, size: int) -> None:
    with pytest.raises(MorelloError) as caught:
        BeamOptions(**{name: size})
    assert (caught.value.message, caught.value.hint) == (
        f"{name} is {size}",
        f"choose {int(name != 'iterations')} to 10,000",
    )
