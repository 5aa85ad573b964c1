"""Microkernels: for every tuple of operand states that a kernel takes, its cost on all shapes at once."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import itemgetter

import attrs
import numpy as np

from morello.errors import Inapplicable
from morello.ir.numbers import CellIndices, Num, partition, take
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import OperandState
from morello.kernels.microkernel import Microkernel, Multiple
from morello.kernels.target import Target
from morello.rewrites.base import Rewrite, masked, rewrites_of, select_cells
from morello.rewrites.select import Select, checked_cost, checked_needs, fulfilled
from morello.search.arrays import Bools, Floats, Ints
from morello.search.tables.asked import Answers
from morello.search.tables.operand_states import States
from morello.search.tables.priorities import Priority
from morello.search.tables.shapes import Key, Space, Spaces
from morello.search.tables.step_tables import StepTables, overridden
from morello.search.watch import check

#: The shapes that a kernel applies to, its costs there, and what it needs in bytes.
_Costs = tuple[Ints, Floats, tuple[int, ...]]
_Ask = Callable[[Sequence[OperandState]], list[_Costs]]


@attrs.frozen
class _Choice:
    """States of an operand that go with the same other ones, `state` among them, and the cells they describe."""

    state: OperandState
    described: Bools
    states: list[int] = attrs.field(factory=list[int])


#: By what must be the same in all operands.
_Choices = dict[tuple[object, ...], list[_Choice]]


@attrs.frozen
class KernelTable:
    """One kernel on operands in these states: the shapes it applies to, [n], and its `cost`, [n]; `needs` in bytes.

    Many tables share their arrays.
    """

    states: tuple[int, ...]
    step: Select
    priority: int
    shapes: Ints
    cost: Floats
    needs: tuple[int, ...]

    def lower(self, costs: Floats) -> None:
        """Lower costs, [shapes of the space], to this kernel's where it applies."""
        costs[self.shapes] = np.minimum(costs[self.shapes], self.cost)


class KernelTables(StepTables):
    """Every way to implement Specs by one kernel, by space."""

    def __init__(self, spaces: Spaces, target: Target):
        super().__init__(spaces, target)
        self.by_key: dict[Key, list[KernelTable]] = {}

    @staticmethod
    def handles(rewrite: type[Rewrite]) -> bool:
        # Search asks for `cases`, of every kernel; the rest it takes to be as it is in Select.
        return issubclass(rewrite, Select) and overridden(rewrite, Select) <= {"cases"}

    def step(self, logical: LogicalSpec, priority: Priority) -> Rewrite:
        return self._step(priority.rewrite, self.target.kernels[priority.step])

    def finish(self, states: States) -> None:
        self.by_key = {key: [*self._tabulate(space, states)] for key, space in self.spaces.by_key.items()}

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
        if not len(cells):
            return
        asked: dict[bytes, _Ask] = {}
        for numbers, described in _state_tuples(kernel, space, states, cells):
            place = described.tobytes()
            if place not in asked:
                asked[place] = self._ask(step, kernel, space, cells[described])
            for shapes, cost, needs in asked[place]([states.states[number][1] for number in numbers]):
                yield KernelTable(numbers, step, priority, shapes, cost, needs)

    def _ask(self, step: Select, kernel: Microkernel, space: Space, inside: Ints) -> _Ask:
        """Return a function that gives the costs of a kernel on these shapes in any states that its patterns accept."""
        if overridden(type(step), Select):
            return Answers(partial(self._by_cases, step, space, inside))
        fitting = Answers(partial(self._fitting, kernel, space, inside))
        return lambda states: fitting(states)(states)

    def _by_cases(self, step: Select, space: Space, inside: Ints, states: Sequence[OperandState]) -> list[_Costs]:
        """Return the costs of a kernel where `cases` are not those of Select; none where it does not apply."""
        check()
        costs: list[_Costs] = []
        with contextlib.suppress(Inapplicable):
            for case in step.cases(space.batch(states, inside), self.target):
                fitting = inside if case.cells is None else inside[case.cells]
                costs += _spread(case.expansion.cost, _by_needs(case.expansion.needs, fitting))
        return costs

    def _fitting(self, kernel: Microkernel, space: Space, inside: Ints, states: Sequence[OperandState]) -> _Ask:
        """Return what `_ask` does: the kernel's condition and needs look at fewer fields of states than its cost."""
        check()
        logical = space.batch(states, inside)
        mask = fulfilled(kernel, logical, self.target)
        if not np.any(mask):
            return lambda states: []
        cells = masked(None, mask)
        fitting = inside if cells is None else inside[cells]
        taken = select_cells(logical, cells)
        needs = checked_needs(kernel, taken, self.target)
        parts = [*_by_needs(needs, fitting)]
        spread: dict[bytes, list[_Costs]] = {}

        def costs(states: Sequence[OperandState]) -> list[_Costs]:
            asked = LogicalSpec(taken.op, taken.shape, tuple(states), taken.serial)
            cost = checked_cost(kernel, asked, self.target)
            # In many states operands cost the same.
            content = np.asarray(cost).tobytes()
            if content not in spread:
                spread[content] = _spread(cost, parts)
            return spread[content]

        return Answers(costs)


def _spread(cost: Num, parts: Iterable[tuple[tuple[int, ...], Ints, CellIndices]]) -> list[_Costs]:
    """Return costs of a batch of calls for each part of it that needs the same."""
    costs = ((shapes, np.asarray(take(cost, part), dtype=np.float64), needs) for needs, shapes, part in parts)
    return [(shapes, np.broadcast_to(own, shapes.shape), needs) for shapes, own, needs in costs]


def _by_needs(needs: Sequence[Num], shapes: Ints) -> Iterator[tuple[tuple[int, ...], Ints, CellIndices]]:
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


def _state_tuples(
    kernel: Microkernel, space: Space, states: States, cells: Ints
) -> Iterator[tuple[tuple[int, ...], Bools]]:
    """Yield tuples of states that the operands' patterns accept and that go together, and which cells they describe."""
    choices = [_choices(kernel, index, space, states, cells) for index in range(len(kernel.operands))]
    tuples: dict[tuple[int, ...], Bools] = {}
    for chosen, described in _agreeing((), np.ones(len(cells), dtype=np.bool_), choices, kernel):
        tuples |= dict.fromkeys(itertools.product(*(choice.states for choice in chosen)), described)
    yield from sorted(tuples.items(), key=itemgetter(0))


def _choices(kernel: Microkernel, index: int, space: Space, states: States, cells: Ints) -> _Choices:
    """Return the states that an operand's pattern accepts, by what the kernel asks to be the same in all operands."""
    pattern, rank = kernel.operands[index], len(space.operands[index].dims)
    tensors = space.tensors[index][cells]
    choices: dict[tuple[object, ...], _Choice] = {}
    for number, (own, state) in enumerate(states.states):
        if own == rank and pattern.accepts(state, rank):
            described = states.cost[number, tensors] < np.inf
            key = (*kernel.compared(state), described.tobytes())
            choices.setdefault(key, _Choice(state, described)).states.append(number)
    by_same: _Choices = {}
    for choice in choices.values():
        if choice.described.any():
            by_same.setdefault(kernel.shared(choice.state), []).append(choice)
    return by_same


def _agreeing(
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
            yield from _agreeing((*chosen, choice), both, choices, kernel)
