"""`morello calibrate` finds and writes the costs of machines with known costs."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
from click.testing import CliRunner, Result

from morello.build.toolchain import find_compiler
from morello.calibration.levels import LevelFit, fitted, footprint
from morello.calibration.machine import ADDED, ADDITIONS
from morello.calibration.meter import Timer, UnitMeter
from morello.calibration.tables import difference, measure_table, ratios
from morello.cli.app import main
from morello.errors import PluginError
from morello.host import missing_features
from morello.kernels.machine import Weights
from morello.plugins import Clock, Measurement, Meter, TargetInfo, TargetPlugin
from morello.plugins.measure import Rows
from morello.plugins.profile import read_profile
from morello.plugins.registry import Registry, installed

TOY = Path(__file__).parents[1] / "thirdparty" / "toy_cpu" / "src"
CLOCK = Clock(source="static void morello_clock(void *memory) { (void)memory; }", units=500)
ROWS = ((1, 40, 7), (2, 60, 9))
#: The beats of a machine with these costs of lines and runs in C and in MEM.
HITS, MISSES, SYNC, BEAT = (4.0, 70.0), (6.0, 90.0), 1_234, 1e-9


def measured(meter: Meter) -> Rows:
    """Return the costs of the rows: the meter's time of a function, each time it is called."""
    (found,) = meter.units("static void tile(void *memory) { (void)memory; }", ["tile"])
    return tuple((row[0], round(found) * row[0], 7) for row in ROWS)


@pytest.fixture(scope="module")
def toy() -> TargetPlugin:
    """toy_cpu with a clock, and a table that is measured."""
    if str(TOY) not in sys.path:
        sys.path.append(str(TOY))
    plugin = importlib.import_module("toy_cpu.plugin").PLUGIN
    one = Measurement(table="rows", keys=1, measure=measured)
    info = attrs.evolve(plugin.info, cost_unit="beats", units_per_cycle=4)
    return attrs.evolve(plugin, info=info, tables={"rows": ROWS}, clock=CLOCK, measurements=(one,))


