"""Shapes: which sizes the Specs below some goals can have, and what steps make of them whatever the operands' states.

A space is one operation on all shapes that it can have, which are numbered. Shapes are closed under what rewrites do:
tiles of every size and the remainders they leave. What staged rewrites make depends on the operands' data types too,
so these are followed along with the shapes.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Sequence

import attrs
import numpy as np
import numpy.typing as npt

from morello.errors import Inapplicable, PluginError
from morello.ir.dtypes import F32, DType, by_name
from morello.ir.impl import Expansion, Part
from morello.ir.ops.base import Operation
from morello.ir.ops.move import Move
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import OperandState
from morello.kernels.target import Target
from morello.rewrites.base import Case, Rewrite, masked, pending_dims, rewrites_of, select_cells, within
from morello.rewrites.move import MoveStep

Ints = npt.NDArray[np.int64]

DTypes = tuple[DType, ...]


@attrs.frozen(cache_hash=True)
class Key:
    """What Specs of one space have in common."""

    op: Operation
    rank: int
    serial: bool


#: A space, and the data types of its operands.
Kind = tuple[Key, DTypes]


def key_of(logical: LogicalSpec) -> Key:
    """The key of the space that a Spec, or a batch of Specs, is in."""
    return Key(logical.op, len(logical.shape), logical.serial)


def kind_of(logical: LogicalSpec) -> Kind:
    """The space that a Spec, or a batch of Specs, is in, and its operands' data types."""
    return key_of(logical), tuple(state.dtype for state in logical.states)


#: Places in tie-breaks of one operand's moves.
MOVE_BITS = 24


class Tensors:
    """The shapes of all operands of one rank, numbered. `dims` has a row per dimension."""

    def __init__(self, rank: int, shapes: Iterable[tuple[int, ...]]):
        self.rank = rank
        self.shapes = sorted(set(shapes))
        self.numbers = {shape: number for number, shape in enumerate(self.shapes)}
        self.dims: Ints = np.array(self.shapes, dtype=np.int64).reshape(len(self.shapes), rank).T.copy()

    def __len__(self) -> int:
        return len(self.shapes)


class Space:
    """Shapes of one operation, in lexicographic order. `sizes` has a row per dimension, a column per shape."""

    def __init__(self, key: Key, shapes: Ints):
        self.key = key
        axes = [np.unique(row, return_inverse=True) for row in shapes]
        self.axes = [axis for axis, _ in axes]
        codes = _codes([at.reshape(-1) for _, at in axes], self.axes)
        self._codes, first = np.unique(codes, return_index=True)
        self.sizes: Ints = shapes[:, first]
        self.count = self.sizes.shape[1]
        self.operands = key.op.operands(key.rank)
        #: Per operand, the number of its shape among all tensors of its rank.
        self.tensors: list[Ints] = []

    def number(self, shape: Sequence[int]) -> int:
        """The number of one shape, -1 if it is not among them."""
        found = self.numbers([np.array([size]) for size in shape])
        return int(found[0])

    def numbers(self, shape: Sequence[Ints]) -> Ints:
        """The numbers of shapes given as one array per dimension; -1 where they are not among them."""
        places = []
        fine: npt.NDArray[np.bool_] = np.ones(1, dtype=np.bool_)
        for axis, size in zip(self.axes, shape, strict=True):
            at = np.minimum(np.searchsorted(axis, size), len(axis) - 1)
            fine = fine & (axis[at] == size)
            places.append(at)
        codes = _codes(places, self.axes)
        at = np.minimum(np.searchsorted(self._codes, codes), self.count - 1)
        return np.where(fine & (self._codes[at] == codes), at, -1)

    def operand_shapes(self, operand: int) -> Ints:
        """A row per dimension of the operand, a column per shape."""
        shape = self.operands[operand].shape(list(self.sizes))
        columns = [np.broadcast_to(np.asarray(size, dtype=np.int64), (self.count,)) for size in shape]
        return np.stack(columns) if columns else np.zeros((0, self.count), dtype=np.int64)

    def batch(self, states: Sequence[OperandState], cells: Ints | None = None) -> LogicalSpec:
        """Specs of these shapes (all of them by default) as one batch."""
        sizes = self.sizes if cells is None else self.sizes[:, cells]
        return LogicalSpec(self.key.op, tuple(sizes), tuple(states), self.key.serial)

    def layers(self) -> list[Ints]:
        """Shapes in an order in which smaller ones come first; those of one layer do not contain each other."""
        depth = sum(
            (np.searchsorted(axis, size) for axis, size in zip(self.axes, self.sizes, strict=True)),
            np.zeros(self.count, dtype=np.int64),
        )
        return [np.flatnonzero(depth == value) for value in np.unique(depth)]


