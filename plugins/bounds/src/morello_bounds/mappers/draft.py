"""Drafts: schedules that tile a Spec for one level after another, of which each step is tried when it is added."""

from __future__ import annotations

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
from morello_bounds.tiles import held, tile_moves

#: Loops up to this size are short.
_SHORT = 7
#: Rows of convolutions up to so many lines stay whole.
_ROW_LINES = 4
#: Where tiles that fill a level are refused, since limits are rounded, those of so many parts of it are tried in turn.
_SHARES = 8


@attrs.frozen
class Room:
    """The Spec that tiles are for, and `memory` bytes of a level for those of its operands that are not there yet."""

    spec: Spec
    target: Target
    nest: Nest
    memory: int
    #: Bytes of a line, of which parts of arrays take whole ones.
    unit: int
    #: Loops that cannot be tiled, by number.
    whole: frozenset[int]
    #: The number of the level.
    level: int = 0

    def fits(self, tile: Sequence[int]) -> bool:
        """Return True if the parts of all arrays fit together, with rows of whole lines."""
        return sum(self._held(array, tile) for array in self.nest.arrays) <= self.memory

    def _held(self, array: Array, tile: Sequence[int]) -> int:
        row = array.index[-1] if array.index else ()
        step = max(1, self.unit // array.bytes)
        lines = [-(-size // step) * step if row == ((loop, 1),) else size for loop, size in enumerate(tile)]
        return int(held(array, lines))

    def rounded(self, shape: Sequence[float]) -> tuple[int, ...]:
        """Return whole sizes of at most these.

        They divide their loops, unless less than half of a size is left: then they are multiples of what kernels ask
        for, or powers of two.
        """
        asked = self.target.tile_sizes(self.spec.op)
        return tuple(
            extent if loop in self.whole else self._rounded(loop, size, extent, asked.get(loop, frozenset()))
            for loop, (size, extent) in enumerate(zip(shape, self.nest.sizes, strict=True))
        )

    def _rounded(self, loop: int, size: float, extent: int, asked: frozenset[int]) -> int:
        multiple = self.spec.op.tile_multiple(loop)
        # Powers of floats may be a little below the whole number that they are.
        most = max(1, min(extent, int(size + 1e-6)))
        whole = next((one for one in range(most, 0, -1) if extent % one == 0 and one % multiple == 0), extent)
        if 2 * whole > most:
            return whole
        units = sorted(one for one in asked if one <= most and one % multiple == 0)
        fit = most // units[-1] * units[-1] if units else 1 << most.bit_length() - 1
        return fit if fit % multiple == 0 else whole

    def fitted(self, shape: Sequence[float]) -> tuple[int, ...] | None:
        """Return the largest rounded tile of about this shape that fits, None if not even the smallest does.

        Short loops that are whole, as those of filters, stay so if they can: parts of them are of several sizes.
        """
        if self.fits(full := self.rounded(shape)):
            return full
        short = [extent <= _SHORT and size >= extent for size, extent in zip(shape, self.nest.sizes, strict=True)]
        return self._shrunk(shape, short) or self._shrunk(shape, [False] * len(shape))

    def _shrunk(self, shape: Sequence[float], stays: Sequence[bool]) -> tuple[int, ...] | None:
        def smaller(factor: float) -> tuple[int, ...]:
            sizes = zip(shape, stays, strict=True)
            return self.rounded([size if whole else max(1.0, factor * size) for size, whole in sizes])

        low, high = 0.0, 1.0
        best = smaller(0.0)
        if not self.fits(best):
            return None
        for _ in range(20):
            middle = (low + high) / 2
            tile = smaller(middle)
            if self.fits(tile):
                low, best = middle, tile
            else:
                high = middle
        return best

    def order(self, tile: Sequence[int]) -> tuple[int, ...]:
        """Return loops along which tiles should go on first, the very first before others, so that little is moved."""
        order: tuple[int, ...] = ()
        moved: int | None = None
        left = [loop for loop, size in enumerate(self.nest.sizes) if tile[loop] < size]
        while left:
            best = min(left, key=lambda loop: (tile_moves(self.nest, tile, *order, loop), loop))
            then = tile_moves(self.nest, tile, *order, best)
            if moved is not None and then >= moved:
                break
            order, moved = (*order, best), then
            left.remove(best)
        return order


#: Chooses the sizes of tiles and the loops along which they go on first, the very first before others, which need not
#: all be there; None for no tiles.
Choice: TypeAlias = Callable[[Room], tuple[Sequence[int], Sequence[int]] | None]


def drafts(spec: Spec, target: Target, choose: Choice, shared: Sequence[int] | None = None) -> Iterator[Schedule]:
    """Yield schedules with the tiles that `choose` gives for each level but registers, slowest first.

    Some also move operands to each level, those that stay while tiles go on before the others; some leave it to search
    where operands are, as kernels may read them where they were. Some tile sums, and some keep them whole, so that
    these stay in registers. Threads share tiles of the sizes `shared`, by default of the longest loop. All steps apply.
    None is empty: where there are no steps, there is no schedule.
    """
    for moves, whole in ((True, False), (False, False), (False, True), (True, True)):
        if steps := _draft(spec, target, choose, moves, whole, shared):
            yield steps


def tiled_levels(spec: Spec, target: Target) -> list[int]:
    """Return the levels that there are tiles for, by number, slowest first."""
    names = {state.level for state in spec.logical.states}
    slowest = max(number for number, level in enumerate(target.levels) if level.name in names)
    return [number for number in range(slowest - 1, -1, -1) if not target.levels[number].is_register]


def windows(nest: Nest, unit: int) -> frozenset[int]:
    """Return the loops of convolutions whose parts kernels take badly, by number: filters, and rows of a few lines.

    A line has `unit` bytes.
    """
    found: set[int] = set()
    for array in nest.arrays:
        for form in array.index if not array.projective else ():
            most = _ROW_LINES * unit // array.bytes if form == array.index[-1] else _SHORT
            found |= {loop for loop, _ in form if len(form) > 1 and nest.sizes[loop] <= most}
    return frozenset(found)


def joined(nest: Nest, tile: Sequence[float]) -> list[float]:
    """Return the sizes along the loops of the Spec, of a tile along those of a nest that was made of its own.

    A loop that was written as two has as many points as both: they lie side by side, where those of the program may
    skip some.
    """
    sizes = [*tile[: len(tile) - len(nest.split)]]
    for outer, inner, size in nest.split:
        sizes[outer] = min(float(size), sizes[outer] * tile[inner])
    return sizes


def _draft(
    spec: Spec, target: Target, choose: Choice, moves: bool, whole: bool, shared: Sequence[int] | None
) -> Schedule:
    made = _Draft(target, spec, moves, whole)
    if not spec.logical.serial:
        made.share(shared)
    made.pad()
    for number in tiled_levels(spec, target):
        made.use(number, choose)
    return made.schedule


@attrs.define
class _Draft:
    """Steps taken so far, and the Spec that the next is for: None where no child is singled out."""

    target: Target
    spec: Spec | None
    moves: bool = True
    #: Sums are not tiled.
    whole: bool = False
    #: Each step, and the number of the child that the next is for where that is not the default one.
    steps: list[tuple[Rewrite, int | None]] = attrs.field(factory=list[tuple[Rewrite, "int | None"]])

    @property
    def schedule(self) -> Schedule:
        """Return the steps as statements: what follows a loop with boundary tiles is for its main tiles."""
        rest: Schedule = ()
        for step, child in reversed(self.steps):
            rest = (step, *rest) if child is None or not rest else (step, Subschedule((child,), rest))
        return rest

    def number(self, name: str) -> int:
        """Return the number of a level."""
        return next(number for number, level in enumerate(self.target.levels) if level.name == name)

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
            child = default_child(node)
            if child is None:
                # What follows is for main tiles, and for the convolution of an image with zeros around it.
                body = 0 if isinstance(node.expansion, Loop) else 1 if isinstance(step, PadStep) else None
            else:
                body = child
            taken.append((step, body if child is None else None))
            spec = None if body is None else node.children[body].spec
        self.spec = spec
        self.steps += taken
        return True

    def share(self, sizes: Sequence[int] | None) -> None:
        """Let threads share tiles of these sizes or, where there are none, of the longest loop that they can share."""
        spec, threads = self.spec, self.target.weights.threads
        assert spec is not None
        shape = tuple(map(int, spec.logical.shape))
        if sizes is not None and self.take([Tile(tuple(sizes), parallel=True)]):
            return
        for loop in sorted(range(len(shape)), key=lambda one: -shape[one]):
            size = -(-shape[loop] // threads)
            if size < shape[loop] and self.take([Tile(_only({loop: size}, shape), parallel=True)]):
                return

    def pad(self) -> None:
        """Write zeros around the image of a convolution with padding, whose rows and columns have no tiles before.

        The new image is in the fastest level that it takes half of at most.
        """
        spec = self.spec
        if spec is None or PadStep.keyword not in self.target.rewrites_by_name:
            return
        for number, level in enumerate(self.target.levels):
            apart = _Draft(self.target, spec)
            if level.is_register or not apart.take([PadStep(level.name)]) or apart.spec is None:
                continue
            if 2 * apart.spec.limits[number] >= spec.limits[number]:
                self.take([PadStep(level.name)])
                return

    def use(self, level: int, choose: Choice) -> None:
        """Tile for a level, and move operands there."""
        spec = self.spec
        if spec is None:
            return
        outside = [one for one, state in enumerate(spec.logical.states) if self.number(state.level) > level]
        nest = nest_of(spec)
        nest = attrs.evolve(nest, arrays=tuple(nest.arrays[one] for one in outside))
        limit, unit, whole = int(spec.limits[level]), self.target.levels[level].unit, self._whole(spec)
        for kept in dict.fromkeys((whole | windows(nest, unit), whole)):
            for share in range(_SHARES, 0, -1) if outside else ():
                found = choose(Room(spec, self.target, nest, limit * share // _SHARES, unit, kept, level))
                if found and self.take([*self._level_steps(spec, level, outside, *found)]):
                    return

    def _whole(self, spec: Spec) -> frozenset[int]:
        """Return the loops that are not tiled even where sums go on from tile to tile, if these may at all."""
        rank = len(spec.logical.shape)
        whole = spec.op.untiled(rank)
        apart = _Draft(self.target, spec)
        if self.whole:
            return frozenset({*whole, *spec.op.reductions(rank)})
        if whole and apart.take([ToAccum()]) and apart.spec and apart.spec.logical.dims == spec.logical.dims:
            return frozenset(apart.spec.op.untiled(rank))
        return frozenset(whole)

    def _level_steps(
        self, spec: Spec, level: int, outside: Sequence[int], tile: Sequence[int], order: Sequence[int]
    ) -> Iterator[Rewrite]:
        """Yield the loops from the outermost in, each operand's move as soon as no loop further in changes its part."""
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
            # Loops between which nothing is moved are one.
            if (ready or not later) and made != shape:
                yield Tile(tuple(made))
                shape = [*made]
            for one in ready:
                del moves[one]
                yield MoveStep(one, name)
            for loop in groups[at] if at < len(groups) else ():
                made[loop] = tile[loop]


def _only(sizes: dict[int, int], shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(sizes.get(loop, extent) for loop, extent in enumerate(shape))
