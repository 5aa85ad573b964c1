"""Functions on arrays whose first dimension varies: from the second size on, one kernel for all sizes."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import attrs

from morello.api.goals import Goal
from morello.api.kernel import Kernel
from morello.api.sizes import SizedGoal, SizedKernel
from morello.codegen.style import CStyle
from morello.errors import NoImplementation, Undecided
from morello.frontend.sizes import Sizes, fault
from morello.ir.spec import LogicalSpec
from morello.search.budget import SearchBudget

#: Kernels for all sizes are for 1 to this. Larger ones get kernels of their own.
LARGEST = 1 << 20
#: Searches for the parts of such a kernel, up to 40, get a fraction of the budget, and end with a program this close
#: to the optimum.
_FRACTION, _GAP = 4, 0.05


def for_parts(budget: SearchBudget) -> SearchBudget:
    """Return the budget of a search for a part. One that goes on to the proof stays as it is."""
    if budget.proves:
        return budget
    seconds = budget.seconds and budget.seconds / _FRACTION
    expansions = budget.expansions and max(1, budget.expansions // _FRACTION)
    return attrs.evolve(budget, seconds=seconds, expansions=expansions, gap=max(_GAP, budget.gap))


@attrs.define
class _Alike:
    """The last kernel of one size, and the goals and kernels for all sizes, one for each layout.

    A kernel is None if a part has no program.
    """

    last: Kernel
    found: list[tuple[SizedGoal, SizedKernel | None]] = attrs.field(factory=list[tuple[SizedGoal, SizedKernel | None]])


class Batches:
    """Kernels of goals; those that differ in the size of the first dimension share one. Callers take turns."""

    def __init__(self) -> None:
        self._alike: dict[Hashable, _Alike] = {}

    def kernel(
        self,
        goal: Goal,
        settings: Hashable,
        compile_one: Callable[[Goal], Kernel],
        compile_all: Callable[[Goal], Kernel],
    ) -> Kernel:
        """Return a goal's kernel: its own for the first size, then that of one for all sizes.

        Dimensions that programs cannot cut have kernels of their own for each size. `settings` are the call's options.
        """
        logical, dim = goal.spec.logical, goal.plain.implicit_dims
        if dim >= len(logical.shape) or logical.shape[dim] > LARGEST:
            return compile_one(goal)
        rest = (*logical.shape[:dim], *logical.shape[dim + 1 :])
        types = tuple(state.dtype for state in logical.states)
        key = goal.name, goal.signature, goal.target, logical.op, logical.serial, rest, types, settings
        if key not in self._alike:
            self._alike[key] = _Alike(compile_one(goal))
            return self._alike[key].last
        alike = self._alike[key]
        found = _known(alike, goal, dim) or _made(alike, goal, dim, compile_all)
        if found is None:
            found = alike.last = compile_one(goal)
        return found


def _known(alike: _Alike, goal: Goal, dim: int) -> Kernel | None:
    """Return the kernel of a goal's size, of a known one for all sizes."""
    size = int(goal.spec.shape[dim])
    for sized, kernel in alike.found:
        if kernel and sized.spec_at(size) == goal.spec:
            return kernel.at(size)
    return None


def _made(alike: _Alike, goal: Goal, dim: int, compile_all: Callable[[Goal], Kernel]) -> Kernel | None:
    """Return the kernel of a goal's size, of a new one for all sizes that include the last one, or None."""
    pair = sorted((alike.last.goal, goal), key=lambda one: one.spec.shape[dim])
    if pair[0].spec.shape[dim] == pair[1].spec.shape[dim]:
        # They differ in layouts, which leave out a size of 1.
        return None
    # Searches that end without a proof take long.
    few = alike.last.cost > (1 + _GAP) * alike.last.low
    sized = _for_all(pair[1], dim, few)
    if sized is None or any(sized.spec_at(int(one.spec.shape[dim])) != one.spec for one in pair):
        return None
    if any(sized.spec == other.spec for other, _ in alike.found):
        return None
    try:
        kernel = compile_all(sized)
    except (NoImplementation, Undecided):
        kernel = None
    assert kernel is None or isinstance(kernel, SizedKernel)
    alike.found.append((sized, kernel))
    return kernel and kernel.at(int(goal.spec.shape[dim]))


def _for_all(goal: Goal, dim: int, few: bool) -> SizedGoal | None:
    """Return the goal for all sizes of a dimension, perhaps by few parts, or None if it cannot be cut, or printed."""

    def logical(size: int) -> LogicalSpec:
        shape = tuple(size if other == dim else one for other, one in enumerate(goal.spec.shape))
        return attrs.evolve(goal.spec.logical, shape=shape)

    whole = logical(LARGEST)
    if not isinstance(goal.target.emitter, CStyle) or fault("", dim, whole, logical(LARGEST + 1)):
        return None
    spec = goal.target.spec(whole)
    start = Goal.of(spec, goal.target, goal.name, signature=goal.signature)
    return SizedGoal.of_sizes(start, Sizes("size", 1, LARGEST, dim), few)
