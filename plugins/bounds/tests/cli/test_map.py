"""`morello map`: tables, JSON that agrees with them, --compare, and what goes wrong."""

import json
from functools import partial

import pytest
from morello_bounds.mappers.bayesian import bayesian

ONE = "spec one = (Matmul(1×4×4×8, (f32, GL), (f32, GL), (f32, GL), serial), [64, 512, 512, 2048, 8192, 1048576])\n"
TWO = ONE.replace("one", "two").replace("1×4×4×8", "1×4×8×8")
PLAIN = "spec one = Matmul(1×4×4×8, (f32, GL), (f32, GL), (f32, GL), serial)\n"
OPTIONS = ("--no-db", "--profile", "base")
COMPARED = ("--compare", "--no-time", *OPTIONS)


@pytest.mark.slow
def test_json_adds_up(cli, write):
    result = cli("map", write(ONE), "--mapper", "lp", "--mapper", "hybrid", "--json", *OPTIONS)
    assert result.exit_code == 0, result.stderr
    (report,) = json.loads(result.stdout)
    lp, hybrid, search = report["programs"]
    assert (lp["mapper"], hybrid["mapper"], search["mapper"]) == ("lp", "hybrid", "search")
    assert report["proven"]
    assert report["bound"]["cost"] <= search["cost"]
    assert hybrid["cost"] <= lp["cost"]
    assert lp["schedule"]
    assert not lp["refused"]
    assert [*lp["bytes"]] == ["L1 ⇄ VRF", "L2 ⇄ L1", "L3 ⇄ L2", "GL ⇄ L3"] == [*report["bound"]["bytes"]]


@pytest.mark.slow
def test_the_table_has_schedules_that_can_be_used(cli, write):
    result = cli("map", write(ONE), "--mapper", "greedy", *OPTIONS)
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines[1:5]] == ["mapper", "greedy", "search", "bound"]
    assert "search: optimal" in lines
    cost = lines[2].split()[1]
    at = lines.index("greedy:")
    steps = "\n".join(line for line in lines[at + 1 :] if line.startswith("    "))
    path = write(f"{ONE}schedule one {{\n{steps}\n}}\n", name="used.spec")
    assert f"costs {cost} " in cli("bound", path, *OPTIONS).stdout
    # The schedule in FILE is ignored.
    assert cli("map", path, "--mapper", "greedy", *OPTIONS).stdout == result.stdout


@pytest.mark.slow
def test_a_seed_gives_the_same_again(cli, write):
    arguments = ("map", write(ONE), "--mapper", "random", "--seed", "3", "--objective", "bytes", "--json", *OPTIONS)
    first, again = (json.loads(cli(*arguments).stdout)[0] for _ in range(2))
    assert first["seed"] == 3
    for one in (*first["programs"], *again["programs"]):
        del one["found_in"]
    assert again == first


@pytest.mark.slow
def test_times_are_measured_where_they_are_the_objective(cli, write, runnable):
    path = write(PLAIN, runnable)
    result = cli("map", path, "--mapper", "greedy", "--objective", "time", "--json", "--no-db")
    assert result.exit_code == 0, result.stderr
    (report,) = json.loads(result.stdout)
    assert report["objective"] == "time"
    assert all(0 < one["seconds"] < 1 for one in report["programs"])


@pytest.mark.slow
def test_trials_are_kept(cli, write, tmp_path, monkeypatch):
    pytest.importorskip("sklearn")
    monkeypatch.setattr("morello_bounds.cli.map.bayesian", partial(bayesian, trials=2))
    history = tmp_path / "history"
    arguments = ("map", write(ONE), "--mapper", "bo", "--history", str(history), *OPTIONS)
    assert cli(*arguments).exit_code == 0
    assert history.read_text().count("\n") == 2
    assert cli("map", write(TWO, name="b.spec"), *arguments[2:]).exit_code == 0
    assert history.read_text().count("\n") == 4


