"""The rest of `morello explain`: units of cost, bottlenecks, kernels, the roofline."""

from __future__ import annotations

import json
import re
import sys

import attrs
import numpy as np
import pytest

from morello import api
from morello.api.candidates import FEATURES, REGISTERS
from morello.frontend.parser import parse_spec
from morello.ir.impl import cost_and_peak
from morello.kernels.microkernel import OPERATION, PATTERN, SAME, SIZE, TYPES, WHEN, mismatch
from morello.kernels.target import BASE
from morello.plugins.registry import installed
from morello.report.balance import COMPUTING, THREADS, balance
from morello.report.words import cost_words
from morello.search.session import SearchSession
from morello.testing import accepted_specs

#: No kernel takes it, so that there are steps to choose between.
SMALL = "spec small = Matmul(1×2×2×8, (u8, L1), (u8, L1), (u8, L1), serial)\n"


def test_a_cost_is_a_time_where_the_clock_is_known(avx2):
    at_4_ghz = attrs.evolve(avx2, mhz=4000)
    assert cost_words(80_000, at_4_ghz) == "80,000 tenths of a cycle: 2 µs at 4,000 MHz"
    assert cost_words(80_000, attrs.evolve(avx2, mhz=None)) == "80,000 tenths of a cycle: 8,000 cycles"
    beats = attrs.evolve(avx2.info, cost_unit="beats", units_per_cycle=None)
    assert cost_words(80_000, attrs.evolve(at_4_ghz, info=beats)) == "80,000 beats"
    nothing = attrs.evolve(beats, cost_unit="")
    assert cost_words(80_000, attrs.evolve(at_4_ghz, info=nothing)) == "80,000"


def test_json_has_time_and_parts(cli, write):
    (explained,) = json.loads(cli("explain", write(), "--profile", "zen4", "--json").stdout)
    assert explained["cost_unit"] == "tenths of a cycle"
    assert explained["seconds"] == pytest.approx(explained["cost"] / 10 / 3680e6)
    assert sum(explained["parts"].values()) == pytest.approx(100)
    assert explained["bound"] in explained["parts"]
    (base,) = json.loads(cli("explain", write(), "--profile", "base", "--json").stdout)
    assert base["seconds"] is None


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("Matmul(1×64×64×64, L1, L1, L1, serial)", COMPUTING),
        ("Move(64×64, GL, (GL, col_major), serial)", "GL"),
        ("Relu(64×64, L2, L2, serial)", "L2"),
        ("FillZero(4, L1, serial)", "L1"),
    ],
)
def test_the_bottleneck_of_a_program(avx2, text, bound):
    impl = SearchSession(avx2).synthesize(parse_spec(text, avx2))
    found = balance(impl, avx2)
    assert found.bound == bound
    assert sum(found.shares.values()) == pytest.approx(100)
    assert str(found).startswith("compute-bound: " if bound == COMPUTING else f"memory-bound by {bound}: ")


def test_threads_are_a_part_of_their_own(cli, write):
    schedule = "tile [8, 64] parallel\n tile [1, 64]\n select MemsetZero"
    text = f"spec shared = FillZero(64×64, L1)\nschedule shared {{ {schedule} }}\n"
    shown = cli("explain", write(text)).stdout
    assert re.search(rf"^bound by starting threads: .*{THREADS} \d+", shown, re.M)


@pytest.mark.slow
def test_runner_ups_within_noise_are_left_out(cli, write):
    path = write(SMALL)
    every = cli("explain", path, "--runner-ups", "3", "--noise", "0").stdout
    some = cli("explain", path, "--runner-ups", "3", "--noise", "5").stdout
    none = cli("explain", path, "--runner-ups", "3", "--noise", "100000").stdout
    counts = [shown.count("  or ") for shown in (every, some, none)]
    assert counts[0] > counts[1] > counts[2] == 0
    assert "left out" not in every
    assert f"{counts[0] - counts[1]} runner-ups within 5 % of the program's cost are left out" in some
    # JSON has them all.
    assert cli("explain", path, "--json", "--runner-ups", "3").stdout.count('"percent"') == counts[0]


