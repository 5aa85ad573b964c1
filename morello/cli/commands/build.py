"""start: Compile the ONNX model in MODEL to a folder of C."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import attrs
import click
from click.shell_completion import CompletionItem

from morello import models
from morello.atomic_write import check_folder, write_files
from morello.cli.common import PATH, as_group, model_threads_option
from morello.cli.models import ModelSearch, with_model, with_model_search
from morello.untrusted import read_file


@attrs.frozen
class BuildOptions:
    """Options of the command: folder, the model's name in C, weights in C, schedules, layouts, threads."""

    directory: str
    name: str | None
    embed_weights: bool
    schedules: str | None
    layouts: str
    threads: int


@click.command("build")
@with_model
@click.option(
    "-d",
    "--directory",
    metavar="DIR",
    required=True,
    shell_complete=lambda ctx, param, incomplete: [CompletionItem(incomplete, type="dir")],
    help="Write the files into this directory, which is made if need be.",
)
@click.option("--name", metavar="NAME", help="The name in C, with which all names begin.  [default: the file's]")
@click.option("--embed-weights", is_flag=True, help="Write the weights as C in place of a file that callers read.")
@click.option(
    "--schedules",
    metavar="FILE",
    type=PATH,
    help="Take the programs of kernels from the schedules of this file, which `morello import` began.",
)
@click.option(
    "--layouts",
    type=click.Choice(["nhwc", "exact"]),
    default="nhwc",
    show_default=True,
    help="The layouts of images between kernels: channels last, or those under which all kernels and conversions cost "
    "least, which takes several times as many searches.",
)
@model_threads_option
@with_model_search
@as_group(BuildOptions, "options")
def command(planned: Callable[..., models.PlannedModel], search: ModelSearch, options: BuildOptions) -> None:
    """Compile the ONNX model in MODEL to a folder of C.

    The folder has a function that runs the model, its header, the weights, an example that calls it, and files for
    CMake and pkg-config. The function allocates no memory and may be called from several threads.
    """
    check_folder(options.directory)
    model = planned(options.name, options.layouts)
    if options.schedules:
        model = model.scheduled(read_file(options.schedules), options.schedules)
    model = search.solved(model)
    program = model.program(search.cc, embed=options.embed_weights, threads=options.threads)
    files = models.files_of(program)
    Path(options.directory).mkdir(exist_ok=True)
    write_files({Path(options.directory, name): data for name, data in files.items()})
    click.echo(program.summary)
    if model.report:
        click.echo(model.report)
