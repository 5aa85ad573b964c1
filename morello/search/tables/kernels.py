"""Microkernels: the costs of each, for all tuples of operand states it takes, on all shapes at once."""

from __future__ import annotations

import contextlib
import itertools
import math
import sys
from collections.abc import Iterable, Iterator, Sequence

import attrs
import numpy as np

from morello.errors import Inapplicable
from morello.ir.numbers import CellIndices, Num, anywhere, partition
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import OperandState
from morello.kernels.microkernel import CostPart, Microkernel
from morello.kernels.pattern import Multiple, OperandPattern
from morello.kernels.target import Target
from morello.rewrites.base import Rewrite, masked, rewrites_of, select_cells
from morello.rewrites.select import Select, checked_needs, checked_part, combined_costs, fulfilled
from morello.search.arrays import Bools, Floats, Ints, distinct_numbers
from morello.search.budget import check_budget
from morello.search.tables.memoize import StateList, box, evaluated
from morello.search.tables.operand_states import States
from morello.search.tables.shapes import Key, Space, Spaces
from morello.search.tables.step_tables import Priority, StepTables, overridden

#: Costs are capped here; search raises an error for costs past 2^53.
_MOST = 1 << 62
#: Costs combined per call, so that the arrays fit into caches.
_AT_ONCE = 1 << 17
#: The bytes of each level that calls need, the shapes of these calls, and the places of these shapes.
_Needs = tuple[tuple[int, ...], Ints, CellIndices]
#: Distinct costs of calls, [distinct, shapes], the row of each tuple of states, and the needs.
_Calls = tuple[Floats, Ints, list[_Needs]]


@attrs.frozen
class _StateGroup:
    """Interchangeable states of an operand: alike in all that the kernel compares and in the shapes they describe."""

    #: One of them.
    state: OperandState
    described: Bools
    states: list[int] = attrs.field(factory=list[int])


#: Groups of states by the fields that must be equal in all operands.
_Groups = dict[tuple[object, ...], list[_StateGroup]]


@attrs.frozen(eq=False)
class _PartValues:
    """Distinct values of a part of a cost: [distinct, shapes], or [distinct, values, shapes] if it `is_tuple`."""

    values: Ints
    is_tuple: bool

    def __len__(self) -> int:
        return len(self.values)

    def at(self, which: Ints) -> Ints | tuple[Ints, ...]:
        """Return the chosen values in the form that the kernel's `combine` takes."""
        return tuple(np.moveaxis(self.values[which], 1, 0)) if self.is_tuple else self.values[which]


@attrs.frozen(eq=False)
class KernelTable:
    """One kernel on some `shapes`, [m], for operands in some tuples of `states`, [n, operands].

    It needs `needs` bytes of each level. `costs`, [distinct, m], are its distinct costs; `which`, [n], gives the row
    of each tuple.
    """

    step: Select
    priority: int
    states: Ints
    which: Ints
    shapes: Ints
    costs: Floats
    needs: tuple[int, ...]

    def least(self, groups: Ints) -> tuple[Ints, Floats]:
        """Return the distinct numbers in `groups`, [n], and the minimal costs, [distinct, m], of each group."""
        group, which = np.divmod(distinct_numbers(groups * len(self.costs) + self.which), len(self.costs))
        first = np.flatnonzero(np.diff(group, prepend=-1))
        return group[first], np.minimum.reduceat(self.costs[which], first, axis=0)


