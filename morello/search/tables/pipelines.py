"""Stages: steps that make new tensors, or see operands under other dimensions, tabulated for all shapes of a space.

What such a step makes of a shape does not depend on the states of operands, save for their data types. Steps that
differ in nothing but the states of the new tensors share one table.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import attrs
import numpy as np
import numpy.typing as npt

from morello.errors import Inapplicable, PluginError
from morello.ir.impl import Expansion
from morello.ir.tensor import OperandState
from morello.kernels.target import Target
from morello.rewrites.base import Rewrite, rewrites_of
from morello.rewrites.staged import lifetimes
from morello.search.tables.shapes import DTypes, Key, Kind, Space, Spaces, key_of, neutral, step_rank

Ints = npt.NDArray[np.int64]

Axes = tuple[int | None, ...]


@attrs.frozen
class StagePart:
    """One child of a staged step. `args` from the number of operands on are new tensors.

    `shape` is the number of the child's shape, -1 where there is no such child; `times` how often it runs; `holds`
    the new tensors that are held meanwhile; `axes` the dimensions under which it sees each operand, None: its own.
    """

    space: Space
    args: tuple[int, ...]
    axes: tuple[Axes | None, ...]
    holds: tuple[int, ...]
    shape: Ints
    times: Ints


@attrs.frozen
class Stage:
    """Steps with the same parts. `fresh[step][tensor]` numbers a new tensor's state in `Stages.states`, -1: none.

    `tensors` are the new tensors' own numbers among those of their rank; arrays have a value per shape.
    """

    steps: list[Rewrite]
    ranks: list[int]
    parts: tuple[StagePart, ...]
    tensors: tuple[Ints, ...]
    fresh: list[list[Ints]]

    def row(self, step: Rewrite, rank: int, count: int) -> list[Ints]:
        """The states of the new tensors of one step."""
        if rank not in self.ranks:
            self.steps.append(step)
            self.ranks.append(rank)
            self.fresh.append([np.full(count, -1, dtype=np.int64) for _ in self.tensors])
        return self.fresh[self.ranks.index(rank)]


class Stages:
    """All staged steps on some spaces, by space and data types of the operands.

    `states` are those of new tensors, each with its rank; `axes` the dimensions under which operands are seen, each
    with the operand's rank.
    """

    def __init__(self, spaces: Spaces, target: Target):
        self.target = target
        self.spaces = spaces
        self.states: list[tuple[int, OperandState]] = []
        self.axes: set[tuple[int, Axes]] = set()
        self._numbers: dict[tuple[int, OperandState], int] = {}
        self._rewrites = [(order, one) for order, one in enumerate(rewrites_of(target)) if one.staged]
        self.steps: dict[Kind, list[Stage]] = {
            (key, dtypes): [*self._tabulate(key, dtypes)] for key, kinds in spaces.kinds.items() for dtypes in kinds
        }

    def of(self, key: Key, dtypes: DTypes) -> list[Stage]:
        return self.steps.get((key, dtypes), [])

    def below(self, key: Key) -> Iterator[Stage]:
        """All stages of a space."""
        for (own, _), stages in self.steps.items():
            if own == key:
                yield from stages

    def step(self, key: Key, dtypes: DTypes, rank: int) -> Rewrite:
        """The step that stands at a place in the target's order."""
        found = (stage for stage in self.of(key, dtypes) if rank in stage.ranks)
        stage = next(found)
        return stage.steps[stage.ranks.index(rank)]

    def levels(self) -> set[str]:
        """The levels of new tensors."""
        return {state.level for _, state in self.states}

    def _tabulate(self, key: Key, dtypes: DTypes) -> Iterator[Stage]:
        space = self.spaces.by_key[key]
        batch = neutral(space, self.target, dtypes)
        stages: dict[tuple, Stage] = {}
        for order, rewrite in self._rewrites:
            for index, step in enumerate(rewrite.steps(batch, self.target)):
                with contextlib.suppress(Inapplicable):
                    for case in step.cases(batch, self.target):
                        cells = np.arange(space.count) if case.cells is None else case.cells
                        self._enter(stages, space, step, step_rank(order, index), case.expansion, cells)
        yield from stages.values()

    def _enter(
        self, stages: dict[tuple, Stage], space: Space, step: Rewrite, rank: int, made: Expansion, cells: Ints
    ) -> None:
        """Add what a step makes of some shapes."""
        held = lifetimes([part.args for part in made.parts], len(space.operands))
        self._check(made, held, step)
        kinds = tuple(
            (key_of(part.logical), part.args, part.dim_maps, own) for part, own in zip(made.parts, held, strict=True)
        )
        classes = tuple((tensor.state.level, tensor.state.dtype, tensor.state.vector) for tensor in made.tensors)
        stage = stages.get((kinds, classes))
        if stage is None:
            parts = tuple(self._part(space, *kind) for kind in kinds)
            tensors = tuple(np.full(space.count, -1, dtype=np.int64) for _ in made.tensors)
            stage = stages[kinds, classes] = Stage([], [], parts, tensors, [])
        for known, part in zip(stage.parts, made.parts, strict=True):
            shape = known.space.numbers([np.broadcast_to(np.asarray(size), cells.shape) for size in part.logical.shape])
            if np.any((known.shape[cells] >= 0) & (known.shape[cells] != shape)):
                raise PluginError(
                    f"rewrite {step.keyword} calls itself staged, but shapes depend on new tensors",
                    "its class should not say `staged = True`",
                )
            known.shape[cells], known.times[cells] = shape, part.times
        row = stage.row(step, rank, space.count)
        for index, tensor in enumerate(made.tensors):
            row[index][cells] = self._number(len(tensor.shape), tensor.state)
            tensors = self.spaces.tensors[len(tensor.shape)]
            shape = np.stack([np.broadcast_to(np.asarray(size), cells.shape) for size in tensor.shape])
            stage.tensors[index][cells] = [tensors.numbers[tuple(column)] for column in shape.T.tolist()]

    def _part(
        self, space: Space, key: Key, args: tuple[int, ...], axes: Sequence[Axes] | None, holds: tuple[int, ...]
    ) -> StagePart:
        below = self.spaces.by_key[key]
        own: tuple[Axes | None, ...] = (None,) * len(args)
        if axes is not None:
            plain = [tuple(range(len(one.dims))) for one in below.operands]
            own = tuple(None if axis == same else axis for axis, same in zip(axes, plain, strict=True))
        for arg, axis in zip(args, own, strict=True):
            if axis is not None:
                if arg >= len(space.operands):
                    raise PluginError(
                        "a staged rewrite sees a new tensor under other dimensions than its own",
                        "its class should not say `staged = True`",
                    )
                self.axes.add((len(space.operands[arg].dims), axis))
        count = space.count
        return StagePart(below, args, own, holds, np.full(count, -1), np.zeros(count, dtype=np.int64))

    def _number(self, rank: int, state: OperandState) -> int:
        if (rank, state) not in self._numbers:
            self._numbers[rank, state] = len(self.states)
            self.states.append((rank, state))
        return self._numbers[rank, state]

    def _check(self, made: Expansion, held: Sequence[tuple[int, ...]], step: Rewrite) -> None:
        """Search works out cost and memory of such a step from its new tensors."""
        own = sum((self.target.move_cost(tensor) for tensor in made.tensors), 0)
        needed = [self.target.footprint(tensor) for tensor in made.tensors]
        wrong = np.any(np.asarray(made.cost) != own) or any(np.any(np.asarray(need)) for need in made.needs)
        for part, tensors in zip(made.parts, held, strict=True):
            live = [sum((needed[one][level] for one in tensors), 0) for level in range(len(part.live))]
            wrong |= any(np.any(np.asarray(a) != np.asarray(b)) for a, b in zip(part.live, live, strict=True))
            wrong |= any(np.any(np.asarray(part.times) != 1) for part in made.parts)
        if wrong:
            raise PluginError(
                f"rewrite {step.keyword} calls itself staged, but `{step}` costs or holds more than its tensors",
                "its class should not say `staged = True`",
            )
