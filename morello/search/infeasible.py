"""Say why a Spec has no program, and what would help."""

from __future__ import annotations

import bisect
from collections.abc import Callable

import attrs

from morello.errors import NoImplementation, Undecided
from morello.ir.impl import CostAndPeak
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.search.budget import SearchBudget
from morello.search.solve.directory import classes_of, least
from morello.search.solve.engine import Engine, relaxed
from morello.search.tables.shapes import key_of

#: Gives the figures of some program of a Spec, None if it has none. Raises Undecided.
Some = Callable[[Spec], CostAndPeak | None]
#: Says at less cost that a Spec may have a program.
Maybe = Callable[[Spec], bool]


def impossible(engine: Engine, spec: Spec) -> bool:
    """Return True if bounds by class show that a Spec which an engine covers has no program within its limits."""
    if engine.generic:
        return False
    goal = key_of(spec.logical), classes_of(spec.logical, engine.search_tables.states)
    return least(relaxed([goal], engine.search_tables, spec.limits), spec.logical) == float("inf")


def missing(spec: Spec, target: Target, some: Some, maybe: Maybe) -> NoImplementation:
    """Return the error for a Spec that nothing implements: a limit to raise, or what no limit mends."""
    what = f"no implementation exists for {spec.op} on {target.name}"
    try:
        full = some(Spec(spec.logical, target.full_limits()))
    except Undecided:
        return NoImplementation(f"{what} within these limits", "raise them: with more memory there may be one")
    if full is None:
        ops = [op for op in (spec.op, spec.op.accumulating()) if op is not None]
        kernels = [kernel.name for kernel in target.kernels if any(map(kernel.implements, ops))]
        listed = ", ".join(kernels) or "none"
        return NoImplementation(what, f"even with all memory of the target; its microkernels for {spec.op}: {listed}")
    names = [level.name for level in target.levels]
    for index, name in enumerate(names):
        found = _least(spec, index, target, some, maybe)
        if found is not None and found.limit > spec.limits[index]:
            if found.proven:
                what += f": {name} needs at least {found.limit} bytes, not {spec.limits[index]}"
                return NoImplementation(what, f"raise {name}'s limit")
            more = f"raise {name}'s limit, which is {spec.limits[index]}: with {found.limit} bytes there is one"
            return NoImplementation(f"{what} within these limits", more)
    needs = ", ".join(f"{name} {peak}" for name, peak in zip(names, full.peak, strict=True))
    return NoImplementation(
        f"{what} within these limits", f"one with all memory of the target takes, in bytes: {needs}"
    )


@attrs.frozen
class _Limit:
    """A limit of one level with which there is a program; the smallest if that is `proven`."""

    limit: int
    proven: bool


def _least(spec: Spec, index: int, target: Target, some: Some, maybe: Maybe) -> _Limit | None:
    """Return the smallest limit of one level with which `spec` is found a program, the other limits as they are."""
    steps = target.grids[index].values
    unknown: set[int] = set()

    def under(limit: int) -> Spec:
        return Spec(spec.logical, (*spec.limits[:index], limit, *spec.limits[index + 1 :]))

    def solvable(limit: int) -> bool:
        try:
            return some(under(limit)) is not None
        except Undecided:
            unknown.add(limit)
            return False

    place = bisect.bisect_left(steps, True, key=lambda limit: maybe(under(limit)))
    if place < len(steps) and not solvable(steps[place]):
        place = bisect.bisect_left(steps, True, lo=place + 1, key=solvable)
    return _Limit(steps[place], not unknown) if place < len(steps) else None


def undecided(spec: Spec, budget: SearchBudget, *, late: bool) -> Undecided:
    """Return the error for a search that ended without a program; `late` says that its time was up."""
    if budget.full:
        within, more = f"within {budget.memory:,} bytes", "give search more --memory"
    else:
        within = f"in {budget.seconds:g} s" if late else f"within {budget.expansions:,} expansions"
        more = "go on with --prove, or with more --effort or --time-limit; in Python, with another SearchBudget"
    return Undecided(f"no program of {spec.op} was found {within}, nor is it proven that there is none", more)
