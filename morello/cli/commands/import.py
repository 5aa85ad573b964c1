"""start: List the Specs of the ONNX model in MODEL, and write them to a file."""

from __future__ import annotations

from collections.abc import Callable

import click

from morello import models
from morello.atomic_write import check_writable, write_file
from morello.cli.common import PATH
from morello.cli.models import with_model
from morello.report.tables import Column, print_table


@click.command("import")
@with_model
@click.option("-o", "--output", metavar="FILE", type=PATH, help="Write the Specs to this file, to schedule or tune.")
@click.pass_context
def command(ctx: click.Context, planned: Callable[[str | None], models.PlannedModel], output: str | None) -> None:
    """List the distinct Specs of the ONNX model in MODEL.

    Each is one kernel: a step of the model, and how many steps call it. `morello build --schedules FILE` takes the
    programs of Specs that have a schedule in FILE from there.
    """
    if output is not None:
        check_writable(output, ctx.params["model"])
    model = planned(None)
    if len(model.goals) > 1:
        raise click.UsageError("a Spec file is for one target: give --target once", ctx)
    (target,) = model.goals
    if output is not None:
        write_file(output, models.spec_file_of(model, target).encode())
    columns = [Column("kernel"), Column("first layer"), Column("Spec")]
    columns += [Column("calls", number=True), Column("work", number=True)]
    rows = [
        (name, layer, spec, f"{calls}", f"{share:.1%}")
        for name, layer, spec, calls, share in models.rows_of(model, target)
    ]
    print_table(columns, rows)
