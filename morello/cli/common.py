"""Options of several commands, and the goals and kernels of a Spec file."""

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
        return self.fail(f"{value!r} is not a size such as 4GiB", param, ctx) if size is None else size


#: Keys of a command's context: details of the search on stderr, its budget, use of programs measured by tuning.
_VERBOSE, _BUDGET, _MEASURED = "morello.verbose", "morello.budget", "morello.api.measured"
_IN_A_HURRY = ("run", "compile", "map", "tune")


def facts_of(goal: Goal) -> dict[str, Any]:
    """Return the JSON facts of a goal: name, target, profile and Spec."""
    return {
        "name": goal.name,
        "target": goal.target.name,
        "profile": goal.target.profile,
        "spec": goal.plain.text(goal.spec.logical),
    }


def print_json(data: Any) -> None:
    """Print data as JSON on standard output."""
    click.echo(json.dumps(data, indent=2, ensure_ascii=False))


profile_option = click.option(
    "--profile",
    metavar="FILE|NAME",
    shell_complete=completion.files,
    help="The costs of a machine: a file of `morello calibrate`, or a name that `morello targets NAME` lists. By "
    "default that in MORELLO_PROFILE, else the one for this CPU.",
)


def memory_option(text: str) -> Callable[[Command], Command]:
    """Return the option that limits the memory of a search, in bytes; `text` is its help."""
    return click.option(
        "--memory",
        metavar="BYTES",
        type=Size(),
        default=lambda: available_memory() // 2,
        help=f"{text}  [default: half of the available memory]",
    )


def _with_budget(command: Command) -> Command:
    """Add the options that end a search before its proof. They become the budget in the context."""

    @click.option(
        "--time-limit",
        metavar="SECONDS",
        type=click.FloatRange(min=0, min_open=True),
        help="End each search after this time, with the best program so far.",
    )
    @click.option(
        "--gap",
        metavar="PERCENT",
        type=click.FloatRange(min=0, min_open=True),
        help="End each search with a program that costs at most PERCENT more than the cheapest.",
    )
    @click.option(
        "--effort",
        metavar="N",
        type=click.IntRange(min=1),
        help="End each search after N expanded Specs, about 50,000 to 200,000 a second; by default "
        f"{api.DEFAULT_EXPANSIONS:,} for {', '.join(_IN_A_HURRY[:-1])} and {_IN_A_HURRY[-1]}. "
        "It gives the same program on every machine.",
    )
    @memory_option("End each search when the process takes this much memory, such as 4GiB, with the best program.")
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
    """Add FILE and the common options; the command is called with `goals` and `db` instead."""
    return _with_goals(command, several_targets=False)


def with_goals_for_targets(command: Command) -> Command:
    """Do the same with any number of targets; `goals` are ordered by target."""
    return _with_goals(command, several_targets=True)


def with_goals_of_files(command: Command) -> Command:
    """Do the same with any number of files; `goals` are in their order."""
    return _with_goals(command, several_targets=False, several_files=True)


def _with_file(target: str, several_targets: bool = False, several_files: bool = False) -> Callable[[Command], Command]:
    """Return a decorator that adds FILE, --spec, --target with the help `target`, and --profile."""

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
        help="Store solved Specs in this file; created if needed. By default that in MORELLO_DB, else one in "
        "the user's cache directory.",
    )
    @click.option("--no-db", is_flag=True, help="Neither use nor store solved Specs, as with MORELLO_DB=off.")
    @_with_budget
    @click.option("-v", "--verbose", is_flag=True, help="Print details of the search on stderr.")
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
    help="C compiler, or `auto` for the installed one with the fastest code, Spec by Spec. By default that in "
    "MORELLO_CC, else clang, gcc or zig.",
)


def _keep_measured(ctx: click.Context, _param: click.Parameter, without: bool) -> None:
    ctx.meta[_MEASURED] = not without