def test_mappers_are_listed(cli, write):
    result = cli("map", write(ONE), "--list", "--no-db")
    assert [line.split()[1] for line in result.stdout.splitlines()] == [
        *("mapper", "lp", "conv-lp", "mplp", "integer-tile", "gradient", "cosa", "greedy", "bo", "random"),
        *("ttile", "hybrid"),
    ]
    listed = json.loads(cli("map", write(ONE), "--list", "--json", "--no-db").stdout)
    assert "linear program" in {one["name"]: one["does"] for one in listed}["lp"]


@pytest.mark.slow
def test_ratios_are_of_bound_and_optimum(cli, write, tmp_path):
    pytest.importorskip("matplotlib")
    plot = tmp_path / "plot.svg"
    arguments = ("--mapper", "greedy", "--mapper", "conv-lp", "--plot", str(plot), "--json")
    result = cli("map", write(ONE), *arguments, *COMPARED)
    assert result.exit_code == 0, result.stderr
    (report,) = json.loads(result.stdout)
    greedy, none, search = report["programs"]
    assert [one["mapper"] for one in report["programs"]] == ["greedy", "conv-lp", "search"]
    assert report["proven"]
    assert report["low"] == search["cost"]
    assert greedy["of_search"] == pytest.approx(greedy["cost"] / search["cost"])
    assert greedy["of_bound"] == pytest.approx(greedy["cost"] / report["bound"]["cost"])
    assert greedy["of_search"] >= search["of_search"] == 1
    assert (none["cost"], none["fault"]) == (None, "it proposes nothing for this Spec")
    assert greedy["seconds"] is None
    assert "greedy" in plot.read_text()


@pytest.mark.slow
def test_several_files_have_means(cli, write):
    result = cli("map", write(ONE), write(TWO, name="two.spec"), "--mapper", "greedy", *COMPARED)
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines.count("search: optimal") == 2
    at = lines.index("all 2 Specs, as multiples of search")
    assert lines[at + 1].split() == ["mapper", "Specs", "cost", "most", "time", "most", "found", "in"]
    greedy, search = (line.split() for line in lines[at + 2 : at + 4])
    assert greedy[:2] == ["greedy", "2"]
    assert float(greedy[3]) >= float(greedy[2]) >= 1
    assert search[:6] == ["search", "2", "1.00", "1.00", "–", "–"]


@pytest.mark.slow
def test_times_are_compared(cli, write, runnable):
    result = cli("map", write(PLAIN, runnable), "--mapper", "greedy", "--compare", "--no-db", "--json")
    assert result.exit_code == 0, result.stderr
    greedy, search = json.loads(result.stdout)[0]["programs"]
    assert greedy["seconds_of_search"] == pytest.approx(greedy["seconds"] / search["seconds"])


def test_what_goes_wrong(cli, write, refused):
    refused(cli("map", write(ONE), "--mapper", "greddy", "--no-db"), "no mapper 'greddy'", "greedy", code=2)
    refused(cli("map", write(ONE), "--no-time"), "--no-time needs --compare", code=2)
    refused(cli("map", write(ONE), "--cold"), "--cold needs programs that are measured", "--objective time", code=2)
    scheme = ("map", write(ONE), "--no-db", "--scheme")
    refused(cli(*scheme, "[R_i, R_k, R_j, U_{3,j}]"), "tiles of 3 do not divide 8", "λseq")
    refused(cli(*scheme, "R_i"), "'R_i' is not a scheme")
    refused(cli("map", write(ONE), "--ttile", "none/there"), "cannot make none/there", "choose another folder")
    refused(cli("map", "none.spec", *COMPARED), "none.spec")
    assert cli("map", *COMPARED).exit_code == 2
    # One point has no tiles.
    text = "spec one = (Matmul(1×1×1×1, (f32, L1), (f32, L1), (f32, L1), serial), [64, 512, 0, 0, 0, 0])\n"
    refused(cli("map", write(text), "--mapper", "lp", *OPTIONS), "one, lp: it proposes nothing for this Spec")
