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

#: The load average above which the machine is considered busy.
_LOAD = 0.7


@click.command("calibrate")
@click.option(
    "--target",
    "name",
    metavar="NAME",
    shell_complete=completion.targets,
    help="The target; needed if there are several.",
)
@click.option(
    "-o",
    "--output",
    metavar="PROFILE.toml",
    shell_complete=completion.files,
    help="Write the profile to this file.",
)
@click.option("--quick", is_flag=True, help="Take seconds instead of minutes, and tolerate more noise.")
@click.option("--plot", metavar="PNG", shell_complete=completion.files, help="Draw measurements and fits.")
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

    Small programs measure the cost of a line in each level, of starting threads, and of kernels. The table shows the
    target's current costs and the measured ones.

    \b
    error   mean deviation from the fit, or between the last two measurements
    × 1.10  costs of a table, 1.1 times as high in the median; in brackets the middle nine tenths

    Use the profile with --profile, or in the configuration: see docs/calibration.md. Run nothing else meanwhile.
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
        registry.contributions(chosen).measurements,
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
    """Return the only target that this machine can measure. Raises MorelloError if there is not exactly one."""
    able = [
        name
        for name in registry.names
        if registry.contributions(name).clock and not missing_features(registry.target(name).info.cpu_features)
    ]
    if len(able) != 1:
        names = ", ".join(able) or "none"
        raise MorelloError(f"targets that can be measured here are {names}", "choose one with --target NAME")
    return able[0]


def _clock(registry: Registry, target: str) -> Clock:
    clock = registry.contributions(target).clock
    if clock is None:
        raise MorelloError(
            f"the cost unit of target {target} has no known duration",
            "its plugin declares no `clock` in its TargetPlugin",
        )
    return clock


def _check_outputs(output: str | None, plot: str | None) -> None:
    """Raise MorelloError before the work if results cannot be written."""
    for path in (output, plot):
        if path is not None:
            check_writable(path, "")
    if plot is not None:
        figures()


def _named(output: str | None) -> str:
    """Return the name of the profile: that of its file, else of the CPU."""
    name = re.sub(r"[^\w.-]", "_", Path(output).stem) if output else ""
    return name if name and name != "base" else microarchitectures()[0]


def _warn_of_load() -> None:
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if load > _LOAD:
        click.echo(
            f"warning: the machine is busy: its load is {load:.1f}; other programs share caches and clock", err=True
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
    """Draw times of runs of lines in each level with the fits, and the costs of tables, current and measured."""
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
