"""Microkernels on blocks: for every tuple of operand states that a kernel takes, its cost on all shapes at once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import attrs
import numpy as np
import numpy.typing as npt

from morello.errors import Inapplicable
from morello.kernels.microkernel import Microkernel, Multiple, agree
from morello.kernels.target import Target
from morello.rewrites.base import rewrites_of
from morello.rewrites.select import Select, accepted
from morello.search.tables.operand_states import States
from morello.search.tables.shapes import Space, step_rank

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@attrs.frozen
class KernelRow:
    """One kernel on operands in these states: `cost` per shape (infinite where it does not apply), `needs` in bytes."""

    states: tuple[int, ...]
    step: Select
    rank: int
    cost: Floats
    needs: tuple[int, ...]


def kernel_rows(space: Space, states: States, target: Target) -> Iterator[KernelRow]:
    """Every way to implement Specs of a space by one kernel."""
    for order, rewrite in enumerate(rewrites_of(target)):
        if rewrite is Select:
            for index, kernel in enumerate(target.kernels):
                if kernel.implements(space.key.op) and len(kernel.operands) == len(space.operands):
                    yield from _rows(rewrite(kernel.name), kernel, space, states, step_rank(order, index))


def _rows(step: Select, kernel: Microkernel, space: Space, states: States, rank: int) -> Iterator[KernelRow]:
    cells = np.flatnonzero(_fitting_shapes(kernel, space))
    if not len(cells):
        return
    for numbers in _tuples(kernel, space, states, cells):
        fine = np.ones(len(cells), dtype=np.bool_)
        for index, number in enumerate(numbers):
            fine &= states.cost[number, space.tensors[index][cells]] < np.inf
        inside = cells[fine]
        batch = space.batch([states.states[number][1] for number in numbers], inside)
        if not len(inside) or not np.any(accepted(kernel, batch, states.target)):
            continue
        cost = np.full(space.count, np.inf)
        needs: tuple[int, ...] = ()
        with contextlib.suppress(Inapplicable):
            for case in step.cases(batch, states.target):
                cost[inside if case.cells is None else inside[case.cells]] = case.expansion.cost
                needs = tuple(int(need) for need in case.expansion.needs)
        if needs:
            yield KernelRow(numbers, step, rank, cost, needs)


def _fitting_shapes(kernel: Microkernel, space: Space) -> npt.NDArray[np.bool_]:
    """The shapes that the kernel's size rules allow."""
    fine = np.ones(space.count, dtype=np.bool_)
    if kernel.shape is not None and len(kernel.shape) != len(space.sizes):
        return ~fine
    for size, rule in zip(space.sizes, kernel.shape or (), strict=False):
        if rule is not None:
            fine &= size % rule.of == 0 if isinstance(rule, Multiple) else size == rule
    return fine


def _tuples(kernel: Microkernel, space: Space, states: States, cells: Ints) -> Iterator[tuple[int, ...]]:
    """Tuples of states that each operand's pattern accepts, and that agree where the kernel asks for it."""
    choices: list[list[int]] = []
    for index, (pattern, one) in enumerate(zip(kernel.operands, space.operands, strict=True)):
        shapes = np.unique(space.tensors[index][cells])
        fits = [
            number
            for number, (rank, state) in enumerate(states.states)
            if rank == len(one.dims) and pattern.accepts(state, rank) and np.any(states.cost[number, shapes] < np.inf)
        ]
        choices.append(fits)
    yield from _agreeing((), choices, kernel.same, states)


def _agreeing(
    chosen: tuple[int, ...], choices: Sequence[Sequence[int]], same: Sequence[str], states: States
) -> Iterator[tuple[int, ...]]:
    """One of each of the choices after those that are `chosen`, such that all agree on what is to be the same."""
    if len(chosen) == len(choices):
        yield chosen
        return
    known = [states.states[number][1] for number in chosen]
    for number in choices[len(chosen)]:
        if all(agree(field, [*known, states.states[number][1]]) for field in same):
            yield from _agreeing((*chosen, number), choices, same, states)
