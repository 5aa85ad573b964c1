"""Tiling plans: schedules that tile a Spec for one memory level after another, in which every step applies."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import attrs

from morello.errors import Inapplicable
from morello.ir.impl import Loop
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.rewrites.base import Rewrite
from morello.rewrites.move import MoveStep
from morello.rewrites.pad import PadStep
from morello.rewrites.tile import Tile
from morello.rewrites.to_accum import ToAccum
from morello.schedule import Schedule, Subschedule, default_child, rewrite_leaf
from morello_bounds.nest import Array, Nest, nest_of
from morello_bounds.tiles import held, largest_factor, tile_moves

#: Loops up to this size are short.
_SHORT = 7
#: Rows of convolutions up to this number of lines are not tiled.
_ROW_LINES = 4
#: If tiles that fill a level do not apply, since limits are rounded, 7/8, 6/8 ... of it are tried.
_SHARES = 8
#: The sizes of tiles, and the loops along which they advance first, which need not be all.
TileAndOrder: TypeAlias = tuple[Sequence[int], Sequence[int]]


@attrs.frozen
class TileContext:
    """The Spec that tiles are chosen for, and `memory` bytes of a level for its operands in slower levels."""

    spec: Spec
    target: Target
    #: The loops, and the arrays of these operands.
    nest: Nest
    memory: int
    #: Bytes of a line; rows of arrays occupy whole lines.
    unit: int
    #: Loops that are not tiled, by number.
    whole: frozenset[int]
    #: The number of the level.
    level: int = 0

    def fits(self, tile: Sequence[int]) -> bool:
        """Return True if a tile's parts of all arrays fit together."""
        return sum(self._held(array, tile) for array in self.nest.arrays) <= self.memory

    def _held(self, array: Array, tile: Sequence[int]) -> int:
        row = array.index[-1] if array.index else ()
        step = max(1, self.unit // array.bytes)
        lines = [-(-size // step) * step if row == ((loop, 1),) else size for loop, size in enumerate(tile)]
        return int(held(array, lines))

    def rounded(self, shape: Sequence[float]) -> tuple[int, ...]:
        """Return whole sizes of at most these: divisors, or multiples for kernels if divisors are less than half."""
        required = self.target.tile_sizes(self.spec.op)
        return tuple(
            extent if loop in self.whole else self._rounded(loop, size, extent, required.get(loop, frozenset()))
            for loop, (size, extent) in enumerate(zip(shape, self.nest.sizes, strict=True))
        )

    def _rounded(self, loop: int, size: float, extent: int, required: frozenset[int]) -> int:
        multiple = self.spec.op.tile_multiple(loop)
        # Powers of floats may be slightly below a whole number.
        most = max(1, min(extent, int(size + 1e-6)))
        whole = next((one for one in range(most, 0, -1) if extent % one == 0 and one % multiple == 0), extent)
        if 2 * whole > most:
            return whole
        units = sorted(one for one in required if one <= most and one % multiple == 0)
        fit = most // units[-1] * units[-1] if units else 1 << most.bit_length() - 1
        return fit if fit % multiple == 0 else whole

    def fitted(self, shape: Sequence[float]) -> tuple[int, ...] | None:
        """Return the largest rounded tile of about this shape that fits, short whole loops kept whole if possible."""
        if self.fits(full := self.rounded(shape)):
            return full
        short = [extent <= _SHORT and size >= extent for size, extent in zip(shape, self.nest.sizes, strict=True)]
        return self._shrunk(shape, short) or self._shrunk(shape, [False] * len(shape))

    def _shrunk(self, shape: Sequence[float], stays: Sequence[bool]) -> tuple[int, ...] | None:
        def smaller(factor: float) -> tuple[int, ...]:
            sizes = zip(shape, stays, strict=True)
            return self.rounded([size if whole else max(1.0, factor * size) for size, whole in sizes])

        if not self.fits(smaller(0.0)):
            return None
        return smaller(largest_factor(1.0, 20, lambda factor: self.fits(smaller(factor))))

    def order(self, tile: Sequence[int]) -> tuple[int, ...]:
        """Return the loops along which tiles advance first, so that little is moved, the innermost loop first."""
        order: tuple[int, ...] = ()
        moved = math.inf
        cut = [loop for loop, size in enumerate(self.nest.sizes) if tile[loop] < size]
        while left := [(tile_moves(self.nest, tile, *order, loop), loop) for loop in cut if loop not in order]:
            then, best = min(left)
            if then >= moved:
                break
            order, moved = (*order, best), then
        return order

    def ordered(self, shape: Sequence[float]) -> TileAndOrder | None:
        """Return the fitted tile of a shape with its order, if there is one."""
        tile = self.fitted(shape)
        return (tile, self.order(tile)) if tile else None


#: Chooses tiles for a level; returns None for no tiles.
TileChooser: TypeAlias = Callable[[TileContext], TileAndOrder | None]


def tiling_plans(
    spec: Spec, target: Target, choose: TileChooser, shared: Sequence[int] | None = None
) -> Iterator[Schedule]:
    """Yield up to four schedules with the tiles that `choose` returns for each level but registers, slowest first.

    With and without moves to each level, and with reductions tiled and whole, so that sums stay in registers. Threads
    share tiles of the sizes `shared`, by default of the longest loop. All steps apply, and no schedule is empty.
    """
    for moves, whole in ((True, False), (False, False), (False, True), (True, True)):
        plan = TilingPlan(target, spec, moves, whole)
        if not spec.logical.serial:
            plan.share(shared)
        plan.pad()
        for level in tiled_levels(spec, target):
            plan.tile(level, choose)
        if plan.schedule:
            yield plan.schedule


def tiled_levels(spec: Spec, target: Target) -> list[int]:
    """Return the levels with tiles, by number, slowest first: those that moves lead to."""
    names = {state.level for state in spec.logical.states}
    slowest = max(number for number, level in enumerate(target.levels) if level.name in names)
    for level in reversed(target.levels):
        if level.name in names:
            names.update(level.destinations)
    levels = reversed([*enumerate(target.levels[:slowest])])
    return [number for number, level in levels if level.name in names and not level.is_register]


def _windows(nest: Nest, unit: int) -> frozenset[int]:
    """Return the loops of convolutions that kernels handle badly in parts: filters, and rows of few lines."""
    found: set[int] = set()
    for array in nest.arrays:
        for form in array.index if not array.projective else ():
            most = _ROW_LINES * unit // array.bytes if form == array.index[-1] else _SHORT
            found |= {loop for loop, _ in form if len(form) > 1 and nest.sizes[loop] <= most}
    return frozenset(found)


def merged_sizes(nest: Nest, tile: Sequence[float]) -> list[float]:
    """Return the sizes along the loops of a Spec, given those of a tile of its lifted nest."""
    sizes = [*tile[: len(tile) - len(nest.split)]]
    for outer, inner, size in nest.split:
        sizes[outer] = min(float(size), sizes[outer] * tile[inner])
    return sizes


@attrs.define
class TilingPlan:
    """The steps so far, and the Spec that the next step rewrites: None if no child is selected."""

    target: Target
    spec: Spec | None
    #: Whether operands move to each level.
    moves: bool = True
    #: Whether reductions stay whole.
    whole: bool = False
    #: Each step, and the number of the child that the next one rewrites if it is not the default one.
    steps: list[tuple[Rewrite, int | None]] = attrs.field(factory=list[tuple[Rewrite, "int | None"]])

    @property
    def schedule(self) -> Schedule:
        """Return the steps as statements. Steps after a loop with boundary tiles are for its main tiles."""
        rest: Schedule = ()
        for step, child in reversed(self.steps):
            rest = (step, *rest) if child is None or not rest else (step, Subschedule((child,), rest))
        return rest

    def take(self, steps: Sequence[Rewrite]) -> bool:
        """Take all steps, or none if one does not apply or the target lacks it."""
        spec, taken = self.spec, list[tuple[Rewrite, int | None]]()
        for step in steps:
            if spec is None or step.keyword not in self.target.rewrites_by_name:
                return False
            try:
                node = rewrite_leaf(spec, step, self.target)
            except Inapplicable:
                return False
            child = body = default_child(node)
            if child is None:
                # Go on with the main tiles of a loop, or with the convolution of the padded image.
                body = 0 if isinstance(node.expansion, Loop) else 1 if isinstance(step, PadStep) else None
            taken.append((step, body if child is None else None))
            spec = None if body is None else node.children[body].spec
        self.spec = spec
        self.steps += taken
        return True

    def share(self, sizes: Sequence[int] | None) -> None:
        """Let threads share tiles of these sizes, or else tiles of the longest loop that they can share."""
        spec, threads = self.spec, self.target.weights.threads
        assert spec is not None
        shape = tuple(map(int, spec.logical.shape))
        if sizes is not None and self.take([Tile(tuple(sizes), parallel=True)]):
            return
        for loop in sorted(range(len(shape)), key=lambda one: -shape[one]):
            size = -(-shape[loop] // threads)
            tile = tuple(size if one == loop else extent for one, extent in enumerate(shape))
            if size < shape[loop] and self.take([Tile(tile, parallel=True)]):
                return

    def pad(self) -> None:
        """Pad the image of a convolution, so that rows can be tiled, in the fastest level that it fills by half."""
        spec = self.spec
        if spec is None or PadStep.keyword not in self.target.rewrites_by_name:
            return
        for number, level in enumerate(self.target.levels):
            trial = TilingPlan(self.target, spec)
            if level.is_register or not trial.take([PadStep(level.name)]) or trial.spec is None:
                continue
            if 2 * trial.spec.limits[number] >= spec.limits[number]:
                self.take([PadStep(level.name)])
                return

    def tile(self, level: int, choose: TileChooser) -> None:
        """Tile for a level, and move operands there."""
        spec = self.spec
        if spec is None:
            return
        slower = {one.name for one in self.target.levels[level + 1 :]}
        outside = [one for one, state in enumerate(spec.logical.states) if state.level in slower]
        nest = nest_of(spec)
        nest = attrs.evolve(nest, arrays=tuple(nest.arrays[one] for one in outside))
        limit, unit, whole = int(spec.limits[level]), self.target.levels[level].unit, self._untiled(spec)
        for kept in dict.fromkeys((whole | _windows(nest, unit), whole)):
            for share in range(_SHARES, 0, -1) if outside else ():
                found = choose(TileContext(spec, self.target, nest, limit * share // _SHARES, unit, kept, level))
                if found and self.take([*self._level_steps(spec, level, outside, *found)]):
                    return

    def _untiled(self, spec: Spec) -> frozenset[int]:
        """Return the loops that are not tiled, even with accumulation if that is possible."""
        rank = len(spec.logical.shape)
        whole = spec.op.untiled(rank)
        if self.whole:
            return frozenset({*whole, *spec.op.reductions(rank)})
        trial = TilingPlan(self.target, spec)
        if whole and trial.take([ToAccum()]) and trial.spec and trial.spec.logical.dims == spec.logical.dims:
            return frozenset(trial.spec.op.untiled(rank))
        return frozenset(whole)

    def _level_steps(
        self, spec: Spec, level: int, outside: Sequence[int], tile: Sequence[int], order: Sequence[int]
    ) -> Iterator[Rewrite]:
        """Yield loops from the outermost on, and each operand's move once no inner loop changes its part."""
        logical = spec.logical
        shape = [*map(int, logical.shape)]
        cut = [loop for loop, size in enumerate(shape) if tile[loop] < size]
        if any(loop in cut for loop in logical.op.untiled(len(shape))):
            yield ToAccum()
        name = self.target.levels[level].name
        moves = {one: logical.declared[one] for one in outside if self.moves}
        first = [loop for loop in order if loop in cut]
        groups = [[loop for loop in cut if loop not in first], *([loop] for loop in reversed(first))]
        made = [*shape]
        for at in range(len(groups) + 1):
            later = [loop for group in groups[at:] for loop in group]
            ready = [one for one, operand in moves.items() if not any(operand.uses(loop) for loop in later)]
            # Loops without a move in between become one step.
            if (ready or not later) and made != shape:
                yield Tile(tuple(made))
                shape = [*made]
            for one in ready:
                del moves[one]
                yield MoveStep(one, name)
            for loop in groups[at] if at < len(groups) else ():
                made[loop] = tile[loop]
