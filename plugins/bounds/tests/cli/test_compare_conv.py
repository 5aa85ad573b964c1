"""`morello compare-conv`: its table, JSON and plot, and what goes wrong."""

import json

import pytest

SPEC = "spec conv = Conv[padding=1](1×4×4×8×8×3×3, (f32, GL), (f32, GL), (f32, GL), serial)\n"


def test_the_table_agrees_with_json(cli, write):
    path = write(SPEC)
    shown = cli("compare-conv", path, "--memory", "1KiB", "--memory", "512")
    (told,) = json.loads(cli("compare-conv", path, "--memory", "1KiB", "--memory", "512", "--json").stdout)
    rows = [line.split() for line in shown.stdout.splitlines() if line.split()[1:2] in (["B"], ["KiB"])]
    assert [one["memory"] for one in told["memories"]] == [512, 1024]
    for row, one in zip(rows, told["memories"], strict=True):
        assert int(row[2].replace(",", "")) == one["bound"]
        for at, name in enumerate(("direct", "im2col", "winograd", "fft", "naive")):
            assert float(row[3 + at].replace(",", "")) == pytest.approx(one[name] / one["bound"], abs=0.006)


def test_what_does_not_apply_is_left_out(cli, write):
    text = "spec conv = Conv[stride=2](1×4×4×8×8×3×3, (f32, GL), (f32, GL), (f32, GL), serial)\n"
    result = cli("compare-conv", write(text), "--memory", "1KiB")
    assert "–" in result.stdout


def test_a_plot(cli, write, tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "conv.svg"
    assert cli("compare-conv", write(SPEC), "--memory", "1KiB", "--memory", "4KiB", "--plot", str(path)).exit_code == 0
    assert "winograd" in path.read_text(encoding="utf-8")


def test_what_goes_wrong(cli, write, refused):
    refused(cli("compare-conv", write()), "Matmul is no convolution", "Conv and GroupedConv")
    refused(cli("compare-conv", write(SPEC), "--memory", "8"), "too few", "--memory 32KiB")
    two = SPEC + SPEC.replace("conv", "other")
    refused(cli("compare-conv", write(two), "--plot", "x.svg"), "a plot is of one Spec", "--spec NAME")
    refused(cli("compare-conv", write(SPEC), "--memory", "much"), "is no size", code=2)
