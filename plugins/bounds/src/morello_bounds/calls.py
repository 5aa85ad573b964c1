"""Kernel calls that programs can make: every microkernel on all shapes and states of search, at its least cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import lru_cache
from math import prod
from typing import TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from morello.errors import MorelloError
from morello.ir.limits import Limits
from morello.ir.ops.base import Operation
from morello.ir.ops.compose import Compose
from morello.ir.ops.wiring import Extent
from morello.ir.spec import LogicalSpec, Spec
from morello.kernels.target import Target
from morello.rewrites import STANDARD
from morello.rewrites.base import Rewrite, rewrites_of
from morello.rewrites.select import Select
from morello.search.step_kinds import KINDS
from morello.search.tables.kernels import KernelTables
from morello.search.tables.loops import LoopTables
from morello.search.tables.pipelines import PipelineTables
from morello.search.tables.shapes import Key, Space, key_of
from morello.search.tables.step_tables import SearchTables, overridden
from morello_bounds.nest import distinct

Ints: TypeAlias = npt.NDArray[np.int64]


@attrs.frozen(eq=False)
class CallTable:
    """Calls for one operation with operands in the same `levels`, by number.

    `bytes`, [operands, calls], are those of operands, `work` the points of each family, [calls], and `cost`, [calls],
    the least cost in any layout. `moves` is True for operations that copy values between levels.
    """

    op: str
    levels: tuple[int, ...]
    cost: Ints
    bytes: Ints
    work: Mapping[int, Ints]
    moves: bool

    def outside(self, cut: int) -> Ints:
        """Return the bytes, [calls], of operands in levels from `cut` on."""
        chosen = [level >= cut for level in self.levels]
        return self.bytes[chosen].sum(axis=0)

    def is_inside(self, cut: int) -> bool:
        """Return True if all operands are in levels before `cut`."""
        return max(self.levels, default=-1) < cut


@attrs.frozen(eq=False)
class RequiredWork:
    """The least points that programs of a Spec compute, by family of operations, and the calls that compute them."""

    points: tuple[int, ...]
    calls: tuple[CallTable, ...]
    #: The operations of each family, by name.
    families: tuple[tuple[str, ...], ...]


@lru_cache(maxsize=4)
def work_of(spec: Spec, target: Target) -> RequiredWork:
    """Return the points that programs of a Spec compute, and their calls. Raises MorelloError for unknown rewrites."""
    strange = [rewrite.keyword for rewrite in rewrites_of(target) if not _is_known(rewrite)]
    if strange:
        raise MorelloError(
            f"{target.name} has the rewrite `{strange[0]}`, which may leave out points",
            "bounds on costs are for targets with Morello's own rewrites",
        )
    tables = SearchTables([spec.logical], target, [kind.tables for kind in KINDS])
    below = {key: _below(space, tables) for key, space in tables.spaces.by_key.items()}
    goal = key_of(spec.logical)
    if goal not in below:
        return RequiredWork((), (), ())
    stages = _stages(spec.logical)
    families, points = _families(stages, below, spec.logical.serial)
    reached = _closure(goal, below)
    calls = [
        call
        for key in below
        if key in reached
        for call in _calls(key, tables, spec, families)
        if call.work or call.moves
    ]
    names = tuple(tuple(sorted({str(op) for op in family})) for family in families)
    return RequiredWork(tuple(points), tuple(calls), names)


def _is_known(rewrite: type[Rewrite]) -> bool:
    """Return True for Morello's own rewrites, restrictions of these, and selections of kernels."""
    own = (one for one in STANDARD if issubclass(rewrite, one) and overridden(rewrite, one) <= {"steps"})
    return issubclass(rewrite, Select) or next(own, None) is not None


def _stages(logical: LogicalSpec) -> list[tuple[Operation, int, int]]:
    """Return the operations of a Spec, each with its rank and the least points needed of it."""
    op = logical.op
    if not isinstance(op, Compose):
        return [(op, len(logical.shape), prod(map(int, logical.shape)))]
    shape = tuple(map(int, logical.shape))
    return [
        (stage.op, stage.rank, _needed(dims, shape)) for stage, dims in zip(op.stages, op.wiring.stages, strict=True)
    ]


def _needed(dims: tuple[Extent, ...], shape: tuple[int, ...]) -> int:
    """Return a lower bound on the points used of a stage: strides skip some, and dimensions may agree."""
    count, used = 1, set[int]()
    for extent in dims:
        loops = {loop for loop, _ in extent.terms}
        if used.isdisjoint(loops):
            used |= loops
            count *= max(1, distinct(extent.terms, shape) - extent.less)
    return count


