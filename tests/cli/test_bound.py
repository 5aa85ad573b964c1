"""`morello bound`: tables, JSON that agrees with them, and what goes wrong."""

import importlib
import json
from typing import Any

import pytest

from morello.bounds.tiles import best_tiling

SPEC = "spec one = Matmul(1×8×8×16, (f32, GL), (f32, GL), (f32, GL), serial)\n"


def test_json_adds_up(cli, write):
    result = cli("bound", write(SPEC), "--json", "--check", "--no-db", "--profile", "base")
    assert result.exit_code == 0, result.stderr
    (told,) = json.loads(result.stdout)
    assert told["checked"]
    assert [one["slow"] for one in told["boundaries"]] == ["L1", "L2", "GL"]
    for one in told["boundaries"]:
        assert one["bytes"] >= one["compulsory"] == 4 * (8 * 8 + 8 * 16 + 8 * 16)
        assert one["lines"] == -(-one["bytes"] // 64)
        assert one["ratio"] == pytest.approx(one["program"] / one["bytes"])
        assert one["tile"]["bytes"] >= one["bytes"]
    assert told["certified"] <= told["low"] <= told["cost"]
    assert told["gap"] == pytest.approx(told["cost"] / told["certified"] - 1)


@pytest.mark.parametrize("columns", ["80", "160"])
def test_the_table_fits(cli, write, columns):
    result = cli("bound", write(SPEC), "--no-db", "--profile", "base", COLUMNS=columns)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    table = [line for line in lines if "⇄" in line]
    assert len(table) == 3
    assert all(len(line) <= int(columns) for line in lines if "⇄" in line or "between" in line)
    assert "by prices and without search" in result.stdout


def test_one_level_with_its_proof(cli, write):
    text = "spec one = Matmul(1×32×32×32, (f32, GL), (f32, GL), (f32, GL), serial)\n"
    result = cli("bound", write(text), "--level", "VRF", "--explain", "--check", "--no-db", "--profile", "base")
    assert result.exit_code == 0
    assert "L2 ⇄ L1: operands" not in result.stdout
    assert "points ≤ |lhs|^1/2" in result.stdout
    assert "segments" in result.stdout
    assert "checked: all of this holds" in result.stdout


def test_graphs_have_bounds_on_what_they_touch(cli, write):
    text = "spec one = Compose([Relu, Relu], [(2×8, f32, GL), (2×8, f32, GL)], serial)\n"
    result = cli("bound", write(text), "--no-db", "--profile", "base")
    assert result.exit_code == 0, result.stderr
    assert "all that is touched" in result.stdout


def test_random_matrices_have_a_bound_with_what_numbers_cost(cli, write):
    text = "spec one = RandMatmul(1×8×64×16, (u32, GL), (u32, GL), (f32, GL), (f32, GL), serial)\n"
    path = write(text)
    result = cli("bound", path, "--no-db", "--profile", "base", "--check")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.count("of moving it; loads and numbers cost at least as much as") == 3
    (told,) = json.loads(cli("bound", path, "--no-db", "--profile", "base", "--json").stdout)
    assert [one["memory"] for one in told["numbers"]] == [one["memory"] // 4 for one in told["boundaries"]]
    assert told["numbers"][0]["bound"] > 0
    assert told["certified"] <= told["cost"]


def test_a_level_without_a_boundary(cli, write, refused):
    refused(cli("bound", write(SPEC), "--level", "GL", "--no-db"), "no boundary behind GL", "VRF, L1, L2")
    refused(cli("bound", write(SPEC), "--level", "L7", "--no-db"), "unknown memory level 'L7'")


def test_without_scipy_there_is_a_word_about_it(cli, write, refused, monkeypatch):
    genuine = importlib.import_module

    def missing(name: str, *rest: Any) -> Any:
        if name.startswith("scipy"):
            raise ImportError(name)
        return genuine(name, *rest)

    monkeypatch.setattr("morello.bounds.lp.importlib.import_module", missing)
    best_tiling.cache_clear()
    refused(cli("bound", write(SPEC), "--no-db"), "bounds need scipy", "pip install 'morello[bounds]'")
