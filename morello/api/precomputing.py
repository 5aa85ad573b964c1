"""Solve a Spec in many sizes up to a bound, and store the answers in a database."""

from __future__ import annotations

import itertools
import re
import socket
import time
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeAlias

import attrs

from morello import crash
from morello.api.parallel import Workers
from morello.db.answers import AnswerKind
from morello.db.database_cache import DatabaseCache
from morello.db.default import DatabaseLike, database
from morello.db.fingerprint import fingerprint_parts
from morello.db.store import SpecStore
from morello.errors import MorelloError, NotSaved
from morello.frontend.diagnostics import SourceError
from morello.frontend.parser import Family, families, family
from morello.interrupt import completed
from morello.ir.numbers import product
from morello.ir.spec import Spec
from morello.plugins.registry import installed
from morello.progress import Display, kept_in, line, short
from morello.search.budget import MemoryLimitReached, budget_guard
from morello.search.progress import Progress
from morello.search.session import SearchSession
from morello.untrusted import read_file

Shapes: TypeAlias = Sequence[tuple[int, ...]]

#: The most Specs that are solved with the same tables: more save time, and take gigabytes.
_TOGETHER = 512
#: Groups of Specs for each worker, so that all end at about the same time.
_GROUPS_EACH = 4
#: The most combinations of sizes.
_MOST = 1_000_000


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


def parse_sizes(text: str) -> list[int]:
    """Return the sizes that ranges list, such as `8-256/8,1-63/2`: from 8 to 256 in steps of 8, and odd ones."""
    found: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"([1-9][0-9]{0,17})(?:-([1-9][0-9]{0,17})(?:/([1-9][0-9]{0,17}))?)?", part.strip())
        if not match:
            hint = "list sizes from 1 and ranges, such as 1,8-256/8: from 8 to 256 in steps of 8"
            raise MorelloError(f"{part!r} is neither a size nor a range of sizes", hint)
        low, high, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if high < low or (high - low) // step >= _MOST:
            raise MorelloError(f"the range {part} has {'no' if high < low else 'too many'} sizes", "give another one")
        found.update(range(low, high + 1, step))
    return sorted(found)


def shapes_up_to(bounds: Sequence[str], family: Family, sizes: Collection[int] | None = None) -> Shapes:
    """Return the shapes of a family with every size up to a bound, such as 1x64x64, that is among some sizes.

    The bound is the first with a size for each dimension, the sizes are by default powers of two, and the bounds
    themselves. Raises MorelloError for bounds that do not fit, SourceError if the largest shape does not.
    """
    axes = _sizes(bounds, family, sizes)
    family.at([axis[-1] for axis in axes])
    return [*itertools.product(*axes)]


def _sizes(bounds: Sequence[str], family: Family, sizes: Collection[int] | None) -> list[list[int]]:
    """Return the sizes to solve, a list for each dimension."""
    op, rank = family.spec.op, len(family.spec.shape) - family.implicit_dims
    dims = op.dims(len(family.spec.shape))[family.implicit_dims :]
    hint = f"give one size for each of {'×'.join(dims)}, such as {'x'.join(['64'] * rank)}"
    for bound in bounds:
        if not re.fullmatch(r"[0-9]{1,18}([x×][0-9]{1,18})*", bound):
            raise MorelloError(f"the bound {bound} is not a list of sizes", hint)
    bound, count = bounds[0], len(re.split("[x×]", bounds[0]))
    largest = next((found for one in bounds if len(found := [*map(int, re.split("[x×]", one))]) == rank), None)
    if largest is None:
        raise MorelloError(f"the bound {bound} has {count} sizes for the {rank} dimensions of {op}", hint)
    if 0 in largest:
        raise MorelloError(f"the bound {bound} has a size 0: sizes are at least 1", hint)
    axes = [[1]] * family.implicit_dims
    for dim, size in zip(dims, largest, strict=True):
        powers = {*(1 << bit for bit in range(size.bit_length())), size}
        axes.append([one for one in sorted(powers if sizes is None else sizes) if one <= size])
        if not axes[-1]:
            raise MorelloError(
                f"no size is at most {size}, the bound of {dim}", "give a larger bound, or smaller sizes"
            )
    count = product([len(axis) for axis in axes])
    if count > _MOST:
        raise MorelloError(f"the bounds give {count:,} Specs of {op}, more than {_MOST:,}", "give smaller sizes")
    return axes


def precompute(
    shapes: Mapping[Family, Shapes],
    store: SpecStore,
    memory: int | None = None,
    workers: Workers | None = None,
) -> Precomputation:
    """Solve the Specs of families that a database has no answer to, with progress on stderr; return the counts.

    Shapes that do not fit the layouts and vectors of a family are skipped. Without `workers`, this process searches.
    `memory` limits the bytes of each process. Raises MorelloError if answers cannot be stored. Stored answers are
    skipped, so a second call continues an interrupted one.
    """
    with Precomputation(store, workers) as work:
        work.run(shapes, memory)
    return work


@attrs.frozen
class Counts:
    """Numbers of Specs: solved before, solved now, and the latter's without a program; seconds of CPU for them."""

    known: int = 0
    done: int = 0
    impossible: int = 0
    seconds: float = 0.0

    def __add__(self, other: Counts) -> Counts:
        return Counts(*map(sum, zip(attrs.astuple(self), attrs.astuple(other), strict=True)))