def _below(space: Space, tables: SearchTables) -> set[Key]:
    """Return the spaces that loops and pipelines lead to. Moves are left out, as allocations pay for their copies."""
    dtypes = [*tables.spaces.dtypes[space.key]]
    return {
        key
        for kind in (LoopTables, PipelineTables)
        for (key, _), _ in kind.reach(space, dtypes, tables.target)
        if key in tables.spaces.by_key
    }


def _closure(start: Key, below: Mapping[Key, set[Key]]) -> set[Key]:
    found, waiting = {start}, [start]
    while waiting:
        new = below[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def _families(
    stages: list[tuple[Operation, int, int]], below: Mapping[Key, set[Key]], serial: bool
) -> tuple[list[set[Operation]], list[int]]:
    """Return families of all operations that a stage may become, merged if they share one, and the points of each."""
    families: list[set[Operation]] = []
    points: list[int] = []
    for op, rank, needed in stages:
        start = Key(op, rank, serial)
        reached = _closure(start, below) if start in below else set[Key]()
        own = {key.op for key in reached if _computes(key)} | ({op} if _computes(start) else set())
        if not own:
            continue
        meeting = [at for at, family in enumerate(families) if family & own]
        for at in reversed(meeting):
            own |= families.pop(at)
            needed += points.pop(at)
        families.append(own)
        points.append(needed)
    return families, points


def _computes(key: Key) -> bool:
    """Return True for operations other than copies and constants."""
    return key.op.flops((2,) * key.rank) > 0


def _calls(key: Key, tables: SearchTables, spec: Spec, families: list[set[Operation]]) -> Iterator[CallTable]:
    """Yield the calls for one operation that fit into memory."""
    space = tables.spaces.by_key[key]
    shapes = [space.operand_shapes(index).prod(axis=0) for index in range(len(space.operands))]
    work = _work(key, space, families)
    moves = not work and (not key.op.initializes or spec.op.initializes)
    home = {tables.states.levels[state.level] for state in spec.logical.states}
    for (levels, sizes), cost in sorted(_cheapest(key, tables, spec.limits).items()):
        held = np.stack([count * size for count, size in zip(shapes, sizes, strict=True)])
        fits = np.isfinite(cost)
        for level in {*levels} - home:
            inside = held[[own == level for own in levels]]
            # An operation of a graph may have one tensor as several operands.
            together = inside.max(axis=0) if isinstance(spec.op, Compose) else inside.sum(axis=0)
            fits &= together <= spec.limits[level]
        if fits.any():
            yield CallTable(
                str(key.op),
                levels,
                cost[fits].astype(np.int64),
                held[:, fits].astype(np.int64),
                {family: points[fits] for family, points in work.items()},
                moves,
            )


def _cheapest(
    key: Key, tables: SearchTables, limits: Limits
) -> dict[tuple[tuple[int, ...], tuple[int, ...]], npt.NDArray[np.float64]]:
    """Return the least costs of kernels that fit, [shapes], by their operands' levels, and by their types' bytes."""
    count = tables.spaces.by_key[key].count
    cheapest: dict[tuple[tuple[int, ...], tuple[int, ...]], npt.NDArray[np.float64]]
    cheapest = defaultdict(lambda: np.full(count, np.inf))
    sizes = np.array([state.dtype.bytes for _, state in tables.states.states], dtype=np.int64)
    for table in tables.of(KernelTables).by_key[key]:
        if all(need <= limit for need, limit in zip(table.needs, limits, strict=True)):
            kinds = np.stack([tables.states.level[table.states], sizes[table.states]], axis=1)
            distinct, kind = np.unique(kinds, axis=0, return_inverse=True)
            for each, costs in zip(*table.least(kind.reshape(-1)), strict=True):
                levels, bytes_ = map(tuple, distinct[each].tolist())
                own = cheapest[levels, bytes_]
                own[table.shapes] = np.minimum(own[table.shapes], costs)
    return cheapest


def _work(key: Key, space: Space, families: list[set[Operation]]) -> dict[int, Ints]:
    """Return the points, [shapes], that each family has in Specs of a space."""
    work: dict[int, Ints] = {}
    if isinstance(key.op, Compose):
        parts = [(one.op, key.op.stage_shape(at, [*space.sizes])) for at, one in enumerate(key.op.stages)]
    else:
        parts = [(key.op, [*space.sizes])]
    for op, sizes in parts:
        for number, family in enumerate(families):
            if op in family:
                points = np.asarray(prod(sizes), dtype=np.int64)
                work[number] = work.get(number, np.zeros(space.count, dtype=np.int64)) + points
    return work
