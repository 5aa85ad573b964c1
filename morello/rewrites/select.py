"""select: a microkernel implements the whole Spec ([Kaufman2025] §2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, Self, TypeVar

import attrs
import numpy as np
import numpy.typing as npt

from morello.errors import Inapplicable, MorelloError
from morello.ir.impl import KernelCall
from morello.ir.numbers import Mask, Num, anywhere
from morello.ir.ops.fill import Fill
from morello.ir.spec import LogicalSpec
from morello.kernels.microkernel import Combined, CostPart, Microkernel
from morello.kernels.target import Target
from morello.rewrites.base import Example, Rewrite, RewriteCase, Word, argument, masked, select_cells

T = TypeVar("T")


@attrs.frozen(cache_hash=True)
class Select(Rewrite):
    """`select BroadcastVecMultAdd`: this microkernel implements the Spec."""

    keyword: ClassVar[str] = "select"
    order: ClassVar[int] = 10
    example: ClassVar[Example] = Example(Fill("Zero"), (2, 4))
    kernel: str = argument(Word)

    @classmethod
    def steps(cls, logical: LogicalSpec, target: Target) -> Iterator[Self]:
        yield from (cls(kernel.name) for kernel in target.kernels if kernel.matches(logical))

    def cases(self, logical: LogicalSpec, target: Target) -> Iterator[RewriteCase]:
        check_available(self.kernel, target)
        kernel = target.kernels_by_name.get(self.kernel)
        if kernel is None:
            known = ", ".join(one.name for one in target.kernels if one.implements(logical.op)) or "none"
            raise Inapplicable(f"{target.name} has no microkernel {self.kernel!r}", f"for {logical.op} it has {known}")
        mask = accepted(kernel, logical, target)
        if not anywhere(mask):
            raise Inapplicable(f"{self.kernel} does not implement this {logical.op}", f"it takes {kernel.describe()}")
        cells = masked(None, mask)
        taken = select_cells(logical, cells)
        needs, cost = checked_needs(kernel, taken, target), checked_cost(kernel, taken, target)
        yield RewriteCase(cells, KernelCall(self, cost, needs, (), kernel=self.kernel))


def check_available(kernel: str, target: Target) -> None:
    """Raise Inapplicable for a kernel that needs CPU features that programs may not use."""
    for one in target.unavailable:
        if one.name == kernel:
            lacks = target.lacking(one)
            hint = f"write `target {target.full_name} + {' + '.join(lacks)}`, or compile with --cpu"
            raise Inapplicable(f"{one.name} needs {', '.join(lacks)}, which {target.full_name} lacks", hint)


def accepted(kernel: Microkernel, logical: LogicalSpec, target: Target) -> Mask:
    """Return the mask of the Specs that the kernel implements. Raises PluginError if its condition fails."""
    return _called(kernel, target, "when", lambda: kernel.accepts(logical))


def fulfilled(kernel: Microkernel, logical: LogicalSpec, target: Target) -> Mask:
    """Return the mask of the Specs that satisfy the kernel's own condition; labels and sizes are not checked."""
    condition = kernel.when
    return True if condition is None else _called(kernel, target, "when", lambda: condition(logical))


def checked_needs(kernel: Microkernel, logical: LogicalSpec, target: Target) -> tuple[Num, ...]:
    """Return the bytes of each level that calls need besides their operands. Raises PluginError if malformed."""
    return tuple(_temporaries(kernel, logical, target, level.name) * level.unit for level in target.levels)


def _temporaries(kernel: Microkernel, logical: LogicalSpec, target: Target, level: str) -> Num:
    """Return the registers of a level that calls need. Raises PluginError unless they are integers from 0."""
    count = _called(kernel, target, "registers", lambda: kernel.temporaries(logical, level))
    if type(count) is int and count >= 0:
        return count
    values = np.asarray(count)
    if values.dtype.kind not in "iu" or np.any(values < 0):
        raise target.fault(kernel, f"its registers in {level} are integers that are not negative, not {count!r}")
    return count


def checked_cost(kernel: Microkernel, logical: LogicalSpec, target: Target) -> Num:
    """Return the kernel's costs. Raises PluginError unless they are integers of at least 1 for every Spec."""
    cost = _called(kernel, target, "cost", lambda: kernel.call_cost(logical, target))
    return _positive(kernel, _per_spec(kernel, cost, logical, target), target)


def checked_part(kernel: Microkernel, part: CostPart, logical: LogicalSpec, target: Target) -> Num | tuple[Num, ...]:
    """Return a part of the kernel's cost. Raises PluginError unless it is one integer, or one for every Spec."""
    found = _called(kernel, target, "cost", lambda: part(logical, target))
    if isinstance(found, tuple) and isinstance(kernel.cost, Combined):
        return tuple(_per_spec(kernel, one, logical, target) for one in found)
    return _per_spec(kernel, found, logical, target)


def _per_spec(kernel: Microkernel, cost: Num | tuple[Num, ...], logical: LogicalSpec, target: Target) -> Num:
    """Return a cost. Raises PluginError unless it is one integer, or one for every Spec."""
    if isinstance(cost, int):
        return cost
    values = _integers(kernel, cost, target)
    shapes = {size.shape for size in logical.shape if isinstance(size, np.ndarray)}
    cells = next(iter(shapes)) if len(shapes) == 1 else np.broadcast_shapes(*shapes)
    if values.shape not in ((), cells):
        raise target.fault(kernel, f"its cost has one value per Spec, not {values.shape} for {cells} Specs")
    return values


def combined_costs(kernel: Microkernel, parts: Sequence[Num | tuple[Num, ...]], target: Target) -> Num:
    """Return costs from their parts (the kernel's `cost_parts`). Raises PluginError as `checked_cost` does."""
    cost = kernel.cost
    costs = _called(kernel, target, "cost", lambda: cost.combine(*parts) if isinstance(cost, Combined) else parts[0])
    return _positive(kernel, _integers(kernel, costs, target), target)


def _integers(kernel: Microkernel, cost: Num | tuple[Num, ...], target: Target) -> npt.NDArray[np.int64]:
    """Return costs as an array. Raises PluginError unless they are integers."""
    values = np.asarray(cost)
    if values.dtype.kind not in "iu":
        wrong = repr(values.flat[0].item() if isinstance(cost, np.ndarray) and cost.size else cost)
        raise target.fault(kernel, f"its cost is an integer of at least 1, not {wrong}")
    return values


def _positive(kernel: Microkernel, costs: Num, target: Target) -> Num:
    """Return costs. Raises PluginError unless they are at least 1."""
    if anywhere(costs < 1):
        raise target.fault(kernel, f"its cost is an integer of at least 1, not {np.min(costs)}")
    return costs


def _called(kernel: Microkernel, target: Target, what: str, function: Callable[[], T]) -> T:
    """Return the result of one of the kernel's functions. Raises PluginError if it raises."""
    try:
        return function()
    except MorelloError:
        raise
    except Exception as error:
        name = "`when`" if what == "when" else what
        raise target.fault(kernel, f"its {name} failed: {type(error).__name__}: {error}") from error
