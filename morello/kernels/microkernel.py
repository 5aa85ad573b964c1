"""Microkernels as data: the Specs one implements, what it costs and needs, and how it is printed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import attrs

from morello.ir.layout import Layout, col_major, row_major
from morello.ir.numbers import Mask, Num
from morello.ir.ops import Operation
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import OperandState
from morello.kernels.machine import Machine
from morello.kernels.site import KernelSite
from morello.kernels.template import Template, print_lines

LayoutRule = Literal["any", "row_major", "col_major"]
_ORDERS = {"row_major": row_major, "col_major": col_major}


def is_ordered(layout: Layout | None, order: Layout) -> bool:
    """Return True if a canonical layout has no strips and its dimensions come in the order of `order`."""
    if layout is None:
        return True
    present = {physical.dim for physical in layout.dims}
    return layout.dims == tuple(physical for physical in order.dims if physical.dim in present)


@attrs.frozen(kw_only=True)
class OperandPattern:
    """The operand states that a microkernel takes; empty tuples take any.

    `layouts` are canonical ones, with strips or without; `layout` orders dimensions without strips. `when` adds a
    condition.
    """

    levels: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    layout: LayoutRule = "any"
    contiguous: bool = True
    aligned: bool = False
    vectors: tuple[int, ...] = ()
    layouts: tuple[Layout, ...] = ()
    when: Callable[[OperandState], bool] | None = None

    def orders(self, state: OperandState, rank: int) -> bool:
        """Return True if the dimensions of an operand lie in the order that `layout` asks for."""
        return self.layout == "any" or is_ordered(state.layout, _ORDERS[self.layout](rank))

    def accepts(self, state: OperandState, rank: int) -> bool:
        return (
            (not self.levels or state.level in self.levels)
            and (not self.dtypes or state.dtype.name in self.dtypes)
            and self.orders(state, rank)
            and (not self.contiguous or state.contiguous)
            and (not self.aligned or state.aligned)
            and (not self.vectors or state.vector in self.vectors)
            and (not self.layouts or state.layout in self.layouts)
            and (self.when is None or self.when(state))
        )

    def __str__(self) -> str:
        words = ["/".join(self.dtypes), "/".join(self.levels), "" if self.layout == "any" else self.layout]
        words += [
            " or ".join(map(str, self.layouts)),
            "contiguous" if self.contiguous else "",
            "aligned" if self.aligned else "",
        ]
        words.append("/".join(f"v{size}" for size in self.vectors))
        return " ".join(filter(None, words)) or "any"


def agree(field: str, states: Sequence[OperandState]) -> bool:
    """Return True if operands are the same in `field`, which `Microkernel.same` may name."""
    if field != "lanes":
        return len({getattr(state, field) for state in states}) <= 1
    layouts = {state.layout for state in states if state.layout is not None and state.layout.dims}
    return len(layouts) <= 1 and len({state.vector for state in states if state.vector}) <= 1


#: What calls of a microkernel cost, given the Spec and the target, which knows levels, weights and tables.
Cost = Callable[[LogicalSpec, Machine], Num]
#: What goes into a cost: an integer, or several that look at the same.
CostPart = Callable[[LogicalSpec, Machine], Num | tuple[Num, ...]]


@attrs.frozen
class Combined:
    """A cost that is worked out of integers each of which depends on little: on one operand, or on sizes alone.

    Search asks for each of the `parts` once for all operand states that agree in what it looks at, and has `combine`
    work on whole arrays of them, value by value. A part may return a tuple, which `combine` is given as one argument.
    """

    combine: Callable[..., Num]
    parts: tuple[CostPart, ...]

    def __call__(self, spec: LogicalSpec, machine: Machine) -> Num:
        return self.combine(*(part(spec, machine) for part in self.parts))


@attrs.frozen(kw_only=True)
class Multiple:
    """A size that is a multiple of `of`."""

    of: int


#: How many registers a microkernel needs: as many for all its Specs, or as a function says.
Registers = int | Callable[[LogicalSpec], Num]

#: What a microkernel asks of one iteration dimension: an exact size, a multiple, or nothing.
SizeRule = int | Multiple | None


@attrs.frozen(kw_only=True)
class Jam:
    """A way to print calls of a microkernel together where a loop does nothing but call it: unroll and jam.

    `emit` is handed the sites of at most `most` calls, which differ in where their operands start, and prints what has
    the effect of one call after another. `registers` are the temporaries of all calls together, by level; where the
    program has fewer left, calls are printed one by one. Search knows nothing of it.
    """

    most: int
    emit: Callable[[Sequence[KernelSite]], None]
    registers: Mapping[str, int] = attrs.field(factory=dict[str, int])


@attrs.frozen(kw_only=True, eq=False)
class Microkernel:
    """A leaf of programs: `op` over operands that match `operands`, on sizes that match `shape`.

    A class as `op` stands for all its instances, whatever their parameters; accumulating ones, too, where it has
    them. `when` and `emit` find in `spec.op` which one is meant.

    `shape` has one rule per iteration dimension; None leaves all of them free. `same` names what must be
    equal in all operands ("dtype", "layout", "vector"; "lanes": the layouts of those that have more than one value, and
    the vector sizes of those in vector registers). `types` are the data types that go together, one for each operand;
    where there are none, all that the patterns take do. `when` adds a condition, and `cost` gives the cost;
    both must work on ints and on arrays of sizes alike. `Combined` makes search faster where many states cost
    differently. `registers` are the temporaries the kernel needs beside its operands, by level: a number, or a function
    of the Spec that works on arrays like `cost`. `tile_sizes` are the sizes, by iteration dimension, that tiles should
    have for it: search makes dimensions up of neighbouring ones exactly (`fit`). `template` is its C where that is one
    line per vector (`kernels/template.py`); else `emit` prints it through the site it is handed. `cpu_features` are
    what its code needs of a CPU besides what the target does. A kernel that `flushes` takes subnormal numbers for zero.
    `jam` says how calls are printed together.
    """

    name: str
    op: Operation | type[Operation]
    operands: tuple[OperandPattern, ...]
    cost: Cost
    template: Template | None = None
    emit: Callable[[KernelSite], None] | None = None
    shape: tuple[SizeRule, ...] | None = None
    same: tuple[Literal["dtype", "layout", "vector", "lanes"], ...] = ()
    types: tuple[tuple[str, ...], ...] = ()
    when: Callable[[LogicalSpec], Mask] | None = None
    registers: Mapping[str, Registers] = attrs.field(factory=dict[str, Registers])
    tile_sizes: Mapping[int, Sequence[int]] = attrs.field(factory=dict[int, Sequence[int]])
    cpu_features: tuple[str, ...] = ()
    flushes: bool = False
    jam: Jam | None = None

    @property
    def cost_parts(self) -> tuple[CostPart, ...]:
        """Return what goes into the cost: the cost itself, unless it is `Combined`."""
        return self.cost.parts if isinstance(self.cost, Combined) else (self.cost,)

    def print(self, site: KernelSite) -> None:
        """Print a call, by the template or by `emit`, whichever there is."""
        if self.template is not None:
            print_lines(self.template, site)
        elif self.emit is not None:
            self.emit(site)

    def implements(self, op: Operation) -> bool:
        """Return True if the kernel is for this operation, on some operands."""
        return isinstance(op, self.op) if isinstance(self.op, type) else op == self.op

    def operations(self, machine: Machine) -> tuple[Operation, ...]:
        """Return the operation it is for; of a class, those instances that the target has a name for."""
        if isinstance(self.op, type):
            return tuple(op for op in machine.operations.values() if isinstance(op, self.op))
        return (self.op,)

    @property
    def op_name(self) -> str:
        """Return the operation, or the class of operations, in messages."""
        return self.op.__name__ if isinstance(self.op, type) else str(self.op)

    def matches(self, logical: LogicalSpec) -> bool:
        """Return True if operation and operand states, the labels of a Spec, match this kernel."""
        if not self.implements(logical.op) or len(logical.states) != len(self.operands):
            return False
        fitting = zip(self.operands, logical.states, logical.declared, strict=True)
        if not all(pattern.accepts(state, len(one.dims)) for pattern, state, one in fitting):
            return False
        return self.agreed(logical.states)

    def agreed(self, states: Sequence[OperandState]) -> bool:
        """Return True if operands in these states, or the first ones, go together as far as `types` and `same` say."""
        if self.types:
            types = tuple(state.dtype.name for state in states)
            if not any(known[: len(types)] == types for known in self.types):
                return False
        return all(agree(field, states) for field in self.same)

    def shared(self, state: OperandState) -> tuple[object, ...]:
        """Return what must be equal in the states of all operands, but for `lanes`."""
        return tuple([getattr(state, field) for field in self.same if field != "lanes"])

    def compared(self, state: OperandState) -> tuple[object, ...]:
        """Return all that `agreed` looks at in a state."""
        fields = ("dtype",) if self.types else ()
        fields += ("layout", "vector") if "lanes" in self.same else ()
        return tuple([getattr(state, field) for field in fields]) + self.shared(state)

    def accepts(self, logical: LogicalSpec) -> Mask:
        """Return True if the kernel implements the Spec; cell by cell in a batch."""
        if not self.matches(logical) or (self.shape is not None and len(self.shape) != len(logical.shape)):
            return False
        valid: Mask = True
        for size, rule in zip(logical.shape, self.shape or (), strict=False):
            if rule is not None:
                valid = valid & (size % rule.of == 0 if isinstance(rule, Multiple) else size == rule)
        return valid & self.when(logical) if self.when else valid

    def temporaries(self, logical: LogicalSpec, level: str) -> Num:
        """Return how many registers of a level a call takes beside its operands."""
        count = self.registers.get(level, 0)
        return count(logical) if callable(count) else count

    def describe(self) -> str:
        """Return the Specs it takes, in words, for messages."""
        sizes = ["any" if s is None else f"{s.of}·i" if isinstance(s, Multiple) else str(s) for s in self.shape or ()]
        where = f" of {'×'.join(sizes)}" if sizes else ""
        return f"{self.op_name}{where} on {', '.join(f'({pattern})' for pattern in self.operands)}"
