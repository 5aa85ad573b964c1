"""machine: Measure what this machine costs, and write it to a profile."""

from __future__ import annotations

import os
import re
from pathlib import Path

import click

from morello import api
from morello.atomic_write import check_writable, write_file
from morello.cli.common import PATH, cc_option, complete_targets, json_option, print_json, profile_option
from morello.cli.figures import draw_calibration, figures
from morello.report.tables import Column, print_table

#: The load average above which the machine is considered busy.
_LOAD = 0.7


@click.command("calibrate")
@click.option(
    "--target",
    "name",
    metavar="NAME",
    shell_complete=complete_targets,
    help="The target; needed if there are several.",
)
@click.option(
    "-o",
    "--output",
    metavar="PROFILE.toml",
    type=PATH,
    help="Write the profile to this file.",
)
@click.option("--quick", is_flag=True, help="Take seconds instead of minutes, and tolerate more noise.")
@click.option("--kernels", is_flag=True, help="Time kernels, too; the profile gets the costs of those without one.")
@click.option("--plot", metavar="PNG", type=PATH, help="Draw measurements and fits.")
@profile_option
@cc_option
@json_option
def command(
    name: str | None,
    output: str | None,
    quick: bool,
    kernels: bool,
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

    \b
    With --kernels, the line of a kernel has the costs of one call: so far; measured, of independent calls and, if the
    kernel reads what it writes, in a chain of calls; and their ratios on all Specs that were timed.

    Use the profile with --profile, or in the configuration: see docs/calibration.md. Run nothing else meanwhile.
    """
    for path in filter(None, (output, plot)):
        check_writable(path, "")
    if plot is not None:
        figures()
    _warn_of_load()
    calibration = api.calibrate_target(
        name,
        profile=profile,
        cc=cc,
        profile_name=_profile_name(output),
        quick=quick,
        kernels=kernels,
        progress=lambda what: click.echo(f"measuring {what}", err=True),
    )
    if calibration.busy:
        click.echo(
            f"warning: the machine is busy: {calibration.waited:.0%} of the time another program had the core; "
            "measure again when it is idle",
            err=True,
        )
    if as_json:
        print_json(calibration.as_dict())
    else:
        click.echo(
            f"{calibration.target.label} on {calibration.cpu}, in {calibration.unit}, {calibration.seconds:.0f} s"
        )
        _print(calibration)
    if output is not None:
        write_file(output, calibration.profile.text().encode())
    if plot is not None:
        draw_calibration(calibration, plot)


def _profile_name(output: str | None) -> str:
    """Return the name of a profile in a file; empty without one."""
    return re.sub(r"[^\w.-]", "_", Path(output).stem) if output else ""


def _warn_of_load() -> None:
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if load > _LOAD:
        click.echo(
            f"warning: the machine is busy: its load is {load:.1f}; other programs share caches and clock", err=True
        )


def _print(calibration: api.Calibration) -> None:
    columns = [Column("what"), *(Column(heading, number=True) for heading in ("so far", "measured", "error"))]
    lines = calibration.lines
    errors = ["–" if one.error is None else f"{100 * one.error:.1f} %" for one in lines]
    print_table(columns, [(one.key, one.old, one.new, error) for one, error in zip(lines, errors, strict=True)])