def test_kernels_are_listed_with_cost_or_rule(cli, write):
    text = "spec one = Matmul(1×2×2×8, GL, GL, GL, serial)\n"
    lines = cli("explain", write(text), "--profile", "zen4", "--kernels").stdout.splitlines()
    assert lines[1].split() == ["kernel", "cost", "rule", "broken", "why"]
    assert re.fullmatch(r"RegisterTile +[\d,]+  –", lines[2])
    assert any(re.fullmatch(r"RegisterTileSums +–  pattern +out: in VRF, not GL", line) for line in lines)
    assert any(re.fullmatch(r"RegisterTileBf16 +–  types +types are .*, not f32, f32, f32", line) for line in lines)
    (explained,) = json.loads(cli("explain", write(text), "--kernels", "--json").stdout)
    target = installed().target("x86_avx2")
    assert {one["kernel"] for one in explained["kernels"]} == {
        one.name for one in (*target.kernels, *target.unavailable)
    }


def test_kernels_of_the_list_can_be_selected(cli, write):
    text = "spec one = Matmul(1×2×2×8, GL, GL, GL, serial)\n"
    (explained,) = json.loads(cli("explain", write(text), "--kernels", "--json").stdout)
    taken = [one for one in explained["kernels"] if one["rule"] is None]
    assert taken
    for one in taken:
        schedule = f"{text}schedule one {{ select {one['kernel']} }}\n"
        (made,) = json.loads(cli("explain", write(schedule), "--json").stdout)
        assert made["cost"] == one["cost"]


@pytest.mark.parametrize(
    ("text", "kernel", "rule", "detail"),
    [
        ("Add(8, GL, GL, GL)", "VectorMove", OPERATION, "it is for Move"),
        ("MatmulAccum(1×1×1×8, L1, L1, L1)", "BroadcastVecMultAdd", PATTERN, "rhs: in VRF, not L1"),
        ("MatmulAccum(1×1×1×8, (bf16, L1), (VRF, v8), (VRF, v8))", "BroadcastVecMultAdd", PATTERN, "lhs: of f32"),
        ("MatmulAccum(1×1×2×1, L1, L1, L1)", "MultAdd", SIZE, "k is 1, not 2"),
    ],
)
def test_the_rule_that_is_broken(avx2, text, kernel, rule, detail):
    found = {one.kernel: one for one in api.kernel_candidates(parse_spec(text, avx2), avx2)}[kernel]
    assert (found.cost, found.rule) == (None, rule)
    assert detail in found.detail


def test_registers_and_features_are_rules_too(avx2):
    full = parse_spec("(Matmul(1×2×2×8, GL, GL, GL, serial), [64, 0, 32768, 524288, 0, 1073741824])", avx2)
    tile = next(one for one in api.kernel_candidates(full, avx2) if one.kernel == "RegisterTile")
    assert (tile.cost, tile.rule) == (None, REGISTERS)
    assert re.fullmatch(r"needs VRF: \d+ B of 0 B", tile.detail)
    found = api.kernel_candidates(parse_spec("Matmul(1×2×4×8, GL, GL, GL)", avx2), avx2)
    unavailable = [one for one in found if one.rule == FEATURES]
    assert [one.kernel for one in unavailable] == ["RegisterTileVpdpbusd"]
    assert "lacks avx_vnni" in unavailable[0].detail


