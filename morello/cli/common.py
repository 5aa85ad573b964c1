"""Options that commands share, the Spec file, and kernels of its goals."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import attrs
import click

from morello import api, crash
from morello.api.goals import Goal
from morello.api.kernel import Kernel
from morello.build.cache import parse_size
from morello.cli import completion
from morello.codegen.threads import MAX_THREADS
from morello.db.default import default_store
from morello.db.store import SpecStore
from morello.errors import MorelloError, NoImplementation, Undecided, suggestion
from morello.frontend.diagnostics import quoted, read_file
from morello.frontend.specfile import Declaration, SpecFile, show_file
from morello.ir.impl import leaves
from morello.progress import SearchDisplay, Spinner
from morello.schedule import schedule_of
from morello.search.budget import SearchBudget, available_memory

Command = Callable[..., None]
_T = TypeVar("_T")


class Size(click.ParamType):
    """A number of bytes, such as 4GiB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        size = value if isinstance(value, int) else parse_size(value)
        return self.fail(f"{value!r} is no size, such as 4GiB", param, ctx) if size is None else size


#: Under which a command's context keeps whether to tell how the search went, its budget, and whether
#: programs that were measured are used.
_VERBOSE, _BUDGET, _MEASURED = "morello.verbose", "morello.budget", "morello.api.measured"
_IN_A_HURRY = ("run", "compile", "map", "tune")


def facts_of(goal: Goal) -> dict[str, Any]:
    """Return what JSON says of a goal: its name, target, profile and Spec."""
    return {
        "name": goal.name,
        "target": goal.target.name,
        "profile": goal.target.profile,
        "spec": goal.plain.text(goal.spec.logical),
    }


def print_json(data: Any) -> None:
    """Data for programs, on standard output."""
    click.echo(json.dumps(data, indent=2, ensure_ascii=False))


profile_option = click.option(
    "--profile",
    metavar="FILE|NAME",
    shell_complete=completion.files,
    help="What a machine costs: a file of `morello calibrate`, or a name that `morello targets NAME` lists. By default "
    "that in MORELLO_PROFILE, else the one for this CPU.",
)


def memory_option(what: str) -> Callable[[Command], Command]:
    """Return the option that says how much memory a search may take, in bytes."""
    return click.option(
        "--memory",
        metavar="BYTES",
        type=Size(),
        default=lambda: available_memory() // 2,
        help=f"{what}  [default: half of what is available_memory]",
    )


def _with_budget(command: Command) -> Command:
    """Add the options that end a search before its proof; the context holds what they say."""

    @click.option(
        "--time-limit",
        metavar="SECONDS",
        type=click.FloatRange(min=0, min_open=True),
        help="End each search after so long, with the best program so far.",
    )
    @click.option(
        "--gap",
        metavar="PERCENT",
        type=click.FloatRange(min=0, min_open=True),
        help="End each search with a program that costs at most so much more than the cheapest.",
    )
    @click.option(
        "--effort",
        metavar="N",
        type=click.IntRange(min=1),
        help="End each search when N Specs are taken apart, about 50,000 to 200,000 a second; by default "
        f"{api.DEFAULT_EXPANSIONS:,} for {', '.join(_IN_A_HURRY[:-1])} and {_IN_A_HURRY[-1]}. "
        "It gives the same program on every machine.",
    )
    @memory_option("End each search when the process takes so much memory, such as 4GiB, with the best program so far.")
    @click.option("--prove", is_flag=True, help="End each search with the proof that its program is the cheapest.")
    @functools.wraps(command)
    def wrapped(
        time_limit: float | None,
        gap: float | None,
        effort: int | None,
        memory: int,
        prove: bool,
        **options: Any,
    ) -> None:
        if prove and (time_limit or gap or effort):
            raise click.UsageError("--prove and limits of the search exclude each other")
        if not (prove or time_limit or gap or effort) and click.get_current_context().command.name in _IN_A_HURRY:
            effort = api.DEFAULT_EXPANSIONS
        click.get_current_context().meta[_BUDGET] = SearchBudget(time_limit, (gap or 0) / 100, effort, memory)
        command(**options)

    return wrapped


def with_goals(command: Command) -> Command:
    """Add FILE and the options that all take; the command is called with `goals` and `db` instead."""
    return _with_goals(command, several_targets=False)