class KernelTables(StepTables):
    """Every implementation of Specs by one kernel, by space."""

    def __init__(self, spaces: Spaces, target: Target):
        super().__init__(spaces, target)
        self.by_key: dict[Key, list[KernelTable]] = {}
        #: The costs of all tables of a space, one after another; those of each table are views.
        self.costs: dict[Key, Floats] = {}
        #: Shared by kernels with the same patterns.
        self._lists: dict[tuple[int, bytes], StateList] = {}
        self._accepting: dict[tuple[OperandPattern, int], list[int]] = {}

    @staticmethod
    def handles(rewrite: type[Rewrite]) -> bool:
        # Search calls `cases`, for every kernel, and assumes that the rest is that of Select.
        return issubclass(rewrite, Select) and overridden(rewrite, Select) <= {"cases"}

    def step(self, logical: LogicalSpec, priority: Priority) -> Rewrite:
        return self._step(priority.rewrite, self.target.kernels[priority.step])

    def finish(self, states: States) -> None:
        for key, space in self.spaces.by_key.items():
            known = self._looked_up(space, states)
            self._store(key, self._tabulate(space, states) if known is None else known)
        self._lists.clear()
        self._accepting.clear()

    def _store(self, key: Key, tables: Iterable[KernelTable]) -> None:
        """Store the tables of a space, whose costs are moved to one array as they come: they take much memory."""
        costs, size, shapes = np.zeros(_AT_ONCE), 0, list[tuple[int, ...]]()
        self.by_key[key] = []
        for table in tables:
            start, size = size, size + table.costs.size
            if size > costs.size:
                costs.resize(max(size, costs.size * 5 // 4), refcheck=False)
            costs[start:size] = table.costs.reshape(-1)
            shapes.append(table.costs.shape)
            self.by_key[key].append(attrs.evolve(table, costs=np.zeros((0, 0))))
        costs.resize(size, refcheck=False)
        self.costs[key] = costs
        ends = np.cumsum([math.prod(shape) for shape in shapes], dtype=np.int64)
        parts = zip(self.by_key[key], np.split(costs, ends[:-1]), shapes, strict=False)
        self.by_key[key] = [attrs.evolve(table, costs=own.reshape(shape)) for table, own, shape in parts]

    def _looked_up(self, space: Space, states: States) -> Iterator[KernelTable] | None:
        """Return the part of the tables of a larger target that covers a space, None if they do not."""
        whole = self.whole
        if (
            whole is None
            or space.key not in whole.spaces.by_key
            or any(one not in whole.states.numbers for one in states.states)
        ):
            return None
        every = whole.spaces.by_key[space.key]
        numbers = every.numbers(list(space.sizes))
        if np.any(numbers < 0):
            return None
        shape, state = np.full(every.count, -1), np.full(len(whole.states), -1)
        shape[numbers] = np.arange(space.count)
        state[[whole.states.numbers[one] for one in states.states]] = np.arange(len(states))
        tables = (_within(table, shape, state) for table in whole.of(KernelTables).by_key[space.key])
        return (table for table in tables if table)

    def _step(self, place: int, kernel: Microkernel) -> Select:
        rewrite = rewrites_of(self.target)[place]
        assert issubclass(rewrite, Select)
        return rewrite(kernel.name)

    def _tabulate(self, space: Space, states: States) -> Iterator[KernelTable]:
        for place, _ in self.rewrites(self.target):
            for index, kernel in enumerate(self.target.kernels):
                if kernel.implements(space.key.op) and len(kernel.operands) == len(space.operands):
                    step, priority = self._step(place, kernel), Priority(place, index).pack()
                    yield from self._tables(step, kernel, space, states, priority)

    def _tables(
        self, step: Select, kernel: Microkernel, space: Space, states: States, priority: int
    ) -> Iterator[KernelTable]:
        cells = np.flatnonzero(_fitting_shapes(kernel, space))
        groups = [self._groups(kernel, each, space, states, cells) for each in range(len(kernel.operands))]
        for described, numbers, together in _compatible(kernel, groups, cells):
            lists = [self._state_list(operand, own, states) for operand, own in enumerate(numbers)]
            calls = _KernelCalls(self.target, step, kernel, space, cells[described])
            for places, (costs, which, needs) in calls.of(lists, together):
                chosen = np.nonzero(together[box(places)])
                tuples = np.stack([own[at][one] for own, at, one in zip(numbers, places, chosen, strict=True)], axis=-1)
                for need, shapes, part in needs:
                    taken = costs if part is None else costs[:, part]
                    yield KernelTable(step, priority, tuples, which, shapes, taken, need)

    def _groups(self, kernel: Microkernel, index: int, space: Space, states: States, cells: Ints) -> _Groups:
        """Return the states that an operand's pattern accepts, in groups."""
        tensors = space.tensors[index][cells]
        reached = {dtypes[index] for dtypes in self.spaces.dtypes[space.key]}
        groups: dict[tuple[object, ...], _StateGroup] = {}
        for number in self._accepted(kernel.operands[index], len(space.operands[index].dims), states):
            _, state = states.states[number]
            if state.dtype not in reached:
                continue
            described = states.describes(number)[tensors]
            key = (*kernel.compared(state), described.tobytes())
            groups.setdefault(key, _StateGroup(state, described)).states.append(number)
        by_shared: _Groups = {}
        for group in groups.values():
            if group.described.any():
                by_shared.setdefault(kernel.shared(group.state), []).append(group)
        return by_shared

    def _accepted(self, pattern: OperandPattern, rank: int, states: States) -> list[int]:
        """Return the states of a rank that a pattern accepts."""
        if (pattern, rank) not in self._accepting:
            self._accepting[pattern, rank] = [
                number
                for number, (own, state) in enumerate(states.states)
                if own == rank and pattern.accepts(state, rank)
            ]
        return self._accepting[pattern, rank]

    def _state_list(self, operand: int, numbers: Ints, states: States) -> StateList:
        key = operand, numbers.tobytes()
        if key not in self._lists:
            self._lists[key] = StateList([states.states[int(number)][1] for number in numbers])
        return self._lists[key]


def _within(table: KernelTable, shape: Ints, state: Ints) -> KernelTable | None:
    """Return the part of a table for some shapes and states, given the new number of each, -1: none."""
    shapes, tuples = shape[table.shapes], state[table.states]
    there, chosen = np.flatnonzero(shapes >= 0), np.flatnonzero(np.all(tuples >= 0, axis=1))
    if not len(there) or not len(chosen):
        return None
    rows, which = np.unique(table.which[chosen], return_inverse=True)
    costs = table.costs[np.ix_(rows, there)]
    return attrs.evolve(table, states=tuples[chosen], which=which.reshape(-1), shapes=shapes[there], costs=costs)


@attrs.frozen(eq=False)
class _KernelCalls:
    """Calls of one kernel on some `shapes` of a space."""

    target: Target
    step: Select
    kernel: Microkernel
    space: Space
    shapes: Ints

    def of(self, operands: Sequence[StateList], wanted: Bools) -> Iterator[tuple[list[Ints], _Calls]]:
        """Yield the calls on the wanted tuples of states, with the places of these states (see `evaluated`)."""
        return (self._by_cases if overridden(type(self.step), Select) else self._by_parts)(operands, wanted)

    def _by_cases(self, operands: Sequence[StateList], wanted: Bools) -> Iterator[tuple[list[Ints], _Calls]]:
        """Yield the calls by a class that overrides Select's `cases`."""

        def cases(states: Sequence[OperandState]) -> list[tuple[Floats, list[_Needs]]]:
            check_budget()
            found: list[tuple[Floats, list[_Needs]]] = []
            with contextlib.suppress(Inapplicable):
                for case in self.step.cases(self.space.batch(states, self.shapes), self.target):
                    fitting = self.shapes if case.cells is None else self.shapes[case.cells]
                    cost = np.broadcast_to(np.asarray(case.expansion.cost, dtype=np.float64), (1, len(fitting)))
                    found.append((cost, [*_by_needs(case.expansion.needs, fitting)]))
            return found

        for places, found in evaluated(cases, operands, wanted):
            which = np.zeros(np.count_nonzero(wanted[box(places)]), dtype=np.int64)
            for cost, needs in found:
                yield places, (cost, which, needs)

    def _by_parts(self, operands: Sequence[StateList], wanted: Bools) -> Iterator[tuple[list[Ints], _Calls]]:
        """Yield the calls of a kernel: its condition and needs read fewer fields of states than its cost."""
        sizes = [*self.space.sizes[:, self.shapes]]
        # Python ints are faster than arrays of length 1.
        shape: tuple[Num, ...] = tuple(sizes) if len(self.shapes) > 1 else tuple([int(size[0]) for size in sizes])

        def calls(states: Sequence[OperandState]) -> tuple[LogicalSpec, Ints, list[_Needs]] | None:
            check_budget()
            logical = LogicalSpec(self.space.key.op, shape, tuple(states), self.space.key.serial)
            mask = fulfilled(self.kernel, logical, self.target)
            if not anywhere(mask):
                return None
            cells = masked(None, mask)
            taken, fitting = select_cells(logical, cells), self.shapes if cells is None else self.shapes[cells]
            return taken, fitting, [*_by_needs(checked_needs(self.kernel, taken, self.target), fitting)]

        for places, found in evaluated(calls, operands, wanted):
            if found:
                taken, fitting, needs = found
                chosen = [own.at(each) for own, each in zip(operands, places, strict=True)]
                yield places, (*self._costs(taken, len(fitting), chosen, wanted[box(places)]), needs)

    def _costs(
        self, taken: LogicalSpec, shapes: int, operands: Sequence[StateList], wanted: Bools
    ) -> tuple[Floats, Ints]:
        """Return the distinct costs, [distinct, shapes], and the row of each wanted tuple of states."""
        codes = np.zeros(wanted.shape, dtype=np.int64)
        parts: list[tuple[int, _PartValues]] = []
        count = 1
        for part in self.kernel.cost_parts:
            number, values = self._part(part, taken, shapes, operands, wanted)
            parts.append((count, values))
            codes, count = codes + count * number, count * len(values)
        distinct, which = np.unique(codes[wanted], return_inverse=True)
        size = shapes * len(distinct)
        check_budget(8 * size)
        costs = [
            combined_costs(self.kernel, [own.at(some // weight % len(own)) for weight, own in parts], self.target)
            for some in np.array_split(distinct, size // _AT_ONCE + 1)
        ]
        return np.concatenate(costs, dtype=np.float64), which.reshape(-1)

    def _part(
        self, part: CostPart, taken: LogicalSpec, shapes: int, operands: Sequence[StateList], wanted: Bools
    ) -> tuple[Ints, _PartValues]:
        """Return the distinct values of a part of the cost, and the row of each tuple of states."""

        def value(states: Sequence[OperandState]) -> Num | tuple[Num, ...]:
            logical = LogicalSpec(taken.op, taken.shape, tuple(states), taken.serial)
            return checked_part(self.kernel, part, logical, self.target)

        number, rows = np.zeros(wanted.shape, dtype=np.int64), dict[bytes, int]()
        sizes: set[int | None] = set()
        for places, found in evaluated(value, operands, wanted):
            sizes.add(len(found) if isinstance(found, tuple) else None)
            each = found if isinstance(found, tuple) else (found,)
            row = b"".join([_in_bytes(one, shapes) for one in each])
            number[box(places)] = rows.setdefault(row, len(rows))
        if len(sizes) > 1:
            raise self.target.fault(self.kernel, "each part of its cost has as many values for all Specs")
        of_tuples = [size for size in sizes if size is not None]
        values = np.frombuffer(b"".join(rows), dtype=np.int64).reshape(len(rows), *of_tuples, shapes)
        return number, _PartValues(values, bool(of_tuples))


def _in_bytes(value: Num, shapes: int) -> bytes:
    """Return the bytes of one int64 per shape."""
    if isinstance(value, int):
        return min(value, _MOST).to_bytes(8, sys.byteorder, signed=True) * shapes
    values = np.asarray(value, dtype=np.int64)
    return (values if values.shape == (shapes,) else np.broadcast_to(values, shapes)).tobytes()


def _by_needs(needs: Sequence[Num], shapes: Ints) -> Iterator[_Needs]:
    """Yield the distinct needs of calls on some shapes, with the shapes of each and their places."""
    if all(isinstance(need, int) for need in needs):
        yield tuple(map(int, needs)), shapes, None
        return
    columns = np.stack([np.broadcast_to(np.asarray(need, dtype=np.int64), shapes.shape) for need in needs])
    for distinct, cells in partition(tuple(columns)):
        yield tuple(distinct), shapes if cells is None else shapes[cells], cells


def _fitting_shapes(kernel: Microkernel, space: Space) -> Bools:
    """Return which shapes the kernel's size rules allow, [shapes]."""
    allowed = np.ones(space.count, dtype=np.bool_)
    rules = kernel.size_rules(len(space.sizes))
    if rules is None:
        return ~allowed
    for size, rule in zip(space.sizes, rules, strict=True):
        if rule is not None:
            allowed &= size % rule.of == 0 if isinstance(rule, Multiple) else size == rule
    return allowed


def _compatible(
    kernel: Microkernel, operands: Sequence[_Groups], cells: Ints
) -> Iterator[tuple[Bools, list[Ints], Bools]]:
    """Yield the tuples of states that a kernel takes together, batched by the cells that they describe.

    A batch is a mask of cells, the numbers of each operand's states, and a mask of the compatible tuples of these.
    """
    alike: dict[bytes, tuple[Bools, list[tuple[_StateGroup, ...]]]] = {}
    for chosen, described in _extended((), np.ones(len(cells), dtype=np.bool_), operands, kernel):
        alike.setdefault(described.tobytes(), (described, []))[1].append(chosen)
    for described, tuples in alike.values():
        numbers: list[Ints] = []
        places: list[dict[int, Ints]] = []
        for own in zip(*tuples, strict=True):
            distinct = {id(group): group for group in own}
            ends = np.cumsum([0, *(len(group.states) for group in distinct.values())])
            numbers.append(np.array([number for group in distinct.values() for number in group.states]))
            places.append({name: np.arange(*ends[at : at + 2]) for at, name in enumerate(distinct)})
        together = np.zeros([len(own) for own in numbers], dtype=np.bool_)
        for chosen in tuples:
            together[box([own[id(group)] for own, group in zip(places, chosen, strict=True)])] = True
        yield described, numbers, together


def _extended(
    chosen: tuple[_StateGroup, ...], described: Bools, operands: Sequence[_Groups], kernel: Microkernel
) -> Iterator[tuple[tuple[_StateGroup, ...], Bools]]:
    """Yield every compatible extension of `chosen` to one group per operand, with the cells it describes, if any."""
    if len(chosen) == len(operands):
        yield chosen, described
        return
    own = operands[len(chosen)]
    known = [group.state for group in chosen]
    for group in own.get(kernel.shared(known[0]), []) if known else itertools.chain(*own.values()):
        both = described & group.described
        if kernel.agreed([*known, group.state]) and both.any():
            yield from _extended((*chosen, group), both, operands, kernel)