@pytest.mark.slow
@pytest.mark.parametrize("name", ["reference_c", "aarch64_neon", "x86_avx512"])
def test_a_kernel_refuses_specs_that_it_does_not_accept(name):
    """Specs of every third kernel, by each kernel for the operation, and by the others one of each operation."""
    target = installed().target(name, BASE)
    # Concats of other numbers of inputs than the named one are not drawn.
    drawn = [one for one in target.kernels if not re.fullmatch(r"Concat\d", one.name)]
    specs = [spec for kernel in drawn[::3] for spec in accepted_specs(target, kernel, 1, 0)]
    first = {spec.op: spec for spec in reversed(specs)}
    rules = set()
    for kernel in target.kernels:
        for spec in specs:
            if not kernel.implements(spec.op) and spec is not first[spec.op]:
                continue
            found = mismatch(kernel, spec.logical)
            assert (found is None) == bool(np.all(kernel.accepts(spec.logical))), (kernel.name, str(spec))
            rules.add(found and found.rule)
    if name != "reference_c":
        assert {None, OPERATION, PATTERN, TYPES, SAME, SIZE, WHEN} == rules


def test_points_of_a_roofline(avx2):
    impl = SearchSession(avx2).synthesize(parse_spec("Matmul(1×13×64×32, GL, GL, GL, serial)", avx2))
    whole, *parts = api.roofline(impl, avx2).points
    flops, operands = 2 * 13 * 64 * 32, 4 * (13 * 64 + 64 * 32 + 13 * 32)
    assert (whole.name, whole.level) == ("program", "GL")
    assert whole.intensity == pytest.approx(flops / operands)
    assert whole.rate == pytest.approx(flops / cost_and_peak(impl).cost)
    assert any(one.is_kernel for one in parts)
    # Some kernel is at least as fast as all of it.
    assert max(one.rate for one in parts if one.is_kernel) >= whole.rate
    fast, unknown = (api.roofline(impl, attrs.evolve(avx2, mhz=mhz)) for mhz in (4000, None))
    assert (fast.scale, fast.unit) == (pytest.approx(40), "GFLOP/s")
    assert (unknown.scale, unknown.unit) == (10, "FLOP per cycle")


@pytest.mark.slow
def test_roofline(cli, write, refused, tmp_path, monkeypatch):
    plot, text = tmp_path / "roof.svg", "spec one = Relu(8×8, GL, GL, serial)\n"
    # Missing matplotlib is reported before the search.
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    refused(cli("explain", write(text), "--plot", str(plot)), "plots need matplotlib", "morello[plot]")
    monkeypatch.undo()
    pytest.importorskip("matplotlib")
    assert cli("explain", write(text), "--plot", str(plot)).exit_code == 0
    drawn = plot.read_text(encoding="utf-8")
    for word in ("one for x86_avx2", "L1", "GL", "fastest kernel", "1 program (GL)"):
        assert word in drawn
    two = text + "spec two = Relu(8×8, GL, GL, serial)\n"
    refused(cli("explain", write(two), "--plot", str(plot)), "the file has 2 Specs: one, two", "--spec NAME")
    refused(cli("explain", write(text), "--plot", str(tmp_path / "none" / "a.svg")), "does not exist")
    moves = cli("explain", write("spec one = Move(8, GL, GL)\n"), "--plot", str(plot))
    assert moves.exit_code == 1
    assert "Move has no arithmetic" in moves.stderr
    refused(cli("explain", write(text), "--plot", str(plot), "--kernels"), "exclude each other", code=2)


def test_pages(cli, write, refused, tmp_path):
    page, text = tmp_path / "page.html", "spec one = Relu(8×8, GL, GL, serial)\n"
    refused(cli("explain", write(text), "--html", str(tmp_path / "none" / "a.html")), "does not exist", "mkdir")
    for other in ("--json", "--kernels"):
        refused(cli("explain", write(text), "--html", str(page), other), f"--html and {other} exclude", code=2)
    assert not page.exists()
    made = cli("explain", write(text + text.replace("one", "two")), "--html", str(page))
    assert (made.exit_code, made.stdout) == (0, "")
    shown = page.read_text(encoding="utf-8")
    assert shown.count("VectorReluStreamed</a>") == 2
    assert 'href="#k2">two</a>' in shown
