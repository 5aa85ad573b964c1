"""Kernels of goals, with progress on stderr, and the lines that several commands print about them."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

import attrs
import click
from click.core import ParameterSource

from morello import api, crash
from morello.cli.common import SearchOptions, jobs_option
from morello.errors import MorelloError, NoImplementation, Undecided
from morello.progress import SearchDisplay, Spinner


@attrs.frozen
class SearchedKernel:
    """A kernel, and the effort of its search: Specs solved, seconds."""

    kernel: api.Kernel
    solved: int
    seconds: float

    @property
    def searched(self) -> bool:
        """Return True if the schedule left Specs open."""
        return not self.kernel.goal.is_scheduled

    @property
    def proven(self) -> bool:
        """Return True if the program is proven cheapest among those with the steps of the schedule."""
        return self.kernel.low >= self.kernel.cost

    @property
    def cheapest(self) -> bool:
        """Return True if the program is `proven` without restrictions to some steps."""
        return self.proven and not self.kernel.goal.among

    @property
    def proof(self) -> str:
        """Return the quality of the program in words, and how to improve its proof."""
        return proof_of(self.kernel)

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


def proof_of(kernel: api.Kernel) -> str:
    """Return the quality of a program in words, and how to improve its proof."""
    if kernel.low >= kernel.cost:
        return kernel.proof
    return f"{kernel.proof}; {'--no-measured searches' if kernel.goal.measured else '--prove goes on'}"


@contextmanager
def named_after(goal: api.Goal) -> Generator[None]:
    """Prefix errors of a search with the name of its goal."""
    try:
        yield
    except (NoImplementation, Undecided) as error:
        raise type(error)(f"{goal.name}: {error.message}", error.hint) from error


searches_option = jobs_option("Search for up to N Specs at once, in processes that share the memory of --memory.")


def searched(goals: Sequence[api.Goal], search: SearchOptions, jobs: int | None) -> list[api.Goal]:
    """Return the goals with the programs that up to `jobs` searches at once find; with one job, as they are."""
    if search.measured:
        goals = [api.tuned(goal, search.db, search.cc, search.runner) for goal in goals]
    return searched_at_once(goals, search, jobs)


def searched_at_once(goals: Sequence[api.Goal], search: SearchOptions, jobs: int | None) -> list[api.Goal]:
    """Return what `searched` does, without the programs of `morello tune`."""
    jobs = min(jobs or 1, len(goals))
    return api.synthesize_all(goals, search.db, search.budget, jobs) if jobs > 1 else api.expect(goals, search.db)


def make(goal: api.Goal, search: SearchOptions) -> SearchedKernel:
    """Return the kernel of a goal, with progress on stderr. Raises what `api.compile` raises, naming the goal.

    All searches of a command see the database as it was when the first one began.
    """
    db, before = search.db, goal.searches.solved(search.db)
    if db:
        click.get_current_context().with_resource(db.snapshot())
    with (
        SearchDisplay(goal.name, before, db.name if db else None) as display,
        named_after(goal),
        crash.context(spec=lambda: goal.spec_file, target=goal.target.label),
    ):
        options = {"budget": search.budget, "measured": search.measured}
        kernel = api.compile(goal, db=db or False, cc=search.cc, runner=search.runner, progress=display, **options)
    if search.verbose:
        for line in goal.searches.details(db):
            click.echo(f"{goal.name}: {line}", err=True)
    return SearchedKernel(kernel, goal.searches.solved(db) - before, display.seconds)


def print_sizes(goal: api.Goal) -> None:
    """Print the sizes of operands that a Spec does not show, such as those of images, if any, and those of calls."""
    if words := goal.spec.logical.implied:
        click.echo(words)
    if isinstance(goal, api.SizedGoal):
        click.echo(f"below, {goal.sizes.name} is {goal.sizes.high}")


def print_compiler(kernel: api.Kernel, search: SearchOptions) -> None:
    """With --verbose, print on stderr the compiler of a kernel, and the times of the others."""
    if search.verbose:
        with Spinner(f"choosing a compiler for {kernel.program.name}"):
            compiler, choice = kernel.compiler, kernel.choice
        times = f", chosen from {choice}" if choice and len(choice.times) > 1 else ""
        through = f", run through `{kernel.runner}`" if kernel.runner else ""
        click.echo(f"{kernel.program.name}: built with {compiler}{times}{through}", err=True)


def _required(ctx: click.Context, param: click.Parameter, library: str) -> str:
    """Return the library to compare with; `none` if the default is not installed. Raises MorelloError."""
    try:
        api.require_library(library)
    except MorelloError:
        if ctx.get_parameter_source(param.name or "") is not ParameterSource.DEFAULT:
            raise
        return api.NO_LIBRARY
    return library


against_option = click.option(
    "--against",
    metavar="LIBRARY",
    default="numpy",
    callback=_required,
    help="The library to compare with: numpy (with scipy if installed), torch (with oneDNN on or off, whichever is "
    "faster), onednn (as part of torch), or none.  [default: numpy if morello-baselines is installed]",
)


cold_option = click.option(
    "--cold",
    is_flag=True,
    help="Evict operands from caches before each call: costs of operands in GL are for that. Libraries are not timed.",
)


@attrs.frozen
class TimingOptions:
    """Options of commands that time kernels: seeds of data, threads, the library to compare with, and cold operands."""

    seed: int
    threads: int | None
    against: str
    cold: bool

    def readings(self, kernel: api.Kernel) -> tuple[api.Reading, ...]:
        """Return the metrics of a kernel, if it has any, with progress on stderr."""
        if not kernel.metrics:
            return ()
        with Spinner(f"counting {kernel.goal.name}"):
            return kernel.readings(self.seed)

    def speed(self, kernel: api.Kernel, min_time: float = 0.3) -> api.Speed:
        """Time a kernel and the library, with progress on stderr."""
        with Spinner(f"timing {kernel.goal.name}"):
            return api.measure_speed(kernel, self.against, min_time, self.seed, self.threads, cold=self.cold)


def warn_if_busy(speed: api.Speed) -> None:
    """Warn on stderr if other programs disturbed a measurement."""
    if busy := "; ".join(speed.report.busy):
        click.echo(f"warning: the machine is busy: {busy}; time again when it is idle", err=True)
