"""Solve a Spec in all sizes up to a bound, and store the answers in a database."""

from __future__ import annotations

import itertools
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from morello import crash
from morello.db.answers import AnswerKind
from morello.db.database_cache import DatabaseCache
from morello.db.store import SpecStore
from morello.errors import MorelloError, NotSaved
from morello.frontend.diagnostics import SourceError
from morello.frontend.parser import Family, families, family
from morello.ir.numbers import product
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.plugins.registry import installed
from morello.progress import Display, kept_in, line, short
from morello.search.budget import MemoryLimitReached, budget_guard
from morello.search.progress import Progress
from morello.search.session import SearchSession
from morello.untrusted import read_file

#: Specs that are solved together.
_BATCH = 64
#: The most combinations of sizes.
_MOST = 100_000


def is_spec(source: str) -> bool:
    """Return whether a text is a Spec, and no path of a file."""
    return "(" in source and not Path(source).exists()


def parse_families(
    source: str, target: str | None = None, profile: str | None = None, cpu: str | None = None
) -> dict[str, Family]:
    """Return the families of Specs in a file, or of one Spec, by name. Raises MorelloError.

    `source` is the path of a Spec file, or the text of a Spec, which needs a `target`.
    """
    if not is_spec(source):
        text = read_file(source)
        with crash.context(file=text):
            found = families(text, filename=source, target=target, profile=profile, cpu=cpu)
            return {one.name: one for one in found}
    if target is None:
        known = ", ".join(installed().names) or "none"
        raise MorelloError("a Spec needs a target", f"give --target NAME; installed are {known}")
    one = family(source, installed().target(target, profile, cpu), "SPEC")
    return {one.name: one}


def specs_up_to(bound: str, family: Family) -> list[Spec]:
    """Return the Specs of a family with every size a power of two up to the bound, such as 1x64x64, or the bound.

    Shapes that do not fit the layouts and vectors of the family are skipped. Raises MorelloError for a bound that does
    not fit the family, SourceError if the largest shape does not.
    """
    sizes = _sizes(bound, family)
    found = [family.at([axis[-1] for axis in sizes])]
    for shape in itertools.product(*sizes):
        try:
            found.append(family.at(shape))
        except SourceError:
            continue
    return list(dict.fromkeys(found))


def _sizes(bound: str, family: Family) -> list[list[int]]:
    """Return the sizes to solve, a list for each dimension."""
    op, rank = family.spec.op, len(family.spec.shape) - family.implicit_dims
    dims = op.dims(len(family.spec.shape))[family.implicit_dims :]
    hint = f"give one size for each of {'×'.join(dims)}, such as {'x'.join(['64'] * rank)}"
    if not re.fullmatch(r"[0-9]{1,18}([x×][0-9]{1,18})*", bound):
        raise MorelloError(f"the bound {bound} is not a list of sizes", hint)
    largest = [int(size) for size in re.split("[x×]", bound)]
    if len(largest) != rank:
        raise MorelloError(f"the bound {bound} has {len(largest)} sizes for the {rank} dimensions of {op}", hint)
    if 0 in largest:
        raise MorelloError(f"the bound {bound} has a size 0: sizes are at least 1", hint)
    largest = [1] * family.implicit_dims + largest
    sizes = [sorted({*(1 << bit for bit in range(size.bit_length())), size}) for size in largest]
    count = product([len(axis) for axis in sizes])
    if count > _MOST:
        raise MorelloError(f"the bound {bound} gives {count:,} Specs, more than {_MOST:,}", "give smaller sizes")
    return sizes


def precompute(target: Target, specs: Iterable[Spec], store: SpecStore, memory: int | None = None) -> Precomputation:
    """Solve the Specs that a database has no answer to, with progress on stderr; return the counts.

    `memory` limits the bytes of the process. Raises MemoryLimitReached, and MorelloError if answers cannot be stored.
    Stored answers are skipped, so a second call continues an interrupted one.
    """
    with Precomputation(target, store) as work, budget_guard(memory):
        work.run([*specs])
    return work


class Precomputation(Display):
    """Solves Specs in batches, with a progress display.

    Counts: `count` Specs in all, `known` before, `done` now, and `impossible` ones among these, which have no program.
    """

    def __init__(self, target: Target, store: SpecStore):
        super().__init__()
        self.store = store
        self.target = target
        self.search = SearchSession(target, progress=self._set_progress, cache=DatabaseCache(store))
        self.count = self.known = self.done = self.impossible = 0
        self._progress = Progress(0, 0.0)
        #: The time when the first batch was done, and its Specs.
        self._first: tuple[float, int] | None = None

    def run(self, specs: Sequence[Spec]) -> None:
        """Solve Specs. Raises MorelloError if answers cannot be stored."""
        self.store.prepare(self.target, specs)
        todo = [spec for spec in specs if not self._answered(spec)]
        self.count, self.known = len(specs), len(specs) - len(todo)
        with warnings.catch_warnings():
            warnings.simplefilter("error", NotSaved)
            try:
                for batch in batches(todo):
                    self._solve(batch)
            except NotSaved as error:
                raise MorelloError(str(error), "free some space, or give another file with --db") from error

    def _answered(self, spec: Spec) -> bool:
        found = self.store.find(self.target, spec)
        if found is None or found.kind == AnswerKind.LOWER:
            return False
        return found.kind == AnswerKind.NONE or self.store.program(self.target, spec) is not None

    def _solve(self, batch: Sequence[Spec]) -> None:
        before = self.search.solved
        try:
            self.search.solve_all(batch)
        except MemoryLimitReached as error:
            if not before:
                raise MemoryLimitReached(
                    error.message, "give it more with --memory, or make the sizes smaller"
                ) from error
            # Earlier batches filled the memory.
            self.search.reset()
            self.search.solve_all(batch)
        for spec in batch:
            if not self._answered(spec):
                # Its program does not fit the target's memory, so it needs a search of its own.
                (impl,) = self.search.programs([spec])
                if impl is not None:
                    self.store.remember(self.target, impl)
            found = self.store.find(self.target, spec)
            self.impossible += found is None or found.kind == AnswerKind.NONE
        self.done += len(batch)
        self._first = self._first or (self.seconds, self.done)

    def _set_progress(self, progress: Progress) -> None:
        self._progress = progress

    def describe(self) -> str:
        parts: list[str] = []
        # The first batch has the largest sizes, and solves most of the Specs below the others.
        if self._first and self.done > self._first[1]:
            pace = (self.seconds - self._first[0]) / (self.done - self._first[1])
            parts.append(f"about {_duration(pace * (self.count - self.known - self.done))} left")
        if self._progress.solved:
            parts.append(f"{short(self._progress.solved)} Specs")
        return line("precomputing", f"{self.known + self.done:,} of {self.count:,}", self.seconds, parts)

    def summary(self) -> str:
        """Return the counts in one line."""
        none = f" ({self.impossible:,} without a program)" if self.impossible else ""
        return (
            f"{self.store.name}: {self.count:,} Specs, {self.known:,} solved before, "
            f"{self.done:,} now{none}, in {self.seconds:.1f} s"
        )

    def interrupted(self, error: KeyboardInterrupt) -> str:
        done = f"{self.known + self.done:,} of {self.count:,} goals are done"
        return f"interrupted: {done}{kept_in(self.store.name, error)}"


def batches(specs: Sequence[Spec]) -> Iterator[list[Spec]]:
    """Yield batches of Specs by volume, after one of the largest: those of each kind of operands, and along each axis.

    The search for the largest ones solves most of the others.
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