def solve_group(
    family: Family,
    shapes: Shapes,
    db: DatabaseLike,
    memory: int | None,
    sources: Mapping[str, str],
    progress: Callable[[Progress], None] | None = None,
) -> Counts:
    """Solve the Specs that a database has no answer to, with the same tables, and store the answers; return counts.

    `sources` are the parts of the target's fingerprint where the family comes from. Raises MorelloError if they differ
    here or answers cannot be stored, and MemoryLimitReached.
    """
    target, began, store = family.target, time.thread_time(), database(db)
    own = fingerprint_parts(target)
    if differ := sorted(part for part in {*own, *sources} if own.get(part) != sources.get(part)):
        words = f"the worker on {socket.gethostname()} has another Morello: {', '.join(differ)} differ"
        raise MorelloError(words, "install the same versions of Morello and its plugins there")
    specs: dict[Spec, None] = {}
    for shape in shapes:
        with suppress(SourceError):
            specs.setdefault(family.at(shape))
    assert store
    store.prepare(target, specs)
    search = SearchSession(target, progress=progress, cache=DatabaseCache(store))

    def solve(specs: Sequence[Spec]) -> None:
        try:
            search.solve_all(specs)
        except MemoryLimitReached as error:
            if len(specs) == 1:
                raise MemoryLimitReached(
                    error.message, "give it more with --memory, or make the sizes smaller"
                ) from error
            middle = len(specs) // 2
            for half in (specs[:middle], specs[middle:]):
                search.reset()
                solve(half)

    todo, impossible = [spec for spec in specs if not store.is_solved(target, spec)], 0
    with warnings.catch_warnings(), budget_guard(memory):
        warnings.simplefilter("error", NotSaved)
        try:
            if todo:
                solve(todo)
            for spec in todo:
                if not store.is_solved(target, spec):
                    # Its program does not fit the target's memory, so it needs a search of its own.
                    (impl,) = search.programs([spec])
                    if impl is not None:
                        store.remember(target, impl)
                found = store.find(target, spec)
                impossible += found is None or found.kind == AnswerKind.NONE
        except NotSaved as error:
            raise MorelloError(str(error), "free some space, or give another file with --db") from error
    return Counts(len(specs) - len(todo), len(todo), impossible, time.thread_time() - began)


class Precomputation(Display):
    """Solves Specs in groups, with a progress display.

    `count` is the number of all Specs, `counts` those so far. `failed` has the largest Spec of each group that was
    given up, with the error: its workers died, or it takes more memory than granted.
    """

    def __init__(self, store: SpecStore, workers: Workers | None = None):
        super().__init__()
        self.store, self.workers = store, workers
        self.count, self.counts = 0, Counts()
        self.failed: list[tuple[Spec, Exception]] = []
        #: The search of this process.
        self._progress = Progress(0, 0.0)

    def run(self, shapes: Mapping[Family, Shapes], memory: int | None = None) -> None:
        """Solve Specs. Raises MorelloError if answers cannot be stored."""
        self.count = sum(map(len, shapes.values()))
        sources = {one.target: fingerprint_parts(one.target) for one in shapes}
        if self.workers is None:
            for one, group in groups(shapes, 1):
                task = partial(solve_group, one, group, self.store, memory, sources[one.target], self._set_progress)
                self._note(one, group, task)
            return
        waiting: dict[Future[Counts], tuple[Family, Shapes]] = {}
        for one, group in groups(shapes, self.workers.count()):
            task = self.workers.submit(solve_group, one, group, self.store.address, memory, sources[one.target])
            waiting[task] = one, group
        for task in completed(waiting):
            self._note(*waiting[task], task.result)

    def _note(self, one: Family, group: Shapes, result: Callable[[], Counts]) -> None:
        try:
            done = result()
        except MemoryLimitReached as error:
            self.failed.append((one.at(group[-1]), error))
        except Exception as error:
            if not (self.workers and isinstance(error, self.workers.died)):
                raise
            self.failed.append((one.at(group[-1]), error))
        else:
            self.count -= len(group) - done.known - done.done
            self.counts += done

    def _set_progress(self, progress: Progress) -> None:
        self._progress = progress

    def describe(self) -> str:
        parts = [f"{short(self._progress.solved)} parts solved"] if self._progress.solved else []
        known, done = self.counts.known, self.counts.done
        if done:
            left = (self.count - known - done) * self.seconds / done
            parts += [f"{_duration(left)} left", f"{done / self.seconds:.3g} Specs/s"]
        if self.workers:
            parts.append(f"{self.workers.count()} workers")
        return line(f"precomputing {known + done:,}", f"of {self.count:,}", self.seconds, parts)

    def summary(self) -> str:
        """Return the counts in one line."""
        none = f" ({self.counts.impossible:,} without a program)" if self.counts.impossible else ""
        return (
            f"{self.store.name}: {self.count:,} Specs, {self.counts.known:,} solved before, {self.counts.done:,} now"
            f"{none}, in {self.seconds:.1f} s, {self.counts.seconds:.1f} s of CPU"
        )

    def interrupted(self, error: KeyboardInterrupt) -> str:
        done = f"{self.counts.known + self.counts.done:,} of {self.count:,} goals are done"
        return f"interrupted: {done}{kept_in(self.store.name, error)}"


def groups(shapes: Mapping[Family, Shapes], workers: int) -> list[tuple[Family, Shapes]]:
    """Return groups of shapes, which share tables, for some workers; those with the largest come first.

    Neighbours are together, first in the last dimension. The last shape of a group is the largest.
    """
    found: list[tuple[Family, Shapes]] = []
    for one, all_shapes in shapes.items():
        most = min(_TOGETHER, -(-len(all_shapes) // (_GROUPS_EACH * workers if workers > 1 else 1)))
        ordered = sorted(all_shapes)
        found += [(one, ordered[start : start + most]) for start in range(0, len(ordered), most)]
    return sorted(found, key=lambda group: product(group[1][-1]), reverse=True)


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
