"""The benchmark of tuning: its Specs exist, its tables are complete, and its numbers are those of traces."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner
from morello_tune import PlanRequest, Proposal, Proposer, ProposerSession

import tune
from harness.specs import SPECS
from morello.errors import MorelloError
from morello.host import missing_features
from morello.ir.impl import cost_and_peak

SMALL = "Relu(64×64, (f32, GL), (f32, GL), serial)"

needs_avx2 = pytest.mark.skipif(
    bool(missing_features(("avx2", "fma"))), reason="this machine cannot run programs for x86_avx2"
)


def test_all_specs_exist_for_both_targets() -> None:
    assert {*tune.GOALS.values()} <= {*SPECS}
    for target in tune.TARGETS:
        for name in tune.GOALS.values():
            assert tune.goal_of(name, target).target.name == target
        for text in tune.ABLATED.values():
            assert tune.goal_of(text, target).spec.logical.flops > 0
    assert {*tune.PAPER} == {"start", "no menu", "no dropout", "single proposer", "no feedback", "full"}


@pytest.mark.slow
@needs_avx2
def test_a_row_shows_its_measurement(tmp_path: Path) -> None:
    arguments = ["--only", SMALL, "--target", "x86_avx2", "--samples", "2", "--traces", str(tmp_path)]
    result = CliRunner().invoke(tune.main, [*arguments, "--json"], catch_exceptions=False)
    (row,) = json.loads(result.stdout)
    assert row["samples"] == 2
    assert row["gain"] >= 1
    (trace,) = tmp_path.glob("*.jsonl")
    events = [json.loads(line) for line in trace.read_text().splitlines()]
    assert events[0]["value"] == row["before"]
    assert events[-1]["samples"] == 2
    # A finished run is not repeated, unless another is requested.
    trace.unlink()
    shown = CliRunner().invoke(tune.main, arguments, catch_exceptions=False)
    assert "what paid" in shown.stdout
    assert not trace.exists()
    CliRunner().invoke(tune.main, [*arguments, "--search-effort", "1000"], catch_exceptions=False)
    assert trace.exists()


@pytest.mark.slow
@needs_avx2
def test_ablations_have_a_row_for_each_variant(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tune, "ABLATED", {"one": SMALL})
    monkeypatch.setitem(tune.ABLATED, "another", "Nothing")
    common = ["--target", "x86_avx2", "--samples", "1", "--traces", str(tmp_path), "--only", "one", "--json"]
    rows = json.loads(CliRunner().invoke(tune.main, [*common, "--ablations"], catch_exceptions=False).stdout)
    assert [one["variant"] for one in rows] == [
        "no menu",
        "no dropout",
        "no feedback",
        "single proposer",
        *["full"] * 3,
    ]
    assert [one["seed"] for one in rows[-3:]] == [0, 1, 2]
    assert {one["name"] for one in rows} == {"one"}
    starts = [json.loads(trace.read_text().splitlines()[0]) for trace in tmp_path.glob("*.jsonl")]
    assert len(starts) == len(rows)
    assert len({one["key"] for one in starts}) == 1
    tune.print_ablations(rows)


class Silent(ProposerSession):
    """Proposes nothing."""

    def propose(self, requests: Sequence[PlanRequest]) -> list[Sequence[Proposal]]:
        return [()] * len(requests)


@pytest.mark.slow
@needs_avx2
def test_reuse_has_a_row_for_each_shape_way_and_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune, "REUSED", {"small": ((4, 64, 64), (2, 64, 64)), "other": ((1, 1, 1),)})
    monkeypatch.setattr(tune, "PRODUCT", "Relu({}×{}×{}, (f32, GL), (f32, GL), serial)")
    options = ["--target", "x86_avx2", "--samples", "1", "--only", "small", "--start", "random"]
    command = [*options, "--search-effort", "2000", "--reuse", "--json"]
    monkeypatch.setattr(tune, "SAMPLES", (1, 2))
    monkeypatch.setattr("morello_tune.tuner.proposer", lambda *_: Proposer(name="silent", start=lambda task: Silent()))
    rows = json.loads(CliRunner().invoke(tune.main, command, catch_exceptions=False).stdout)
    assert [(one["how"], one["samples asked"]) for one in rows] == [
        ("reuse", 1),
        ("none", 1),
        ("reuse", 2),
        ("none", 2),
    ]
    tune.print_reused(rows)


def test_starts_of_a_mapper_are_worse_than_those_of_search() -> None:
    found, proposed = (tune.start_of(SMALL, "x86_avx2", 2000, mapper) for mapper in (None, "random"))
    assert cost_and_peak(found.impl).cost <= cost_and_peak(proposed.impl).cost
    with pytest.raises(MorelloError, match="no program to begin with"):
        tune.start_of(SMALL, "x86_avx2", 2000, "conv-lp")
