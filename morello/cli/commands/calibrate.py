"""machine: Measure what this machine costs, and write it to a profile."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from morello.build.toolchain import available_compilers, find_compiler
from morello.calibration.machine import Calibration, Line, calibrate
from morello.calibration.meter import BUSY
from morello.cli import completion
from morello.cli.common import cc_option, print_json, profile_option
from morello.cli.figures import figures, save
from morello.cli.output import check_writable, write_file
from morello.errors import MorelloError
from morello.host import missing_features
from morello.plugins.measure import Clock
from morello.plugins.profile_choice import microarchitectures
from morello.plugins.registry import Registry, installed
from morello.report.tables import Column, print_table

#: The load of a machine from which on something else is going on.
_LOAD = 0.7


@click.command("calibrate")
@click.option(
    "--target",
    "name",
    metavar="NAME",
    shell_complete=completion.targets,
    help="Measure for this target; needed where there are several.",
)
@click.option(
    "-o",
    "--output",
    metavar="PROFILE.toml",
    shell_complete=completion.files,
    help="Write what was measured to this file.",
)
@click.option("--quick", is_flag=True, help="Take seconds instead of minutes, and tolerate more noise.")
@click.option(
    "--plot", metavar="PNG", shell_complete=completion.files, help="Draw what was measured, and what was fitted to it."
)
@profile_option
@cc_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    name: str | None,
    output: str | None,
    quick: bool,
    plot: str | None,
    profile: str | None,
    cc: str | None,
    as_json: bool,
) -> None:
    """Measure what this machine costs, and write it to a profile.

    Small programs tell what a line costs in each level, what threads cost to start, and what kernels take. The
    table shows what the target has counted with so far, and what was measured.

    \b
    error   mean difference between what was measured and what was fitted to it, or between two measurements
    × 1.10  costs of a table, on average 1.1 times as high; in brackets the range of nine tenths of them

    Use the profile with --profile, or put it into the configuration: see docs/calibration.md. Nothing else should run
    meanwhile.
    """
    registry = installed()
    chosen = name or _only(registry)
    target = registry.target(chosen, profile)
    clock, unit = _clock(registry, chosen), target.info.cost_unit or "units"
    _check_outputs(output, plot)
    compiler = find_compiler(cc)
    compilers = [compiler, *(one for one in available_compilers() if one != compiler and cc is None)]
    _warn_of_load()
    calibration = calibrate(
        target,
        clock,
        registry.measurements(chosen),
        compilers,
        name=_named(output),
        quick=quick,
        progress=lambda what: click.echo(f"measuring {what}", err=True),
    )
    _warn_of_waits(calibration.waited)
    if as_json:
        print_json(_as_dict(calibration, chosen, unit))
    else:
        click.echo(f"{target.label} on {microarchitectures()[0]}, in {unit}, {calibration.seconds:.0f} s")
        _print(calibration.lines)
    if output is not None:
        write_file(output, calibration.profile.text().encode())
    if plot is not None:
        _draw(calibration, plot, unit)


def _only(registry: Registry) -> str:
    """Return the one target that can be measured here. Raises MorelloError if there are none, or several."""
    able = [
        name
        for name in registry.names
        if registry.clock(name) and not missing_features(registry.target(name).info.cpu_features)
    ]
    if len(able) != 1:
        names = ", ".join(able) or "none"
        raise MorelloError(f"targets that can be measured here are {names}", "choose one with --target NAME")
    return able[0]


def _clock(registry: Registry, target: str) -> Clock:
    clock = registry.clock(target)
    if clock is None:
        raise MorelloError(
            f"the cost unit of target {target} has no known duration",
            "its plugin declares no `clock` in its TargetPlugin",
        )
    return clock


def _check_outputs(output: str | None, plot: str | None) -> None:
    """Raise MorelloError if results cannot be written: before the work, so that a mistake costs no time."""
    for path in (output, plot):
        if path is not None:
            check_writable(path, "")
    if plot is not None:
        figures()


def _named(output: str | None) -> str:
    """Return what the profile is called: like its file, or like the CPU."""
    name = re.sub(r"[^\w.-]", "_", Path(output).stem) if output else ""
    return name if name and name != "base" else microarchitectures()[0]


def _warn_of_load() -> None:
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if load > _LOAD:
        click.echo(
            f"warning: the machine is busy: its load is {load:.1f}; what else runs shares caches and clock", err=True
        )


def _warn_of_waits(waited: float) -> None:
    if waited > BUSY:
        click.echo(
            f"warning: the machine is busy: {waited:.0%} of the time another program had the core; "
            "measure again when it is idle",
            err=True,
        )


def _as_dict(calibration: Calibration, target: str, unit: str) -> dict[str, Any]:
    return {
        "target": target,
        "unit": unit,
        "seconds": calibration.seconds,
        "waited": calibration.waited,
        "lines": [{"key": one.key, "old": one.old, "new": one.new, "error": one.error} for one in calibration.lines],
        "levels": [
            {"level": one.level, "hit": one.hit, "miss": one.miss, "points": [list(point) for point in one.points]}
            for one in calibration.levels
        ],
        "profile": calibration.profile.text(),
    }


def _print(lines: Sequence[Line]) -> None:
    columns = [Column("what"), *(Column(heading, number=True) for heading in ("so far", "measured", "error"))]
    errors = ["–" if one.error is None else f"{100 * one.error:.1f} %" for one in lines]
    print_table(columns, [(one.key, one.old, one.new, error) for one, error in zip(lines, errors, strict=True)])


def _draw(calibration: Calibration, path: str, unit: str) -> None:
    """Draw what runs of lines take in each level with the fits, and the costs of tables, so far and measured."""
    figure = figures().Figure(figsize=(11, 5), layout="constrained")
    left, right = figure.subplots(1, 2)
    for level in calibration.levels:
        lines, taken = zip(*level.points, strict=True)
        (drawn,) = left.plot(lines, [level.miss + level.hit * count for count in lines])
        left.plot(
            lines, taken, "o", color=drawn.get_color(), label=f"{level.level}: {level.miss:.0f} + {level.hit:.1f} · n"
        )
    left.set(xscale="log", yscale="log", xlabel="lines of a run (n)", ylabel=f"a run, in {unit}", title="levels")
    left.legend()
    for table in calibration.tables:
        right.plot(table.measurement.totals(table.old), table.measurement.totals(table.rows), ".", label=table.name)
    if calibration.tables:
        right.axline((1, 1), slope=1, color="gray", linewidth=0.5)
        right.legend()
    right.set(xlabel="so far", ylabel="measured", title="tables")
    save(figure, path)