def with_goals_for_targets(command: Command) -> Command:
    """Do the same with any number of targets: `goals` are those for the first, then those for the second, and so on."""
    return _with_goals(command, several_targets=True)


def with_goals_of_files(command: Command) -> Command:
    """Do the same with any number of files, whose goals come one after another."""
    return _with_goals(command, several_targets=False, several_files=True)


def _with_file(target: str, several_targets: bool = False, several_files: bool = False) -> Callable[[Command], Command]:
    """Return what adds FILE and the options that say which of its Specs are meant, for which `target`, in words."""

    def add(command: Command) -> Command:
        @click.argument(
            "file",
            metavar="FILE..." if several_files else "FILE",
            nargs=-1 if several_files else 1,
            required=True,
            shell_complete=completion.files,
        )
        @click.option("--spec", metavar="NAME", help="Only the Spec of this name.")
        @click.option(
            "--target", metavar="NAME", multiple=several_targets, shell_complete=completion.targets, help=target
        )
        @profile_option
        @functools.wraps(command)
        def wrapped(**options: Any) -> None:
            command(**options)

        return wrapped

    return add


def _with_goals(command: Command, several_targets: bool, several_files: bool = False) -> Command:
    more = "  Several make a library whose functions choose among them when they run." if several_targets else ""

    @_with_file(f"Compile for this target instead of the one that FILE names.{more}", several_targets, several_files)
    @click.option(
        "--db",
        metavar="PATH",
        shell_complete=completion.files,
        help="Keep solved Specs in this file; made if it does not exist. By default that in MORELLO_DB, else one in "
        "the user's cache directory.",
    )
    @click.option("--no-db", is_flag=True, help="Neither use nor keep solved Specs, as with MORELLO_DB=off.")
    @_with_budget
    @click.option("-v", "--verbose", is_flag=True, help="Tell on stderr how the search went.")
    @functools.wraps(command)
    def wrapped(
        file: str | tuple[str, ...],
        spec: str | None,
        target: str | tuple[str, ...] | None,
        profile: str | None,
        db: str | None,
        no_db: bool,
        verbose: bool,
        **options: Any,
    ) -> None:
        if db and no_db:
            raise click.UsageError("--db and --no-db exclude each other")
        targets = (target or (None,)) if isinstance(target, tuple) else (target,)
        if len({*targets}) < len(targets):
            raise click.UsageError(f"--target {' --target '.join(map(str, targets))}: name each once")
        click.get_current_context().meta[_VERBOSE] = verbose
        texts = {one: read_file(one) for one in ([file] if isinstance(file, str) else file)}
        with crash.context(file="\n".join(texts.values())):
            goals = [
                goal
                for each in targets
                for one, text in texts.items()
                for goal in _chosen(text, one, spec, each, profile)
            ]
            command(goals=goals, db=None if no_db else _database(db), **options)

    return wrapped


cc_option = click.option(
    "--cc",
    metavar="COMMAND",
    help="C compiler, or `auto` for the one of those there are whose code runs fastest, Spec by Spec. By default that "
    "in MORELLO_CC, else clang, gcc or zig.",
)


def _keep_measured(ctx: click.Context, _param: click.Parameter, without: bool) -> None:
    ctx.meta[_MEASURED] = not without


