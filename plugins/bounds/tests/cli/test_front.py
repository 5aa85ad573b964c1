"""`morello front`: the table, JSON that agrees with it, schedules that other commands take, and what goes wrong."""

import json

import pytest

SPEC = "spec one = MatmulAccum(1×1×8×8, L2, L2, L2, serial)\n"
OPTIONS = ("--no-db", "--profile", "base")


@pytest.mark.slow
def test_json_and_schedules_are_those_of_the_table(cli, write):
    path = write(SPEC)
    result = cli("front", path, *OPTIONS)
    assert result.exit_code == 0, result.stderr
    rows = [line.replace(",", "").split() for line in result.stdout.splitlines()[2:-2]]
    (report,) = json.loads(cli("front", path, "--json", *OPTIONS).stdout)
    assert len(rows) == len(report["points"]) > 1
    least = min(one["cost"] for one in report["points"])
    for row, one in zip(rows, report["points"], strict=True):
        assert [*map(int, row[1:4])] == [one["compute"], one["memory"], one["cost"]]
        assert row[4] == f"{one['cost'] / least:.2f}"
        assert [*map(int, row[5:])] == [*one["bytes"].values()]
    _, _, chosen = cli("front", path, "--point", "1", *OPTIONS).stdout.partition("\n")
    explained = json.loads(cli("explain", write(chosen, name="chosen.spec"), "--json", *OPTIONS).stdout)
    assert explained[0]["cost"] == report["points"][0]["cost"]


def test_a_point_that_does_not_exist(cli, write):
    result = cli("front", write("spec one = FillZero(4×4, L1, serial)\n"), "--point", "7", *OPTIONS)
    assert result.exit_code == 1
    assert "one has no point 7" in result.stderr
