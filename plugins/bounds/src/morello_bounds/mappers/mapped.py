"""Turn proposals of mappers into programs: steps that apply are taken, and search completes the rest."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from typing import TypeAlias

import attrs

from morello.api.goals import Goal
from morello.codegen.forms import program_key
from morello.db.searches import Searches
from morello.errors import Inapplicable, MorelloError, NoImplementation, PluginError, Undecided, remedy
from morello.ir.impl import cost_and_peak
from morello.rewrites.base import Rewrite
from morello.run.elsewhere import function_of
from morello.run.runner import timing_runner
from morello.run.timing import bench
from morello.schedule import Position, Schedule, Statement, Subschedule, Synthesize, schedule_text
from morello.search.budget import SearchBudget
from morello.search.incumbents import MANY_SHAPES, restricted, shapes_below
from morello_bounds.certificate import Cut
from morello_bounds.hooks import Mapper, with_feedback
from morello_bounds.traffic import program_traffic

#: The budget of search for each Spec that a proposal leaves open.
BUDGET = SearchBudget(expansions=20_000)


@attrs.frozen
class MappedProgram:
    """The program of a proposal: statements taken, statements refused with reasons, bytes `moved` across each cut."""

    goal: Goal = attrs.field(repr=False)
    cost: int
    moved: tuple[int, ...]
    schedule: Schedule = ()
    refused: tuple[tuple[str, str], ...] = ()
    #: The time of a call, if measured.
    seconds: float | None = None

    @classmethod
    def of(cls, goal: Goal, cuts: Sequence[Cut]) -> MappedProgram:
        """Return the program of a goal, with its traffic across the cuts."""
        across = tuple(program_traffic(goal.impl, goal.target, cut.level) for cut in cuts)
        return cls(goal, int(cost_and_peak(goal.impl).cost), across)

    @property
    def text(self) -> str:
        """Return the statements taken, in the syntax of Spec files."""
        return schedule_text(self.schedule)

    def timed(self, compiler: str | None = None, runner: str | None = None, cold: bool = False) -> MappedProgram:
        """Return the program with the shortest time of a call; with `cold`, the median of calls on operands in memory.

        Raises MorelloError if it cannot be built or run.
        """
        goal = self.goal
        program = goal.target.emitter.emit(goal.impl, goal.target, goal.name, goal.signature)
        function = function_of(goal.impl, goal.target, program, compiler, timing_runner(goal.target.info, runner))
        if cold:
            return attrs.evolve(self, seconds=bench(function, 0, _COLD, cold=True).median)
        return attrs.evolve(self, seconds=bench(function, _MEASURED).best)


#: Errors of proposals without a program.
_NO_PROGRAM = (NoImplementation, Undecided, Inapplicable)

#: The key by which the best proposal is the smallest.
Objective: TypeAlias = Callable[[MappedProgram], tuple[float, ...]]
#: The objective for which programs are measured.
TIME = "time"
#: Seconds for which each program is measured.
_MEASURED = 0.05
#: Calls of each program from memory. Their median is that of the middle half ([Tollenaere2021] §7).
_COLD = 20

OBJECTIVES: dict[str, Objective] = {
    "cost": lambda one: (one.cost, sum(one.moved)),
    "bytes": lambda one: (sum(one.moved), one.cost),
    TIME: lambda one: (math.inf if one.seconds is None else one.seconds, one.cost),
}


@attrs.define
class Completion:
    """Completes proposals for a Spec. They share one search, so that solved Specs are solved once."""

    goal: Goal
    cuts: Sequence[Cut]
    budget: SearchBudget = BUDGET
    compiler: str | None = None
    runner: str | None = None
    #: Whether operands are in memory when programs are measured.
    cold: bool = False
    _known: dict[Schedule, MappedProgram | MorelloError] = attrs.field(
        factory=dict[Schedule, "MappedProgram | MorelloError"], init=False
    )
    #: Measured programs, by a key that is the same for equal C.
    _timed: dict[str, float | None] = attrs.field(factory=dict[str, "float | None"], init=False)
    _searches: Searches = attrs.field(init=False)
    #: Searches of a smaller space.
    _smaller: Searches = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        target = self.goal.target
        self._searches, self._smaller = Searches(target, True), Searches(restricted(target)[-1], True)

    def best(self, mapper: Mapper, seed: int = 0, objective: str = "cost") -> MappedProgram:
        """Return the best program of a mapper's proposals by a key of OBJECTIVES; `time` builds and measures all.

        Raises MorelloError if no proposal has a program or one cannot be built, and PluginError if the mapper fails.
        """
        made: list[MappedProgram] = []
        faults: list[MorelloError] = []
        proposals = _proposals(mapper, self.goal, seed)
        with suppress(StopIteration):
            proposal = next(proposals)
            while True:
                value = None
                try:
                    made.append(self.program(proposal, timed=objective == TIME))
                    value = float(OBJECTIVES[objective](made[-1])[0])
                except _NO_PROGRAM as error:
                    faults.append(error)
                proposal = proposals.send(value)
        if made:
            return min(made, key=OBJECTIVES[objective])
        if faults:
            raise MorelloError(f"no proposal has a program: {faults[0].message}", faults[0].hint)
        raise MorelloError("it proposes nothing for this Spec", "try another mapper: `morello map FILE --list`")

    def program(self, proposal: Schedule, timed: bool = False) -> MappedProgram:
        """Return the program of a proposal. Raises one of _NO_PROGRAM, and MorelloError if it cannot be timed."""
        if proposal not in self._known:
            try:
                self._known[proposal] = self._completed(proposal)
            except _NO_PROGRAM as error:
                self._known[proposal] = error
        known = self._known[proposal]
        if isinstance(known, MorelloError):
            raise known
        if not timed:
            return known
        key = program_key(known.goal.impl, known.goal.target)
        if key not in self._timed:
            self._timed[key] = known.timed(self.compiler, self.runner, self.cold).seconds
        return attrs.evolve(known, seconds=self._timed[key])

    def _completed(self, proposal: Sequence[Statement]) -> MappedProgram:
        goal = Goal.of(self.goal.spec, self.goal.target, self.goal.name, self._searches, self.goal.signature)
        taken: list[Statement] = []
        refused: list[tuple[str, str]] = []
        for statement in proposal:
            if isinstance(statement, Synthesize):
                break
            try:
                goal = goal.apply((statement,))
                taken.append(statement)
            except Inapplicable as error:
                refused.append((str(statement), error.message))
        if not taken:
            # Otherwise search would do all the work.
            why = f": {refused[0][1]}" if refused else ", as it is empty"
            raise Inapplicable(f"no statement of it applies{why}", "choose another mapper")
        program = MappedProgram.of(self._searched(goal), self.cuts)
        return attrs.evolve(program, schedule=tuple(taken), refused=tuple(refused))

    def _searched(self, goal: Goal) -> Goal:
        """Complete a goal by search, in the smaller space if shapes are many or the budget is too small."""
        if shapes_below(self.goal.spec.logical, self.goal.target) > MANY_SHAPES:
            with suppress(NoImplementation):
                return self._in_smaller(goal)
            return self._in_all(goal)
        try:
            return self._in_all(goal)
        except Undecided:
            with suppress(NoImplementation):
                return self._in_smaller(goal)
            raise

    def _in_all(self, goal: Goal) -> Goal:
        return goal.synthesize(db=False, progress=False, budget=self.budget)

    def _in_smaller(self, goal: Goal) -> Goal:
        smaller = attrs.evolve(goal, target=self._smaller.target, searches=self._smaller)
        # Bounds proven in the smaller space do not hold in the whole one.
        return attrs.evolve(goal, position=Position(self._in_all(smaller).impl))


def _proposals(mapper: Mapper, goal: Goal, seed: int) -> Generator[Schedule, float | None]:
    """Yield the proposals of a mapper; values sent back go to it. Raises PluginError if it fails or yields others."""
    try:
        proposals = with_feedback(mapper.propose(goal.spec, goal.target, seed))
        reply: float | None = None
        while True:
            proposal = tuple(proposals.send(reply))
            if wrong := [one for one in proposal if not isinstance(one, Rewrite | Subschedule | Synthesize)]:
                raise _fault(mapper, f"proposes {wrong[0]!r}, which is not a statement of a schedule")
            reply = yield proposal
    except StopIteration:
        return
    except MorelloError:
        raise
    except Exception as error:
        raise _fault(mapper, f"fails: {type(error).__name__}: {error}") from error


def _fault(mapper: Mapper, what: str) -> PluginError:
    return PluginError(f"mapper {mapper.name!r} {what}", remedy(mapper.name), mapper.name)
