"""Options of several commands, and the goals that they choose."""

from __future__ import annotations

import functools
import importlib.metadata
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import attrs
import click
from click.shell_completion import CompletionItem

from morello import api, crash, models
from morello.errors import MorelloError, UnknownName, suggestion
from morello.frontend.diagnostics import quoted
from morello.untrusted import read_file

Command = Callable[..., None]
_T = TypeVar("_T")

#: A path, which the shell completes.
PATH = click.Path(readable=False)


class Size(click.ParamType):
    """A number of bytes, such as 4GiB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        size = value if isinstance(value, int) else api.parse_size(value)
        return self.fail(f"{value!r} is not a size such as 4GiB", param, ctx) if size is None else size


class FiniteRange(click.FloatRange):
    """A finite number in a range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = super().convert(value, param, ctx)
        return number if math.isfinite(number) else self.fail(f"{value!r} is not a finite number", param, ctx)


def complete_targets(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the names of plugins, which equal those of their targets; loading plugins is slow."""
    names = {entry.name for entry in importlib.metadata.entry_points(group="morello")}
    return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]


def as_group(group: type, name: str) -> Callable[[Command], Command]:
    """Return a decorator: the options that are fields of a frozen class are passed as one object called `name`."""
    fields = [field.name for field in attrs.fields(group)]

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def wrapped(**options: Any) -> None:
            own = {field: options.pop(field) for field in fields}
            command(**options, **{name: group(**own)})

        return wrapped

    return decorate


def with_options(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Return the decorator that adds options in this order."""
    return lambda command: functools.reduce(lambda made, add: add(made), reversed(options), command)


def print_json(data: Any) -> None:
    """Print data as JSON on standard output."""
    click.echo(json.dumps(data, indent=2, ensure_ascii=False))


profile_option = click.option(
    "--profile",
    metavar="FILE|NAME",
    type=PATH,
    help="The costs of a machine: a file of `morello calibrate`, or a name that `morello targets NAME` lists. By "
    "default that in MORELLO_PROFILE, else the one for this CPU.",
)
cpu_option = click.option(
    "--cpu",
    metavar="NAME|+FEATURE,...",
    help="Optional CPU features that programs may use: those of this machine (native), of a CPU that archspec names, "
    "such as zen4, or these. By default those written after the target's name, as in x86_avx2+avx_vnni.",
)
prove_option = click.option(
    "--prove", is_flag=True, help="End each search with the proof that its program is the cheapest."
)


def memory_option(text: str, most: int | None = None) -> Callable[[Command], Command]:
    """Return the option that limits the memory of a search, in bytes, by default to `most`; `text` is its help."""
    limit = "" if most is None else f", at most {most >> 30}GiB"
    return click.option(
        "--memory",
        metavar="BYTES",
        type=Size(),
        default=lambda: min(api.available_memory() // 2, most or sys.maxsize),
        help=f"{text}  [default: half of the available memory{limit}]",
    )


def jobs_option(text: str) -> Callable[[Command], Command]:
    """Return the option for the number of searches at once; `text` is its help."""
    return click.option("--jobs", metavar="N", type=click.IntRange(min=1), help=f"{text}  [default: 1]")


@attrs.frozen
class DatabaseOptions:
    """The options that choose a database."""

    db: str | None
    no_db: bool

    def __attrs_post_init__(self) -> None:
        if self.db and self.no_db:
            raise click.UsageError("--db and --no-db exclude each other")

    def opened(self) -> api.SpecStore | None:
        """Return the database, which is closed when the command ends, if there is one."""
        store = None if self.no_db else api.open_store(self.db) if self.db else api.database(None)
        return store and closed_at_end(store)


database_options = with_options(
    click.option(
        "--db",
        metavar="PATH",
        type=PATH,
        help="Store solved Specs in this file, created if needed, or on the server at this address. By default that in "
        "MORELLO_DB, else a file in the user's cache directory.",
    ),
    click.option("--no-db", is_flag=True, help="Neither use nor store solved Specs, as with MORELLO_DB=off."),
    as_group(DatabaseOptions, "database"),
)


@attrs.frozen
class SearchOptions:
    """Options of commands that search: the database, the budget of each search, and the C compiler `cc`.

    If `verbose`, details are printed on stderr. If `measured`, programs of `morello tune` replace searches. `runner` is
    the command that runs programs elsewhere.
    """

    db: api.SpecStore | None
    budget: api.SearchBudget
    verbose: bool = False
    measured: bool = False
    cc: str | None = None
    runner: str | None = None

    def check_tools(self, goals: Sequence[api.Goal]) -> None:
        """Raise ToolchainError without a C compiler and a way to run programs, before a search."""
        api.reference_target()
        for target in {goal.target for goal in goals}:
            api.require_runner(target.info, self.runner)
            api.find_compiler(self.cc, target.info)


@attrs.frozen
class _BudgetOptions:
    """The options that end a search before its proof."""

    time_limit: float | None
    gap: float | None
    effort: int | None
    memory: int
    prove: bool

    def budget(self) -> api.SearchBudget:
        """Return the budget, without limits the default one."""
        limited = self.time_limit or self.gap or self.effort
        if self.prove and limited:
            raise click.UsageError("--prove and limits of the search exclude each other")
        if not (self.prove or limited):
            return api.SearchBudget.default(self.memory)
        return api.SearchBudget(self.time_limit, (self.gap or 0) / 100, self.effort, self.memory)


@attrs.frozen
class _FileOptions:
    """The options that choose goals. Several files or targets are tuples."""

    file: str | tuple[str, ...]
    spec: str | None
    target: str | tuple[str, ...] | None
    profile: str | None
    cpu: str | None

    def texts(self) -> dict[str, str]:
        """Return the files' texts by path."""
        return {one: read_file(one) for one in ([self.file] if isinstance(self.file, str) else self.file)}

    def model(self, dims: Mapping[str, int]) -> models.PlannedModel | None:
        """Return the model in the file, or None for a file of Specs."""
        if isinstance(self.file, str) and self.file.endswith(".onnx"):
            targets = models.targets_of([self.target] if isinstance(self.target, str) else [], self.profile, self.cpu)
            return models.PlannedModel.of(models.from_onnx(self.file, dims), targets)
        if dims:
            raise click.UsageError("--dim is for models in ONNX, files that end in .onnx")
        return None

    def chosen(self, model: models.PlannedModel) -> list[api.Goal]:
        """Return the goals of a model."""
        goals = {goal.name: goal for found in model.goals.values() for goal in found.values()}
        return [*goals.values()] if self.spec is None else [named(goals, self.spec, str(self.file))]

    def goals(self, texts: Mapping[str, str]) -> list[api.Goal]:
        """Return the goals, ordered by target, then by file."""
        targets = (self.target or (None,)) if isinstance(self.target, tuple) else (self.target,)
        if len({*targets}) < len(targets):
            raise click.UsageError(f"--target {' --target '.join(map(str, targets))}: name each once")
        found: list[api.Goal] = []
        for target in targets:
            for file, text in texts.items():
                goals = api.parse(text, target=target, filename=file, profile=self.profile, cpu=self.cpu)
                found += goals.values() if self.spec is None else [named(goals, self.spec, file)]
        return found


def _dims(ctx: click.Context, param: click.Parameter, texts: Sequence[str]) -> dict[str, int]:
    """Return the sizes of named dimensions."""
    found: dict[str, int] = {}
    for text in texts:
        name, _, size = text.rpartition("=")
        if not (name and size.isdecimal()):
            raise click.BadParameter(f"{text!r} is not a name and a size such as batch=1", ctx, param)
        if name in found:
            raise click.BadParameter(f"{name} has two sizes, {found[name]} and {int(size)}", ctx, param)
        found[name] = int(size)
    return found


dims_option = click.option(
    "--dim",
    "dims",
    metavar="NAME=N",
    multiple=True,
    callback=_dims,
    help="The size of a named dimension of a model in ONNX.",
)

model_threads_option = click.option(
    "--threads",
    metavar="N",
    type=click.IntRange(1, api.MAX_THREADS),
    default=1,
    help="Let N threads share the loops of a model where this is faster by its costs; its function then takes their "
    "number.  [default: 1]",
)

#: The options that limit a search, as the argument `limits`.
_budget_options = with_options(
    click.option(
        "--time-limit",
        metavar="SECONDS",
        type=FiniteRange(min=0, min_open=True),
        help="End each search after this time, with the best program so far.",
    ),
    click.option(
        "--gap",
        metavar="PERCENT",
        type=FiniteRange(min=0, min_open=True),
        help="End each search with a program that costs at most PERCENT more than the cheapest.",
    ),
    click.option(
        "--effort",
        metavar="N",
        type=click.IntRange(min=1),
        help="End each search after N expanded Specs, about 50,000 to 200,000 a second; by default "
        f"{api.DEFAULT_EXPANSIONS:,}, unless the database has a program. It gives the same program on every machine.",
    ),
    memory_option("End each search when the process takes this much memory, such as 4GiB, with the best program."),
    prove_option,
    as_group(_BudgetOptions, "limits"),
)


def with_goals(
    command: Command,
    several_targets: bool = False,
    several_files: bool = False,
    sizes: bool = False,
    takes_models: bool = False,
) -> Command:
    """Add FILE and the common options; the command is called with `goals` and `search`, its SearchOptions.

    With `takes_models`, FILE may be a model, with its kernels as goals: the command is called with `model`, or None.
    Without `sizes`, goals with a size that is known at run time are an error.
    The options --no-measured, --cc and --runner of the command become part of `search`.
    """
    more = "  Several make a library whose functions choose among them when they run." if several_targets else ""

    @click.argument(
        "file",
        metavar="FILE..." if several_files else "FILE",
        nargs=-1 if several_files else 1,
        required=True,
        type=PATH,
    )
    @click.option("--spec", metavar="NAME", help="Only the Spec of this name.")
    @click.option(
        "--target",
        metavar="NAME",
        multiple=several_targets,
        shell_complete=complete_targets,
        help=f"Compile for this target instead of the one that FILE names.{more}",
    )
    @profile_option
    @cpu_option
    @database_options
    @_budget_options
    @click.option("-v", "--verbose", is_flag=True, help="Print details of the search on stderr.")
    @as_group(_FileOptions, "files")
    @functools.wraps(command)
    def wrapped(
        files: _FileOptions, limits: _BudgetOptions, database: DatabaseOptions, verbose: bool, **options: Any
    ) -> None:
        budget = limits.budget()
        model = files.model(options.pop("dims")) if takes_models else None
        texts = {} if model else files.texts()
        with crash.context(file="\n".join(texts.values())):
            goals = files.goals(texts) if model is None else files.chosen(model)
            for goal in goals:
                if isinstance(goal, api.SizedGoal) and not sizes:
                    rule = f"{goal.name}: {goal.sizes.name} is known at run time alone, and this command needs a number"
                    raise MorelloError(rule, f"write one in place of {goal.sizes.name}")
            measured = not options.pop("no_measured", True)
            tools = {name: options.pop(name, None) for name in ("cc", "runner")}
            search = SearchOptions(database.opened(), budget, verbose, measured, **tools)
            api.prepare(goals, search.db)
            command(goals=goals, search=search, **options, **({"model": model} if takes_models else {}))

    return dims_option(wrapped) if takes_models else wrapped


with_goals_of_sizes = functools.partial(with_goals, sizes=True)
with_goals_of_models = functools.partial(with_goals, sizes=True, takes_models=True)
with_goals_for_targets = functools.partial(with_goals, several_targets=True, sizes=True)
with_goals_of_files = functools.partial(with_goals, several_files=True)


def _names(ctx: click.Context, param: click.Parameter, text: str | None) -> tuple[str, ...]:
    """Return the names that commas separate."""
    return () if text is None else tuple(name.strip() for name in text.split(","))


def with_steps(command: Command) -> Command:
    """Add options for the steps that search may take to a command of `with_goals`, below that decorator."""

    @click.option(
        "--using",
        metavar="NAME,...",
        callback=_names,
        help="Search with these microkernels only for their operations, and with no other rewrites if some are named.",
    )
    @click.option("--without", metavar="NAME,...", callback=_names, help="Search without these kernels and rewrites.")
    @click.option(
        "--layouts",
        type=click.Choice(["offered", "all"]),
        default="offered",
        help="The layouts of new buffers that search tries; all are too many for large Specs.",
    )
    @functools.wraps(command)
    def wrapped(
        goals: Sequence[api.Goal],
        using: tuple[str, ...],
        without: tuple[str, ...],
        layouts: api.Layouts,
        **options: Any,
    ) -> None:
        command(goals=[goal.allowing(using, without, layouts) for goal in goals], **options)

    return wrapped


cc_option = click.option(
    "--cc",
    metavar="COMMAND",
    help="C compiler, or `auto` for the installed one with the fastest code, Spec by Spec. By default that in "
    "MORELLO_CC, else clang, gcc or zig.",
)
runner_option = click.option(
    "--runner",
    metavar="COMMAND",
    help="Run programs through this command, such as `qemu-aarch64 -cpu max`, `ssh HOST` or `adb shell`. By default "
    "that in MORELLO_RUNNER, else the target's on machines of another architecture.",
)
measured_option = click.option(
    "--no-measured", is_flag=True, help="Find a program by the model, even if `morello tune` measured a fastest one."
)
seed_option = click.option(
    "--seed", metavar="N", type=click.IntRange(min=0), default=0, help="Seed of the random data.  [default: 0]"
)
threads_option = click.option(
    "--threads",
    metavar="N",
    type=click.IntRange(1, api.MAX_THREADS),
    help="Threads of parallel loops; by default those in MORELLO_THREADS, else one per CPU.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def named(goals: Mapping[str, _T], name: str, file: str) -> _T:
    """Return the value of a Spec's name. Raises UnknownName."""
    if name not in goals:
        hint = suggestion(name, goals, f"its Specs are {', '.join(goals)}")
        raise UnknownName(f"{file} has no Spec {quoted(name)}", hint)
    return goals[name]


def closed_at_end(store: api.SpecStore) -> api.SpecStore:
    """Return a store that is closed when the command ends."""
    click.get_current_context().call_on_close(store.close)
    return store
