"""Runner-ups of `morello explain`: what other steps would have cost."""

from __future__ import annotations

import json
import re

import pytest

from morello.frontend.parser import parse_spec
from morello.report.runner_ups import ranked
from morello.report.tree import program_tree
from morello.rewrites.split import Split
from morello.rewrites.to_accum import ToAccum
from morello.search.session import Alternative, SearchSession
from morello.search.solve import solver

#: No kernel adds up bytes, so that there are steps to choose between.
SMALL = "spec small = Matmul(1×2×2×8, (u8, L1), (u8, L1), (u8, L1), serial)\n"
#: The loop is the user's, what it runs is left to search.
HALF = SMALL + "schedule small { tile [1, 1, 2, 8]; synthesize }\n"


def _nodes(node):
    yield node
    for child in node["children"]:
        yield from _nodes(child)


def _told(result):
    assert result.exit_code == 0, result.output
    (told,) = json.loads(result.stdout)
    return told


def test_every_node_has_one_by_default(cli, write):
    told = _told(cli("explain", write(SMALL), "--json"))
    nodes = list(_nodes(told["program"]))
    assert any(node["runner_ups"] for node in nodes)
    for node in nodes:
        assert len(node["runner_ups"]) <= 1
        for one in node["runner_ups"]:
            assert one["step"] != node["step"]
            assert one["more"] == one["cost"] - node["cost"] >= 0
            assert one["percent"] == pytest.approx(100 * one["more"] / node["cost"])


def test_as_many_as_asked_for(cli, write):
    none = _told(cli("explain", write(SMALL), "--json", "--runner-ups", "0"))
    assert {node["runner_ups"] for node in _nodes(none["program"])} == {None}
    many = _told(cli("explain", write(SMALL), "--json", "--runner-ups", "3"))
    counts = {len(node["runner_ups"]) for node in _nodes(many["program"])}
    assert max(counts) == 3
    for node in _nodes(many["program"]):
        exact = [one["cost"] for one in node["runner_ups"] if one["exact"]]
        assert exact == sorted(exact)
    assert cli("explain", write(SMALL), "--runner-ups", "-1").exit_code == 2


def test_costs_are_those_of_the_programs_that_begin_so(cli, write, avx2):
    """The step that the command names is taken by hand, and the rest searched."""
    (first,) = _told(cli("explain", write(SMALL), "--json", "--runner-ups", "1"))["program"]["runner_ups"]
    assert first["exact"]
    forced = SMALL + f"schedule small {{ {first['step']}; synthesize }}\n"
    assert _told(cli("explain", write(forced), "--json"))["cost"] == first["cost"]


def test_what_the_schedule_fixed_has_none(cli, write):
    root = _told(cli("explain", write(HALF), "--json"))["program"]
    assert root["step"] == "tile [1, 1, 2, 8]"
    assert root["runner_ups"] is None
    assert all(node["runner_ups"] is not None for child in root["children"] for node in _nodes(child))


def test_text_shows_costs_and_what_they_are_more(cli, write, monkeypatch):
    monkeypatch.setattr(solver, "_RANKING_TURNS", 0)  # leave some costs open
    shown = cli("explain", write(SMALL), "--runner-ups", "2", "--noise", "0").stdout
    assert re.search(r"  or to_accum +\d+ +\d+ more \(\d+\.?\d* %\)", shown) or "as cheap, comes later" in shown
    assert re.search(r"  or .* ≥ \d+ +≥ \d+ more \(\d+\.?\d* %\)", shown)
    assert " or " not in cli("explain", write(SMALL), "--runner-ups", "0").stdout


def test_from_the_database_only_when_asked(cli, write, tmp_path, monkeypatch):
    path, db = write(SMALL), str(tmp_path / "solved.db")
    cold = cli("explain", path, "--db", db, "--noise", "0").stdout.splitlines()
    asked = cli("explain", path, "--db", db, "--runner-ups", "1", "--noise", "0").stdout.splitlines()
    # Bounds depend on what else was looked at; the program does not.
    assert [line for line in asked[3:] if " or " not in line] == [line for line in cold[3:] if " or " not in line]
    assert any(" or " in line for line in asked)

    def fail(*_: object) -> None:
        raise AssertionError("searched again")

    monkeypatch.setattr("morello.search.session.SearchSession.solve_all", fail)
    warm = cli("explain", path, "--db", db)
    assert warm.exit_code == 0
    assert " or " not in warm.stdout
    assert "--runner-ups 1" in warm.stderr
    assert _told(cli("explain", path, "--db", db, "--json"))["program"]["runner_ups"] is None


def test_bounds_below_the_optimum_are_raised_to_it():
    def told(cost: int, exact: bool, least: int = 100):
        (one,) = ranked([Alternative(ToAccum(), least, exact=True), Alternative(Split(4), cost, exact=exact)])
        return one

    one = told(90, exact=False)
    assert (one.cost_text, one.more_text) == ("≥ 100", "not cheaper")
    assert told(100, exact=True).more_text == "as cheap, comes later"
    assert told(1150, exact=True, least=1000).more_text == "150 more (15 %)"


def test_trees_without_runner_ups_are_as_before(avx2):
    impl = SearchSession(avx2).synthesize(parse_spec("FillZero(4, GL)", avx2))
    assert program_tree(impl, avx2).runner_ups is None
