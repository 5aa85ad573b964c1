"""Limits of the search: programs without a proof are reported as such."""

from __future__ import annotations

import json
import re

import pytest

import morello
from morello.errors import MemoryLimited

FOUND: dict[tuple[str, ...], tuple[int, int]] = {}
#: A few programs are found before the cheapest; the first costs more.
SPEC = "spec some = Move(7×9, (bf16, GL), (f32, GL, col_major), serial)\n"


@pytest.fixture(autouse=True)
def turns(monkeypatch):
    """Let search end anywhere, though it is small."""
    monkeypatch.setattr("morello.search.solve.core.QUOTA", 1)


@pytest.fixture
def unstored(cli, write):
    """Return cost and lower bound of a search without a database, which runs once for all tests."""

    def run(*options: str) -> tuple[int, int]:
        if options not in FOUND:
            FOUND[options] = cost_and_bound(cli("explain", write(SPEC), "--no-db", "--json", *options))
        return FOUND[options]

    return run


def cost_and_bound(result):
    assert result.exit_code == 0, result.output
    (one,) = json.loads(result.stdout)
    return one["cost"], one["low"]


@pytest.mark.slow
def test_costs_and_bounds(unstored):
    cost, low = unstored("--gap", "50")
    best, proven = unstored("--prove")
    assert low < proven == best < cost
    close, bound = unstored("--gap", "1")
    assert best <= close <= 1.01 * bound
    assert unstored() == (best, best)


@pytest.mark.slow
def test_unproven_programs_are_not_stored_as_answers(cli, write, tmp_path):
    db = str(tmp_path / "solved.db")
    cost, low = cost_and_bound(cli("explain", write(SPEC), "--db", db, "--json", "--gap", "50"))
    assert low < cost
    assert cost_and_bound(cli("explain", write(SPEC), "--db", db, "--json")) == (cost, low)
    best, proven = cost_and_bound(cli("explain", write(SPEC), "--db", db, "--json", "--prove"))
    assert best == proven < cost
    assert cost_and_bound(cli("explain", write(SPEC), "--db", db, "--json", "--gap", "50")) == (best, best)


@pytest.mark.slow
def test_the_next_run_continues_from_stored_bounds(cli, write, unstored, tmp_path):
    first, again = str(tmp_path / "first.db"), str(tmp_path / "again.db")
    _, proven = cost_and_bound(cli("explain", write(SPEC), "--db", first, "--json", "--gap", "1"))
    _, low = cost_and_bound(cli("explain", write(SPEC), "--db", again, "--json", "--gap", "50"))
    assert low < proven
    cost, more = cost_and_bound(cli("explain", write(SPEC), "--db", first, "--json", "--gap", "50"))
    assert proven <= more <= cost
    best, _ = unstored("--prove")
    for db in (first, again):
        assert cost_and_bound(cli("explain", write(SPEC), "--db", db, "--json", "--prove")) == (best, best)


@pytest.mark.slow
def test_any_effort_gives_a_program(cli, write):
    cost, low = cost_and_bound(cli("explain", write(SPEC), "--no-db", "--json", "--effort", "1"))
    assert low < cost


@pytest.mark.slow
def test_compile_reports_the_proof(cli, write):
    said = cli("compile", write(SPEC), "--no-db", "--gap", "50").stderr
    assert re.search(r"some: within \d+(\.\d+)? % of the optimum \(proven\); --prove goes on", said)
    assert "optimum" not in cli("compile", write(SPEC), "--no-db").stderr


def test_memory_is_limited(cli, write, refused):
    cost, low = cost_and_bound(cli("explain", write(SPEC), "--no-db", "--json", "--memory", "1KiB"))
    assert low < cost
    assert cli("explain", write(SPEC), "--memory", "much").exit_code == 2


@pytest.mark.slow
def test_a_memory_limit_that_is_reached_is_reported(cli, write, monkeypatch):
    def fill(display, progress):
        if progress.high is not None:
            monkeypatch.setattr("morello.search.budget.resident_recently", lambda: 1 << 60)

    reported = "warning: some: search reached its memory limit; with more it may find another program: --memory"
    limits = "--no-db", "--prove", "--memory", "1048576GiB"
    assert "warning" not in cli("compile", write(SPEC), *limits).stderr
    monkeypatch.setattr("morello.search.solve.solver._OFTEN", 0.0)
    monkeypatch.setattr("morello.progress.SearchDisplay.__call__", fill)
    result = cli("compile", write(SPEC), *limits)
    assert result.exit_code == 0
    assert reported in result.stderr
    assert "--prove goes on" in result.stderr
    monkeypatch.setattr("morello.search.budget.resident_recently", lambda: 0)
    with pytest.warns(MemoryLimited, match="kernel: search reached its memory limit"):
        goal = morello.goal(SPEC.partition("= ")[2], target="x86_avx2").synthesize(
            False, lambda progress: fill(None, progress), morello.SearchBudget(memory=1 << 50)
        )
    assert goal.memory_reached
    assert goal.proof != "optimal"


def test_prove_and_limits_exclude_each_other(cli, write):
    assert cli("compile", write(SPEC), "--prove", "--gap", "5").exit_code == 2