measured_option = click.option(
    "--no-measured",
    is_flag=True,
    expose_value=False,
    callback=_keep_measured,
    help="Find a program by the model, even if `morello tune` measured a fastest one.",
)
seed_option = click.option(
    "--seed", metavar="N", type=click.IntRange(min=0), default=0, help="Seed of the random data.  [default: 0]"
)
threads_option = click.option(
    "--threads",
    metavar="N",
    type=click.IntRange(1, MAX_THREADS),
    help="Threads of parallel loops; by default those in MORELLO_THREADS, else one per CPU.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def _chosen(text: str, file: str, spec: str | None, target: str | None, profile: str | None) -> list[Goal]:
    goals = api.parse(text, target=target, filename=file, profile=profile)
    return list(goals.values()) if spec is None else [named(goals, spec, file)]


def named(goals: Mapping[str, _T], name: str, file: str) -> _T:
    """Return the value of a Spec's name. Raises MorelloError for an unknown name."""
    if name not in goals:
        hint = suggestion(name, goals, f"its Specs are {', '.join(goals)}")
        raise MorelloError(f"{file} has no Spec {quoted(name)}", hint)
    return goals[name]


def _database(path: str | None) -> SpecStore | None:
    """Return the database at `path`, else the default one. Later errors of saving are warnings."""
    if path:
        return closed_at_end(
            SpecStore(path, report=lambda error: click.echo(f"warning: nothing is saved: {error}", err=True))
        )
    store = default_store(lambda error: click.echo(f"warning: going on without a database: {error}", err=True))
    return store and closed_at_end(store)


def closed_at_end(store: SpecStore) -> SpecStore:
    """Return a store that is closed when the command ends."""
    click.get_current_context().call_on_close(store.close)
    return store


@attrs.frozen
class Made:
    """A kernel, and the effort of its search: Specs solved, seconds."""

    kernel: Kernel
    solved: int
    seconds: float

    @property
    def searched(self) -> bool:
        """Return True if the schedule left Specs open."""
        return next(leaves(self.kernel.goal.scheduled), None) is not None

    @property
    def proven(self) -> bool:
        """Return True if the program is proven cheapest among those with the steps of the schedule."""
        return self.kernel.low >= self.kernel.cost

    @property
    def proof(self) -> str:
        """Return the quality of the program in words, and how to improve its proof."""
        if self.proven:
            return self.kernel.proof
        return f"{self.kernel.proof}; {'--no-measured searches' if self.measured else '--prove goes on'}"

    @property
    def measured(self) -> bool:
        """Return True if tuning measured this program to be the fastest."""
        return self.kernel.goal.measured is not None

    @property
    def story(self) -> str:
        """Return the origin of the program in words."""
        if self.measured:
            return "tuned before, nothing to search"
        if not self.searched:
            return "scheduled in full, nothing to search"
        if not self.solved:
            return f"{'solved' if self.proven else 'found'} before, nothing to search"
        return f"searched {self.solved:,} Specs in {self.seconds:.2f} s"


def budget_of(ctx: click.Context) -> SearchBudget:
    """Return the budget of each search of a command."""
    return ctx.meta[_BUDGET]


@contextmanager
def named_after(goal: Goal) -> Generator[None]:
    """Prefix errors of a search with the name of its goal."""
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


def print_sizes(goal: Goal) -> None:
    """Print the sizes of operands that a Spec does not show, such as those of images, if any."""
    if words := goal.spec.logical.implied:
        click.echo(words)


def print_compiler(kernel: Kernel) -> None:
    """With --verbose, print on stderr the compiler of a kernel, and the times of the others."""
    if click.get_current_context().meta.get(_VERBOSE):
        with Spinner(f"choosing a compiler for {kernel.program.name}"):
            compiler, choice = kernel.compiler, kernel.choice
        times = f", chosen from {choice}" if choice and len(choice.times) > 1 else ""
        click.echo(f"{kernel.program.name}: built with {compiler}{times}", err=True)


def _as_file(goal: Goal) -> str:
    """Return a Spec file of the goal and its schedule."""
    declared = Declaration(goal.name, goal.spec, schedule_of(goal.impl), goal.signature)
    return show_file(SpecFile(goal.target, (declared,)))
