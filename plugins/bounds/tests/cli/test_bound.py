"""`morello bound`: tables, JSON that agrees with them, and what goes wrong."""

import json
from fractions import Fraction
from typing import Any

import pytest
from click.testing import CliRunner

from morello.cli.app import main

SPEC = "spec one = Matmul(1×8×8×16, (f32, GL), (f32, GL), (f32, GL), serial)\n"


@pytest.mark.slow
def test_json_adds_up(cli, write):
    result = cli("bound", write(SPEC), "--json", "--check", "--no-db", "--profile", "base")
    assert result.exit_code == 0, result.stderr
    (report,) = json.loads(result.stdout)
    assert report["checked"]
    assert [one["slow"] for one in report["boundaries"]] == ["L1", "L2", "L3", "GL"]
    for one in report["boundaries"]:
        assert one["bytes"] >= one["compulsory"] == 4 * (8 * 8 + 8 * 16 + 8 * 16)
        assert one["lines"] == -(-one["bytes"] // 64)
        assert one["ratio"] == pytest.approx(one["program"] / one["bytes"])
        assert one["tile"]["bytes"] >= one["bytes"]
    assert report["certified"] <= report["cost"]
    assert report["gap"] == pytest.approx(report["cost"] / report["certified"] - 1)


@pytest.mark.parametrize("columns", ["80", "160"])
def test_the_table_fits(cli, write, columns):
    result = cli("bound", write(SPEC), "--no-db", "--profile", "base", COLUMNS=columns)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    table = [line for line in lines if "⇄" in line]
    assert len(table) == 4
    assert all(len(line) <= int(columns) for line in lines if "⇄" in line or "between" in line)
    assert "proven without a search" in result.stdout


@pytest.mark.slow
def test_one_level_with_its_proof(cli, write):
    text = "spec one = Matmul(1×32×32×32, (f32, GL), (f32, GL), (f32, GL), serial)\n"
    result = cli("bound", write(text), "--level", "VRF", "--explain", "--check", "--no-db", "--profile", "base")
    assert result.exit_code == 0
    assert "L2 ⇄ L1: operands" not in result.stdout
    assert "points ≤ |lhs|^1/2" in result.stdout
    assert "segments" in result.stdout
    assert "checked: all proofs hold" in result.stdout


def test_graphs_have_bounds_on_what_they_touch(cli, write):
    text = "spec one = Compose([Relu, Relu], [(2×8, f32, GL), (2×8, f32, GL)], serial)\n"
    result = cli("bound", write(text), "--no-db", "--profile", "base")
    assert result.exit_code == 0, result.stderr
    assert "all that is touched" in result.stdout


@pytest.mark.slow
def test_random_matrices_have_a_bound_with_what_numbers_cost(cli, write):
    text = "spec one = RandMatmul(1×8×64×16, (u32, GL), (u32, GL), (f32, GL), (f32, GL), serial)\n"
    path = write(text)
    result = cli("bound", path, "--no-db", "--profile", "base", "--check")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.count("; moves and numbers together cost at least as much as moving") == 1
    assert result.stdout.count("; there are too few points for a bound on both") == 3
    (report,) = json.loads(cli("bound", path, "--no-db", "--profile", "base", "--json").stdout)
    assert [one["memory"] for one in report["numbers"]] == [one["memory"] // 4 for one in report["boundaries"]]
    assert report["numbers"][0]["bytes"] > 0 == report["numbers"][1]["bytes"]
    assert report["certified"] <= report["cost"]


@pytest.mark.slow
def test_without_a_program_there_are_bounds_all_the_same(cli, write, monkeypatch):
    monkeypatch.setattr("morello.search.first_program._MOST", 0)
    path = write("spec one = Matmul(1×100×100×100, (f32, GL), (f32, GL), (f32, GL), serial)\n")
    arguments = ("bound", path, "--effort", "1", "--no-db", "--profile", "base")
    result = cli(*arguments, "--check")
    assert result.exit_code == 0, result.stderr
    assert "program  none yet: one: no program of Matmul was found" in result.stdout
    assert "bound    costs at least" in result.stdout
    (report,) = json.loads(cli(*arguments, "--json").stdout)
    assert report["cost"] is report["gap"] is report["boundaries"][0]["program"] is None
    assert report["certified"] > 1


LARGE = "spec one = Matmul(1×64×64×64, (f32, GL), (f32, GL), (f32, GL), serial)\n"
RANDOM = "spec one = RandMatmul(1×8×64×16, (u32, GL), (u32, GL), (f32, GL), (f32, GL), serial)\n"


@pytest.fixture(scope="module", params=[LARGE, pytest.param(RANDOM, marks=pytest.mark.slow)], ids=["product", "random"])
def printed(request, tmp_path_factory) -> tuple[str, str]:
    """A Spec file, and the proofs that are printed for it."""
    path = tmp_path_factory.mktemp("proofs") / "one.spec"
    path.write_text(f"target x86_avx2\n{request.param}", encoding="utf-8")
    arguments = ["bound", str(path), "--json", "--no-db", "--profile", "base"]
    return str(path), CliRunner(catch_exceptions=False).invoke(main, arguments).stdout


def test_proofs_can_be_verified_by_others(cli, printed, tmp_path):
    path, proofs = printed
    file = tmp_path / "proofs.json"
    file.write_text(proofs, encoding="utf-8")
    arguments = ("bound", path, "--proofs", str(file), "--profile", "base")
    result = cli(*arguments)
    assert result.exit_code == 0, result.stderr
    (report,) = json.loads(proofs)
    assert result.stdout == (
        f"one: bounds at 4 boundaries, and the cost of at least {report['certified']:,}, hold in exact arithmetic\n"
    )
    assert json.loads(cli(*arguments, "--json").stdout)[0]["certified"] == report["certified"]


@pytest.mark.parametrize("printed", [LARGE], indirect=True)
@pytest.mark.parametrize(
    ("place", "change"),
    [
        ("certified", 1),
        ("certified", 0.5),
        ("cost", -1),
        ("gap", 0.001),
        ("boundaries 0 bytes", 1),
        ("boundaries 0 bytes", 0.5),
        ("boundaries 0 lines", 1),
        ("boundaries 1 program", 1),
        ("boundaries 1 ratio", -0.01),
        ("boundaries 1 kernels_read_beyond", 1),
        ("boundaries 2 tile bytes", 4),
        ("boundaries 2 tile sizes 1", -1),
        ("boundaries 0 compulsory", 4),
        ("boundaries 1 bytes", 1),
        ("boundaries 0 memory", -1),
        ("boundaries 0 segments share", 1),
        ("boundaries 0 segments loaded", 4),
        ("boundaries 0 segments loops m", 1),
        ("boundaries 0 segments arrays lhs", Fraction(-1, 100)),
        ("boundaries 0 segments arrays lhs", Fraction(1, 10**90)),
        ("boundaries 0 segments share", Fraction(-1, 10**90)),
        ("prices points 0 points", 1),
        ("prices points 0 price", Fraction(1, 1000)),
        ("prices cuts 2 touch", Fraction(1, 1000)),
        ("prices cuts 0 again", Fraction(-1, 1000)),
    ],
)
def test_proofs_that_were_tampered_with_are_refused(cli, printed, refused, tmp_path, place, change):
    path, proofs = printed
    report = json.loads(proofs)
    *above, last = ("0 " + place).split()
    where: Any = report
    for key in above:
        where = where[int(key)] if isinstance(where, list) else where[key]
    last = int(last) if isinstance(where, list) else last
    where[last] = str(Fraction(where[last]) + change) if isinstance(where[last], str) else where[last] + change
    file = tmp_path / "proofs.json"
    file.write_text(json.dumps(report), encoding="utf-8")
    refused(cli("bound", path, "--proofs", str(file), "--profile", "base"), "proofs.json, one: ", "is not proven: ")


@pytest.mark.parametrize("printed", [LARGE], indirect=True)
@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"prices": None, "certified": 10**12}, "certified is 1000000000000, not None"),
        ({"low": 10**12}, "low is 1000000000000, not None"),
        ({"schedule": None}, "boundaries 0 program is "),
        ({"schedule": ["synthesize"]}, "its schedule gives no program"),
        ({"schedule": ["tile [0, 0, 0, 8]"] * 10**5}, "its schedule has more than 256 KiB"),
        ({"why": "there is none"}, "why is 'there is none', not None"),
        ({"more": [1]}, "more is [1], not None"),
    ],
)
def test_claims_without_a_proof_are_refused(cli, printed, refused, tmp_path, changed, words):
    path, proofs = printed
    (report,) = json.loads(proofs)
    file = tmp_path / "proofs.json"
    file.write_text(json.dumps([{**report, **changed}]), encoding="utf-8")
    refused(cli("bound", path, "--proofs", str(file), "--profile", "base"), "proofs.json, one: ", words)


