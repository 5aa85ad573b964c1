"""start: Compile the Spec in FILE to C."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import attrs
import click
from click.shell_completion import CompletionItem

from morello import api
from morello.atomic_write import check_writable, write_file, write_files
from morello.cli.common import (
    PATH,
    SearchOptions,
    as_group,
    cc_option,
    measured_option,
    with_goals_for_targets,
    with_steps,
)
from morello.cli.kernels import make, print_compiler, searched, searches_option
from morello.errors import MorelloError
from morello.progress import Spinner


def _trees(goals: Sequence[api.Goal]) -> str:
    # Slow to import, and rarely needed here.
    from morello.report.tables import table_text
    from morello.report.tree import program_tree, tree_table
    from morello.report.words import cost_words

    shown = []
    for goal in goals:
        tree = program_tree(goal.impl, goal.target)
        cost = f"{'at least ' if tree.partial else ''}{cost_words(tree.cost, goal.target)}"
        sizes = f"{implied}\n" if (implied := goal.spec.logical.implied) else ""
        shown.append(f"{goal.name} for {goal.target.full_name}: cost {cost}\n{sizes}{table_text(*tree_table(tree))}")
    return "\n".join(shown)


def _schemes(goals: Sequence[api.Goal]) -> str:
    try:
        from morello_bounds.scheme import scheme_text
        from morello_bounds.scheme_steps import scheme_of
    except ModuleNotFoundError:
        raise MorelloError("schemes belong to morello-bounds", "pip install morello-bounds") from None
    texts: list[str] = []
    for goal in goals:
        scheme = scheme_of(goal.impl, goal.target)
        both = (scheme_text(scheme, goal.spec.op, files) for files in (False, True))
        texts.append("".join(f"{one}\n" for one in (f"{goal.name} for {goal.target.full_name}:", *both)))
    return "\n".join(texts)


_TEXTS: dict[str, Callable[[Sequence[api.Goal]], str]] = {
    "c": lambda goals: goals[0].program.source,
    "header": lambda goals: goals[0].program.header,
    "impl": _trees,
    "schedule": lambda goals: api.spec_file(goals),
    "scheme": _schemes,
}
_BUILT = ("o", "a", "so", "s")
#: Outputs of several Specs, libraries, and outputs for several targets.
_FOR_MANY = ("impl", "schedule", "scheme", "header", "library", "o", "a", "so")
_LIBRARIES = ("header", "library", "o", "a", "so")
_FOR_TARGETS = ("schedule", *_LIBRARIES)
_BY_SUFFIX = {"": "c", ".c": "c", ".h": "header", ".spec": "schedule", **{f".{kind}": kind for kind in _BUILT}}


@attrs.frozen
class OutputOptions:
    """Options of the command: a file or the folder of a library, the kind of output, and what to search."""

    output: str | None
    directory: str | None
    emit: str | None
    openmp: bool
    no_search: bool
    jobs: int | None


@click.command("compile")
@with_goals_for_targets
@with_steps
@click.option(
    "-o",
    "--output",
    metavar="OUT",
    type=PATH,
    help="Write to this file instead of standard output.",
)
@click.option(
    "-d",
    "--directory",
    metavar="DIR",
    shell_complete=lambda ctx, param, incomplete: [CompletionItem(incomplete, type="dir")],
    help="Write a library into this directory, which is made if need be.",
)
@click.option(
    "--emit",
    type=click.Choice([*_TEXTS, *_BUILT, "library"]),
    help="C source, its header, the program as a tree, a Spec file with the whole schedule, its loops as "
    "a scheme of TTile; an object, archive, shared "
    "object or assembly; or a library of all Specs: C with one header, CMakeLists.txt and a file for pkg-config."
    "  [default: library with -d, else what OUT ends in says (.c, .h, .spec, .o, .a, .so, .s), else c]",
)
@click.option("--openmp", is_flag=True, help="Build parallel loops with OpenMP in place of threads of their own.")
@click.option(
    "--no-search",
    is_flag=True,
    help="Leave Specs that the schedule leaves to search open: they are holes in the C source and the tree.",
)
@measured_option
@cc_option
@searches_option
@as_group(OutputOptions, "options")
@click.pass_context
def command(ctx: click.Context, goals: Sequence[api.Goal], search: SearchOptions, options: OutputOptions) -> None:
    """Compile the Specs in FILE to C.

    The C is a function that takes pointers to the operands. The printed C is self-contained; with `-o NAME.c` it
    includes its header, NAME.h, in the same folder. Objects, archives and shared objects need a C compiler.
    """
    file, output = ctx.params["file"], None if options.output == "-" else options.output
    directory, name = options.directory, api.library_name(file)
    emit = options.emit or ("library" if directory else _kind(output, ctx))
    _check_places(ctx, emit, output, directory)
    _check_goals(emit, name, goals)
    if options.openmp and emit not in _BUILT:
        raise click.UsageError("--openmp is for files that are built; compile C with -fopenmp", ctx)
    for target in {goal.target for goal in goals} if emit in _BUILT else ():
        api.find_compiler(search.cc, target.info)  # fail before the search
    done = api.named_by_target(goals) if options.no_search else _searched(goals, search, options.jobs)
    if emit in _TEXTS and not (emit == "header" and len(done) > 1):
        _write(output, emit, _TEXTS[emit](done), done)
        return
    kernels = [api.kernel_of(goal, search.cc) for goal in done]
    if directory:
        write_files(
            {Path(directory, path): text.encode() for path, text in api.make_library(name, kernels).files.items()}
        )
    elif emit in _BUILT:
        _build(emit, name, kernels, search, options)
    else:
        _write(output, emit, api.make_library(name, kernels).header, done)


def _searched(goals: Sequence[api.Goal], search: SearchOptions, jobs: int | None) -> list[api.Goal]:
    """Return the goals with their programs."""
    made = [make(goal, search) for goal in searched(api.named_by_target(goals), search, jobs)]
    for goal, one in zip(goals, made, strict=True):
        if not one.cheapest:
            click.echo(f"{goal.name}: {one.proof}", err=True)
    return [one.kernel.goal for one in made]


def _build(kind: str, name: str, kernels: Sequence[api.Kernel], search: SearchOptions, options: OutputOptions) -> None:
    """Write an object, archive, shared object or assembly of one program or a library."""
    if len(kernels) == 1:
        print_compiler(kernels[0], search)
    with Spinner(f"building {kernels[0].program.name if len(kernels) == 1 else name}"):
        write_file(options.output or "", api.build_library(kind, name, kernels, search.cc, options.openmp))


def _kind(output: str | None, ctx: click.Context) -> str:
    """Return the kind of output that a suffix names."""
    suffix = Path(output or "").suffix
    if suffix not in _BY_SUFFIX:
        known = ", ".join(filter(None, _BY_SUFFIX))
        raise click.UsageError(f"-o {output}: unknown suffix {suffix!r}: use {known}, or --emit", ctx)
    return _BY_SUFFIX[suffix]


def _check_places(ctx: click.Context, emit: str, output: str | None, directory: str | None) -> None:
    """Raise an error for outputs that cannot be written."""
    if (emit == "library") != bool(directory):
        raise click.UsageError("--emit library needs -d DIR, and -d DIR is for libraries alone", ctx)
    if directory and output:
        raise click.UsageError("-o and -d exclude each other: a library is more than one file", ctx)
    if emit in _BUILT and output is None:
        raise click.UsageError(f"--emit {emit} needs -o OUT: it is not for reading", ctx)
    if directory:
        if not Path(directory).exists():
            ctx.call_on_close(partial(_remove_if_empty, directory))
        try:
            Path(directory).mkdir(exist_ok=True)
        except OSError as error:
            reason = f"cannot make {directory}: {error.strerror or error}"
            raise MorelloError(reason, "choose another directory") from error
        check_writable(str(Path(directory, "CMakeLists.txt")), ctx.params["file"])
    if output is not None:
        for path in (output, *([_beside(output)] if emit == "c" and _beside(output) else [])):
            check_writable(path, ctx.params["file"])


def _remove_if_empty(directory: str) -> None:
    with suppress(OSError):
        Path(directory).rmdir()


def _check_goals(emit: str, library: str, goals: Sequence[api.Goal]) -> None:
    """Raise MorelloError for more Specs or targets than the output can hold."""
    targets, names = [*{goal.target: None for goal in goals}], [*{goal.name: None for goal in goals}]
    if len(targets) > 1 and emit not in _FOR_TARGETS:
        hint = "choose one, or write a library with -d DIR"
        raise MorelloError(f"there are {len(targets)} targets: {', '.join(one.full_name for one in targets)}", hint)
    if len(names) > 1 and emit not in _FOR_MANY:
        hint = "choose one with --spec NAME, or write a library with -d DIR"
        raise MorelloError(f"the file has {len(names)} Specs: {', '.join(names)}", hint)
    if emit == "library" or (emit in _LIBRARIES and len(goals) > 1):
        if sized := [goal.name for goal in goals if goal.declaration.sizes]:
            raise api.no_sizes(sized[0])
        api.check_names(library, {name: [one.c_name for one in targets] for name in names})


def _write(output: str | None, emit: str, text: str, goals: Sequence[api.Goal]) -> None:
    """Print a text, or write it; C gets its header in the same folder."""
    if output is None:
        click.echo(text.encode(), nl=False)
        return
    files = dict[str | Path, bytes]()
    if header := _beside(output) if emit == "c" else None:
        files[header] = goals[0].program.header.encode()
        text = goals[0].program.including(Path(header).name)
    # Names of files need not be UTF-8.
    write_files({**files, output: text.encode(errors="surrogateescape")})


def _beside(output: str) -> str:
    """Return the path of the header that a C file includes; an empty string for other files."""
    return str(Path(output).with_suffix(".h")) if Path(output).suffix == ".c" else ""