def _codes(places: Sequence[Ints], axes: Sequence[Ints]) -> Ints:
    """One number per shape, given where its sizes are on the axes."""
    codes: Ints = np.zeros(1, dtype=np.int64)
    for at, axis in zip(places, axes, strict=True):
        codes = codes * len(axis) + at
    return codes


@attrs.frozen
class StepPart:
    """One child of a structural step, over all shapes of the space it is taken in.

    `shape` is the number of the child's shape, -1 where the step has no such child; `times` how often it runs.
    """

    space: Space
    args: tuple[int, ...]
    shape: Ints
    times: Ints


@attrs.frozen
class StructuralStep:
    """A step that treats all operand states alike: what it makes of every shape. `valid` says where it applies.

    `suits` says, per level of the target, whether it applies to operands there.
    """

    step: Rewrite
    rank: int
    valid: npt.NDArray[np.bool_]
    cost: Ints
    parts: tuple[StepPart, ...]
    suits: tuple[bool, ...]


class Spaces:
    """Every space that Specs below the goals can be in. `kinds` are the data types that operands of each can have."""

    def __init__(self, goals: Iterable[LogicalSpec], target: Target):
        self.target = target
        self.by_key: dict[Key, Space] = {}
        self.kinds: dict[Key, dict[DTypes, None]] = {}
        fresh: dict[Key, list[Ints]] = {}
        for goal in goals:
            self._note(kind_of(goal), [np.asarray(size) for size in goal.shape], fresh)
        while fresh:
            key, arrays = next(iter(fresh.items()))
            del fresh[key]
            new = Space(key, np.concatenate(arrays, axis=1))
            known = self.by_key.get(key)
            sizes = new.sizes if known is None else np.concatenate([known.sizes, new.sizes], axis=1)
            self.by_key[key] = Space(key, sizes)
            for kind, shape in self._reached(new):
                self._note(kind, shape, fresh)
        self.tensors = self._number_tensors()
        self.steps = {key: [*self._structural(space)] for key, space in self.by_key.items()}

    def _note(self, kind: Kind, shape: Sequence[Ints], fresh: dict[Key, list[Ints]]) -> None:
        """Enter the shapes to look at that are met for the first time: all of a space if the data types are new to it.

        They are Specs of this kind, or tiles or copies of one.
        """
        key, dtypes = kind
        known, kinds = self.by_key.get(key), self.kinds.setdefault(key, {})
        columns = np.stack(np.broadcast_arrays(*map(np.atleast_1d, shape)))
        if dtypes not in kinds:
            kinds.update(dict.fromkeys(self._cast(kind)))
            fresh.setdefault(key, []).extend([columns] if known is None else [known.sizes, columns])
        elif known is None:
            fresh[key].append(columns)
        elif (new := columns[:, known.numbers(list(columns)) < 0]).shape[1]:
            fresh.setdefault(key, []).append(new)

    def _cast(self, kind: Kind) -> Iterator[DTypes]:
        """The data types that moves can make of some; these themselves first."""
        key, dtypes = kind
        moved = is_moved(key.op, self.target)
        choices = [
            self._wider(dtype) if moved and not one.writes else [dtype]
            for one, dtype in zip(key.op.operands(key.rank), dtypes, strict=True)
        ]
        yield from itertools.product(*choices)

    def _wider(self, dtype: DType) -> list[DType]:
        """A data type, and those that values of it can be cast to on moves."""
        found = [dtype]
        for one in found:
            found += [
                new
                for start, to in sorted(self.target.info.casts)
                if start == one.name and (new := by_name(to)) not in found
            ]
        return found

    def _reached(self, space: Space) -> Iterator[tuple[Kind, Sequence[Ints]]]:
        """Kinds and sizes that one step from shapes of a space leads to."""
        kinds = [*self.kinds[space.key]]
        for part in _parts(space, self.target, None):
            shape = [np.asarray(size) for size in part.logical.shape]
            for dtypes in kinds:
                below = key_of(part.logical), tuple(dtypes[arg] for arg in part.args)
                yield below, shape
                if part.logical.serial != space.key.serial:
                    # Bounds compare the tiles of a parallel loop with the whole.
                    yield below, list(space.sizes)
        for dtypes in kinds:
            for part in _parts(space, self.target, dtypes):
                yield kind_of(part.logical), [np.asarray(size) for size in part.logical.shape]
        for index, one in enumerate(space.operands) if is_moved(space.key.op, self.target) else ():
            key = Key(Move(), len(one.dims), space.key.serial)
            for dtype in dict.fromkeys(dtypes[index] for dtypes in kinds):
                yield (key, (dtype, dtype)), list(space.operand_shapes(index))

    def _number_tensors(self) -> dict[int, Tensors]:
        shapes: dict[int, set[tuple[int, ...]]] = {}
        for space in self.by_key.values():
            for index, one in enumerate(space.operands):
                found = np.unique(space.operand_shapes(index), axis=1).T
                shapes.setdefault(len(one.dims), set()).update(map(tuple, found.tolist()))
        tensors = {rank: Tensors(rank, found) for rank, found in shapes.items()}
        for space in self.by_key.values():
            for index, one in enumerate(space.operands):
                numbers = tensors[len(one.dims)].numbers
                columns = space.operand_shapes(index).T.tolist()
                space.tensors.append(np.array([numbers[tuple(column)] for column in columns], dtype=np.int64))
        return tensors

    def _structural(self, space: Space) -> Iterator[StructuralStep]:
        for order, rewrite in enumerate(rewrites_of(self.target)):
            if not rewrite.structural:
                continue
            for index, step in enumerate(rewrite.steps(neutral(space, self.target), self.target)):
                yield from self._tabulate(space, step, step_rank(order, index))

    def _tabulate(self, space: Space, step: Rewrite, rank: int) -> Iterator[StructuralStep]:
        """The step on every shape: one table, or several if its children differ in kind from shape to shape."""
        tables: dict[tuple, StructuralStep] = {}
        with contextlib.suppress(Inapplicable):
            for case in _cases(step, neutral(space, self.target), self.target):
                cells = np.arange(space.count) if case.cells is None else case.cells
                parts = case.expansion.parts
                kinds = tuple((key_of(part.logical), part.args) for part in parts)
                same = next(
                    (known for known in tables if known[: len(kinds)] == kinds or kinds[: len(known)] == known), None
                )
                table = tables.pop(same) if same is not None else self._no_step(space, step, rank)
                kinds = max(kinds, same or (), key=len)
                tables[kinds] = self._with_case(table, case.expansion, cells, kinds)
        yield from tables.values()

    def _no_step(self, space: Space, step: Rewrite, rank: int) -> StructuralStep:
        suits = tuple(step.supports_level(level) for level in self.target.levels)
        valid, cost = np.zeros(space.count, dtype=np.bool_), np.zeros(space.count, dtype=np.int64)
        return StructuralStep(step, rank, valid, cost, (), suits)

    def _with_case(self, table: StructuralStep, made: Expansion, cells: Ints, kinds: tuple) -> StructuralStep:
        _check_structural(made, table.step)
        count = len(table.valid)
        parts = list(table.parts)
        for key, args in kinds[len(parts) :]:
            parts.append(StepPart(self.by_key[key], args, np.full(count, -1), np.zeros(count, dtype=np.int64)))
        table.valid[cells] = True
        table.cost[cells] = made.cost
        for known, part in zip(parts, made.parts, strict=False):
            shape = [np.broadcast_to(np.asarray(size), cells.shape) for size in part.logical.shape]
            known.shape[cells] = known.space.numbers(shape)
            known.times[cells] = part.times
        return attrs.evolve(table, parts=tuple(parts))