@pytest.mark.parametrize("printed", [LARGE], indirect=True)
@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"loaded": 1152', f'"loaded": {"9" * 10**6}', "1,000,000 digits"),
        ('"loaded": 1152', '"loaded": 1152.5', "the bytes that segments load are an integer"),
        ('"gap": 0', '"gap": Infinity, "x": 0', "Infinity is not a finite number"),
        ('"why": null', f'"why": {"[" * 10**5}', "nested deeper than 50"),
        ('"share": "9709/64"', '"share": "1e1000000000"', "'1e1000000000' is not a fraction such as 7/2"),
        ('"share": "9709/64"', f'"share": "{"9" * 10**6}"', "is not a fraction such as 7/2"),
        ('"name": "one"', '"name": ["one"]', "has no proofs: "),
        ("[\n", '[{"name": "one"},\n', "has no proofs: two have one name"),
    ],
)
def test_texts_that_would_cost_time_are_refused(cli, printed, refused, tmp_path, old, new, words):
    path, proofs = printed
    assert old in proofs
    file = tmp_path / "proofs.json"
    file.write_text(proofs.replace(old, new, 1), encoding="utf-8")
    refused(cli("bound", path, "--proofs", str(file), "--profile", "base"), "proofs.json", words)


@pytest.mark.slow
@pytest.mark.parametrize("printed", [RANDOM], indirect=True)
def test_numbers_that_were_tampered_with_are_refused(cli, printed, refused, tmp_path):
    path, proofs = printed
    report = json.loads(proofs)
    report[0]["numbers"][0]["bytes"] += 1
    file = tmp_path / "proofs.json"
    file.write_text(json.dumps(report), encoding="utf-8")
    refused(cli("bound", path, "--proofs", str(file), "--profile", "base"), "numbers 0 bytes is ")


