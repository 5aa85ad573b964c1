"""Measure the costs of this machine for a target, and make a profile."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any, Literal

import attrs

from morello.build.toolchain import Compiler, architecture, available_compilers, find_compiler, is_foreign, thread_flags
from morello.calibration.kernels import KernelTiming, time_kernels
from morello.calibration.levels import LevelFit, fit_levels, footprint
from morello.calibration.meter import BUSY, Timer, UnitMeter
from morello.calibration.tables import MeasuredTable, measure_table
from morello.codegen.threads import RUNTIME
from morello.errors import MorelloError
from morello.host import missing_features
from morello.kernels.machine import TargetInfo
from morello.kernels.target import BASE, Target
from morello.plugins.measure import Clock, Measurement
from morello.plugins.profile import Profile, applied
from morello.plugins.profile_choice import ProfileLike, microarchitectures
from morello.plugins.registry import Registry, installed
from morello.run.runner import find_runner, is_native

#: Approximate limits of the time, in seconds.
_LONGEST, _QUICKEST = 150, 30
#: The same for kernels.
_KERNELS_LONGEST, _KERNELS_QUICKEST = 120, 20
_WITH = "  with {}"
#: Called with the name of each thing before it is measured.
Progress = Callable[[str], None]


#: A chain of additions, and their number. They take a cycle each on nearly all cores: those that add constants at no
#: cost add registers like all others.
ADDITIONS, ADDED = (
    """\
#define MORELLO_ADD x += y; __asm__ volatile("" : "+r"(x));
static void morello_clock(void *memory) {
    uintptr_t x = 1, y = 3;
    (void)memory;
    __asm__ volatile("" : "+r"(y));
    for (int i = 0; i < 1000; ++i) {
        MORELLO_ADD MORELLO_ADD MORELLO_ADD MORELLO_ADD MORELLO_ADD MORELLO_ADD MORELLO_ADD MORELLO_ADD
    }
}
""",
    8_000,
)
_PARALLEL_LOOP = """
static void empty_tiles(const void *loop, ptrdiff_t thread, ptrdiff_t from, ptrdiff_t to) {{
    (void)loop, (void)thread, (void)from, (void)to;
}}

