"""Tuning small Specs on this machine: the programs it keeps are right, and used later as measured."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import attrs
import pytest
from morello_tune import (
    PlanRequest,
    Proposal,
    Proposer,
    ProposerSession,
    TuningCandidate,
    TuningInfo,
    TuningOptions,
    TuningTask,
    tune,
)
from morello_tune.beam import BeamState
from morello_tune.evaluate import Evaluator, Rejection
from morello_tune.menu import STANDARD
from morello_tune.proposers import proposer
from morello_tune.recorded import morello_recorded_program
from morello_tune.tuner import Tuner, TuningResult

from morello import api
from morello.api.goals import Goal
from morello.build.toolchain import find_compiler
from morello.db import measured as measured_db
from morello.db.store import SpecStore
from morello.errors import MorelloError
from morello.host import missing_features
from morello.ir.impl import Leaf
from morello.plugins import Metric
from morello.run.paired import Paired
from morello.schedule import Position
from morello.search.budget import SearchBudget

from .conftest import LIMITS, SPECS, found

pytestmark = pytest.mark.skipif(
    bool(missing_features(("avx2", "fma"))), reason="this machine cannot run programs for x86_avx2"
)
#: A slow schedule: both operands are copied to column-major layouts.
SLOW = "move 0 to GL as col_major\nmove 1 to GL as col_major"


def fresh(name: str = "relu") -> Goal:
    return api.goal(SPECS[name], target="x86_avx2", profile="base")


@cache
def slow() -> Goal:
    """Return a slow program of Relu."""
    return fresh().apply(SLOW).synthesize(db=False, progress=False)


@attrs.define
class Scripted(ProposerSession):
    """Proposes the given schedules, then nothing."""

    task: TuningTask
    texts: Sequence[str]

    def propose(self, requests: Sequence[PlanRequest]) -> list[Sequence[Proposal]]:
        made = []
        for text in self.texts:
            try:
                made.append(Proposal(item="script", plan=text, schedule=self.task.read(text)))
            except MorelloError as error:
                made.append(Proposal(item="script", plan=text, schedule=None, refused=str(error), text=text))
        self.texts = ()
        return [made, *([()] * (len(requests) - 1))]


def scripted(*texts: str) -> Proposer:
    return Proposer(name="script", start=lambda task: Scripted(task, texts))


def tuned(goal: Goal, *texts: str, db: SpecStore | None = None, **more: Any) -> TuningResult:
    given = {"proposer": scripted(*texts), "plans": 1, "implementations": len(texts), "iterations": 1, **more}
    return tune(goal, TuningOptions(**given), db=db or False)


GOOD = "move 0 to L1\nmove 1 to L1\nselect VectorRelu"


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> tuple[TuningResult, SpecStore, Path]:
    folder = tmp_path_factory.mktemp("tuned")
    store, trace = SpecStore(folder / "a.db"), folder / "trace.jsonl"
    return tuned(slow(), GOOD, "select Nothing", "tile [128, 128]", GOOD, SLOW, db=store, trace=trace), store, trace


@pytest.mark.slow
def test_faster_programs_are_kept_and_others_reported(outcome: tuple[TuningResult, SpecStore, Path]) -> None:
    done, _, trace = outcome
    assert done.improved
    assert done.gain > 1.2
    assert done.final.low > 1
    assert done.schedule == GOOD
    assert done.verdicts == {"duplicate": 2, "refused": 2, "accepted": 1}
    reasons = [one.reason for one in done.samples if one.verdict == "refused"]
    # The same diagnostics as for a Spec file.
    assert "unknown microkernel 'Nothing'" in reasons[0]
    assert "<answer>:1:" in reasons[0]
    assert "larger than 64" in reasons[1]
    done.kernel.check()
    (items,) = done.items
    assert (items.item, items.samples, items.measured, items.accepted) == ("script", 5, 1, 1)
    lines = [json.loads(line) for line in trace.read_text().splitlines()]
    assert [one["event"] for one in lines] == ["start", *["sample"] * 5, "end"]
    assert lines[1]["feedback"]["holds"]["L1"] == 32768
    assert lines[-1]["schedule"] == GOOD
    assert "relu" not in api.parse(done.spec_file)  # it is named as the goal is
    (again,) = api.parse(done.spec_file).values()
    assert again.schedule == GOOD


@pytest.mark.slow
def test_the_fastest_is_used_on_such_a_machine_and_is_not_called_optimal(
    outcome: tuple[TuningResult, SpecStore, Path],
) -> None:
    done, store, _ = outcome
    kernel = api.compile(fresh(), db=store, progress=False)
    assert kernel.schedule == GOOD
    assert kernel.goal.measured is not None
    assert kernel.proof.startswith("nothing is proven: measured on ")
    assert kernel.low == 1
    # Another name of the function changes nothing.
    named = attrs.evolve(fresh(), name="other")
    assert api.compile(named, db=store, progress=False).goal.measured is not None
    # Without it, the model's choice is proven.
    plain = api.compile(fresh(), db=store, progress=False, measured=False)
    assert plain.goal.measured is None
    assert plain.proof == "optimal"
    assert plain.low == plain.cost
    # Scheduled goals keep their schedule, and programs of other machines are not used.
    assert morello_recorded_program(slow(), store, None, None) is None
    (best,) = store.measured(done.goal.target, done.goal.spec)
    assert best.words.startswith("measured on ")
    other = attrs.evolve(best, machine=attrs.evolve(best.machine, cpu="other"))
    elsewhere = SpecStore(store.path.with_name("other.db"))
    elsewhere.keep_measured(done.goal.target, done.goal.spec, other)
    assert morello_recorded_program(fresh(), elsewhere, None, None) is None
    # A schedule whose C differs from that timed is not used.
    elsewhere.keep_measured(done.goal.target, done.goal.spec, attrs.evolve(best, key="0"))
    assert morello_recorded_program(fresh(), elsewhere, None, None) is None
    elsewhere.keep_measured(done.goal.target, done.goal.spec, best)
    assert morello_recorded_program(fresh(), elsewhere, None, None) is not None
    assert morello_recorded_program(fresh().allowing(without=["fit"]), elsewhere, None, None) is None
    assert measured_db.counts(elsewhere.file) == {"x86_avx2": 2}
    assert measured_db.drop(elsewhere.file) == 2


@pytest.mark.slow
def test_a_start_that_nothing_beats_stays(tmp_path: Path) -> None:
    store = SpecStore(tmp_path / "a.db")
    done = tuned(found("relu"), SLOW, db=store)
    assert not done.improved
    assert done.gain == 1
    assert done.verdicts == {"slower": 1}
    assert measured_db.counts(store.file) == {}


@pytest.mark.slow
def test_an_interrupted_search_keeps_the_best(tmp_path: Path) -> None:
    store = SpecStore(tmp_path / "a.db")

    class Interrupted(Scripted):
        def propose(self, requests: Sequence[PlanRequest]) -> list[Sequence[Proposal]]:
            if not self.texts:
                raise KeyboardInterrupt
            return super().propose(requests)

    stopped = Proposer(name="stopped", start=lambda task: Interrupted(task, (GOOD,)))
    done = tuned(slow(), GOOD, proposer=stopped, iterations=3, db=store)
    assert done.interrupted
    assert done.schedule == GOOD
    assert measured_db.counts(store.file) == {"x86_avx2": 1}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["offline", "evolution"])
def test_a_budget_of_time_is_kept(name: str) -> None:
    # Searches that complete edits could take far longer.
    goal, began = found("product"), time.monotonic()
    sizes = TuningOptions(proposer=name, seconds=2.0, iterations=10_000, dropout=0.0, completing=SearchBudget())
    assert tune(goal, sizes, db=False).seconds <= time.monotonic() - began < 60


def test_no_time_leaves_the_start() -> None:
    done = tuned(slow(), GOOD, seconds=0.0)
    assert not done.samples
    assert not done.improved


@pytest.mark.slow
def test_unconfirmed_programs_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, goal = SpecStore(tmp_path / "a.db"), slow()

    def nothing(self: Tuner, state: BeamState, *_: object) -> Any:
        return state.start, Paired(1.0, 1.0, 1.0, 1.0, 1.0)

    monkeypatch.setattr(Tuner, "_confirmed", nothing)
    assert not tuned(goal, GOOD, db=store).improved
    assert measured_db.counts(store.file) == {}
    monkeypatch.undo()
    assert tuned(goal, GOOD, db=store).improved
    (kept,) = store.measured(goal.target, goal.spec)
    monkeypatch.setattr(Tuner, "_confirmed", nothing)
    assert not tuned(goal, GOOD, db=store).improved
    assert store.measured(goal.target, goal.spec) == [kept]


@pytest.mark.slow
def test_wrong_programs_never_enter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Evaluator, "verify", lambda *_: Rejection("wrong", "invented"))
    done = tuned(slow(), GOOD)
    assert done.verdicts == {"wrong": 1}
    assert not done.improved


def test_a_metric_takes_the_place_of_time() -> None:
    metric = Metric(name="bytes of C", unit="bytes", measure=lambda kernel: float(len(kernel.source)))
    goal = slow()
    done = tuned(attrs.evolve(goal, target=attrs.evolve(goal.target, metrics=(metric,))), GOOD, SLOW)
    assert done.metric == "bytes of C"
    assert done.best.value == len(done.best.built.kernel.source)
    assert done.gain == pytest.approx(done.start.value / done.best.value)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["evolution", "ensemble:offline,evolution"])
def test_proposers_find_faster_programs_than_a_slow_one(name: str) -> None:
    sizes = TuningOptions(proposer=name, beam=2, plans=4, implementations=1, iterations=3, dropout=0.3, samples=12)
    made = tune(slow(), sizes, db=False)
    assert len(made.samples) <= 12
    assert made.gain > 1.1
    made.kernel.check()


def test_plans_are_the_same_for_the_same_seed() -> None:
    goal = found("product")
    evaluator = Evaluator(attrs.evolve(goal, position=Position(goal.impl)), find_compiler(None))
    start = TuningCandidate(target=goal.target, impl=goal.impl)

    def plans(seed: int) -> list[str]:
        given = {"start": start, "info": TuningInfo(), "read": evaluator.read}
        session = proposer("offline", "x86_avx2").start(TuningTask(name="kernel", **given))
        sizes = {"menu": tuple(STANDARD), "implementations": 2, "iteration": 1, "iterations": 2}
        requests = [PlanRequest(candidate=start, seed=seed + at, **sizes) for at in range(4)]
        return [one.plan for each in session.propose(requests) for one in each]

    one = plans(1)
    assert one == plans(1) != plans(9)
    assert len({*one}) > 4


@pytest.mark.slow
def test_the_k_best_have_c_of_their_own_and_rising_costs() -> None:
    goal = api.goal(
        f"(Matmul(1×6×4×16, (f32, GL), (f32, GL), (f32, GL), serial), {LIMITS})", target="x86_avx2", profile="base"
    )
    done = tune(goal, TuningOptions(proposer="kbest", iterations=3, proposer_options={"top": 4}), db=False)
    # The start is the first of them.
    assert done.samples[0].verdict == "duplicate"
    costs = [one.measured.built.cost for one in done.samples if one.measured]
    assert len(costs) == 3
    assert costs == sorted(costs)
    assert len({one.measured.built.key for one in done.samples if one.measured}) == 3
    assert done.disagreement is not None
    pairs, wrong, worst = done.disagreement
    assert 0 <= wrong <= pairs <= 6
    assert worst >= 1


def test_wrong_options_are_errors() -> None:
    with pytest.raises(MorelloError, match="no proposer 'ofline'"):
        proposer("ofline", "x86_avx2")
    with pytest.raises(MorelloError, match="names a proposer twice"):
        proposer("ensemble:offline,offline", "x86_avx2")
    with pytest.raises(MorelloError, match="dropout is 2"):
        tune(fresh(), TuningOptions(dropout=2), db=False)
    assert isinstance(fresh().impl, Leaf)


def test_clock_and_model_disagree_on_pairs_that_both_distinguish(
    outcome: tuple[TuningResult, SpecStore, Path],
) -> None:
    done = outcome[0]
    (sample,) = (one for one in done.samples if one.measured)
    assert sample.measured is not None
    assert sample.paired is not None
    # They agree: the start costs more and is slower.
    assert done.disagreement == (1, 0, 1.0)

    def with_cost(cost: int, low: float, gain: float, high: float) -> TuningResult:
        built = attrs.evolve(sample.measured.built, cost=cost)  # pyright: ignore
        measured = attrs.evolve(sample.measured, built=built)  # pyright: ignore
        paired = attrs.evolve(sample.paired, low=low, gain=gain, high=high)  # pyright: ignore
        return attrs.evolve(done, samples=(attrs.evolve(sample, measured=measured, paired=paired),), noise=0.02)

    cost = done.start.built.cost
    assert with_cost(cost + 1, 1.9, 2.0, 2.1).disagreement == (1, 1, 2.0)
    assert with_cost(cost - 1, 0.4, 0.5, 0.6).disagreement == (1, 1, 2.0)
    # Equal costs, intervals that meet, and differences within noise do not count.
    assert with_cost(cost, 1.9, 2.0, 2.1).disagreement == (0, 0, 1.0)
    assert with_cost(cost + 1, 0.9, 2.0, 2.1).disagreement == (0, 0, 1.0)
    assert with_cost(cost + 1, 1.005, 1.01, 1.02).disagreement == (0, 0, 1.0)
