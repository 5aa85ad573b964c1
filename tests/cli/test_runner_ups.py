"""Runner-ups of `morello explain`: the costs of other steps."""

from __future__ import annotations

import json
import re

import pytest

from morello.frontend.parser import parse_spec
from morello.report.runner_ups import ranked
from morello.report.tree import program_tree
from morello.rewrites.split import Split
from morello.rewrites.to_accum import ToAccum
from morello.search.session import SearchSession
from morello.search.solve import solver
from morello.search.solve.solver import Alternative

#: No kernel adds up bytes, so that there are steps to choose between.
SMALL = "spec small = Matmul(1×2×2×8, (u8, L1), (u8, L1), (u8, L1), serial)\n"
#: The loop is scheduled by hand, its body is left to search.
HALF = SMALL + "schedule small { tile [1, 1, 2, 8]; synthesize }\n"


def _nodes(node):
    yield node
    for child in node["children"]:
        yield from _nodes(child)


def _explained(result):
    assert result.exit_code == 0, result.output
    (explained,) = json.loads(result.stdout)
    return explained


def test_every_node_has_one_by_default(cli, write):
    explained = _explained(cli("explain", write(SMALL), "--json"))
    nodes = list(_nodes(explained["program"]))
    assert any(node["runner_ups"] for node in nodes)
    for node in nodes:
        assert len(node["runner_ups"]) <= 1
        for one in node["runner_ups"]:
            assert one["step"] != node["step"]
            assert one["more"] == one["cost"] - node["cost"] >= 0
            assert one["percent"] == pytest.approx(100 * one["more"] / node["cost"])


def test_the_requested_number(cli, write):
    none = _explained(cli("explain", write(SMALL), "--json", "--runner-ups", "0"))
    assert {node["runner_ups"] for node in _nodes(none["program"])} == {None}
    many = _explained(cli("explain", write(SMALL), "--json", "--runner-ups", "3"))
    counts = {len(node["runner_ups"]) for node in _nodes(many["program"])}
    assert max(counts) == 3
    for node in _nodes(many["program"]):
        exact = [one["cost"] for one in node["runner_ups"] if one["exact"]]
        assert exact == sorted(exact)
    assert cli("explain", write(SMALL), "--runner-ups", "-1").exit_code == 2


def test_costs_are_those_of_the_programs_that_begin_so(cli, write, avx2):
    """The step in the output is taken by hand, and the rest searched."""
    (first,) = _explained(cli("explain", write(SMALL), "--json", "--runner-ups", "1"))["program"]["runner_ups"]
    assert first["exact"]
    forced = SMALL + f"schedule small {{ {first['step']}; synthesize }}\n"
    assert _explained(cli("explain", write(forced), "--json"))["cost"] == first["cost"]


def test_scheduled_nodes_have_no_runner_ups(cli, write):
    root = _explained(cli("explain", write(HALF), "--json"))["program"]
    assert root["step"] == "tile [1, 1, 2, 8]"
    assert root["runner_ups"] is None
    assert all(node["runner_ups"] is not None for child in root["children"] for node in _nodes(child))


def test_text_shows_costs_and_differences(cli, write, monkeypatch):
    monkeypatch.setattr(solver, "_RANKING_TURNS", 0)  # leave some costs open
    shown = cli("explain", write(SMALL), "--runner-ups", "2", "--noise", "0").stdout
    assert re.search(r"  or to_accum +\d+ +\d+ more \(\d+\.?\d* %\)", shown) or "as cheap, comes later" in shown
    assert re.search(r"  or .* ≥ \d+ +≥ \d+ more \(\d+\.?\d* %\)", shown)
    assert " or " not in cli("explain", write(SMALL), "--runner-ups", "0").stdout


def test_solved_specs_need_the_option(cli, write, tmp_path, monkeypatch):
    path, db = write(SMALL), str(tmp_path / "solved.db")
    cold = cli("explain", path, "--db", db, "--noise", "0").stdout.splitlines()
    asked = cli("explain", path, "--db", db, "--runner-ups", "1", "--noise", "0").stdout.splitlines()
    # Bounds depend on the other expanded steps; the program does not.
    assert [line for line in asked[3:] if " or " not in line] == [line for line in cold[3:] if " or " not in line]
    assert any(" or " in line for line in asked)

    def fail(*_: object) -> None:
        raise AssertionError("searched again")

    monkeypatch.setattr("morello.search.session.SearchSession.solve_all", fail)
    warm = cli("explain", path, "--db", db)
    assert warm.exit_code == 0
    assert " or " not in warm.stdout
    assert "--runner-ups 1" in warm.stderr
    assert _explained(cli("explain", path, "--db", db, "--json"))["program"]["runner_ups"] is None


def test_bounds_below_the_optimum_are_raised_to_it():
    def explained(cost: int, exact: bool, least: int = 100):
        (one,) = ranked([Alternative(ToAccum(), least, exact=True), Alternative(Split(4), cost, exact=exact)])
        return one

    one = explained(90, exact=False)
    assert (one.cost_text, one.more_text) == ("≥ 100", "not cheaper")
    assert explained(100, exact=True).more_text == "as cheap, comes later"
    assert explained(1150, exact=True, least=1000).more_text == "150 more (15 %)"


def test_trees_without_runner_ups_are_as_before(avx2):
    impl = SearchSession(avx2).synthesize(parse_spec("FillZero(4, GL)", avx2))
    assert program_tree(impl, avx2).runner_ups is None