measured_option = click.option(
    "--no-measured",
    is_flag=True,
    expose_value=False,
    callback=_keep_measured,
    help="Find a program by the model, also where `morello tune` measured one to be the fastest.",
)
seed_option = click.option(
    "--seed", metavar="N", type=click.IntRange(min=0), default=0, help="Seed of the random data.  [default: 0]"
)
threads_option = click.option(
    "--threads",
    metavar="N",
    type=click.IntRange(1, MAX_THREADS),
    help="Threads to time parallel loops with; by default those in MORELLO_THREADS, else one per CPU.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def _chosen(text: str, file: str, spec: str | None, target: str | None, profile: str | None) -> list[Goal]:
    goals = api.parse(text, target=target, filename=file, profile=profile)
    return list(goals.values()) if spec is None else [named(goals, spec, file)]


def named(goals: Mapping[str, _T], name: str, file: str) -> _T:
    """Return what a file has under the name of a Spec. Raises MorelloError if there is no such Spec."""
    if name not in goals:
        hint = suggestion(name, goals, f"its Specs are {', '.join(goals)}")
        raise MorelloError(f"{file} has no Spec {quoted(name)}", hint)
    return goals[name]


def _database(path: str | None) -> SpecStore | None:
    """Return the database asked for, or the user's own. What cannot be saved later is only told of."""
    if path:
        return closed_at_end(
            SpecStore(path, report=lambda error: click.echo(f"warning: nothing is saved: {error}", err=True))
        )
    store = default_store(lambda error: click.echo(f"warning: going on without a database: {error}", err=True))
    return store and closed_at_end(store)


def closed_at_end(store: SpecStore) -> SpecStore:
    """Return a store that is closed when the command ends, which leaves one file of the database's three."""
    click.get_current_context().call_on_close(store.close)
    return store


@attrs.frozen
class Made:
    """A kernel, and how much of it had to be searched for: Specs solved, seconds."""

    kernel: Kernel
    solved: int
    seconds: float

    @property
    def searched(self) -> bool:
        """Return True if the schedule left Specs open."""
        return next(leaves(self.kernel.goal.scheduled), None) is not None

    @property
    def proven(self) -> bool:
        """Return True if no program costs less, of all that take the steps of the schedule."""
        return self.kernel.low >= self.kernel.cost

    @property
    def proof(self) -> str:
        """Return in words how good the program is, and how to know more."""
        if self.proven:
            return self.kernel.proof
        return f"{self.kernel.proof}; {'--no-measured searches' if self.measured else '--prove goes on'}"

    @property
    def measured(self) -> bool:
        """Return True if it is the program that tuning measured to be the fastest."""
        return self.kernel.goal.measured is not None

    @property
    def story(self) -> str:
        """Return in words where the program comes from."""
        if self.measured:
            return "tuned before, nothing to search"
        if not self.searched:
            return "scheduled in full, nothing to search"
        if not self.solved:
            return f"{'solved' if self.proven else 'found'} before, nothing to search"
        return f"searched {self.solved:,} Specs in {self.seconds:.2f} s"


def budget_of(ctx: click.Context) -> SearchBudget:
    """Return the budget that a command's options grant each search."""
    return ctx.meta[_BUDGET]


@contextmanager
def named_after(goal: Goal) -> Generator[None]:
    """Let errors of a search name their goal."""
    try:
        yield
    except (NoImplementation, Undecided) as error:
        raise type(error)(f"{goal.name}: {error.message}", error.hint) from error


def make(goal: Goal, db: SpecStore | None, cc: str | None = None) -> Made:
    """Return the kernel of a goal, with progress on stderr. Raises what `api.compile` raises, naming the goal."""
    before = goal.searches.solved(db)
    with (
        SearchDisplay(goal.name, before, db.path if db else None) as display,
        named_after(goal),
        crash.context(spec=lambda: _as_file(goal), target=goal.target.label),
    ):
        budget = budget_of(click.get_current_context())
        measured = click.get_current_context().meta.get(_MEASURED, False)
        kernel = api.compile(goal, db=db or False, cc=cc, progress=display, budget=budget, measured=measured)
    if click.get_current_context().meta.get(_VERBOSE):
        for line in goal.searches.of(db).details():
            click.echo(f"{goal.name}: {line}", err=True)
    return Made(kernel, goal.searches.solved(db) - before, display.seconds)


def tell_sizes(goal: Goal) -> None:
    """Print the sizes of operands that one does not see in a Spec, if there are any: those of images."""
    if words := goal.spec.logical.implied:
        click.echo(words)


def tell_compiler(kernel: Kernel) -> None:
    """Say on stderr which compiler builds a kernel, and what others take, if that is wanted."""
    if click.get_current_context().meta.get(_VERBOSE):
        with Spinner(f"choosing a compiler for {kernel.program.name}"):
            compiler, choice = kernel.compiler, kernel.choice
        times = f", chosen from {choice}" if choice and len(choice.times) > 1 else ""
        click.echo(f"{kernel.program.name}: built with {compiler}{times}", err=True)


def _as_file(goal: Goal) -> str:
    """Return a Spec file with the goal alone, as far as it is scheduled."""
    declared = Declaration(goal.name, goal.spec, schedule_of(goal.impl), goal.signature)
    return show_file(SpecFile(goal.target, (declared,)))
