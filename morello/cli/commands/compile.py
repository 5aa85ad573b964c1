"""start: Compile the Spec in FILE to C."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import click

from morello.api.goals import Goal
from morello.api.kernel import Kernel
from morello.api.parallel import synthesize_all
from morello.build.toolchain import find_compiler
from morello.cli import completion
from morello.cli.common import Made, budget_of, cc_option, make, measured_option, with_goals_for_targets
from morello.cli.library import built, library_name, library_of, make_directory, renamed, write_library
from morello.cli.output import check_writable, write_file
from morello.codegen.library import check_names
from morello.db.store import SpecStore
from morello.errors import MorelloError
from morello.frontend.specfile import Declaration, SpecFile, show_file
from morello.schedule import schedule_of


def _source(programs: Sequence[Made]) -> bytes:
    return programs[0].kernel.source.encode()


def _header(programs: Sequence[Made]) -> bytes:
    return programs[0].kernel.header.encode()


def _trees(programs: Sequence[Made]) -> bytes:
    # Not before: what draws them takes long to import.
    from morello.report.tables import table_text
    from morello.report.tree import program_tree, tree_table
    from morello.report.words import cost_words

    shown = []
    for kernel in (one.kernel for one in programs):
        tree = table_text(*tree_table(program_tree(kernel.impl, kernel.target)))
        cost = cost_words(kernel.cost, kernel.target)
        implied = kernel.spec.logical.implied
        sizes = f"; {implied}" if implied else ""
        shown.append(f"{kernel.program.name} for {kernel.target.name}: cost {cost}{sizes}\n{tree}")
    return "\n".join(shown).encode()


def _schedules(programs: Sequence[Made]) -> bytes:
    by_target: dict[str, list[Kernel]] = {}
    for one in programs:
        by_target.setdefault(one.kernel.target.name, []).append(one.kernel)
    files: list[SpecFile] = []
    for name, kernels in by_target.items():
        # Programs for several targets end in the target's name: see `renamed`.
        end = f"_{name}" if len(by_target) > 1 else ""
        goals = [
            Declaration(each.program.name.removesuffix(end), each.spec, schedule_of(each.impl), each.program.signature)
            for each in kernels
        ]
        files.append(SpecFile(kernels[0].target, tuple(goals)))
    return show_file(*files).encode()


_TEXTS: dict[str, Callable[[Sequence[Made]], bytes]] = {
    "c": _source,
    "header": _header,
    "impl": _trees,
    "schedule": _schedules,
}
_BUILT = ("o", "a", "so", "s")
#: What can hold several Specs, and what a program for each of several targets.
_FOR_MANY = ("impl", "schedule", "header", "library", "o", "a", "so")
_LIBRARIES = ("header", "library", "o", "a", "so")
_FOR_TARGETS = ("schedule", *_LIBRARIES)
_BY_SUFFIX = {".c": "c", ".h": "header", ".spec": "schedule", **{f".{kind}": kind for kind in _BUILT}}


@click.command("compile")
@with_goals_for_targets
@click.option(
    "-o",
    "--output",
    metavar="OUT",
    shell_complete=completion.files,
    help="Write to this file instead of standard output.",
)
@click.option(
    "-d",
    "--directory",
    metavar="DIR",
    shell_complete=completion.folders,
    help="Write a library into this directory, which is made if need be.",
)
@click.option(
    "--emit",
    type=click.Choice([*_TEXTS, *_BUILT, "library"]),
    help="C source, its header, the program as a tree, a Spec file with the whole schedule; an object, archive, shared "
    "object or assembly; or a library of all Specs: C with one header, CMakeLists.txt and a file for pkg-config."
    "  [default: library with -d, else what OUT ends in says (.c, .h, .spec, .o, .a, .so, .s), else c]",
)
@measured_option
@cc_option
@click.option(
    "--jobs",
    metavar="N",
    type=click.IntRange(min=1),
    default=1,
    help="Search for up to N Specs at once, in processes that share the memory that --memory grants.  [default: 1]",
)
@click.pass_context
def command(
    ctx: click.Context,
    goals: Sequence[Goal],
    db: SpecStore | None,
    output: str | None,
    directory: str | None,
    emit: str | None,
    cc: str | None,
    jobs: int,
) -> None:
    """Compile the Specs in FILE to C.

    The C is a function that takes pointers to the operands. The printed C is self-contained; with `-o NAME.c` it
    includes its header, NAME.h, in the same folder. Objects, archives and shared objects need a C compiler.
    """
    file, output = ctx.params["file"], None if output == "-" else output
    emit = emit or ("library" if directory else _BY_SUFFIX.get(Path(output or "").suffix, "c"))
    _check_places(ctx, emit, output, directory)
    _check_goals(emit, file, goals)
    if emit in _BUILT:
        find_compiler(cc)  # fail before the search
    made = [make(goal, db, cc) for goal in synthesize_all(renamed(goals), db, budget_of(ctx), jobs)]
    for goal, one in zip(goals, made, strict=True):
        if not one.proven:
            click.echo(f"{goal.name}: {one.proof}", err=True)
    if directory:
        write_library(directory, library_of(file, goals, made))
    elif emit in _BUILT:
        write_file(output or "", built(emit, file, goals, made, cc))
    else:
        many = emit == "header" and len(made) > 1
        _write(output, emit, library_of(file, goals, made).header.encode() if many else _TEXTS[emit](made), made)


def _check_places(ctx: click.Context, emit: str, output: str | None, directory: str | None) -> None:
    """Refuse what cannot be written where it is to be."""
    if (emit == "library") != bool(directory):
        raise click.UsageError("--emit library needs -d DIR, and -d DIR is for libraries alone", ctx)
    if directory and output:
        raise click.UsageError("-o and -d exclude each other: a library is more than one file", ctx)
    if emit in _BUILT and output is None:
        raise click.UsageError(f"--emit {emit} needs -o OUT: it is not for reading", ctx)
    if directory:
        make_directory(directory, ctx.params["file"])
    if output is not None:
        for path in (output, *([_beside(output)] if emit == "c" and _beside(output) else [])):
            check_writable(path, ctx.params["file"])


def _check_goals(emit: str, file: str, goals: Sequence[Goal]) -> None:
    """Refuse more Specs and targets than the output can hold."""
    targets, names = [*{goal.target.name: None for goal in goals}], [*{goal.name: None for goal in goals}]
    if len(targets) > 1 and emit not in _FOR_TARGETS:
        hint = "choose one, or write a library with -d DIR"
        raise MorelloError(f"there are {len(targets)} targets: {', '.join(targets)}", hint)
    if len(names) > 1 and emit not in _FOR_MANY:
        hint = "choose one with --spec NAME, or write a library with -d DIR"
        raise MorelloError(f"the file has {len(names)} Specs: {', '.join(names)}", hint)
    if emit == "library" or (emit in _LIBRARIES and len(goals) > 1):
        check_names(library_name(file), dict.fromkeys(names, targets))


def _write(output: str | None, emit: str, data: bytes, made: Sequence[Made]) -> None:
    """Print a text, or write it; C gets its header in the same folder."""
    if output is None:
        click.echo(data, nl=False)
        return
    header = _beside(output) if emit == "c" else None
    if header:
        write_file(header, _header(made))
        data = made[0].kernel.program.including(Path(header).name).encode()
    write_file(output, data)


def _beside(output: str) -> str:
    """Return the path of the header that a file of C includes; empty for what goes elsewhere than into such a file."""
    return str(Path(output).with_suffix(".h")) if Path(output).suffix == ".c" else ""
