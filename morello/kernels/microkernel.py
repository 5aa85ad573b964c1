"""Microkernels as data: the Specs one implements, its cost and temporaries, and its C."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

import attrs
import numpy as np

from morello.ir.numbers import Mask, Num, ceil_div, choose, product
from morello.ir.ops import Operation
from morello.ir.ops.named_graphs import NAMED_GRAPHS
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import OperandState
from morello.kernels.machine import Machine
from morello.kernels.pattern import Multiple, OperandPattern, Shape, SizeRule, agree, parse_pattern
from morello.kernels.site import KernelSite
from morello.kernels.template import Template, instructions, print_lines, temporaries

#: Returns the cost of a call from its Spec and the target's levels, weights and tables.
Cost: TypeAlias = Callable[[LogicalSpec, Machine], Num]
#: Returns an input of a `Combined` cost: an integer, or a tuple of integers that depend on the same fields.
CostPart: TypeAlias = Callable[[LogicalSpec, Machine], Num | tuple[Num, ...]]
#: Temporary registers of a microkernel: a constant, or a function of the Spec.
Registers: TypeAlias = int | Callable[[LogicalSpec], Num]
#: The number of dimensions of norms that stand for those of all ranks.
_RANK = 3


@attrs.frozen
class Combined:
    """A cost computed from `parts`. Each part depends on little: one operand, or the sizes alone.

    Search evaluates each part once for all operand states that agree in the fields that the part reads, and calls
    `combine` on whole arrays of the results. A part may return a tuple, which is one argument of `combine`.
    """

    combine: Callable[..., Num]
    parts: tuple[CostPart, ...]

    def __call__(self, spec: LogicalSpec, machine: Machine) -> Num:
        return self.combine(*(part(spec, machine) for part in self.parts))


def per_vector(each: int, once: int = 0) -> Cost:
    """Return a cost of `each` for every vector of the operands in vector registers, plus `once` per call."""

    def cost(spec: LogicalSpec, machine: Machine) -> Num:
        vectors = next((one.vectors for one in spec.operands if one.state.vector is not None), 1)
        return each * vectors + once

    return cost


def touching(once: int = 0) -> Cost:
    """Return the cost of touching every line of the operands in memory once, plus `once` per call."""

    def cost(spec: LogicalSpec, machine: Machine) -> Num:
        return sum(machine.move_cost(tensor) for tensor in spec.operands) + once

    return cost


@attrs.frozen(kw_only=True)
class UnrollAndJam:
    """C for several calls of a microkernel at once, where a loop contains nothing but the call.

    `emit` receives the sites of at most `most` calls, which differ only in where their operands start, and prints C
    with the effect of one call after another. `registers` are the temporaries of all calls together, by level: where
    fewer are left, calls are printed one by one. Search and costs ignore it.
    """

    most: int
    emit: Callable[[Sequence[KernelSite]], None]
    registers: Mapping[str, int] = attrs.field(factory=dict[str, int])


@attrs.frozen
class DerivedCost:
    """The cost of a kernel that declares none: as measured for the machine, else one cycle per instruction.

    Both count vectors of values that are computed, besides touching all lines of operands in memory. A measured cost
    has three integers: for each vector, once per call, and the least, the latency of calls that use each other's
    results. `instructions` are those of a vector.
    """

    kernel: str
    instructions: int

    def __call__(self, spec: LogicalSpec, machine: Machine) -> Num:
        cycle = machine.info.units_per_cycle or 1
        each, once, least = machine.kernel_costs.get(self.kernel, (cycle * self.instructions, 0, 1))
        cost = touching(once)(spec, machine) + each * computed_vectors(spec)
        return choose(cost > max(1, least), cost, max(1, least))


def computed_vectors(spec: LogicalSpec) -> Num:
    """Return the points of the iteration space, divided by the values of a vector register that holds an operand."""
    return ceil_div(product(spec.shape), min((one.vector for one in spec.states if one.vector), default=1))


def _op(kernel: Microkernel) -> Operation:
    if not kernel.takes or (op := parse_pattern(kernel.takes).op) is None:
        hint = 'begin `takes` with it, as in "Move(n, any, any)", or give `op`'
        raise ValueError(f"microkernel {kernel.name} has no operation: {hint}")
    return op


def _shape(kernel: Microkernel) -> Shape:
    return parse_pattern(kernel.takes).shape if kernel.takes else None


def _operands(kernel: Microkernel) -> tuple[OperandPattern, ...]:
    return parse_pattern(kernel.takes).operands if kernel.takes else ()


@attrs.frozen(kw_only=True, eq=False)
class Microkernel:
    """A leaf of programs: it implements `op` on operands that match `operands` and sizes that match `shape`.

    `takes` gives operation, sizes and operands as text, such as "MatmulAccum(1×1×1×n, f32 RF/L1, f32 VRF v8, f32 VRF
    v8)" (`pattern.parse_pattern`). `shape` and `operands` give sizes and operands as data. `op` is an operation that
    `takes` does not name, or a class for all instances, accumulating ones among them, or those for which `only` is
    true; `when` and `emit` find the instance in `spec.op`. `examples` are some that have no name, for checks.

    `same` lists fields that agree in all operands: "dtype", "layout", "vector", or "lanes" (the layouts of operands of
    more than one value, and the vector sizes of those in vector registers). `types` lists the accepted combinations of
    data types, one for each operand; empty accepts all that the patterns do. `when` is a further condition.

    `cost`, `when` and functions in `registers` accept sizes that are ints and sizes that are arrays alike. `cost` is by
    default measured, or derived from the template (`DerivedCost`). `registers` are temporaries besides the operands, by
    level; by default the vectors that a template's text needs. `tile_sizes` are tile sizes worth searching (`fit`), by
    dimension; by default sizes in `shape` that are not powers of two, which search tries anyway.

    `template` is the C where that is one line per vector (`kernels/template.py`); otherwise `emit` prints it, and
    `jam` prints several calls together. `cpu_features` are required besides those of the target. `flush_to_zero`
    says that subnormal numbers may count as zero, `in_place` that the output may be the memory of an input of the same
    layout: the call reads each value of it before it writes the output's value there.
    """

    name: str
    takes: str = ""
    op: Operation | type[Operation] = attrs.field(default=attrs.Factory(_op, takes_self=True))
    only: Callable[[Operation], bool] | None = None
    examples: tuple[Operation, ...] = ()
    operands: tuple[OperandPattern, ...] = attrs.field(default=attrs.Factory(_operands, takes_self=True))
    cost: Cost | None = None
    template: Template | None = None
    emit: Callable[[KernelSite], None] | None = None
    shape: Shape = attrs.field(default=attrs.Factory(_shape, takes_self=True))
    same: tuple[Literal["dtype", "layout", "vector", "lanes"], ...] = ()
    types: tuple[tuple[str, ...], ...] = ()
    when: Callable[[LogicalSpec], Mask] | None = None
    registers: Mapping[str, Registers] | None = None
    tile_sizes: Mapping[int, Sequence[int]] | None = None
    cpu_features: tuple[str, ...] = ()
    flush_to_zero: bool = False
    in_place: bool = False
    jam: UnrollAndJam | None = None

    def __attrs_post_init__(self) -> None:
        if self.takes and (named := parse_pattern(self.takes).op) not in (None, self.op):
            raise ValueError(f"microkernel {self.name}: `takes` has {named}, and `op` is {self.op}: leave out `op`")

    @property
    def call_cost(self) -> Cost:
        """Return the cost of a call: the declared one, or else the derived one."""
        if self.cost is not None:
            return self.cost
        count = instructions(self.template) if isinstance(self.template, str) else 1
        return DerivedCost(self.name, max(1, count))

    @property
    def cost_parts(self) -> tuple[CostPart, ...]:
        """Return the parts of a `Combined` cost, or the cost itself."""
        return self.cost.parts if isinstance(self.cost, Combined) else (self.call_cost,)

    @property
    def offered_sizes(self) -> Mapping[int, Sequence[int]]:
        """Return the tile sizes that search is to try, declared or derived."""
        if self.tile_sizes is not None or not isinstance(self.shape, tuple):
            return self.tile_sizes or {}
        sizes = [rule.of if isinstance(rule, Multiple) else rule or 1 for rule in self.shape]
        return {dim: (size,) for dim, size in enumerate(sizes) if size & (size - 1)}

    def print(self, site: KernelSite) -> None:
        """Print a call through its site, by `template` or by `emit`."""
        if self.template is not None:
            print_lines(self.template, site)
        elif self.emit is not None:
            self.emit(site)

    def implements(self, op: Operation) -> bool:
        """Return True if the kernel implements this operation, on some operands."""
        if not isinstance(self.op, type):
            return op == self.op
        return isinstance(op, self.op) and (self.only is None or self.only(op))

    def operations(self, machine: Machine) -> tuple[Operation, ...]:
        """Return the operation that it implements; for a class, instances and graphs with names, and `examples`."""
        if isinstance(self.op, type):
            graphs = (graph.arranged(graph.rank or _RANK).compose for graph in NAMED_GRAPHS.values())
            return tuple(op for op in (*machine.operations.values(), *graphs, *self.examples) if self.implements(op))
        return (self.op,)

    @property
    def op_name(self) -> str:
        """Return the operation, or the class of operations, for messages."""
        return self.op.__name__ if isinstance(self.op, type) else str(self.op)

    def size_rules(self, rank: int) -> tuple[SizeRule, ...] | None:
        """Return the rule of each dimension; None if the kernel implements nothing of this rank."""
        if self.shape is None or isinstance(self.shape, int):
            return (self.shape,) * rank
        return self.shape if len(self.shape) == rank else None

    def matches(self, logical: LogicalSpec) -> bool:
        """Return True if the operation and the operand states of a Spec match."""
        if not self.implements(logical.op) or len(logical.states) != len(self.operands):
            return False
        fitting = zip(self.operands, logical.states, logical.declared, strict=True)
        if not all(pattern.accepts(state, len(one.dims)) for pattern, state, one in fitting):
            return False
        return self.agreed(logical.states)

    def agreed(self, states: Sequence[OperandState]) -> bool:
        """Return True if the states of the operands, or of the first ones, fulfil `types` and `same`."""
        if self.types:
            types = tuple(state.dtype.name for state in states)
            if not any(known[: len(types)] == types for known in self.types):
                return False
        return all(agree(field, states) for field in self.same)

    def shared(self, state: OperandState) -> tuple[object, ...]:
        """Return the fields of a state that are equal in all operands, except for `lanes`."""
        return tuple([getattr(state, field) for field in self.same if field != "lanes"])

    def compared(self, state: OperandState) -> tuple[object, ...]:
        """Return all fields of a state that `agreed` reads."""
        fields = ("dtype",) if self.types else ()
        fields += ("layout", "vector") if "lanes" in self.same else ()
        return tuple([getattr(state, field) for field in fields]) + self.shared(state)

    def accepts(self, logical: LogicalSpec) -> Mask:
        """Return True if the kernel implements the Spec; for a batch of Specs, an array."""
        rules = self.size_rules(len(logical.shape))
        if rules is None or not self.matches(logical):
            return False
        valid: Mask = True
        for size, rule in zip(logical.shape, rules, strict=True):
            if rule is not None:
                valid = valid & (size % rule.of == 0 if isinstance(rule, Multiple) else size == rule)
        return valid & self.when(logical) if self.when else valid

    def temporaries(self, logical: LogicalSpec, level: str) -> Num:
        """Return the registers of a level that a call uses besides its operands."""
        if self.registers is None:
            # Without a text, no state is read: search evaluates calls by the states that they read.
            if not isinstance(self.template, str):
                return 0
            if not any(state.vector and state.level == level for state in logical.states):
                return 0
            pairs = zip(logical.declared, logical.states, strict=True)
            return temporaries(self.template, frozenset(one.name for one, state in pairs if state.vector))
        count = self.registers.get(level, 0)
        return count(logical) if callable(count) else count

    def describe(self) -> str:
        """Return the Specs that it implements, in words, for messages."""
        shape = (self.shape,) if isinstance(self.shape, int) else self.shape or ()
        sizes = ["n" if size is None else f"{size.of}i" if isinstance(size, Multiple) else f"{size}" for size in shape]
        where = f" of {'×'.join(sizes)}" if sizes else ""
        return f"{self.op_name}{where} on {', '.join(f'({pattern})' for pattern in self.operands)}"


#: The rules of a microkernel, in the order in which they are checked.
OPERATION, PATTERN, TYPES, SAME, SIZE, WHEN = "operation", "pattern", "types", "same", "size", "when"


@attrs.frozen
class Mismatch:
    """A rule of a microkernel that a Spec breaks; `detail` says in words which value was required, and which given."""

    rule: str
    detail: str


def mismatch(kernel: Microkernel, logical: LogicalSpec) -> Mismatch | None:
    """Return the first rule that a Spec breaks; None just when `kernel.accepts` it."""
    return next(_mismatches(kernel, logical), None)


def _mismatches(kernel: Microkernel, logical: LogicalSpec) -> Iterator[Mismatch]:
    """Yield the broken rules. Those after the first may be meaningless."""
    if not kernel.implements(logical.op) or len(logical.states) != len(kernel.operands):
        yield Mismatch(OPERATION, f"it is for {kernel.op_name}")
        return
    for pattern, state, one in zip(kernel.operands, logical.states, logical.declared, strict=True):
        for detail in pattern.mismatches(state, len(one.dims)):
            yield Mismatch(PATTERN, f"{one.name}: {detail}")
    types = tuple(state.dtype.name for state in logical.states)
    if kernel.types and types not in kernel.types:
        known = " or ".join(", ".join(one) for one in kernel.types)
        yield Mismatch(TYPES, f"types are {known}, not {', '.join(types)}")
    for field in kernel.same:
        if not agree(field, logical.states):
            yield Mismatch(SAME, f"all operands have the same {field}")
    rules = kernel.size_rules(len(logical.shape))
    if rules is None:
        yield Mismatch(SIZE, f"{kernel.name} has another rank than {len(logical.shape)} dimensions")
        return
    for name, size, rule in zip(logical.dims, logical.shape, rules, strict=True):
        if isinstance(rule, Multiple) and size % rule.of:
            yield Mismatch(SIZE, f"{name} is a multiple of {rule.of}, not {size}")
        if isinstance(rule, int) and size != rule:
            yield Mismatch(SIZE, f"{name} is {rule}, not {size}")
    if kernel.when is not None and not np.all(kernel.when(logical)):
        yield Mismatch(WHEN, "its own condition does not hold")
