"""Say why a Spec has no program, and what would help."""

from __future__ import annotations

import bisect
from collections.abc import Callable

from morello.errors import NoImplementation
from morello.ir.impl import Figures
from morello.ir.spec import Spec
from morello.kernels.target import Target

Solve = Callable[[Spec], Figures | None]


def missing(spec: Spec, target: Target, solve: Solve) -> NoImplementation:
    """Return the error for a Spec that nothing implements: a limit to raise, or what no limit mends.

    `solve` gives the figures of some program of any Spec, None if it has none.
    """
    names = [level.name for level in target.levels]
    what = f"no implementation exists for {spec.op} on {target.name}"
    full = solve(Spec(spec.logical, target.full_limits()))
    if full is None:
        ops = [op for op in (spec.op, spec.op.accumulating()) if op is not None]
        kernels = [kernel.name for kernel in target.kernels if any(map(kernel.implements, ops))]
        listed = ", ".join(kernels) or "none"
        return NoImplementation(what, f"even with all memory of the target; its microkernels for {spec.op}: {listed}")
    for index, name in enumerate(names):
        needed = _least(spec, index, target, solve)
        if needed is not None and needed > spec.limits[index]:
            return NoImplementation(
                f"{what}: {name} needs at least {needed} bytes, not {spec.limits[index]}", f"raise {name}'s limit"
            )
    needs = ", ".join(f"{name} {peak}" for name, peak in zip(names, full.peak, strict=True))
    return NoImplementation(
        f"{what} within these limits", f"one with all memory of the target takes, in bytes: {needs}"
    )


def _least(spec: Spec, index: int, target: Target, solve: Solve) -> int | None:
    """Return the smallest limit of one level with which `spec` has a program, the other limits as they are."""
    steps = target.grids[index].values

    def solvable(limit: int) -> bool:
        return solve(Spec(spec.logical, (*spec.limits[:index], limit, *spec.limits[index + 1 :]))) is not None

    if not solvable(steps[-1]):
        return None
    return steps[bisect.bisect_left(steps, True, key=solvable)]