def is_moved(op: Operation, target: Target) -> bool:
    """Whether search moves operands of an operation."""
    return MoveStep in target.rewrites and pending_dims(op, target) is None


def step_rank(order: int, index: int) -> int:
    """Where a step stands in the target's order: the `index`-th of the rewrite that is `order`-th."""
    return (order << 32) + index


def neutral(space: Space, target: Target, dtypes: Sequence[DType] | None = None) -> LogicalSpec:
    """All shapes of a space, with operand states of these types (f32) that no structural or staged step objects to."""
    level = target.levels[-1].name
    return space.batch([OperandState(dtype, level, None) for dtype in dtypes or [F32] * len(space.operands)])


def _cases(step: Rewrite, batch: LogicalSpec, target: Target) -> Iterator[Case]:
    """A step on the shapes of a batch on which search tries it. Raises Inapplicable where it applies to none."""
    cells = masked(None, step.worth_trying(batch))
    for case in step.cases(select_cells(batch, cells), target):
        yield Case(within(cells, case.cells), case.expansion)


def _check_structural(made: Expansion, step: Rewrite) -> None:
    held = [made.needs, *(part.live for part in made.parts)]
    if made.tensors or any(np.any(np.asarray(amount)) for amounts in held for amount in amounts):
        raise PluginError(
            f"rewrite {step.keyword} calls itself structural, but `{step}` takes memory",
            "its class should not say `structural = True`",
        )


def _parts(space: Space, target: Target, dtypes: DTypes | None) -> Iterator[Part]:
    """What structural steps make of a space, or, given the operands' data types, what staged ones do."""
    batch = neutral(space, target, dtypes)
    for rewrite in rewrites_of(target):
        if rewrite.structural if dtypes is None else rewrite.staged:
            for step in rewrite.steps(batch, target):
                with contextlib.suppress(Inapplicable):
                    for case in _cases(step, batch, target):
                        yield from case.expansion.parts
