"""`morello map`: tables, JSON that agrees with them, and what goes wrong."""

import json

SPEC = "spec one = (Matmul(1×4×4×8, (f32, GL), (f32, GL), (f32, GL), serial), [64, 512, 512, 2048, 1048576])\n"
OPTIONS = ("--no-db", "--profile", "base")


def test_json_adds_up(cli, write):
    result = cli("map", write(SPEC), "--mapper", "lp", "--mapper", "hybrid", "--json", *OPTIONS)
    assert result.exit_code == 0, result.stderr
    (told,) = json.loads(result.stdout)
    lp, hybrid = told["mappers"]
    assert (lp["name"], hybrid["name"]) == ("lp", "hybrid")
    assert told["search"]["proven"]
    assert told["bound"]["cost"] <= told["search"]["cost"]
    assert hybrid["cost"] <= lp["cost"]
    assert lp["schedule"]
    assert not lp["refused"]
    assert [*lp["bytes"]] == ["L1 ⇄ VRF", "L2 ⇄ L1", "GL ⇄ L2"] == [*told["bound"]["bytes"]]


def test_the_table_has_schedules_that_can_be_used(cli, write):
    result = cli("map", write(SPEC), "--mapper", "greedy", *OPTIONS)
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines[1:5]] == ["mapper", "greedy", "search", "bound"]
    assert "search: optimal" in lines
    cost = lines[2].split()[1]
    at = lines.index("greedy:")
    steps = "\n".join(line for line in lines[at + 1 :] if line.startswith("    "))
    path = write(f"{SPEC}schedule one {{\n{steps}\n}}\n", name="used.spec")
    assert f"costs {cost} " in cli("bound", path, *OPTIONS).stdout
    # The schedule in FILE is left aside.
    assert cli("map", path, "--mapper", "greedy", *OPTIONS).stdout == result.stdout


def test_a_seed_gives_the_same_again(cli, write):
    arguments = ("map", write(SPEC), "--mapper", "random", "--seed", "3", "--objective", "bytes", "--json", *OPTIONS)
    first = cli(*arguments).stdout
    assert json.loads(first)[0]["seed"] == 3
    assert cli(*arguments).stdout == first


def test_times_are_measured_where_they_are_the_objective(cli, write, runnable):
    path = write("spec one = Matmul(1×4×4×8, (f32, GL), (f32, GL), (f32, GL), serial)\n", runnable)
    result = cli("map", path, "--mapper", "greedy", "--objective", "time", "--json", "--no-db")
    assert result.exit_code == 0, result.stderr
    (told,) = json.loads(result.stdout)
    assert told["objective"] == "time"
    assert all(0 < one["seconds"] < 1 for one in (*told["mappers"], told["search"]))


def test_trials_are_kept(cli, write, tmp_path):
    history = tmp_path / "history"
    arguments = ("map", write(SPEC), "--mapper", "bo", "--history", str(history), *OPTIONS)
    assert cli(*arguments).exit_code == 0
    before = history.read_text().count("\n")
    assert before
    other = SPEC.replace("1×4×4×8", "1×4×8×4")
    assert cli("map", write(other, name="b.spec"), *arguments[2:]).exit_code == 0
    assert history.read_text().count("\n") == 2 * before


def test_mappers_are_listed(cli, write):
    result = cli("map", write(SPEC), "--list", "--no-db")
    assert [line.split()[1] for line in result.stdout.splitlines()] == [
        *("mapper", "lp", "conv-lp", "mplp", "integer-tile", "gradient", "cosa", "greedy", "bo", "random", "hybrid")
    ]
    told = json.loads(cli("map", write(SPEC), "--list", "--json", "--no-db").stdout)
    assert {one["name"]: one["does"] for one in told}["lp"].startswith("tiles with the most points")


def test_what_there_is_not(cli, write, refused):
    refused(cli("map", write(SPEC), "--mapper", "greddy", "--no-db"), "no mapper 'greddy'", "greedy")
    # One point has no tiles, and reads what it needs where it is.
    text = "spec one = (Matmul(1×1×1×1, (f32, L1), (f32, L1), (f32, L1), serial), [64, 512, 0, 0, 0])\n"
    refused(cli("map", write(text), "--mapper", "lp", *OPTIONS), "one, lp: it proposes nothing for this Spec")
