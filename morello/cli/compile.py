"""`morello compile`: C, header, program tree, schedule or shared object."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import click

from morello.cli.common import Made, cc_option, make, tell_compiler, with_goals
from morello.cli.output import check_writable, write_file
from morello.db.store import SpecStore
from morello.errors import MorelloError
from morello.frontend.printer import show_file
from morello.frontend.specfile import Declaration, SpecFile
from morello.goals import Goal
from morello.progress import Doing
from morello.runtime.toolchain import find_compiler
from morello.schedule import schedule_of
from morello.tree import program_tree, rendered, tree_table


def _source(programs: Sequence[Made]) -> bytes:
    return programs[0].kernel.source.encode()


def _header(programs: Sequence[Made]) -> bytes:
    return programs[0].kernel.header.encode()


def _library(programs: Sequence[Made]) -> bytes:
    tell_compiler(programs[0].kernel)
    with Doing(f"building {programs[0].kernel.program.name}"):
        return programs[0].kernel.library.read_bytes()


def _trees(programs: Sequence[Made]) -> bytes:
    shown = []
    for kernel in (one.kernel for one in programs):
        tree = rendered(tree_table(program_tree(kernel.impl, kernel.target)), plain=True)
        shown.append(f"{kernel.program.name} for {kernel.target.name}: cost {kernel.cost:,}\n{tree}")
    return "\n".join(shown).encode()


def _schedules(programs: Sequence[Made]) -> bytes:
    kernels = [one.kernel for one in programs]
    goals = [Declaration(each.program.name, each.spec, schedule_of(each.impl)) for each in kernels]
    return show_file(SpecFile(kernels[0].target, tuple(goals))).encode()


_EMITTERS: dict[str, Callable[[Sequence[Made]], bytes]] = {
    "c": _source,
    "header": _header,
    "impl": _trees,
    "schedule": _schedules,
    "so": _library,
}
#: What can show several Specs.
_FOR_MANY = ("impl", "schedule")
_BY_SUFFIX = {".c": "c", ".h": "header", ".spec": "schedule", ".so": "so"}


@click.command("compile")
@with_goals
@click.option("-o", "--output", metavar="OUT", help="Write to this file instead of standard output.")
@click.option(
    "--emit",
    type=click.Choice(list(_EMITTERS)),
    help="C source, its header, the program as a tree, a Spec file with the whole schedule, or a shared object."
    "  [default: what OUT ends in says (.c, .h, .so, .spec), else c]",
)
@cc_option
@click.pass_context
def command(
    ctx: click.Context,
    goals: Sequence[Goal],
    db: SpecStore | None,
    output: str | None,
    emit: str | None,
    cc: str | None,
) -> None:
    """Compile the Spec in FILE to C.

    The C is self-contained: a function that takes pointers to the operands. Only `--emit so` needs a C compiler.
    """
    output = None if output == "-" else output
    emit = emit or _BY_SUFFIX.get(Path(output or "").suffix, "c")
    if output is not None:
        check_writable(output, ctx.params["file"])
    elif emit == "so":
        raise click.UsageError("--emit so needs -o OUT: a shared object is not for reading", ctx)
    if len(goals) > 1 and emit not in _FOR_MANY:
        names = ", ".join(goal.name for goal in goals)
        raise MorelloError(f"the file has {len(goals)} Specs: {names}", "choose one with --spec NAME")
    if emit == "so":
        find_compiler(cc)  # before the search, so that a mistake costs no time
    made = [make(goal, db, cc) for goal in goals]
    for goal, one in zip(goals, made, strict=True):
        if one.low < one.kernel.cost:
            click.echo(f"{goal.name}: {one.proof}", err=True)
    data = _EMITTERS[emit](made)
    if output is None:
        click.echo(data, nl=False)
    else:
        write_file(output, data)
