"""`morello bound --algorithms` and `--sensitivity`: tables, JSON, a plot, and what goes wrong."""

import json
import sys

import pytest

CONV = "spec conv = Conv[padding=1](1×4×4×8×8×3×3, (f32, GL), (f32, GL), (f32, GL), serial)\n"
PRODUCT = "spec one = Matmul(1×64×512×128, (f32, GL), (f32, GL), (f32, GL), serial)\n"
SENSITIVITY = ("--sensitivity", "--samples", "8", "--profile", "base")


def algorithms(path: str, *memories: str) -> list[str]:
    return ["bound", path, "--algorithms", *(word for one in memories for word in ("--fast-memory", one))]


@pytest.mark.slow
def test_the_table_of_algorithms_agrees_with_json(cli, write):
    arguments = algorithms(write(CONV), "1KiB", "512")
    shown = cli(*arguments)
    (report,) = json.loads(cli(*arguments, "--json").stdout)
    rows = [line.split() for line in shown.stdout.splitlines() if line.split()[1:2] in (["B"], ["KiB"])]
    assert [one["memory"] for one in report["memories"]] == [512, 1024]
    for row, one in zip(rows, report["memories"], strict=True):
        assert int(row[2].replace(",", "")) == one["bound"]
        for at, name in enumerate(("direct", "im2col", "winograd", "fft", "naive")):
            assert float(row[3 + at].replace(",", "")) == pytest.approx(one[name] / one["bound"], abs=0.006)


@pytest.mark.slow
def test_algorithms_that_do_not_apply_are_left_out(cli, write):
    assert "–" in cli(*algorithms(write(CONV.replace("padding=1", "stride=2")), "1KiB")).stdout


@pytest.mark.slow
def test_a_plot(cli, write, tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "conv.svg"
    assert cli(*algorithms(write(CONV), "1KiB", "4KiB"), "--plot", str(path)).exit_code == 0
    assert "winograd" in path.read_text(encoding="utf-8")


def test_what_goes_wrong_with_algorithms(cli, write, refused):
    refused(cli(*algorithms(write())), "Matmul is not a convolution", "Conv and GroupedConv")
    refused(cli(*algorithms(write(CONV), "8")), "too few", "--fast-memory 32KiB")
    two = CONV + CONV.replace("conv", "other")
    refused(cli(*algorithms(write(two)), "--plot", "x.svg"), "a plot shows one Spec", "--spec NAME")
    refused(cli(*algorithms(write(CONV), "much")), "not a size such as 4GiB", code=2)


@pytest.mark.slow
def test_the_table_of_sensitivity_agrees_with_json(cli, write):
    pytest.importorskip("SALib")
    arguments = ("bound", write(PRODUCT), *SENSITIVITY)
    result = cli(*arguments)
    assert result.exit_code == 0, result.stderr
    (report,) = json.loads(cli(*arguments, "--json").stdout)
    shown = {tuple(line.split()[:2]): line.split() for line in result.stdout.splitlines() if line.endswith("%")}
    assert len(report["inputs"]) == 11
    assert (report["samples"], report["seed"], report["of"]) == (8, 0, "bound")
    for one in report["inputs"]:
        assert float(shown[one["name"], one["kind"]][6]) == pytest.approx(100 * max(0, one["in_all"]), abs=0.51)


@pytest.mark.slow
def test_sensitivity_of_tiles(cli, write):
    pytest.importorskip("SALib")
    result = cli("bound", write(PRODUCT), "--of", "tiles", *SENSITIVITY)
    assert result.exit_code == 0, result.stderr
    assert "first loop in L1" in result.stdout


def test_sensitivity_without_salib(cli, write, refused, monkeypatch):
    monkeypatch.setitem(sys.modules, "SALib.sample.sobol", None)
    hint = "pip install 'morello-bounds[sensitivity]'"
    refused(cli("bound", write(PRODUCT), *SENSITIVITY), "sensitivity needs SALib", hint)


def test_options_of_modes_need_them(cli, write, refused):
    path = write(PRODUCT)
    refused(cli("bound", path, "--sensitivity", "--samples", "7"), "7 samples are not a power of two")
    refused(cli("bound", path, "--samples", "8"), "--samples needs --sensitivity", code=2)
    refused(cli("bound", path, "--plot", "x.svg"), "--plot needs --algorithms", code=2)
    refused(cli("bound", path, "--algorithms", "--sensitivity"), "exclude each other", code=2)
