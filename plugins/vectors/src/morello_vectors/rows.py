"""Kernels of whole rows, which are fetched from memory once, and those of graphs of sums and products, such as norms.

Passes after the first find the row in a cache; meanwhile the next row is prefetched, so that computing overlaps with
memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache

import attrs

from morello.ir.dtypes import F32
from morello.ir.numbers import Mask, Num, choose, product
from morello.ir.ops.base import Operation
from morello.ir.ops.binary import Add, Mul, Sub
from morello.ir.ops.compose import Compose
from morello.ir.ops.reduce import Mean, Reduction, Sum
from morello.ir.ops.unary import Rsqrt, Scale, Shift
from morello.ir.spec import LogicalSpec
from morello.kernels.site import KernelSite
from morello.plugins import Machine, Microkernel, OperandPattern
from morello_vectors.common import HALF_CYCLE, MEMORIES
from morello_vectors.elementwise import expression
from morello_vectors.lanes import FLOATS, Place, conversions, fit_lanes, places, repeat, splat, width
from morello_vectors.reduce import fold
from morello_vectors.values import literal
from morello_vectors.vector_math import cycles

#: Half cycles of a pass through a row besides those of its vectors, which memory does not hide: latencies, and
#: combining lanes. Measured on a core of Zen 4.
_PASS = 40


def of_row(row: Num, passes: int, spec: LogicalSpec, machine: Machine, computing: Num) -> Num:
    """Return the cost of `computing` while operands come from memory: in each pass, if caches do not keep a `row`.

    Rows are fetched ahead, so that none of them waits for its first line.
    """
    traffic = sum(machine.move_cost(one) - machine.level(one.state.level).start_cost for one in spec.operands)
    traffic = choose(row > machine.level("L2").capacity, passes * traffic, traffic)
    return choose(traffic > computing, traffic, computing)


@attrs.frozen
class _Pass:
    """A reduction of a row to a single value, or the output: stage `end`, from rows (`inputs`) through `stages`."""

    end: int
    stages: tuple[int, ...]
    inputs: tuple[int, ...]


@attrs.frozen
class _Plan:
    """Passes of a graph along dimension `dim`. `singles` are the stages and inputs (see `Compose`) of one value."""

    dim: int
    singles: frozenset[int]
    passes: tuple[_Pass, ...]


_COMPUTED = (Add, Sub, Mul, Scale, Shift, Rsqrt)


@cache
def _plan(op: Operation) -> _Plan | None:
    """Return the passes of a graph, if it reduces rows along one dimension and makes a row. None for others."""
    if (
        not isinstance(op, Compose)
        or op.outputs
        or not all(isinstance(one.op, (*_COMPUTED, Mean, Sum)) for one in op.stages)
    ):
        return None
    axes = {number: one.op.axes(one.rank) for number, one in enumerate(op.stages) if isinstance(one.op, Reduction)}
    along = {op.wiring.stages[number][axis] for number, dims in axes.items() for axis in dims}
    if len(along) != 1 or not (extent := along.pop()).is_dimension:
        return None
    ((dim, _),) = extent.terms
    sizes = [2 if one == dim else 1 for one in range(op.rank)]
    entries = {~number: op.intermediate_shape(number, sizes) for number in range(len(op.stages))}
    entries |= {number: one.shape(sizes) for number, one in enumerate(op.operands(op.rank)[: op.inputs])}
    singles = frozenset(entry for entry, shape in entries.items() if product(shape) == 1)
    if ~0 in singles:
        return None
    return _Plan(dim, singles, tuple(_pass(op, number, singles) for number in (*reversed(axes), 0)))


def _pass(op: Compose, end: int, singles: frozenset[int]) -> _Pass:
    found = {~end}
    for number in range(end, len(op.stages)):
        if ~number in found:
            found.update(entry for entry in op.stages[number].inputs if entry not in singles)
    stages = tuple(~entry for entry in sorted(found, reverse=True) if entry < 0)
    return _Pass(end, stages, tuple(sorted(entry for entry in found if entry >= 0)))


@attrs.frozen
class _Code:
    """The C of a graph on one row. `singles` are variables, with their value in all lanes."""

    site: KernelSite
    op: Compose
    plan: _Plan
    values: int
    singles: dict[int, str] = attrs.field(factory=dict[int, str])

    @property
    def kind(self) -> str:
        return self.site.vector_type(F32, self.values)

    def print(self) -> None:
        ends = {one.end: one for one in self.plan.passes}
        for entry in sorted(entry for entry in self.plan.singles if entry >= 0):
            self.singles[entry] = splat(self.site, self.site.operand(entry), self.values)
        for number in reversed(range(1, len(self.op.stages))):
            if number in ends:
                self.singles[~number] = self._reduced(ends[number])
            elif ~number in self.plan.singles:
                self.singles[~number] = self._declared(self.site.line, self._text(number, self.singles))
        last = self.plan.passes[-1]
        for place in places(self.site, self.values, (*last.inputs, self.op.inputs)):
            made = self._made(place, last.stages[1:], last.inputs)
            place.write(self.op.inputs, self._text(0, made))
            for entry in last.inputs:
                place.fetch_next_row(entry)

    def _declared(self, line: Callable[[str], None], text: str) -> str:
        name = self.site.fresh("value")
        line(f"    const {self.kind} {name} = {text};")
        return name

    def _made(self, place: Place, stages: tuple[int, ...], inputs: tuple[int, ...]) -> Mapping[int, str]:
        """Print the vectors of inputs and stages at a place; return their variables."""
        made = self.singles | {entry: self._declared(place.line, place.read(entry)) for entry in inputs}
        for number in reversed(stages):
            made[~number] = self._declared(place.line, self._text(number, made))
        return made

    def _text(self, number: int, made: Mapping[int, str]) -> str:
        """Return the expression of a stage of vectors."""
        stage = self.op.stages[number]
        op, given = stage.op, [made[entry] for entry in stage.inputs]
        return expression(op, self.site, F32, self.values, *given)

    def _all(self, value: str) -> str:
        return f"{repeat(self.site, F32, self.values)}({value})"

    def _reduced(self, one: _Pass) -> str:
        """Print a pass that adds up a row. Return the variable of the sum or mean."""
        stage = self.op.stages[one.end]
        (source,) = stage.inputs
        multiplies = source < 0 and isinstance(self.op.stages[~source].op, Mul)

        def term(place: Place) -> str | tuple[str, str]:
            made = self._made(place, one.stages[2 if multiplies else 1 :], one.inputs)
            if not multiplies:
                return made[source]
            first, second = (made[entry] for entry in self.op.stages[~source].inputs)
            return first, second

        total = fold(self.site, Add, self.values, one.inputs, term)
        if isinstance(stage.op, Mean):
            total = f"{literal(1 / int(self.site.spec.shape[self.plan.dim]), F32)} * {total}"
        return self._declared(self.site.line, self._all(total))


def _half_cycles(op: Compose, plan: _Plan, values: int) -> int:
    """Return the half cycles of a vector in all passes together: loads and computing overlap."""
    rsqrt = cycles("rsqrt", values)
    return sum(
        max(
            len(one.inputs) + (one.end == 0),
            sum(rsqrt if isinstance(op.stages[number].op, Rsqrt) else 1 for number in one.stages),
        )
        for one in plan.passes
    )


def _kernel(widest: int, inputs: int) -> Microkernel:
    def only(op: Operation) -> bool:
        return _plan(op) is not None and len(op.operands(op.rank or 0)) == inputs + 1

    def when(spec: LogicalSpec) -> Mask:
        plan = _plan(spec.op)
        assert plan is not None
        rows = [state.level for entry, state in enumerate(spec.states) if entry not in plan.singles]
        if "RF" in rows or not fit_lanes(spec, widest):
            return False
        valid: Mask = spec.shape[plan.dim] % width(spec, widest) == 0
        for dim, size in enumerate(spec.shape):
            if dim != plan.dim:
                valid = valid & (size == 1)
        return valid

    def cost(spec: LogicalSpec, machine: Machine) -> Num:
        plan, values = _plan(spec.op), width(spec, widest)
        assert plan is not None
        assert isinstance(spec.op, Compose)
        size, passes = spec.shape[plan.dim], len(plan.passes)
        each = _half_cycles(spec.op, plan, values) + passes * conversions(spec)
        row = size * sum(state.dtype.bytes for entry, state in enumerate(spec.states) if entry not in plan.singles)
        return of_row(row, passes, spec, machine, HALF_CYCLE * each * (size // values)) + HALF_CYCLE * passes * _PASS

    def emit(site: KernelSite) -> None:
        plan = _plan(site.spec.op)
        assert plan is not None
        assert isinstance(site.spec.op, Compose)
        site.line("{")
        _Code(site, site.spec.op, plan, width(site.spec, widest)).print()
        site.line("}")

    return Microkernel(
        name=f"VectorNorm{inputs}",
        op=Compose,
        only=only,
        operands=(OperandPattern(levels=("RF", *MEMORIES), dtypes=FLOATS),) * (inputs + 1),
        same=("lanes",),
        when=when,
        cost=cost,
        registers={"VRF": 12},
        emit=emit,
        in_place=True,
    )


def kernels(widest: int) -> Iterator[Microkernel]:
    """Yield the kernels of graphs with as many inputs as norms, in vectors of `widest` bytes."""
    return (_kernel(widest, inputs) for inputs in (1, 2, 3))
