"""Targets with fewer steps: the kernels and rewrites that `synthesize using [...] without [...]` leaves to search."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import attrs

from morello.errors import MorelloError, suggestion
from morello.ir.impl import AllowedSteps
from morello.ir.ops.base import Operation
from morello.kernels.microkernel import Microkernel
from morello.kernels.target import Target
from morello.rewrites.base import rewrites_of
from morello.rewrites.select import Select, check_available


@lru_cache(maxsize=64)
def confined(target: Target, allowed: AllowedSteps) -> Target:
    """Return the target without the steps that are not allowed: its programs are those of `target` without them."""
    if not allowed:
        return target
    using, without = {*allowed.using}, {*allowed.without}
    named = [one for one in target.kernels if one.name in using]
    keeps_all = using.isdisjoint(target.rewrites_by_name)
    kernels = tuple(
        one
        for one in target.kernels
        if one.name not in without
        if one.name in using or not any(_same_operation(one, other, target) for other in named)
    )
    rewrites = tuple(
        one
        for one in rewrites_of(target)
        if one.keyword not in without
        if keeps_all or one.keyword in using or issubclass(one, Select)
    )
    return attrs.evolve(target, kernels=kernels, rewrites=rewrites, whole=target.whole or target, allowed=allowed)


def _same_operation(one: Microkernel, other: Microkernel, target: Target) -> bool:
    """Return True if two kernels implement an operation, or one implements the accumulating variant of the other's."""

    def shares(kernel: Microkernel, implements: Callable[[Operation], bool]) -> bool:
        ops = kernel.operations(target)
        return any(map(implements, ops)) or any(implements(more) for op in ops if (more := op.accumulating()))

    return shares(one, other.implements) or shares(other, one.implements)


def check_names(target: Target, allowed: AllowedSteps) -> None:
    """Raise MorelloError for a name without a kernel or rewrite, and for `using` an unavailable kernel."""
    kernels, rewrites = [one.name for one in (*target.kernels, *target.unavailable)], [*target.rewrites_by_name]
    for name in (*allowed.using, *allowed.without):
        if name not in (*kernels, *rewrites):
            listing = f"{target.name} has the rewrites {', '.join(rewrites)}; `morello targets` lists microkernels"
            hint = suggestion(name, (*kernels, *rewrites), listing)
            raise MorelloError(f"{target.name} has no microkernel or rewrite {name!r}", hint)
    for name in allowed.using:
        check_available(name, target)
