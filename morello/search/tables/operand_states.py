"""Operand states, numbered: the cost of a move and the memory of each, over all tensor shapes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import attrs
import numpy as np
import numpy.typing as npt

from morello.errors import PluginError
from morello.ir.dtypes import F32, DType
from morello.ir.layout import Layout
from morello.ir.numbers import partition
from morello.ir.tensor import OperandState, TensorSpec
from morello.kernels.target import Target
from morello.search.arrays import Bools, Floats, Ints
from morello.search.budget import check_budget
from morello.search.tables.shapes import Spaces

_Scalar = TypeVar("_Scalar", bound=np.generic)

#: Bytes of a tensor that cannot be in a state: more than any memory.
NEVER = np.int64(1) << 60


@attrs.frozen(cache_hash=True)
class StateClass:
    """The part of an operand state that bounds distinguish: not layout, contiguity and alignment."""

    rank: int
    level: int
    dtype: DType
    vector: int | None


class MakesStates:
    """A kind of step that leads from operand states to operand states. By default it leads to none."""

    def start(self, states: States) -> None:
        """Number the states that steps make regardless of the operands' states."""

    def follow(self, states: States, number: int) -> None:
        """Number the states that steps make from a state."""

    def finish(self, states: States) -> None:
        """Build the tables that depend on the complete list of states."""


class States:
    """All operand states of the Specs in `spaces`, those of the goals first.

    Per state, `cost` and `bytes`, [tensors of its rank], are the cost of a move (m in [Kaufman2025]; infinite where
    the state does not describe the shape) and the bytes taken of the state's own level. States of equal costs or bytes
    share the array. `cls` and `level`, [states], number the class and the level of each.
    """

    def __init__(
        self, spaces: Spaces, goals: Sequence[tuple[int, OperandState]], kinds: Sequence[MakesStates], target: Target
    ):
        self.target = target
        self.tensors = spaces.tensors
        self._complete = False
        self.levels = {level.name: index for index, level in enumerate(target.levels)}
        self.states: list[tuple[int, OperandState]] = []
        self.numbers: dict[tuple[int, OperandState], int] = {}
        self.classes: list[StateClass] = []
        self.class_numbers: dict[StateClass, int] = {}
        self.class_of: list[int] = []
        self.cost: list[Floats] = []
        self.bytes: list[Ints] = []
        self._distinct: dict[bytes, Any] = {}
        self._described: dict[tuple[int, Layout | None, int, int | None], Bools] = {}
        self._own_codes: dict[tuple[int, Layout], list[tuple[tuple[int, ...], Ints]]] = {}
        for rank, state in goals:
            self.number(rank, state)
        for kind in kinds:
            kind.start(self)
        while len(self.cost) < len(self.states):
            check_budget()
            number = len(self.cost)
            self._measure(number)
            for kind in kinds:
                kind.follow(self, number)
        self._complete = True
        self._distinct.clear()
        self._described.clear()
        self._own_codes.clear()
        self.cls = np.array(self.class_of, dtype=np.int64)
        self.level = np.array([self.classes[number].level for number in self.class_of], dtype=np.int64)
        for kind in kinds:
            kind.finish(self)

    def __len__(self) -> int:
        return len(self.states)

    def number(self, rank: int, state: OperandState) -> int:
        """Return the number of a state of operands of this rank; add it if it is new.

        Raises PluginError for a new state once the list is complete.
        """
        number = self.numbers.get((rank, state))
        if number is None:
            if self._complete:
                what = f"{state.layout} in {state.level}"
                raise PluginError(
                    f"a move makes an operand state that no table of search has: {what}",
                    "let the moves of an operand depend on its operation, rank, level and type alone",
                )
            number = self.numbers[rank, state] = len(self.states)
            self.states.append((rank, state))
            cls = StateClass(rank, self.levels[state.level], state.dtype, state.vector)
            if cls not in self.class_numbers:
                self.class_numbers[cls] = len(self.classes)
                self.classes.append(cls)
            self.class_of.append(self.class_numbers[cls])
        return number

    def describes(self, number: int) -> Bools:
        """Return which tensors of its rank can be in a state, [tensors]."""
        return self.cost[number] < np.inf

    def described_by(self, rank: int, layout: Layout | None, contig: int, vector: int | None) -> Bools:
        """Return which tensors of a rank can have a layout, contiguity and vector size, [tensors].

        Available while states are being numbered. Levels and data types make no difference.
        """
        key = rank, layout, contig, vector
        if key not in self._described:
            self._described[key] = self._describes(rank, layout, contig, vector)
        return self._described[key]

    def _describes(self, rank: int, layout: Layout | None, contig: int, vector: int | None) -> Bools:
        tensors = self.tensors[rank]
        if layout is None:
            return np.ones(len(tensors), dtype=np.bool_)
        if (rank, layout) not in self._own_codes:
            self._own_codes[rank, layout] = _own_codes(layout, tensors.sizes)
        described = np.zeros(len(tensors), dtype=np.bool_)
        for codes, cells in self._own_codes[rank, layout]:
            # In normal form, the layout of a tensor is that of the tensor as a tile of itself.
            described[cells] = layout.tiled(contig, codes) == (layout, contig)
        if vector is not None:
            cells = np.flatnonzero(described)
            state = OperandState(F32, self.target.levels[-1].name, layout, contig, vector=vector)
            described[cells] = TensorSpec(tuple(tensors.sizes[:, cells]), state).has_whole_vectors()
        return described

    def _measure(self, number: int) -> None:
        """Append the costs and bytes of a state."""
        rank, state = self.states[number]
        tensors = self.tensors[rank]
        cells = np.flatnonzero(self.described_by(rank, state.layout, state.contig, state.vector))
        cost, used = np.full(len(tensors), np.inf), np.full(len(tensors), NEVER)
        if len(cells):
            tensor = TensorSpec(tuple(dim[cells] for dim in tensors.sizes), state)
            cost[cells] = self.target.move_cost(tensor)
            used[cells] = self.target.footprint(tensor)[self.levels[state.level]]
        self.cost.append(self._distinct.setdefault(cost.tobytes(), cost))
        self.bytes.append(self._distinct.setdefault(used.tobytes(), used))


def images(found: Mapping[int, int], states: States) -> Ints:
    """Return the image of every state, [states], under a partial map from numbers to numbers of states, or -1."""
    into = np.full(len(states), -1, dtype=np.int64)
    into[[*found]] = [*found.values()]
    return into


def least(rows: Iterable[npt.NDArray[_Scalar]]) -> npt.NDArray[_Scalar]:
    """Return the minimum of each column. Rows that are the same object are compared once."""
    distinct = [*{id(row): row for row in rows}.values()]
    return distinct[0] if len(distinct) == 1 else np.minimum.reduce(distinct)


def _own_codes(layout: Layout, dims: Ints) -> list[tuple[tuple[int, ...], Ints]]:
    """Return the distinct `tile_codes` of tensors, [rank, tensors], as tiles of themselves, with the tensors of each.

    Tensors that the layout does not describe are omitted.
    """
    cells = np.flatnonzero(np.broadcast_to(np.asarray(layout.applies(tuple(dims))), dims.shape[1:]))
    if not len(cells):
        return []
    shape = tuple(dims[:, cells])
    return [
        (codes, cells if group is None else cells[group]) for codes, group in partition(layout.tile_codes(shape, shape))
    ]