@pytest.fixture
def machine(toy: TargetPlugin, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """The registry of toy_cpu, on a machine of four CPUs whose costs are known."""
    registry = Registry.of(toy_cpu=toy)
    monkeypatch.setattr("morello.calibration.machine.installed", lambda: registry)
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    monkeypatch.setattr("os.getloadavg", lambda: (0.1, 0.1, 0.1))
    rows: list[int] = []

    def seconds(
        self: Timer, source: str, names: Sequence[str], flags: Sequence[str] = (), *, wall: bool = False
    ) -> list[float]:
        beats = {"morello_clock": CLOCK.units, "tile": 25.0, "share_tiles": SYNC}
        if "touch_1" in names:
            (found,) = {int(one) for one in re.findall(r"row < (\d+)", source)}
            rows.append(found)
            level = (len(rows) - 1) % 2
            for name in names[1:]:
                lines = int(name.removeprefix("touch_"))
                beats[name] = found * (32 // lines) * (MISSES[level] + HITS[level] * lines)
        assert wall == ("share_tiles" in names)
        return [beats[name] * BEAT for name in names]

    monkeypatch.setattr(Timer, "seconds", seconds)
    return registry


def calibrate(*arguments: str) -> Result:
    return CliRunner(catch_exceptions=False).invoke(main, ["calibrate", *arguments])


def test_measured_costs_are_those_of_the_machine(machine: Registry, tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    done = calibrate("--quick", "-o", str(path))
    assert done.exit_code == 0, done.output
    profile = read_profile(path)
    assert (profile.name, profile.target) == ("own", "toy_cpu")
    assert {name: costs["hit_cost"] for name, costs in profile.levels.items()} == {"C": 4, "MEM": 70}
    assert {name: costs["miss_cost"] for name, costs in profile.levels.items()} == {"C": 6, "MEM": 90}
    assert profile.weights == {"threads": 4, "sync": SYNC}
    # A beat is a nanosecond, and four of them are a cycle.
    assert profile.mhz == 250
    assert profile.tables == {"rows": ((1, 25, 7), (2, 50, 7))}
    # The registry takes it: it is of this target.
    target = machine.target("toy_cpu", path)
    assert (target.weights, target.tables) == (Weights(threads=4, sync=SYNC), profile.tables)
    assert target.level("C").hit_cost == 4


def test_without_a_clock_additions_take_a_cycle(
    machine: Registry, toy: TargetPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine's clock takes 500 beats of a nanosecond for 8000 additions, of 4 units each."""
    registry = Registry.of(toy_cpu=attrs.evolve(toy, clock=None, measurements=()))
    monkeypatch.setattr("morello.calibration.machine.installed", lambda: registry)
    text = calibrate("--quick").stdout
    assert re.search(rf"levels.MEM.miss_cost +20 +{90 * 4 * 8000 // CLOCK.units:,} ", text)


def test_it_shows_old_and_new_with_the_error(machine: Registry) -> None:
    text = calibrate("--quick").stdout
    assert re.search(r"toy_cpu on \S+, in beats, 0 s\n", text)
    assert re.search(r"levels.C.hit_cost +3 +4 +0.0 %", text)
    assert re.search(r"weights.sync +5,000 +1,234 +–", text)
    assert re.search(r"tables.rows +2 rows +× 0\.75 \(0\.68 to 0\.83\) +0.0 %", text)


def test_compilers_are_compared(machine: Registry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other = attrs.evolve(find_compiler(), name="occ")
    monkeypatch.setattr("morello.calibration.machine.available_compilers", lambda: [other, find_compiler()])
    profiles = []
    for options in ([], ["--quick"], ["--cc", find_compiler().command[0]]):
        path = tmp_path / "own.toml"
        text = calibrate("-o", str(path), *options).stdout
        assert text.count("  with occ") == (0 if options else 2)
        profiles.append(path.read_text())
    assert profiles == profiles[:1] * 3


def test_json_has_all_that_was_measured(machine: Registry) -> None:
    found = json.loads(calibrate("--quick", "--json").stdout)
    assert (found["target"], found["unit"]) == ("toy_cpu", "beats")
    assert found["levels"][0]["points"][0] == [1, pytest.approx(10)]
    assert found["levels"][1]["miss"] == pytest.approx(90)
    assert 'target = "toy_cpu"' in found["profile"]


def test_a_busy_machine_is_reported(machine: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "busy" not in calibrate("--quick").stderr
    monkeypatch.setattr("os.getloadavg", lambda: (3.0, 0.1, 0.1))
    assert "warning: the machine is busy: its load is 3.0" in calibrate("--quick").stderr
    monkeypatch.setattr(Timer, "waited", 0.4)
    assert "warning: the machine is busy: 40% of the time another program had the core" in calibrate("--quick").stderr


@pytest.mark.slow
def test_a_plot_is_drawn(machine: Registry, tmp_path: Path) -> None:
    picture = tmp_path / "costs.png"
    done = calibrate("--quick", "--plot", str(picture))
    if importlib.util.find_spec("matplotlib"):
        assert picture.read_bytes().startswith(b"\x89PNG")
    else:
        assert "plots need matplotlib, which is not installed" in done.stderr
        assert done.exit_code == 1


UNTIMED = {"clock": None, "info": TargetInfo(name="toy_cpu", description="", layouts=lambda dtype, rank: [])}
REFUSALS: list[tuple[dict[str, Any], list[str], str]] = [
    (UNTIMED, ["--target", "toy_cpu"], "the cost unit of target toy_cpu has no known duration"),
    (UNTIMED, [], "targets that can be measured here are none"),
    ({"clock": 7}, [], "clock of target toy_cpu: a clock is a morello.plugins.Clock"),
    ({"measurements": (7,)}, [], "a measurement is a morello.plugins.Measurement of a table"),
    ({"tables": {}}, [], "a measurement is a morello.plugins.Measurement of a table"),
    ({}, ["--target", "no_cpu"], "unknown target 'no_cpu'"),
    ({}, ["-o", "none/own.toml"], "cannot write none/own.toml: directory"),
    ({}, ["--profile", "fast"], "unknown profile 'fast' of toy_cpu"),
]


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(("changes", "arguments", "words"), REFUSALS, ids=[words for *_, words in REFUSALS])
def test_refusals(
    changes: dict[str, Any], arguments: list[str], words: str, toy: TargetPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = Registry.of(toy_cpu=attrs.evolve(toy, **changes))
    monkeypatch.setattr("morello.calibration.machine.installed", lambda: registry)
    done = calibrate("--quick", *arguments)
    assert done.exit_code == (2 if words.startswith("unknown") else 1)
    assert words in done.stderr
    assert "hint: " in done.stderr


def test_a_machine_that_cannot_run_the_target(machine: Registry, toy: TargetPlugin, monkeypatch: Any) -> None:
    lacking = attrs.evolve(toy, info=attrs.evolve(toy.info, cpu_features=("no_such_feature",)))
    monkeypatch.setattr("morello.calibration.machine.installed", lambda: Registry.of(toy_cpu=lacking))
    assert "this machine lacks no_such_feature" in calibrate("--target", "toy_cpu").stderr


def test_a_fit_is_exact_where_the_costs_are() -> None:
    points = [(lines, 6 + 4.0 * lines) for lines in (1, 2, 4, 8)]
    assert fitted(points) == pytest.approx((4, 6))
    assert LevelFit("C", 4, 6, tuple(points)).error == pytest.approx(0)
    assert LevelFit("C", 5, 6, ((1, 10.0), (2, 14.0))).error == pytest.approx((1 / 10 + 2 / 14) / 2)


def test_a_fit_has_no_negative_costs() -> None:
    hit, miss = fitted([(1, 1.0), (2, 4.0), (4, 16.0)])
    assert miss == 0
    assert hit > 0
    hit, miss = fitted([(1, 8.0), (2, 6.0), (4, 2.0)])
    assert hit == 0
    assert miss > 0


def test_data_is_read_from_the_level(toy: TargetPlugin) -> None:
    _, cache, memory = toy.levels
    assert footprint(toy.levels, cache) == cache.capacity * 3 // 4
    assert footprint(toy.levels, memory) == 128 * cache.capacity
    assert footprint([memory], memory) <= memory.capacity


class Noisy:
    """A meter whose measurements differ by less each time."""

    def __init__(self, quick: bool = False):
        self.quick = quick
        self.timer = self
        self.deadline = time.monotonic() + 60
        self.times = 0

    def measure(self, meter: Meter) -> Rows:
        self.times += 1
        return tuple((*row[:2], row[2] + (300 >> 2 * self.times)) for row in ((1, 40, 700), (2, 40, 700)))


MEASURES: list[tuple[bool, float, int]] = [(False, 60, 3), (True, 60, 2), (False, -1, 1)]


@pytest.mark.parametrize(("quick", "left", "times"), MEASURES)
def test_tables_are_measured_until_they_hold_still(quick: bool, left: float, times: int) -> None:
    meter: Any = Noisy(quick)
    meter.deadline = time.monotonic() + left
    found = measure_table(meter, Measurement(table="rows", keys=2, measure=meter.measure), {"rows": ROWS_OF_TWO})
    assert meter.times == times
    assert (found.error is None) == (times == 1)
    assert [row[:2] for row in found.rows] == [(1, 40), (2, 40)]


ROWS_OF_TWO: Rows = ((1, 40, 1), (2, 40, 1))

WRONG: list[tuple[Any, str]] = [
    (((1, 40, 5),), "rows with the declared keys"),
    (((1, 40, 5), (3, 40, 5)), "rows with the declared keys in the first 2 columns"),
    (((1, 40, 5), (2, 40, 0.5)), "rows of integers"),
    ([], "a list of rows"),
]


@pytest.mark.parametrize(("rows", "words"), WRONG)
def test_measurements_that_give_something_else(rows: Any, words: str) -> None:
    meter: Any = Noisy()
    one = Measurement(table="rows", keys=2, measure=lambda meter: rows)
    with pytest.raises(PluginError, match=f"the measurement of table rows must give {words}"):
        measure_table(meter, one, {"rows": ROWS_OF_TWO})


def test_differences_and_ratios() -> None:
    assert difference([100, 10], [100, 10]) == 0
    assert difference([90, 20], [110, -20]) == pytest.approx(60 / 120)
    assert ratios([10, 20, 5, 0], [30, 40, -1, 1]) == [2.0, 3.0]
    plain = Measurement(table="rows", keys=1, measure=measured)
    assert plain.totals(ROWS) == [47, 69]
    assert attrs.evolve(plain, total=lambda row: row[2]).totals(ROWS) == [7, 9]


_CHAIN = """
static void {name}(void *memory) {{
    volatile uint64_t *const x = memory;
    for (int i = 0; i < {count}; ++i) {{
        *x += 1;
    }}
}}
"""


def test_twice_the_work_takes_twice_the_time() -> None:
    """A chain through memory, on the machine at hand. The clock's own chain is as long as the first one."""
    timer = Timer(find_compiler(), (), 64, True, time.monotonic() + 60)
    clock = Clock(source=_CHAIN.format(name="morello_clock", count=1_000), units=1_000)
    source = "".join(_CHAIN.format(name=f"chain_{count}", count=count) for count in (1_000, 4_000))
    short, long = UnitMeter(timer, clock).units(source, ["chain_1000", "chain_4000"])
    assert 700 < short < 1_400
    assert 3 < long / short < 5
    assert 0 <= timer.waited < 1


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in installed().names if installed().contributions(name).clock])
def test_the_machine_at_hand_is_measured(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the numbers, they make a profile that the target takes.

    Tables of tiles take seconds to compile, and differ in an instruction: the first of x86_avx2 represents them.
    Tables of a single row are measured for every instruction.
    """
    if missing := missing_features(installed().target(name).info.cpu_features):
        pytest.skip(f"this CPU lacks {', '.join(missing)}")
    every = installed().contributions(name).measurements
    tiles = [one for one in every if one.keys] if name == "x86_avx2" else []
    some = [*(one for one in every if not one.keys), *tiles[:1]]
    merged = attrs.evolve(installed().contributions(name), measurements=some)
    monkeypatch.setattr(Registry, "contributions", lambda self, target: merged)
    monkeypatch.setattr("morello.calibration.meter._QUICK_ROUNDS", 2)
    monkeypatch.setattr("morello.calibration.machine._QUICKEST", 1)
    path = tmp_path / f"{name}.toml"
    done = calibrate("--quick", "--target", name, "-o", str(path))
    assert done.exit_code == 0, done.output
    target = installed().target(name, path)
    assert target.weights.threads == (os.cpu_count() or 1)
    assert all(level.hit_cost > 0 for level in target.levels if not level.is_register)
    assert {*read_profile(path).tables} == {one.table for one in some}


@pytest.mark.slow
@pytest.mark.skipif(bool(missing_features(("avx2",))), reason="this CPU lacks avx2")
def test_additions_take_a_cycle_on_the_machine_at_hand() -> None:
    """By the clock of x86, whose multiplications take three."""
    clock = installed().contributions("x86_avx2").clock
    assert clock is not None
    timer = Timer(find_compiler(), (), 64, True, time.monotonic() + 60)
    source = ADDITIONS.replace("morello_clock", "additions")
    (units,) = UnitMeter(timer, clock).units(source, ["additions"])
    assert units == pytest.approx(10 * ADDED, rel=0.15)
