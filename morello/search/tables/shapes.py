"""Shapes: all sizes of the Specs reachable from some goals.

A space is one operation with all its reachable shapes, which are numbered. Shapes are closed under steps: tiles and
their remainders, copies of operands, stages of pipelines. Since pipelines also depend on the data types of operands,
those are tracked along with the shapes.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, cast

import attrs
import numpy as np

from morello.errors import Inapplicable
from morello.ir.dtypes import F32, DType
from morello.ir.numbers import Num
from morello.ir.ops.base import Operation
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import OperandState
from morello.kernels.target import Target
from morello.rewrites.base import Rewrite, RewriteCase, cases_within, masked, select_cells
from morello.search.arrays import Bools, Ints, distinct_numbers
from morello.search.budget import check_budget, check_size

DTypes = tuple[DType, ...]


@attrs.frozen(cache_hash=True)
class Key:
    """The properties shared by all Specs of a space."""

    op: Operation
    rank: int
    serial: bool


#: A space and the data types of its operands.
TypedKey = tuple[Key, DTypes]
#: A typed space and shapes in it: per dimension, one size or an array of sizes.
Reached = tuple[TypedKey, Sequence[Num]]


def key_of(logical: LogicalSpec) -> Key:
    """Return the key of the space of a Spec or a batch of Specs."""
    return Key(logical.op, len(logical.shape), logical.serial)


def typed_key_of(logical: LogicalSpec) -> TypedKey:
    """Return the space of a Spec or a batch of Specs, and the data types of its operands."""
    return key_of(logical), tuple(state.dtype for state in logical.states)


class Shapes:
    """Distinct shapes of one rank in lexicographic order, numbered from 0: `sizes`, [dimensions, shapes]."""

    def __init__(self, columns: Ints):
        distinct = [np.unique(row, return_inverse=True) for row in columns]
        #: Per dimension, the sizes that occur, sorted.
        self.sizes_per_dim = [sizes for sizes, _ in distinct]
        codes = self._codes([place.reshape(-1) for _, place in distinct])
        self._sorted_codes, first = np.unique(codes, return_index=True)
        self.sizes: Ints = columns[:, first]
        self.count: int = self.sizes.shape[1]

    def __len__(self) -> int:
        return self.count

    def number(self, shape: Sequence[int]) -> int:
        """Return the number of one shape, or -1."""
        code = 0
        for known, size in zip(self.sizes_per_dim, shape, strict=True):
            place = bisect_left(known, size)
            if place == len(known) or known[place] != size:
                return -1
            code = code * len(known) + place
        number = bisect_left(self._sorted_codes, code)
        return number if number < self.count and self._sorted_codes[number] == code else -1

    def numbers(self, shape: Sequence[Ints]) -> Ints:
        """Return the numbers, [n], or -1, of shapes given as one array [n] per dimension."""
        places: list[Ints] = []
        present: Bools = np.ones(1, dtype=np.bool_)
        for known, size in zip(self.sizes_per_dim, shape, strict=True):
            place = np.minimum(np.searchsorted(known, size), len(known) - 1)
            present = present & (known[place] == size)
            places.append(place)
        codes = self._codes(places)
        number = np.minimum(np.searchsorted(self._sorted_codes, codes), self.count - 1)
        return np.where(present & (self._sorted_codes[number] == codes), number, -1)

    def _codes(self, places: Sequence[Ints]) -> Ints:
        """Return one number per shape, [n], given the places of its sizes in `sizes_per_dim`."""
        codes: Ints = np.zeros(1, dtype=np.int64)
        for place, known in zip(places, self.sizes_per_dim, strict=True):
            codes = codes * len(known) + place
        return codes


class Space(Shapes):
    """All shapes of one operation. `tensors[i]`, [shapes], numbers the shape of operand i among those of its rank."""

    def __init__(self, key: Key, columns: Ints):
        super().__init__(columns)
        self.key = key
        self.operands = key.op.operands(key.rank)
        self.tensors: list[Ints] = []

    def operand_shapes(self, operand: int) -> Ints:
        """Return the shapes of one operand, [dimensions of the operand, shapes]."""
        shape = self.operands[operand].shape(list(self.sizes))
        columns = [np.broadcast_to(np.asarray(size, dtype=np.int64), (self.count,)) for size in shape]
        return np.stack(columns) if columns else np.zeros((0, self.count), dtype=np.int64)

    def batch(self, states: Sequence[OperandState], cells: Ints | None = None) -> LogicalSpec:
        """Return a batch of Specs of the shapes with the given numbers, by default of all."""
        sizes = self.sizes if cells is None else self.sizes[:, cells]
        return LogicalSpec(self.key.op, tuple(sizes), tuple(states), self.key.serial)

    def layers(self) -> list[Ints]:
        """Partition the shapes into layers, smaller ones first, such that no shape contains another of its layer."""
        depth: Ints = np.zeros(self.count, dtype=np.int64)
        for dim, known in enumerate(self.sizes_per_dim):
            depth = depth + cast(Ints, np.searchsorted(known, self.sizes[dim]))
        return [np.flatnonzero(depth == value) for value in distinct_numbers(depth)]


class ReachesShapes(Protocol):
    """A kind of step that leads from shapes to shapes."""

    def reach(self, space: Space, dtypes: Sequence[DTypes], target: Target) -> Iterator[Reached]:
        """Yield the shapes reachable by one step from all shapes of a space with any of these data types."""
        ...


class Spaces:
    """All spaces reachable from the goals. `dtypes` has the data types of the operands of each."""

    def __init__(self, goals: Iterable[LogicalSpec], target: Target, kinds: Sequence[ReachesShapes]):
        self.target = target
        self.by_key: dict[Key, Space] = {}
        self.dtypes: dict[Key, dict[DTypes, None]] = {}
        #: Spaces with new data types, and shapes not yet visited.
        self._renewed: set[Key] = set()
        self._waiting: dict[Key, list[Ints]] = {}
        #: The shapes of copies that goals, and steps on other spaces, ask for.
        self.copies: dict[TypedKey, list[Ints]] = {}
        for goal in goals:
            self._note(typed_key_of(goal), goal.shape)
        while self._waiting:
            # Every space leads to copies, so those go last: few spaces are visited twice.
            key = min((key for key in self.dtypes if key in self._waiting), key=lambda key: key.op.moves_data)
            if new := self._new(key):
                for kind in kinds:
                    for typed_key, shape in kind.reach(new, [*self.dtypes[key]], target):
                        check_budget()
                        self._note(typed_key, shape, key)
        self.tensors = self._number_tensors()

    def _note(self, typed_key: TypedKey, shape: Sequence[Num], source: Key | None = None) -> None:
        """Queue shapes that steps on `source` lead to; queue the whole space if its data types are new."""
        key, dtypes = typed_key
        seen = self.dtypes.setdefault(key, {})
        check_size(spaces=len(self.dtypes))
        if dtypes not in seen:
            seen[dtypes] = None
            self._renewed.add(key)
        # A Compose of single values may have no dimension.
        sizes = np.broadcast_arrays(*(np.atleast_1d(np.asarray(size)) for size in shape))
        columns = np.stack(sizes) if sizes else np.zeros((0, 1), dtype=np.int64)
        self._waiting.setdefault(key, []).append(columns)
        if key.op.moves_data and not (source and source.op.moves_data):
            self.copies.setdefault(typed_key, []).append(columns)

    def _new(self, key: Key) -> Space | None:
        """Store the queued shapes of a space; return those to visit, or None."""
        known, columns = self.by_key.get(key), np.concatenate(self._waiting.pop(key), axis=1)
        new = columns if known is None else columns[:, known.numbers(list(columns)) < 0]
        every = new if known is None else np.concatenate([known.sizes, new], axis=1)
        renewed = key in self._renewed
        self._renewed.discard(key)
        if new.shape[1]:
            self.by_key[key] = Space(key, every)
        return Space(key, every if renewed else new) if renewed or new.shape[1] else None

    def _number_tensors(self) -> dict[int, Shapes]:
        """Number the shapes of all operands, per rank."""
        found: dict[int, list[Ints]] = {}
        for space in self.by_key.values():
            for index, operand in enumerate(space.operands):
                found.setdefault(len(operand.dims), []).append(space.operand_shapes(index))
        tensors = {rank: Shapes(np.concatenate(columns, axis=1)) for rank, columns in found.items()}
        for space in self.by_key.values():
            for index, operand in enumerate(space.operands):
                numbers = tensors[len(operand.dims)].numbers(list(space.operand_shapes(index)))
                space.tensors.append(np.broadcast_to(numbers, (space.count,)))
        return tensors


def neutral_batch(space: Space, target: Target, dtypes: Sequence[DType] | None = None) -> LogicalSpec:
    """Return all shapes of a space with operand states, f32 by default, that no loop or pipeline rejects."""
    level = target.levels[-1].name
    return space.batch([OperandState(dtype, level, None) for dtype in dtypes or [F32] * len(space.operands)])


def searched_cases(step: Rewrite, batch: LogicalSpec, target: Target) -> Iterator[RewriteCase]:
    """Yield a step's cases on the shapes of a batch on which search tries it, none if it is inapplicable."""
    with contextlib.suppress(Inapplicable):
        cells = masked(None, step.worth_trying(batch, target))
        yield from cases_within(cells, step.cases(select_cells(batch, cells), target))