static void share_tiles(void *memory) {{
    morello_parallel(empty_tiles, memory, {threads}, {threads});
}}
"""


@attrs.frozen
class Line:
    """A measured value: its key in a profile, the old and the new costs of the target as text, and the error.

    `error` is the relative error of the fit, or between measurements; None if unknown.
    """

    key: str
    old: str
    new: str
    error: float | None


@attrs.frozen(kw_only=True)
class Calibration:
    """A profile and its measurements. `waited` is the share of the time in which another program had the core."""

    target: Target
    profile: Profile
    levels: tuple[LevelFit, ...]
    tables: tuple[MeasuredTable, ...]
    kernels: tuple[KernelTiming, ...]
    lines: tuple[Line, ...]
    waited: float
    seconds: float

    @property
    def unit(self) -> str:
        """Return the unit of costs."""
        return self.target.info.cost_unit or "units"

    @property
    def busy(self) -> bool:
        """Return whether another program had the core for so long that costs may be wrong."""
        return self.waited > BUSY

    @property
    def cpu(self) -> str:
        """Return the microarchitecture of this machine."""
        return microarchitectures()[0]

    def as_dict(self) -> dict[str, Any]:
        """Return the measurements as plain data, as `morello calibrate --json` prints them."""
        return {
            "target": self.target.name,
            "unit": self.unit,
            "seconds": self.seconds,
            "waited": self.waited,
            "lines": [attrs.asdict(one) for one in self.lines],
            "levels": [
                {"level": one.level, "hit": one.hit, "miss": one.miss, "points": [list(point) for point in one.points]}
                for one in self.levels
            ],
            "kernels": [
                {
                    **attrs.asdict(time, filter=attrs.filters.exclude("spec")),
                    "kernel": one.kernel,
                    "spec": str(time.spec.logical),
                }
                for one in self.kernels
                for time in one.timings
            ],
            "profile": self.profile.text(),
        }


def calibrate_target(
    name: str | None = None,
    *,
    profile: ProfileLike | None = None,
    cc: str | None = None,
    profile_name: str = "",
    quick: bool = False,
    kernels: bool = False,
    progress: Progress = lambda what: None,
) -> Calibration:
    """Measure the costs of an installed target on this machine; `name` may be omitted if only one can be measured.

    With `kernels`, the microkernels are timed, too: the profile gets the costs of those that declare none.
    `profile` has the current costs. The new one is called `profile_name`, by default as the CPU. It is that of the
    compiler `cc`; without it, all installed compilers are compared. Raises what `calibrate` raises.
    """
    registry = installed()
    chosen = name or _only_target(registry)
    target = registry.target(chosen, profile)
    _check_here(target.info)
    clock = _clock(registry, chosen)
    if clock is None:
        raise MorelloError(
            f"the cost unit of target {chosen} has no known duration",
            "its plugin declares neither `clock` in its TargetPlugin nor `units_per_cycle` in its TargetInfo",
        )
    compiler = find_compiler(cc)
    compilers = [compiler, *(one for one in available_compilers() if one != compiler and cc is None)]
    name = profile_name if profile_name not in ("", BASE) else microarchitectures()[0]
    return calibrate(
        target,
        clock,
        registry.contributions(chosen).measurements,
        compilers,
        name=name,
        quick=quick,
        kernels=kernels,
        progress=progress,
    )


def _clock(registry: Registry, name: str) -> Clock | None:
    """Return the clock of a target: by default a chain of additions, for costs that are times."""
    per_cycle = registry.target(name).info.units_per_cycle
    declared = registry.contributions(name).clock
    return Clock(source=ADDITIONS, units=ADDED * per_cycle) if declared is None and per_cycle else declared


def _check_here(info: TargetInfo) -> None:
    """Raise MorelloError if programs of the target run on another machine or an emulator."""
    runner = find_runner(info)
    if runner is None and not is_foreign(info):
        return
    where = f"this machine is {architecture('')}" if runner is None else f"its programs run through `{runner}`"
    emulated = ", whose times are not those of a CPU" if runner is not None and runner.emulator else ""
    raise MorelloError(
        f"costs of {info.name} cannot be measured here: {where}{emulated}",
        f"run `morello calibrate` on the {architecture(info.triple)} machine itself, without MORELLO_RUNNER, and "
        "take its file here with --profile",
    )


def _only_target(registry: Registry) -> str:
    """Return the only target that this machine can measure. Raises MorelloError if there is not exactly one."""
    able = [name for name in registry.names if _clock(registry, name) and is_native(registry.target(name).info)]
    if len(able) != 1:
        names = ", ".join(able) or "none"
        raise MorelloError(f"targets that can be measured here are {names}", "choose one with --target NAME")
    return able[0]


def calibrate(
    target: Target,
    clock: Clock,
    measurements: Sequence[Measurement],
    compilers: Sequence[Compiler],
    *,
    name: str,
    quick: bool = False,
    kernels: bool = False,
    progress: Progress = lambda what: None,
) -> Calibration:
    """Measure the costs of a target on this machine, in its own units.

    Programs are built with the first of `compilers`; with the others, threads and tables are measured for comparison.
    Raises MorelloError if this machine cannot run the target, and ToolchainError.
    """
    missing = missing_features(target.info.cpu_features)
    if missing:
        message = f"this machine lacks {', '.join(missing)}, which {target.name} needs"
        raise MorelloError(message, "calibrate another target with --target; `morello targets` lists them")
    start = time.monotonic()
    meters = _meters(target, clock, compilers, quick)
    progress("levels")
    levels = fit_levels(meters[0], target.levels)
    progress("threads")
    threads = os.cpu_count() or 1
    syncs = [round(_parallel_cost(meter, threads)) if threads > 1 else target.weights.sync for meter in meters]
    weights: dict[str, int | Literal["cpus"]] = {"threads": threads, "sync": syncs[0]}
    others = zip(meters[1:], syncs[1:], strict=True)
    lines = _changed(target, levels, weights)
    lines += [Line(_WITH.format(meter.compiler.name), "", f"{other:,}", None) for meter, other in others]
    measured = [_measure(measurement, target, meters, progress) for measurement in measurements]
    tables = [table for table, _ in measured]
    lines += [line for _, own in measured for line in own]
    cpu, per_cycle = microarchitectures()[0], target.info.units_per_cycle
    profile = Profile(
        name=name,
        target=target.name,
        description=f"measured on {cpu} with {meters[0].compiler.name}, in {target.info.cost_unit or 'units'}",
        cpus=(cpu,),
        mhz=meters[0].megahertz(per_cycle) if per_cycle else None,
        weights=weights,
        levels={one.level: {key: round(new) for key, new in one.costs.items()} for one in levels},
        tables={one.name: one.rows for one in tables},
    )
    timings: list[KernelTiming] = []
    if kernels:
        progress("kernels")
        profile, timings = _with_kernels(profile, target, meters[0])
        lines += map(_kernel_line, timings)
    return Calibration(
        target=target,
        profile=profile,
        levels=tuple(levels),
        tables=tuple(tables),
        kernels=tuple(timings),
        lines=tuple(lines),
        waited=max(meter.timer.waited for meter in meters),
        seconds=time.monotonic() - start,
    )


def _meters(target: Target, clock: Clock, compilers: Sequence[Compiler], quick: bool) -> list[UnitMeter]:
    """Return a meter for each compiler, for the first one alone if `quick`."""
    memory = max(footprint(target.levels, level) for level in target.levels if not level.is_register)
    deadline = time.monotonic() + (_QUICKEST if quick else _LONGEST)
    # Some emitters have different flags for each program.
    flags = getattr(target.emitter, "flags", ())
    chosen = compilers[: 1 if quick else None]
    return [UnitMeter(Timer(compiler, flags, 2 * memory, quick, deadline), clock) for compiler in chosen]


def _with_kernels(profile: Profile, target: Target, meter: UnitMeter) -> tuple[Profile, list[KernelTiming]]:
    """Return the profile with the costs of microkernels that declare none, and the timings of all."""
    timer = meter.timer
    timer.deadline = time.monotonic() + (_KERNELS_QUICKEST if timer.quick else _KERNELS_LONGEST)
    timings = time_kernels(meter, applied(profile, target))
    costs = {one.kernel: one.costs for one in timings if one.timings and not one.declares_cost}
    return attrs.evolve(profile, kernels=costs), timings


def _changed(target: Target, levels: Sequence[LevelFit], weights: Mapping[str, int | str]) -> list[Line]:
    """Return a line for each cost of levels, and each weight."""
    lines = [
        Line(f"levels.{one.level}.{key}", f"{getattr(target.level(one.level), key):,}", f"{new:,.0f}", one.error)
        for one in levels
        for key, new in one.costs.items()
    ]
    return lines + [
        Line(f"weights.{key}", f"{getattr(target.weights, key):,}", f"{new:,}", None) for key, new in weights.items()
    ]


def _parallel_cost(meter: UnitMeter, threads: int) -> float:
    """Return the wall time of an empty parallel loop, in units of cost. Emitted programs use the same runtime."""
    source = RUNTIME + _PARALLEL_LOOP.format(threads=threads)
    return meter.units(source, ["share_tiles"], thread_flags(meter.compiler), wall=True)[0]


def _measure(
    measurement: Measurement, target: Target, meters: Sequence[UnitMeter], progress: Progress
) -> tuple[MeasuredTable, list[Line]]:
    """Return the table measured with the first meter, and a line from each meter."""
    progress(f"table {measurement.table}")
    table = measure_table(meters[0], measurement, target.tables)
    lines = [Line(f"tables.{table.name}", f"{len(table.rows)} rows", _times(table.old, table), table.error)]
    for other in meters[1:]:
        progress(f"table {measurement.table}, {other.compiler.name}")
        again = measure_table(other, measurement, target.tables)
        lines.append(Line(_WITH.format(other.compiler.name), "", _times(table.rows, again), again.error))
    return table, lines


def _kernel_line(timing: KernelTiming) -> Line:
    """Return the line of a kernel: the costs of its largest Spec, and the ratio of measured to current costs."""
    if not timing.timings:
        return Line(f"kernels.{timing.kernel}", "", "not timed: no Spec with contiguous operands", None)
    largest, found = timing.timings[-1], sorted(one.taken / one.declared for one in timing.timings)
    chained = f", in a chain {largest.chained:,.0f}" if largest.chained is not None else ""
    new = f"{largest.taken:,.0f}{chained}, × {median(found):.2f} ({found[0]:.2f} to {found[-1]:.2f})"
    return Line(
        f"kernels.{timing.kernel}", f"{largest.declared:,}", new, None if timing.declares_cost else timing.error
    )


def _times(rows: tuple[tuple[int, ...], ...], table: MeasuredTable) -> str:
    """Return the ratios of a table to other costs as text: the median, and the middle nine tenths."""
    found = table.against(rows) or [1.0]
    low, high = found[len(found) // 20], found[-1 - len(found) // 20]
    return f"× {median(found):.2f} ({low:.2f} to {high:.2f})"
