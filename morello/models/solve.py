"""Kernels of a plan: each distinct Spec is solved once, by its share of the budget of all."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import attrs

from morello.api.goals import Goal
from morello.api.kernel import Kernel
from morello.api.parallel import synthesize_all
from morello.api.pipeline import goal_from
from morello.db.store import SpecStore
from morello.errors import MorelloError
from morello.frontend.diagnostics import SourceError
from morello.ir.impl import leaves
from morello.kernels.target import Target
from morello.models.plan import Call, Plan
from morello.rewrites.pack import packed
from morello.schedule import Position
from morello.search.budget import SearchBudget

#: The fewest expansions and seconds of a search, unless all have less; fewer expansions may find no program.
_LEAST, _LEAST_SECONDS, _FEWEST = 400_000, 2.0, 20_000
#: Called with the number of goals that are done, and the share of the work that is.
Progress = Callable[[int, float], object]


def goals_of(calls: Iterable[Call], name: str, target: Target, suffix: str = "") -> Mapping[str, Goal]:
    """Return the goals of the distinct Specs of calls, by text, in the order of the first calls.

    Their names are those of the kernels in C: they begin with `name` and end in `suffix`.
    """
    found: dict[str, Goal] = {}
    for call in calls:
        text = call.written.text
        if text not in found:
            stem = "_".join(re.sub(r"\W", "", node.op.lower(), flags=re.ASCII) for node in call.step.nodes[:3])
            try:
                made = goal_from(text, target)
            except SourceError as error:
                raise MorelloError(f"{', '.join(map(str, call.step.nodes))}: {error.message}", error.hint) from None
            found[text] = attrs.evolve(made, name=f"{name}_{len(found)}_{stem}{suffix}")
    return found


def work_of(goals: Sequence[Goal]) -> list[float]:
    """Return the share of each goal in the floating-point operations of all."""
    work = [one.spec.logical.flops for one in goals]
    total = sum(work) or 1
    return [each / total for each in work]


def budgets(goals: Sequence[Goal], whole: SearchBudget) -> list[SearchBudget]:
    """Return the budget of each goal: its share of the expansions and seconds of the `whole`, by its work."""

    made: list[SearchBudget] = []
    for work in work_of(goals):
        expansions, seconds = whole.expansions, whole.seconds
        if expansions is not None:
            expansions = max(_FEWEST, min(expansions, max(_LEAST, int(expansions * work))))
        if seconds is not None:
            seconds = min(seconds, max(_LEAST_SECONDS, seconds * work))
        made.append(attrs.evolve(whole, expansions=expansions, seconds=seconds))
    return made


def solved(
    goals: Sequence[Goal],
    store: SpecStore | None,
    shares: Sequence[SearchBudget],
    jobs: int = 1,
    progress: Progress | None = None,
) -> list[Goal]:
    """Return the goals with programs of up to `jobs` searches at once, each with its share of a budget.

    Goals that a schedule completed are not searched. The store keeps what is solved until Ctrl-C.
    """
    searched = [at for at, one in enumerate(goals) if next(leaves(one.impl), None)]
    found, work = dict(enumerate(goals)), work_of(goals)
    left = {*searched}

    def done(number: int, made: Goal) -> None:
        at = searched[number]
        found[at] = made
        left.discard(at)
        if progress:
            progress(len(goals) - len(left), 1 - sum(work[each] for each in left))

    given = [goals[at] for at in searched]
    if given:
        synthesize_all(given, store, [shares[at] for at in searched], jobs, done)
    return [found[at] for at in range(len(goals))]


def kernel_of(goal: Goal, cc: str | None = None) -> Kernel:
    """Return the kernel of a finished goal, which takes constants packed: its C has no functions that pack them."""
    impl = packed(goal.impl)
    bare = attrs.evolve(goal, spec=impl.spec, position=Position(impl), packs_found={})
    return Kernel(goal, bare.program, cc)


def kernels_of(goals: Mapping[str, Goal], plan: Plan, cc: str | None = None) -> tuple[Kernel, ...]:
    """Return the kernels of a plan's calls for finished goals by the text of their Specs."""
    kernels = {text: kernel_of(one, cc) for text, one in goals.items()}
    return tuple(kernels[call.written.text] for call in plan.calls)
