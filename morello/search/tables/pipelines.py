"""Pipelines: steps that make new tensors, or see operands under other dimensions, on all shapes of a space.

What such a step (`Rewrite.staged`) makes of a shape does not depend on the states of operands, save for their data
types. Steps that differ in nothing but the states of the new tensors share one table.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import attrs
import numpy as np

from morello.errors import Inapplicable, PluginError
from morello.ir.impl import Expansion, Part
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import DimMap, OperandState
from morello.kernels.target import Target
from morello.rewrites.base import Rewrite
from morello.rewrites.staged import lifetimes
from morello.search.arrays import Ints
from morello.search.tables.operand_states import StateMap, States
from morello.search.tables.priorities import Priority
from morello.search.tables.shapes import (
    DTypes,
    Key,
    Reached,
    Space,
    Spaces,
    TypedKey,
    key_of,
    neutral_batch,
    searched_parts,
    typed_key_of,
)
from morello.search.tables.step_tables import StepTables

#: What steps of one table have in common of a part: its space, its operands, how it sees them, what it holds.
_Shared = tuple[Key, tuple[int, ...], tuple[DimMap, ...] | None, tuple[int, ...]]


@attrs.frozen
class PipelinePart:
    """One child of a pipeline. `args` from the number of operands on are new tensors.

    `shape`, [shapes], is the number of the child's shape, -1 where there is no such child; `holds` are the new
    tensors that are held while it runs; `dim_maps` the dimensions under which it sees each operand, None: its own.
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
    its state in `PipelineTables.states`, -1: none.
    """

    steps: list[Rewrite]
    priorities: list[int]
    parts: tuple[PipelinePart, ...]
    tensors: tuple[Ints, ...]
    new_states: list[list[Ints]]

    def states_of(self, step: Rewrite, priority: int, count: int) -> list[Ints]:
        """Return the states of the new tensors of one step, to be filled in."""
        if priority not in self.priorities:
            self.steps.append(step)
            self.priorities.append(priority)
            self.new_states.append([np.full(count, -1, dtype=np.int64) for _ in self.tensors])
        return self.new_states[self.priorities.index(priority)]


class PipelineTables(StepTables):
    """All pipelines on some spaces, by space and data types of the operands.

    `states` are those of new tensors, each with its rank; `numbers`, [states], their numbers in `States`.
    `under` has, per rank and map of dimensions, the number of each state seen so, [all states], -1 where it cannot be.
    """

    def __init__(self, spaces: Spaces, target: Target):
        super().__init__(spaces, target)
        self.states: list[tuple[int, OperandState]] = []
        self._numbers: dict[tuple[int, OperandState], int] = {}
        self._dim_maps: set[tuple[int, DimMap]] = set()
        self.by_key: dict[TypedKey, list[PipelineTable]] = {
            (key, dtypes): [*self._tabulate(key, dtypes)] for key, types in spaces.dtypes.items() for dtypes in types
        }
        self._under = {key: StateMap() for key in sorted(self._dim_maps, key=str)}
        self.numbers: Ints = np.zeros(0, dtype=np.int64)
        self.under: dict[tuple[int, DimMap], Ints] = {}

    @staticmethod
    def handles(rewrite: type[Rewrite]) -> bool:
        return rewrite.staged

    @classmethod
    def reach(cls, space: Space, dtypes: Sequence[DTypes], target: Target) -> Iterator[Reached]:
        rewrites = [rewrite for _, rewrite in cls.rewrites(target)]
        for known in dtypes if rewrites else ():
            for part in searched_parts(rewrites, neutral_batch(space, target, known), target):
                yield typed_key_of(part.logical), part.logical.shape

    def start(self, states: States) -> None:
        self.numbers = np.array([states.number(rank, state) for rank, state in self.states], dtype=np.int64)

    def follow(self, states: States, number: int) -> None:
        rank, state = states.states[number]
        for (wanted, dim_map), seen in self._under.items():
            if wanted == rank:
                with contextlib.suppress(Inapplicable):
                    seen.enter(number, states.number(len(dim_map), state.under(dim_map)))

    def finish(self, states: States) -> None:
        self.under = {key: seen.padded(states) for key, seen in self._under.items()}

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
            for index, step in enumerate(rewrite.steps(batch, self.target)):
                with contextlib.suppress(Inapplicable):
                    for case in step.cases(batch, self.target):
                        cells: Ints = np.arange(space.count, dtype=np.int64) if case.cells is None else case.cells
                        table = self._table(tables, space, case.expansion, step)
                        states = table.states_of(step, Priority(place, index).pack(), space.count)
                        self._enter(table, states, case.expansion, cells, step)
        yield from tables.values()

    def _table(
        self, tables: dict[tuple[object, ...], PipelineTable], space: Space, expansion: Expansion, step: Rewrite
    ) -> PipelineTable:
        """Return the table of steps with the same parts, a new one if need be."""
        held = lifetimes([part.args for part in expansion.parts], len(space.operands))
        self._check(expansion, held, step)
        shared: tuple[_Shared, ...] = tuple(
            (key_of(part.logical), part.args, part.dim_maps, holds)
            for part, holds in zip(expansion.parts, held, strict=True)
        )
        classes = tuple((tensor.state.level, tensor.state.dtype, tensor.state.vector) for tensor in expansion.tensors)
        if (shared, classes) not in tables:
            parts = tuple(self._part(space, part) for part in shared)
            tensors = tuple(np.full(space.count, -1, dtype=np.int64) for _ in expansion.tensors)
            tables[shared, classes] = PipelineTable([], [], parts, tensors, [])
        return tables[shared, classes]

    def _enter(
        self, table: PipelineTable, states: Sequence[Ints], expansion: Expansion, cells: Ints, step: Rewrite
    ) -> None:
        """Enter what a step makes of some shapes."""
        for entry, part in zip(table.parts, expansion.parts, strict=True):
            shape = entry.space.numbers([np.broadcast_to(np.asarray(size), cells.shape) for size in part.logical.shape])
            if np.any((entry.shape[cells] >= 0) & (entry.shape[cells] != shape)):
                raise PluginError(
                    f"rewrite {step.keyword} calls itself staged, but shapes depend on new tensors",
                    "its class should not say `staged = True`",
                )
            entry.shape[cells] = shape
        for index, tensor in enumerate(expansion.tensors):
            rank = len(tensor.shape)
            states[index][cells] = self._number(rank, tensor.state)
            shape = [np.broadcast_to(np.asarray(size), cells.shape) for size in tensor.shape]
            table.tensors[index][cells] = self.spaces.tensors[rank].numbers(shape)

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
                        "a staged rewrite sees a new tensor under other dimensions than its own",
                        "its class should not say `staged = True`",
                    )
                self._dim_maps.add((len(space.operands[arg].dims), dim_map))
        return PipelinePart(child, args, seen, holds, np.full(space.count, -1))

    def _number(self, rank: int, state: OperandState) -> int:
        if (rank, state) not in self._numbers:
            self._numbers[rank, state] = len(self.states)
            self.states.append((rank, state))
        return self._numbers[rank, state]

    def _check(self, expansion: Expansion, held: Sequence[tuple[int, ...]], step: Rewrite) -> None:
        """Raise PluginError unless cost and memory of a step are those of its new tensors: search relies on that."""
        cost = sum((self.target.move_cost(tensor) for tensor in expansion.tensors), 0)
        needed = [self.target.footprint(tensor) for tensor in expansion.tensors]
        wrong = np.any(np.asarray(expansion.cost) != cost) or any(np.any(np.asarray(need)) for need in expansion.needs)
        for part, tensors in zip(expansion.parts, held, strict=True):
            wrong |= _holds_otherwise(part, [needed[tensor] for tensor in tensors]) or np.any(
                np.asarray(part.times) != 1
            )
        if wrong:
            raise PluginError(
                f"rewrite {step.keyword} calls itself staged, but `{step}` costs or holds more than its tensors",
                "its class should not say `staged = True`",
            )


def _holds_otherwise(part: Part, needed: Sequence[Sequence[object]]) -> bool:
    """Return whether other bytes are held while a part runs than these tensors need, [tensors][levels]."""
    for level, live in enumerate(part.live):
        held = sum((np.asarray(need[level]) for need in needed), np.zeros((), dtype=np.int64))
        if np.any(np.asarray(live) != held):
            return True
    return False
