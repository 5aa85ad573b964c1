"""upkeep: Fill a database: solve the Specs of FILE, or a family of them."""

from __future__ import annotations

import itertools
import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from morello import crash
from morello.cli import completion
from morello.cli.common import closed_at_end, memory_option, named, profile_option
from morello.db.answers import AnswerKind
from morello.db.database_cache import DatabaseCache
from morello.db.default import default_path
from morello.db.store import SpecStore
from morello.errors import MorelloError, NotSaved
from morello.frontend.diagnostics import SourceError, read_file
from morello.frontend.parser import Family, families, family
from morello.ir.numbers import product
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.paths import make_private
from morello.plugins.registry import installed
from morello.progress import Display, kept_in, line, short
from morello.search.budget import MemoryLimitReached, budget_guard
from morello.search.progress import Progress
from morello.search.session import SearchSession

#: Specs that are solved together; what they have in common is looked at once.
_BATCH = 64
#: More combinations of sizes than this are taken for a mistake.
_MOST = 100_000


@click.command("precompute")
@click.argument("what", metavar="FILE|SPEC", shell_complete=completion.files)
@click.option(
    "--up-to",
    "bound",
    metavar="SIZES",
    required=True,
    help="The largest sizes, such as 1x512x512x512: one a dimension.",
)
@click.option("--spec", "name", metavar="NAME", help="Only the Spec of this name.")
@click.option(
    "--target",
    metavar="NAME",
    shell_complete=completion.targets,
    help="Solve for this target; needed where FILE does not name one.",
)
@profile_option
@click.option(
    "--db",
    "path",
    metavar="PATH",
    shell_complete=completion.files,
    help="Keep solved Specs in this file instead of the default database.",
)
@memory_option("End when the process takes so much memory, such as 4GiB; what was solved by then is kept.")
def command(
    what: str, bound: str, name: str | None, target: str | None, profile: str | None, path: str | None, memory: int
) -> None:
    """Fill a database: solve the Specs of FILE, or a SPEC such as "Matmul(1x1x1x1, GL, GL, GL)", in many sizes.

    Of every dimension these are the powers of two up to its bound, and the bound itself; all combinations are solved.
    The sizes in FILE and its schedules do not matter, all else of its Specs does. Every Spec solved compiles without
    a search from then on.

    What is in the database is not solved again: after Ctrl-C, the same command goes on.
    """
    found = _families(what, target, profile, name)
    specs = list(dict.fromkeys(itertools.chain.from_iterable(_specs(one, _sizes(bound, one)) for one in found)))
    store = closed_at_end(SpecStore(_path(path)))
    with _Filling(found[0].target, store) as filling, budget_guard(memory):
        filling.fill(specs)
    click.echo(filling.verdict())


def _families(what: str, target: str | None, profile: str | None, name: str | None) -> list[Family]:
    if "(" not in what or Path(what).exists():
        text = read_file(what)
        with crash.context(file=text):
            found = families(text, filename=what, target=target, profile=profile)
        return found if name is None else [named({one.name: one for one in found}, name, what)]
    if name is not None:
        raise click.UsageError("--spec chooses a Spec of a FILE, and this is a Spec")
    if target is None:
        known = ", ".join(installed().names) or "none"
        raise MorelloError("a Spec needs a target", f"give --target NAME; installed are {known}")
    return [family(what, installed().target(target, profile), "SPEC")]


def _path(given: str | None) -> Path:
    path = Path(given) if given else default_path()
    if path is None:
        raise MorelloError("there is no database to fill: the default one is switched off", "give one with --db PATH")
    if given is None:
        make_private(path.parent)
    return path


def _sizes(bound: str, family: Family) -> list[list[int]]:
    """Per dimension of a Spec, the sizes to solve. Raises MorelloError for a bound that does not fit the Spec."""
    op, rank = family.spec.op, len(family.spec.shape) - family.implicit_dims
    dims = op.dims(len(family.spec.shape))[family.implicit_dims :]
    hint = f"give one size for each of {'×'.join(dims)}, such as {'x'.join(['64'] * rank)}"
    if not re.fullmatch(r"[0-9]{1,18}([x×][0-9]{1,18})*", bound):
        raise MorelloError(f"--up-to {bound}: these are no sizes", hint)
    largest = [int(size) for size in re.split("[x×]", bound)]
    if len(largest) != rank:
        raise MorelloError(f"--up-to {bound}: {len(largest)} sizes for the {rank} dimensions of {op}", hint)
    if 0 in largest:
        raise MorelloError(f"--up-to {bound}: sizes are at least 1", hint)
    largest = [1] * family.implicit_dims + largest
    sizes = [sorted({*(1 << bit for bit in range(size.bit_length())), size}) for size in largest]
    count = product([len(axis) for axis in sizes])
    if count > _MOST:
        raise MorelloError(f"--up-to {bound}: these are {count:,} Specs, more than {_MOST:,}", "give smaller sizes")
    return sizes


