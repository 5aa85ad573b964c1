"""Targets with other steps: what `synthesize using [...] without [...] with all layouts` leaves to search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import attrs

from morello.errors import MorelloError, UnknownName, suggestion
from morello.ir.dtypes import DType
from morello.ir.impl import AllowedSteps
from morello.ir.layout import Layout, every_layout
from morello.ir.ops.base import Operation
from morello.ir.spec import Spec
from morello.kernels.microkernel import Microkernel
from morello.kernels.target import Target
from morello.rewrites.base import rewrites_of
from morello.rewrites.select import Select, check_available

#: The most layouts of an operand in searches with all layouts, and the most dimensions that have all orders.
MOST_LAYOUTS, _ORDERED = 256, 4


@lru_cache(maxsize=64)
def confined(target: Target, allowed: AllowedSteps) -> Target:
    """Return the target with the steps that are allowed: without the excluded ones, or with moves to all layouts."""
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
    info = attrs.evolve(target.info, layouts=AllOrders(target.info.layouts)) if allowed.all_layouts else target.info
    whole = target.whole or target
    return attrs.evolve(target, info=info, kernels=kernels, rewrites=rewrites, whole=whole, allowed=allowed)


@attrs.frozen
class AllOrders:
    """The layouts that a target offers, and all orders of up to four dimensions."""

    offered: Callable[[DType, int], Sequence[Layout]]

    def __call__(self, dtype: DType, rank: int) -> Sequence[Layout]:
        orders = every_layout((2,) * rank, (), ()) if rank <= _ORDERED else ()
        return tuple(dict.fromkeys((*self.offered(dtype, rank), *orders)))


def check_layouts(spec: Spec, target: Target, allowed: AllowedSteps) -> None:
    """Raise MorelloError for a search with all layouts of an operand that has too many."""
    if not allowed.all_layouts:
        return
    for one, tensor in zip(spec.op.operands(len(spec.shape)), spec.logical.operands, strict=True):
        sizes = [int(size) for size in tensor.shape]
        if len(target.every_layout(tensor.state.dtype, sizes, MOST_LAYOUTS + 1)) > MOST_LAYOUTS:
            raise MorelloError(
                f"{one.name} of {'×'.join(map(str, sizes))} has more than {MOST_LAYOUTS} layouts, too many to search",
                "leave out `with all layouts` or --layouts all, or make it smaller; f32 of two dimensions has fewer",
            )


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
            raise UnknownName(f"{target.name} has no microkernel or rewrite {name!r}", hint)
    for name in allowed.using:
        check_available(name, target)
