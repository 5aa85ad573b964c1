"""`morello compare-mappers`: ratios that agree with each other, several files, plots, and what goes wrong."""

import json

import pytest

ONE = "spec one = (Matmul(1×4×4×8, (f32, GL), (f32, GL), (f32, GL), serial), [64, 512, 512, 2048, 1048576])\n"
TWO = ONE.replace("one", "two").replace("1×4×4×8", "1×4×8×8")
OPTIONS = ("--no-time", "--no-db", "--profile", "base", "--target", "x86_avx2")


def test_ratios_are_of_bound_and_optimum(cli, write, tmp_path):
    plot = tmp_path / "plot.svg"
    pytest.importorskip("matplotlib")
    result = cli(
        *("compare-mappers", write(ONE), "--mapper", "greedy", "--mapper", "conv-lp", "--plot", str(plot), "--json"),
        *OPTIONS,
    )
    assert result.exit_code == 0, result.stderr
    (told,) = json.loads(result.stdout)
    greedy, none, search = told["programs"]
    assert [one["mapper"] for one in told["programs"]] == ["greedy", "conv-lp", "search"]
    assert told["proven"]
    assert told["low"] == search["cost"]
    assert greedy["of_search"] == pytest.approx(greedy["cost"] / search["cost"])
    assert greedy["of_bound"] == pytest.approx(greedy["cost"] / told["bound"])
    assert greedy["of_search"] >= search["of_search"] == 1
    assert (none["cost"], none["fault"]) == (None, "it proposes nothing for this Spec")
    assert greedy["seconds"] is None
    assert "greedy" in plot.read_text()


def test_several_files_have_means(cli, write):
    files = write(ONE), write(TWO, name="two.spec")
    result = cli("compare-mappers", *files, "--mapper", "greedy", *OPTIONS)
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines.count("search: optimal") == 2
    at = lines.index("all 2 Specs, as multiples of search")
    assert lines[at + 1].split() == ["mapper", "Specs", "cost", "most", "time", "most", "found", "in"]
    greedy, search = (line.split() for line in lines[at + 2 : at + 4])
    assert greedy[:2] == ["greedy", "2"]
    assert float(greedy[3]) >= float(greedy[2]) >= 1
    assert search[:6] == ["search", "2", "1.00", "1.00", "–", "–"]


def test_times_are_measured(cli, write, runnable):
    path = write("spec one = Matmul(1×4×4×8, (f32, GL), (f32, GL), (f32, GL), serial)\n", runnable)
    result = cli("compare-mappers", path, "--mapper", "greedy", "--no-db", "--json")
    assert result.exit_code == 0, result.stderr
    greedy, search = json.loads(result.stdout)[0]["programs"]
    assert greedy["seconds_of_search"] == pytest.approx(greedy["seconds"] / search["seconds"])


def test_what_there_is_not(cli, write, refused):
    refused(cli("compare-mappers", write(ONE), "--mapper", "greddy", *OPTIONS), "no mapper 'greddy'", "greedy")
    refused(cli("compare-mappers", "none.spec", *OPTIONS), "none.spec")
    assert cli("compare-mappers", *OPTIONS).exit_code == 2
