"""Pipelines: steps that make new tensors, or view operands under other dimensions, on all shapes of a space.

The expansion of a shape by such a step (`PipelineRewrite`) depends on no operand state but the data types, and not on
the states of the new tensors. Steps that differ only in the latter share one table.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias, cast

import attrs
import numpy as np

from morello.errors import Inapplicable, PluginError
from morello.ir.numbers import CellIndices, Num, take
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import DimMap, OperandState
from morello.kernels.target import Target
from morello.rewrites.base import Rewrite, masked, select_cells, within
from morello.rewrites.pipeline import PipelinePlan, PipelineRewrite, Stage
from morello.search.arrays import Ints
from morello.search.budget import check_budget
from morello.search.tables.operand_states import States, images
from morello.search.tables.shapes import (
    DTypes,
    Key,
    Reached,
    Shapes,
    Space,
    Spaces,
    TypedKey,
    neutral_batch,
    typed_key_of,
)
from morello.search.tables.step_tables import Priority, StepTables, overridden

PipelineStep: TypeAlias = PipelineRewrite[Any]
#: A part of all steps of one table: its space, its operands, their dimension maps, and the tensors held.
_Shared = tuple[Key, tuple[int, ...], tuple[DimMap, ...] | None, tuple[int, ...]]


@attrs.frozen(eq=False)
class _Planned:
    """The expansion of the shapes `cells`, [n], except for the states of new tensors.

    `shapes` has the number of each part's shape, [n]; `tensors` the rank of each new tensor and the numbers of its
    shapes, [n].
    """

    plan: PipelinePlan
    cells: Ints
    parts: tuple[_Shared, ...]
    shapes: list[Ints]
    tensors: list[tuple[int, Ints]]


@attrs.frozen
class PipelinePart:
    """One child of a pipeline. Numbers in `args` from the number of operands on are new tensors.

    `shape`, [shapes], is the number of the child's shape, -1 where the child is absent; `holds` are the new tensors
    held while it runs; `dim_maps` the dimensions under which it views each operand, None: its own.
    """

    space: Space
    args: tuple[int, ...]
    dim_maps: tuple[DimMap | None, ...]
    holds: tuple[int, ...]
    shape: Ints


@attrs.frozen
class PipelineTable:
    """Steps with the same parts, and their `priorities`.

    `tensors[i]`, [shapes], numbers the shape of new tensor i among those of its rank; `new_states[step][i]`, [shapes],
    its state in `PipelineTables.states`, or -1. `free` tensors cost nothing.
    """

    steps: list[Rewrite]
    priorities: list[int]
    parts: tuple[PipelinePart, ...]
    tensors: tuple[Ints, ...]
    new_states: list[list[Ints]]
    free: bool = False

    def states_of(self, step: Rewrite, priority: int, count: int) -> list[Ints]:
        """Return the arrays of states of the new tensors of one step, filled with -1 at first."""
        if priority not in self.priorities:
            self.steps.append(step)
            self.priorities.append(priority)
            self.new_states.append([np.full(count, -1, dtype=np.int64) for _ in self.tensors])
        return self.new_states[self.priorities.index(priority)]


class PipelineTables(StepTables):
    """All pipelines on some spaces, by space and data types of the operands.

    `states` are those of new tensors, each with its rank; `numbers`, [states], their numbers in `States`. Per rank and
    dimension map, `under`, [all states], is the number of each state viewed so, or -1.
    """

    def __init__(self, spaces: Spaces, target: Target):
        super().__init__(spaces, target)
        self.states: list[tuple[int, OperandState]] = []
        self._numbers: dict[tuple[int, OperandState], int] = {}
        self._dim_maps: set[tuple[int, DimMap]] = set()
        self.by_key: dict[TypedKey, list[PipelineTable]] = {
            (key, dtypes): [*self._tabulate(key, dtypes)] for key, types in spaces.dtypes.items() for dtypes in types
        }
        self._under = {key: dict[int, int]() for key in sorted(self._dim_maps, key=str)}
        self.numbers: Ints = np.zeros(0, dtype=np.int64)
        self.under: dict[tuple[int, DimMap], Ints] = {}

    @staticmethod
    def handles(rewrite: type[Rewrite]) -> bool:
        # Search calls `plans` and `new_states`, and assumes that the rest is that of PipelineRewrite.
        pipelines = cast(type[Rewrite], PipelineRewrite)
        return issubclass(rewrite, pipelines) and "cases" not in overridden(rewrite, pipelines)

    @classmethod
    def reach(cls, space: Space, dtypes: Sequence[DTypes], target: Target) -> Iterator[Reached]:
        for known in dtypes:
            batch = neutral_batch(space, target, known)
            seen: set[Rewrite] = set()
            for step in (step for _, rewrite in cls.rewrites(target) for step in _steps(rewrite, batch, target)):
                if step.without_buffers() not in seen:
                    with contextlib.suppress(Inapplicable):
                        for plan in _plans(step, batch, target):
                            every = *known, *(tensor.dtype for tensor in plan.tensors)
                            for stage in plan.stages:
                                yield (_key(stage, batch), tuple(every[arg] for arg in stage.args)), stage.shape
                        seen.add(step.without_buffers())

    def start(self, states: States) -> None:
        self.numbers = np.array([states.number(rank, state) for rank, state in self.states], dtype=np.int64)

    def follow(self, states: States, number: int) -> None:
        rank, state = states.states[number]
        for (wanted, dim_map), seen in self._under.items():
            if wanted == rank:
                with contextlib.suppress(Inapplicable):
                    seen[number] = states.number(len(dim_map), state.under(dim_map))

    def finish(self, states: States) -> None:
        self.under = {key: images(seen, states) for key, seen in self._under.items()}

    def step(self, logical: LogicalSpec, priority: Priority) -> Rewrite:
        packed = priority.pack()
        tables = self.by_key[typed_key_of(logical)]
        table = next(table for table in tables if packed in table.priorities)
        return table.steps[table.priorities.index(packed)]

    def of_key(self, key: Key) -> Iterator[tuple[DTypes, list[PipelineTable]]]:
        """Yield the pipelines of a space, by the data types of its operands."""
        for dtypes in self.spaces.dtypes[key]:
            yield dtypes, self.by_key[key, dtypes]

    def of_space(self, key: Key) -> Iterator[PipelineTable]:
        """Yield all pipelines of a space."""
        for _, tables in self.of_key(key):
            yield from tables

    def levels(self) -> set[str]:
        """Return the levels of new tensors."""
        return {state.level for _, state in self.states}

    def _tabulate(self, key: Key, dtypes: DTypes) -> Iterator[PipelineTable]:
        space = self.spaces.by_key[key]
        batch = neutral_batch(space, self.target, dtypes)
        tables: dict[tuple[object, ...], PipelineTable] = {}
        for place, rewrite in self.rewrites(self.target):
            planned: dict[Rewrite, list[_Planned]] = {}
            for index, step in enumerate(_steps(rewrite, batch, self.target)):
                check_budget()
                with contextlib.suppress(Inapplicable):
                    if step.without_buffers() not in planned:
                        plans = [self._planned(plan, batch, space) for plan in _plans(step, batch, self.target)]
                        planned[step.without_buffers()] = plans
                for known in planned.get(step.without_buffers(), ()):
                    with contextlib.suppress(Inapplicable):
                        for states, cells in step.new_states(known.plan.tensors, self.target):
                            table = self._table(tables, space, known, states)
                            rows = table.states_of(step, Priority(place, index).pack(), space.count)
                            self._enter(table, known, states, cells, rows)
        yield from map(_distinct, tables.values())

    def _planned(self, plan: PipelinePlan, batch: LogicalSpec, space: Space) -> _Planned:
        cells: Ints = np.arange(space.count, dtype=np.int64) if plan.cells is None else plan.cells
        held = plan.held(len(space.operands))

        def numbers(shapes: Shapes, shape: Sequence[Num]) -> Ints:
            return shapes.numbers([np.broadcast_to(np.asarray(size), cells.shape) for size in shape])

        return _Planned(
            plan,
            cells,
            tuple(
                (_key(stage, batch), stage.args, stage.dim_maps, holds)
                for stage, holds in zip(plan.stages, held, strict=True)
            ),
            [numbers(self.spaces.by_key[_key(stage, batch)], stage.shape) for stage in plan.stages],
            [(len(new.shape), numbers(self.spaces.tensors[len(new.shape)], new.shape)) for new in plan.tensors],
        )

    def _table(
        self,
        tables: dict[tuple[object, ...], PipelineTable],
        space: Space,
        known: _Planned,
        states: Sequence[OperandState],
    ) -> PipelineTable:
        """Return the table of steps with the same parts; add it if it is new."""
        classes = tuple((state.level, state.dtype, state.vector) for state in states)
        if (known.parts, classes) not in tables:
            parts = tuple(self._part(space, part) for part in known.parts)
            tensors = tuple(np.full(space.count, -1, dtype=np.int64) for _ in states)
            tables[known.parts, classes] = PipelineTable([], [], parts, tensors, [], known.plan.free)
        return tables[known.parts, classes]

    def _enter(
        self,
        table: PipelineTable,
        known: _Planned,
        states: Sequence[OperandState],
        cells: CellIndices,
        rows: Sequence[Ints],
    ) -> None:
        """Store the expansion of some of the shapes of a plan."""
        of_space = known.cells if cells is None else known.cells[cells]
        for part, shapes in zip(table.parts, known.shapes, strict=True):
            part.shape[of_space] = take(shapes, cells)
        for index, (state, (rank, numbers)) in enumerate(zip(states, known.tensors, strict=True)):
            rows[index][of_space] = self._number(rank, state)
            table.tensors[index][of_space] = take(numbers, cells)

    def _part(self, space: Space, shared: _Shared) -> PipelinePart:
        key, args, dim_maps, holds = shared
        child = self.spaces.by_key[key]
        seen: tuple[DimMap | None, ...] = (None,) * len(args)
        if dim_maps is not None:
            plain = [tuple(range(len(operand.dims))) for operand in child.operands]
            seen = tuple(None if own == same else own for own, same in zip(dim_maps, plain, strict=True))
        for arg, dim_map in zip(args, seen, strict=True):
            if dim_map is not None:
                if arg >= len(space.operands):
                    raise PluginError(
                        "a pipeline rewrite views a new tensor under other dimensions than its own",
                        "derive its class from Rewrite, not PipelineRewrite",
                    )
                self._dim_maps.add((len(space.operands[arg].dims), dim_map))
        return PipelinePart(child, args, seen, holds, np.full(space.count, -1))

    def _number(self, rank: int, state: OperandState) -> int:
        if (rank, state) not in self._numbers:
            self._numbers[rank, state] = len(self.states)
            self.states.append((rank, state))
        return self._numbers[rank, state]


def _distinct(table: PipelineTable) -> PipelineTable:
    """Return a table with the first of the steps that make equal states, as layouts that differ in unit dimensions."""
    first = dict[tuple[bytes, ...], int]()
    for number, rows in enumerate(table.new_states):
        first.setdefault(tuple(row.tobytes() for row in rows), number)
    kept = [*first.values()]
    steps, priorities = [table.steps[at] for at in kept], [table.priorities[at] for at in kept]
    return attrs.evolve(table, steps=steps, priorities=priorities, new_states=[table.new_states[at] for at in kept])


def _steps(rewrite: type[Rewrite], batch: LogicalSpec, target: Target) -> Iterator[PipelineStep]:
    return cast(type[PipelineStep], rewrite).steps(batch, target)


def _plans(step: PipelineStep, batch: LogicalSpec, target: Target) -> Iterator[PipelinePlan]:
    """Yield a step's plans for the shapes of a batch on which search tries it. Raises Inapplicable."""
    tried = masked(None, step.worth_trying(batch, target))
    for plan in step.plans(select_cells(batch, tried), target):
        yield attrs.evolve(plan, cells=within(tried, plan.cells))


def _key(stage: Stage, batch: LogicalSpec) -> Key:
    """Return the space of a part."""
    return Key(stage.op, len(stage.shape), batch.serial)
