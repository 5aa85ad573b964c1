"""Compare the programs of mappers with search's program and with bounds: the facts that `morello map` shows."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from morello.api.goals import Goal
from morello.api.kernel import Kernel
from morello.errors import MorelloError, PluginError, Undecided
from morello.progress import Spinner
from morello_bounds.certificate import Cut, certificate, cuts_of
from morello_bounds.hooks import Mapper
from morello_bounds.mappers.mapped import Completion, MappedProgram

SEARCH = "search"


@attrs.frozen
class MapOptions:
    """The options of a comparison. Mappers that are `fresh` share no searches.

    Programs are `timed` or not, and if `cold`, with operands in memory.
    """

    objective: str = "cost"
    seed: int = 0
    compiler: str | None = None
    runner: str | None = None
    fresh: bool = False
    timed: bool = False
    cold: bool = False


@attrs.frozen
class MapperResult:
    """The best program of a mapper or of search, or its `fault`, after `found_in` seconds of CPU time."""

    name: str
    found_in: float
    program: MappedProgram | None = None
    fault: MorelloError | None = None

    @property
    def cost(self) -> int | None:
        return self.program and self.program.cost

    @property
    def seconds(self) -> float | None:
        return self.program and self.program.seconds


@attrs.frozen
class MapperComparison:
    """The results of mappers for a Spec, the one of search, and the certified lower bound on cost, if there is one."""

    goal: Goal
    cuts: tuple[Cut, ...]
    mappers: tuple[MapperResult, ...]
    search: MapperResult
    #: The kernel of search.
    kernel: Kernel | None
    bound: int | None

    @property
    def results(self) -> tuple[MapperResult, ...]:
        return (*self.mappers, self.search)

    @property
    def least(self) -> dict[str, int]:
        """Return the lower bound on the bytes moved across each boundary, by its name."""
        return {cut.between(self.goal.target): cut.traffic.bytes for cut in self.cuts}

    @property
    def low(self) -> int:
        """Return the lower bound on cost that search has proven."""
        return self.kernel.low if self.kernel else 1

    @property
    def proven(self) -> bool:
        """Return True if search's program is proven cheapest."""
        return self.kernel is not None and self.low >= self.kernel.cost

    def of_bound(self, one: MapperResult) -> float | None:
        """Return the cost of a program divided by the bound."""
        return ratio(one.cost, self.bound)

    def of_search(self, one: MapperResult) -> float | None:
        """Return the cost of a program divided by that of search's program."""
        return ratio(one.cost, self.search.cost)

    def time_of_search(self, one: MapperResult) -> float | None:
        """Return the time of a program divided by that of search's program."""
        return ratio(one.seconds, self.search.seconds)

    def as_json(self) -> dict[str, Any]:
        return {
            "bound": {"cost": self.bound, "bytes": self.least},
            "low": self.low,
            "proven": self.proven,
            "programs": [self._as_json(one) for one in self.results],
        }

    def _as_json(self, one: MapperResult) -> dict[str, Any]:
        refused = one.program.refused if one.program else ()
        return {
            "mapper": one.name,
            "schedule": one.program and one.program.text.splitlines(),
            "refused": [{"statement": statement, "why": reason} for statement, reason in refused],
            "cost": one.cost,
            "bytes": one.program and dict(zip(self.least, one.program.moved, strict=True)),
            "of_bound": self.of_bound(one),
            "of_search": self.of_search(one),
            "seconds": one.seconds,
            "seconds_of_search": self.time_of_search(one),
            "found_in": one.found_in,
            "fault": one.fault and one.fault.message,
        }


def ratio(one: float | None, other: float | None) -> float | None:
    """Return a quotient; None without both numbers, and for a divisor of 0."""
    return one / other if one is not None and other else None


def compare(
    goal: Goal, mappers: Sequence[Mapper], search: Callable[[Goal], Kernel], options: MapOptions
) -> MapperComparison:
    """Run mappers on a goal, then `search`, such as `morello.compile`.

    Raises MorelloError if no mapper has a program, unless they are fresh, and PluginError for a mapper that is broken.
    """
    cuts = cuts_of(goal.spec, goal.target)
    completion = _completion(goal, cuts, options)
    results: list[MapperResult] = []
    for mapper in mappers:
        if options.fresh:
            completion = _completion(goal, cuts, options)
        results.append(_mapped(mapper, completion, options))
    if not options.fresh and all(one.fault for one in results) and (fault := results[0].fault):
        raise MorelloError(f"{goal.name}, {results[0].name}: {fault.message}", fault.hint) from fault
    kernel, start = None, time.process_time()
    try:
        kernel = search(goal)
        found = MapperResult(SEARCH, time.process_time() - start, MappedProgram.of(kernel.goal, cuts))
    except Undecided as error:
        found = MapperResult(SEARCH, time.process_time() - start, fault=error)
    if options.timed:
        with Spinner(f"timing {goal.name}"):
            *results, found = [_timed(one, options) for one in (*results, found)]
    try:
        bound = certificate(goal.spec, goal.target).cost
    except MorelloError:
        bound = None
    return MapperComparison(goal, cuts, tuple(results), found, kernel, bound)


def _completion(goal: Goal, cuts: Sequence[Cut], options: MapOptions) -> Completion:
    return Completion(goal, cuts, compiler=options.compiler, runner=options.runner, cold=options.cold)


def _mapped(mapper: Mapper, completion: Completion, options: MapOptions) -> MapperResult:
    """Return the best program of a mapper, or its fault. Raises PluginError for a mapper that is broken."""
    program, fault, start = None, None, time.process_time()
    with Spinner(f"mapping {completion.goal.name} by {mapper.name}"):
        try:
            program = completion.best(mapper, options.seed, options.objective)
        except PluginError:
            raise
        except MorelloError as error:
            fault = error
    return MapperResult(mapper.name, time.process_time() - start, program, fault)


def _timed(one: MapperResult, options: MapOptions) -> MapperResult:
    """Return a result with the time of its program, if there is one."""
    if one.program is None or one.seconds is not None:
        return one
    return attrs.evolve(one, program=one.program.timed(options.compiler, options.runner, options.cold))