def test_files_without_proofs(cli, write, refused, tmp_path):
    file = tmp_path / "proofs.json"
    arguments = ("bound", write(SPEC), "--proofs", str(file), "--profile", "base")
    refused(cli(*arguments), "cannot read")
    file.write_text("[{}]", encoding="utf-8")
    refused(cli(*arguments), "has no proofs: 'name'", "morello bound FILE --json")
    file.write_text('[{"name": "two"}]', encoding="utf-8")
    refused(cli(*arguments), "has no proofs for one", "--spec NAME")
    (report,) = json.loads(cli("bound", write(SPEC), "--json", "--no-db", "--profile", "base").stdout)
    for changed, words in (
        ({"spec": "Matmul"}, "are for spec 'Matmul', not 'Matmul(1×8×8×16"),
        ({"spec": "\x1b[31m"}, r"are for spec '\x1b[31m', not 'Matmul(1×8×8×16"),
        ({"boundaries": [{}]}, "these are not proofs: KeyError"),
        ({"prices": "dear"}, "these are not proofs: TypeError"),
    ):
        file.write_text(json.dumps([{**report, **changed}]), encoding="utf-8")
        refused(cli(*arguments), words)
    file.write_text(json.dumps([{**report, "boundaries": report["boundaries"][:1]}]), encoding="utf-8")
    assert cli(*arguments).stdout.startswith("one: bounds at 1 boundaries, and the cost of at least ")


def test_a_level_without_a_boundary(cli, write, refused):
    refused(cli("bound", write(SPEC), "--level", "GL", "--no-db"), "no boundary is behind GL", "VRF, L1, L2", code=2)
    refused(cli("bound", write(SPEC), "--level", "L7", "--no-db"), "unknown memory level 'L7'")
