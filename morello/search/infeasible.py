"""Errors for Specs without a program: the reason, and a remedy."""

from __future__ import annotations

import bisect
from collections.abc import Callable

from morello.errors import NoImplementation, Undecided
from morello.ir.impl import CostAndPeak
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.search.budget import LimitReached, SearchBudget
from morello.search.solve.directory import classes_of, least
from morello.search.solve.engine import Engine, relaxed
from morello.search.tables.shapes import key_of

#: Returns the figures of any program of a Spec, or None. Raises Undecided.
Feasible = Callable[[Spec], CostAndPeak | None]
#: Returns whether a Spec may have a program, at less effort.
MaybeFeasible = Callable[[Spec], bool]


def is_infeasible(engine: Engine, spec: Spec) -> bool:
    """Return whether bounds by class prove that a Spec, which the engine covers, has no program within its limits."""
    if engine.generic:
        return False
    goal = key_of(spec.logical), classes_of(spec.logical, engine.search_tables.states)
    return least(relaxed([goal], engine.search_tables, spec.limits), spec.logical) == float("inf")


def no_implementation(
    spec: Spec, target: Target, feasible: Feasible, maybe_feasible: MaybeFeasible
) -> NoImplementation:
    """Return the error for a Spec without a program, which names a limit to raise if that helps."""
    what = f"no implementation exists for {spec.op} on {target.name} {target.allowed}".rstrip()
    try:
        full = feasible(Spec(spec.logical, target.full_limits()))
    except (Undecided, LimitReached):
        return NoImplementation(f"{what} within these limits", "raise them: with more memory there may be one")
    if full is None and target.allowed:
        return NoImplementation(what, "allow more kernels or rewrites: more memory does not help")
    if full is None:
        ops = [op for op in (spec.op, spec.op.accumulating()) if op is not None]
        kernels = [kernel.name for kernel in target.kernels if any(map(kernel.implements, ops))]
        listed = ", ".join(kernels) or "none"
        return NoImplementation(what, f"even with all memory of the target; its microkernels for {spec.op}: {listed}")
    names = [level.name for level in target.levels]
    for index, name in enumerate(names):
        limit, proven = _sufficient_limit(spec, index, target, feasible, maybe_feasible)
        own = spec.limits[index]
        if limit is None or limit <= own:
            continue
        if proven:
            return NoImplementation(f"{what}: {name} needs at least {limit} bytes, not {own}", f"raise {name}'s limit")
        return NoImplementation(
            f"{what} within these limits", f"raise {name}'s limit, which is {own}: with {limit} bytes there is one"
        )
    needs = ", ".join(f"{name} {peak}" for name, peak in zip(names, full.peak, strict=True))
    return NoImplementation(
        f"{what} within these limits", f"one with all memory of the target takes, in bytes: {needs}"
    )


def _sufficient_limit(
    spec: Spec, index: int, target: Target, feasible: Feasible, maybe_feasible: MaybeFeasible
) -> tuple[int | None, bool]:
    """Return a limit of one level with which a Spec has a program, or None; and whether it is proven to be minimal."""
    limits = target.grids[index].values
    proven = True

    def under(limit: int) -> Spec:
        return Spec(spec.logical, (*spec.limits[:index], limit, *spec.limits[index + 1 :]))

    def suffices(limit: int) -> bool:
        nonlocal proven
        try:
            return feasible(under(limit)) is not None
        except (Undecided, LimitReached):
            proven = False
            return False

    place = bisect.bisect_left(limits, True, key=lambda limit: maybe_feasible(under(limit)))
    if place < len(limits) and not suffices(limits[place]):
        place = bisect.bisect_left(limits, True, lo=place + 1, key=suffices)
    return (limits[place] if place < len(limits) else None), proven


def undecided(spec: Spec, budget: SearchBudget, *, late: bool) -> Undecided:
    """Return the error for a search that ended without a program, because of its deadline if `late`."""
    if budget.memory_reached:
        within, more = f"within {budget.memory:,} bytes", "give search more --memory"
    else:
        within = f"in {budget.seconds:g} s" if late else f"within {budget.expansions:,} expansions"
        more = "go on with --prove, or with more --effort or --time-limit; in Python, with another SearchBudget"
    return Undecided(f"no program of {spec.op} was found {within}, nor is the Spec proven infeasible", more)
