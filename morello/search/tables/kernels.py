"""Microkernels: for all tuples of operand states that a kernel takes, its costs on all shapes at once."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Iterator, Sequence
from functools import partial

import attrs
import numpy as np

from morello.errors import Inapplicable
from morello.ir.numbers import CellIndices, Num, anywhere, partition
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import OperandState
from morello.kernels.microkernel import CostPart, Microkernel, Multiple, OperandPattern
from morello.kernels.target import Target
from morello.rewrites.base import Rewrite, masked, rewrites_of, select_cells
from morello.rewrites.select import Select, checked_needs, checked_part, combined_costs, fulfilled
from morello.search.arrays import Bools, Floats, Ints, distinct_numbers
from morello.search.tables.asked import Choices, answers, box
from morello.search.tables.operand_states import States
from morello.search.tables.priorities import Priority
from morello.search.tables.shapes import Key, Space, Spaces
from morello.search.tables.step_tables import StepTables, overridden
from morello.search.watch import check

#: More than search counts exactly, which it says where it comes to that.
_MOST = 1 << 62
#: Costs that are worked out at once: so many stay in caches.
_AT_ONCE = 1 << 17
#: Bytes of each level that calls need, on which shapes, and their places among those asked for.
_Needs = tuple[tuple[int, ...], Ints, CellIndices]
#: Costs of calls, [distinct, shapes], which of them each tuple of states has, and what calls need.
_Calls = tuple[Floats, Ints, list[_Needs]]


@attrs.frozen
class _Choice:
    """States of an operand that go with the same other ones, `state` among them, and the cells they describe."""

    state: OperandState
    described: Bools
    states: list[int] = attrs.field(factory=list[int])


#: By what must be the same in all operands.
_Choices = dict[tuple[object, ...], list[_Choice]]


@attrs.frozen(eq=False)
class _Values:
    """Distinct values of a part of costs: [distinct, shapes], or [distinct, values, shapes] where it `is_tuple`."""

    values: Ints
    is_tuple: bool

    def __len__(self) -> int:
        return len(self.values)

    def at(self, which: Ints) -> Ints | tuple[Ints, ...]:
        """Return some of them, as the kernel combines them."""
        return tuple(np.moveaxis(self.values[which], 1, 0)) if self.is_tuple else self.values[which]


@attrs.frozen(eq=False)
class KernelTable:
    """One kernel on some `shapes`, [m], and on operands in some `states`, [n, operands].

    It needs `needs` bytes of each level, and its cost is one of `costs`, [distinct, m]: `which` says for each n.
    """

    step: Select
    priority: int
    states: Ints
    which: Ints
    shapes: Ints
    costs: Floats
    needs: tuple[int, ...]

    def least(self, groups: Ints) -> tuple[Ints, Floats]:
        """Return the least costs, [groups, m], of states that are grouped by a number, [n], and these numbers."""
        group, which = np.divmod(distinct_numbers(groups * len(self.costs) + self.which), len(self.costs))
        first = np.flatnonzero(np.diff(group, prepend=-1))
        return group[first], np.minimum.reduceat(self.costs[which], first, axis=0)


class KernelTables(StepTables):
    """Every way to implement Specs by one kernel, by space."""

    def __init__(self, spaces: Spaces, target: Target):
        super().__init__(spaces, target)
        self.by_key: dict[Key, list[KernelTable]] = {}
        self._choices: dict[tuple[int, bytes], Choices] = {}
        self._accepting: dict[tuple[OperandPattern, int], list[int]] = {}

    @staticmethod
    def handles(rewrite: type[Rewrite]) -> bool:
        # Search asks for `cases`, of every kernel; the rest it takes to be as it is in Select.
        return issubclass(rewrite, Select) and overridden(rewrite, Select) <= {"cases"}

    def step(self, logical: LogicalSpec, priority: Priority) -> Rewrite:
        return self._step(priority.rewrite, self.target.kernels[priority.step])

    def finish(self, states: States) -> None:
        self.by_key = {key: [*self._tabulate(space, states)] for key, space in self.spaces.by_key.items()}
        self._choices.clear()
        self._accepting.clear()

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
        ask = self._by_cases if overridden(type(step), Select) else partial(self._by_parts, kernel)
        accepted = [self._choices_of(kernel, each, space, states, cells) for each in range(len(kernel.operands))]
        for described, numbers, together in _agreeing(kernel, accepted, cells):
            choices = [self._asked_about(operand, own, states) for operand, own in enumerate(numbers)]
            for places, (costs, which, needs) in ask(step, space, cells[described], choices, together):
                chosen = np.nonzero(together[box(places)])
                tuples = np.stack([own[at][one] for own, at, one in zip(numbers, places, chosen, strict=True)], axis=-1)
                for need, shapes, part in needs:
                    taken = costs if part is None else costs[:, part]
                    yield KernelTable(step, priority, tuples, which, shapes, taken, need)

    def _choices_of(self, kernel: Microkernel, index: int, space: Space, states: States, cells: Ints) -> _Choices:
        """Return states that an operand's pattern accepts, by what the kernel asks to be the same in all operands."""
        tensors = space.tensors[index][cells]
        choices: dict[tuple[object, ...], _Choice] = {}
        for number in self._accepted(kernel.operands[index], len(space.operands[index].dims), states):
            _, state = states.states[number]
            described = states.describes(number)[tensors]
            key = (*kernel.compared(state), described.tobytes())
            choices.setdefault(key, _Choice(state, described)).states.append(number)
        by_same: _Choices = {}
        for choice in choices.values():
            if choice.described.any():
                by_same.setdefault(kernel.shared(choice.state), []).append(choice)
        return by_same

    def _accepted(self, pattern: OperandPattern, rank: int, states: States) -> list[int]:
        """Return the states of a rank that a pattern accepts: many kernels have the same patterns."""
        if (pattern, rank) not in self._accepting:
            self._accepting[pattern, rank] = [
                number
                for number, (own, state) in enumerate(states.states)
                if own == rank and pattern.accepts(state, rank)
            ]
        return self._accepting[pattern, rank]

    def _asked_about(self, operand: int, numbers: Ints, states: States) -> Choices:
        """Return some states as those of one operand: many kernels are asked about the same."""
        key = operand, numbers.tobytes()
        if key not in self._choices:
            self._choices[key] = Choices([states.states[int(number)][1] for number in numbers])
        return self._choices[key]

    def _by_cases(
        self, step: Select, space: Space, inside: Ints, choices: Sequence[Choices], together: Bools
    ) -> Iterator[tuple[list[Ints], _Calls]]:
        """Yield the calls of a kernel where `cases` are not those of Select."""

        def ask(states: Sequence[OperandState]) -> list[tuple[Floats, list[_Needs]]]:
            check()
            found: list[tuple[Floats, list[_Needs]]] = []
            with contextlib.suppress(Inapplicable):
                for case in step.cases(space.batch(states, inside), self.target):
                    fitting = inside if case.cells is None else inside[case.cells]
                    cost = np.broadcast_to(np.asarray(case.expansion.cost, dtype=np.float64), (1, len(fitting)))
                    found.append((cost, [*_by_needs(case.expansion.needs, fitting)]))
            return found

        for places, found in answers(ask, choices, together):
            which = np.zeros(np.count_nonzero(together[box(places)]), dtype=np.int64)
            for cost, needs in found:
                yield places, (cost, which, needs)

    def _by_parts(
        self,
        kernel: Microkernel,
        step: Select,
        space: Space,
        inside: Ints,
        choices: Sequence[Choices],
        together: Bools,
    ) -> Iterator[tuple[list[Ints], _Calls]]:
        """Yield the calls of a kernel: its condition and needs look at fewer fields of states than its cost."""

        sizes = [*space.sizes[:, inside]]
        # Numbers take less time than arrays of one.
        shape: tuple[Num, ...] = tuple(sizes) if len(inside) > 1 else tuple([int(size[0]) for size in sizes])

        def ask(states: Sequence[OperandState]) -> tuple[LogicalSpec, Ints, list[_Needs]] | None:
            check()
            logical = LogicalSpec(space.key.op, shape, tuple(states), space.key.serial)
            mask = fulfilled(kernel, logical, self.target)
            if not anywhere(mask):
                return None
            cells = masked(None, mask)
            taken, fitting = select_cells(logical, cells), inside if cells is None else inside[cells]
            return taken, fitting, [*_by_needs(checked_needs(kernel, taken, self.target), fitting)]

        for places, found in answers(ask, choices, together):
            if found:
                taken, fitting, needs = found
                chosen = [own.at(each) for own, each in zip(choices, places, strict=True)]
                yield places, (*self._costs(kernel, taken, len(fitting), chosen, together[box(places)]), needs)

    def _costs(
        self, kernel: Microkernel, taken: LogicalSpec, shapes: int, choices: Sequence[Choices], together: Bools
    ) -> tuple[Floats, Ints]:
        """Return the distinct costs of a kernel, [distinct, shapes], and which of them each tuple of states has."""
        codes = np.zeros(together.shape, dtype=np.int64)
        parts: list[tuple[int, _Values]] = []
        count = 1
        for part in kernel.cost_parts:
            number, values = self._values(kernel, part, taken, shapes, choices, together)
            parts.append((count, values))
            codes, count = codes + count * number, count * len(values)
        distinct, which = np.unique(codes[together], return_inverse=True)
        size = shapes * len(distinct)
        check(8 * size)
        costs = [
            combined_costs(kernel, [own.at(some // weight % len(own)) for weight, own in parts], self.target)
            for some in np.array_split(distinct, size // _AT_ONCE + 1)
        ]
        return np.concatenate(costs, dtype=np.float64), which.reshape(-1)

    def _values(
        self,
        kernel: Microkernel,
        part: CostPart,
        taken: LogicalSpec,
        shapes: int,
        choices: Sequence[Choices],
        together: Bools,
    ) -> tuple[Ints, _Values]:
        """Return what goes into the costs of a kernel, and which of it each tuple of states has."""

        def ask(states: Sequence[OperandState]) -> Num | tuple[Num, ...]:
            logical = LogicalSpec(taken.op, taken.shape, tuple(states), taken.serial)
            return checked_part(kernel, part, logical, self.target)

        number, rows = np.zeros(together.shape, dtype=np.int64), dict[bytes, int]()
        sizes: set[int | None] = set()
        for places, found in answers(ask, choices, together):
            sizes.add(len(found) if isinstance(found, tuple) else None)
            each = found if isinstance(found, tuple) else (found,)
            # In many states operands cost the same.
            row = b"".join([_in_bytes(one, shapes) for one in each])
            number[box(places)] = rows.setdefault(row, len(rows))
        if len(sizes) > 1:
            raise self.target.fault(kernel, "each part of its cost has as many values for all Specs")
        of_tuples = [size for size in sizes if size is not None]
        values = np.frombuffer(b"".join(rows), dtype=np.int64).reshape(len(rows), *of_tuples, shapes)
        return number, _Values(values, bool(of_tuples))


def _in_bytes(value: Num, shapes: int) -> bytes:
    """Return a value per shape, or one of all, as bytes that differ where values do."""
    if isinstance(value, int):
        return min(value, _MOST).to_bytes(8, sys.byteorder, signed=True) * shapes
    values = np.asarray(value, dtype=np.int64)
    return (values if values.shape == (shapes,) else np.broadcast_to(values, shapes)).tobytes()


def _by_needs(needs: Sequence[Num], shapes: Ints) -> Iterator[_Needs]:
    """Yield the bytes per level that calls on some shapes need, which shapes need them, and their places."""
    if all(isinstance(need, int) for need in needs):
        yield tuple(map(int, needs)), shapes, None
        return
    columns = np.stack([np.broadcast_to(np.asarray(need, dtype=np.int64), shapes.shape) for need in needs])
    for distinct, cells in partition(tuple(columns)):
        yield tuple(distinct), shapes if cells is None else shapes[cells], cells


def _fitting_shapes(kernel: Microkernel, space: Space) -> Bools:
    """Return which shapes the kernel's size rules allow, [shapes]."""
    allowed = np.ones(space.count, dtype=np.bool_)
    if kernel.shape is not None and len(kernel.shape) != len(space.sizes):
        return ~allowed
    for size, rule in zip(space.sizes, kernel.shape or (), strict=False):
        if rule is not None:
            allowed &= size % rule.of == 0 if isinstance(rule, Multiple) else size == rule
    return allowed


def _agreeing(
    kernel: Microkernel, choices: Sequence[_Choices], cells: Ints
) -> Iterator[tuple[Bools, list[Ints], Bools]]:
    """Yield tuples of states that go together, those at once that describe the same of the cells.

    These are a mask of cells, the numbers of each operand's states, and which of all their tuples go together.
    """
    alike: dict[bytes, tuple[Bools, list[tuple[_Choice, ...]]]] = {}
    for chosen, described in _extended((), np.ones(len(cells), dtype=np.bool_), choices, kernel):
        alike.setdefault(described.tobytes(), (described, []))[1].append(chosen)
    for described, tuples in alike.values():
        numbers: list[Ints] = []
        places: list[dict[int, Ints]] = []
        for own in zip(*tuples, strict=True):
            distinct = {id(choice): choice for choice in own}
            ends = np.cumsum([0, *(len(choice.states) for choice in distinct.values())])
            numbers.append(np.array([number for choice in distinct.values() for number in choice.states]))
            places.append({name: np.arange(*ends[at : at + 2]) for at, name in enumerate(distinct)})
        together = np.zeros([len(own) for own in numbers], dtype=np.bool_)
        for chosen in tuples:
            together[box([own[id(choice)] for own, choice in zip(places, chosen, strict=True)])] = True
        yield described, numbers, together


def _extended(
    chosen: tuple[_Choice, ...], described: Bools, choices: Sequence[_Choices], kernel: Microkernel
) -> Iterator[tuple[tuple[_Choice, ...], Bools]]:
    """Yield one of each of the choices after those `chosen`, such that all go together and describe some cell."""
    if len(chosen) == len(choices):
        yield chosen, described
        return
    own = choices[len(chosen)]
    known = [choice.state for choice in chosen]
    for choice in own.get(kernel.shared(known[0]), []) if known else itertools.chain(*own.values()):
        both = described & choice.described
        if kernel.agreed([*known, choice.state]) and both.any():
            yield from _extended((*chosen, choice), both, choices, kernel)