def _specs(family: Family, sizes: Sequence[Sequence[int]]) -> Iterator[Spec]:
    """Yield the Specs of these sizes. Where layouts or vectors do not fit small sizes, there is none.

    Raises SourceError if there is none of the largest sizes.
    """
    yield family.at([axis[-1] for axis in sizes])
    for shape in itertools.product(*sizes):
        try:
            yield family.at(shape)
        except SourceError:
            continue


class _Filling(Display):
    """Solves Specs that a database has no answer to, in batches, and shows how it comes along."""

    def __init__(self, target: Target, store: SpecStore):
        super().__init__()
        self.store = store
        self.target = target
        self.search = SearchSession(target, progress=self._heard, cache=DatabaseCache(store))
        self.count = self.known = self.done = self.impossible = 0
        self._progress = Progress(0, 0.0)
        #: When the first batch was done, and how many Specs there were in it.
        self._first: tuple[float, int] | None = None

    def fill(self, specs: Sequence[Spec]) -> None:
        """Solve Specs. Raises MorelloError where that cannot be stored."""
        self.count = len(specs)
        todo = [spec for spec in specs if not self._is_known(spec)]
        with warnings.catch_warnings():
            warnings.simplefilter("error", NotSaved)
            try:
                for batch in batches(todo):
                    self._solve(batch)
            except NotSaved as error:
                raise MorelloError(str(error), "free some space, or give another file with --db") from error

    def _is_known(self, spec: Spec) -> bool:
        known = self._answered(spec)
        self.known += known
        return known

    def _answered(self, spec: Spec) -> bool:
        entry = self.store.find(self.target, spec)
        if entry is None or entry.kind == AnswerKind.LOWER:
            return False
        return entry.kind == AnswerKind.NONE or self.store.program(self.target, spec) is not None

    def _solve(self, batch: Sequence[Spec]) -> None:
        self._settle(batch)
        for spec in batch:
            if not self._answered(spec):
                # Its program does not fit the target's memory, so that it took a search of its own.
                (impl,) = self.search.programs([spec])
                if impl is None:
                    self.impossible += 1
                else:
                    self.store.remember(self.target, impl)
        self.done += len(batch)
        self._first = self._first or (self.seconds, self.done)

    def _settle(self, batch: Sequence[Spec]) -> None:
        """Solve Specs; what others left in memory makes room for them."""
        before = self.search.solved
        try:
            self.search.solve_all(batch)
        except MemoryLimitReached as error:
            if not before:
                raise MemoryLimitReached(
                    error.message, "give it more with --memory, or make the sizes smaller"
                ) from error
            self.search.reset()
            self.search.solve_all(batch)

    def _heard(self, progress: Progress) -> None:
        self._progress = progress

    def describe(self) -> str:
        parts: list[str] = []
        # The first batch has the largest sizes, and most of what the others need: it says nothing of their times.
        if self._first and self.done > self._first[1]:
            pace = (self.seconds - self._first[0]) / (self.done - self._first[1])
            parts.append(f"about {_duration(pace * (self.count - self.known - self.done))} left")
        if self._progress.solved:
            parts.append(f"{short(self._progress.solved)} Specs")
        return line("precomputing", f"{self.known + self.done:,} of {self.count:,}", self.seconds, parts)

    def verdict(self) -> str:
        """Return in words what was done."""
        none = f", of which {self.impossible:,} have no program" if self.impossible else ""
        return (
            f"{self.store.path}: {self.count:,} Specs, {self.known:,} solved before, "
            f"{self.done:,} now{none}, in {self.seconds:.1f} s"
        )

    def interrupted(self, error: KeyboardInterrupt) -> str:
        done = f"{self.known + self.done:,} of {self.count:,} goals are done"
        return f"interrupted: {done}{kept_in(self.store.path, error)}"


def batches(specs: Sequence[Spec]) -> Iterator[list[Spec]]:
    """Yield Specs by volume, after some that are the largest in every way: below these, search meets all others.

    That is, of their operand states, or along one of their dimensions.
    """
    ordered = sorted(specs, key=lambda spec: (product(spec.shape), spec.shape))
    largest: dict[object, Spec] = {}
    for spec in ordered:
        largest[spec.logical.states] = spec
        for axis, size in enumerate(spec.shape):
            best = largest.setdefault((spec.op, len(spec.shape), axis), spec)
            if size >= best.shape[axis]:
                largest[spec.op, len(spec.shape), axis] = spec
    first = set(largest.values())
    if first:
        yield [spec for spec in reversed(ordered) if spec in first]
    rest = [spec for spec in ordered if spec not in first]
    yield from (rest[start : start + _BATCH] for start in range(0, len(rest), _BATCH))


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
