"""Drafts: schedules that tile a Spec for one level after another, of which each step is tried when it is added."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import attrs

from morello.bounds.nest import Array, Nest, nest_of
from morello.bounds.tiles import held, tile_moves
from morello.errors import Inapplicable
from morello.ir.impl import Loop
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.rewrites.base import Rewrite
from morello.rewrites.move import MoveStep
from morello.rewrites.tile import Tile
from morello.rewrites.to_accum import ToAccum
from morello.schedule import Schedule, Subschedule, default_child, rewrite_leaf

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
        """Return the largest rounded tile of about this shape that fits, None if not even the smallest does."""
        low, high = 0.0, 1.0
        best = self.rounded([1.0] * len(shape))
        if not self.fits(best):
            return None
        if self.fits(full := self.rounded(shape)):
            return full
        for _ in range(20):
            middle = (low + high) / 2
            tile = self.rounded([middle * size for size in shape])
            if self.fits(tile):
                low, best = middle, tile
            else:
                high = middle
        return best

    def innermost(self, tile: Sequence[int]) -> int:
        """Return the loop along which tiles should go on first: the one with which least is moved."""
        return min(range(len(tile)), key=lambda loop: (tile_moves(self.nest, tile, loop), loop))


#: Chooses the sizes of tiles and the loop along which they go on first; None for no tiles.
Choice: TypeAlias = Callable[[Room], tuple[Sequence[int], int] | None]


def drafts(spec: Spec, target: Target, choose: Choice) -> Iterator[Schedule]:
    """Yield schedules with the tiles that `choose` gives for each level but registers, slowest first.

    The first also moves operands to each level: those that stay while tiles go on before the others. The second leaves
    it to search where they are. All steps apply. None is empty: where there are no steps, there is no schedule.
    """
    for moves in (True, False):
        if steps := _draft(spec, target, choose, moves):
            yield steps


def _draft(spec: Spec, target: Target, choose: Choice, moves: bool) -> Schedule:
    made = _Draft(target, spec, moves)
    if not spec.logical.serial:
        made.share()
    slowest = max(made.number(state.level) for state in spec.logical.states)
    for number in range(slowest - 1, -1, -1):
        level = target.levels[number]
        if not level.is_register and level.name not in target.bypassed:
            made.use(number, choose)
    return made.schedule


@attrs.define
class _Draft:
    """Steps taken so far, and the Spec that the next is for: None where no child is singled out."""

    target: Target
    spec: Spec | None
    moves: bool = True
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
            body = 0 if child is None and isinstance(node.expansion, Loop) else child
            taken.append((step, body if child is None else None))
            spec = None if body is None else node.children[body].spec
        self.spec = spec
        self.steps += taken
        return True

    def share(self) -> None:
        """Let threads share tiles of the longest loop that they can share."""
        spec, threads = self.spec, self.target.weights.threads
        assert spec is not None
        shape = tuple(map(int, spec.logical.shape))
        for loop in sorted(range(len(shape)), key=lambda one: -shape[one]):
            size = -(-shape[loop] // threads)
            if size < shape[loop] and self.take([Tile(_only({loop: size}, shape), parallel=True)]):
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
        for share in range(_SHARES, 0, -1) if outside else ():
            found = choose(Room(spec, self.target, nest, limit * share // _SHARES, unit, whole))
            if found and self.take([*self._level_steps(spec, level, outside, *found)]):
                return

    def _whole(self, spec: Spec) -> frozenset[int]:
        """Return the loops that are not tiled even where sums go on from tile to tile."""
        rank = len(spec.logical.shape)
        whole = spec.op.untiled(rank)
        apart = _Draft(self.target, spec)
        if whole and apart.take([ToAccum()]) and apart.spec and apart.spec.logical.dims == spec.logical.dims:
            return frozenset(apart.spec.op.untiled(rank))
        return frozenset(whole)

    def _level_steps(
        self, spec: Spec, level: int, outside: Sequence[int], tile: Sequence[int], inner: int
    ) -> Iterator[Rewrite]:
        logical = spec.logical
        shape = tuple(map(int, logical.shape))
        if any(tile[loop] < shape[loop] for loop in logical.op.untiled(len(shape))):
            yield ToAccum()
        outer = tuple(shape[loop] if loop == inner else size for loop, size in enumerate(tile))
        if outer != shape:
            yield Tile(outer)
        moves = {one: MoveStep(one, self.target.levels[level].name) for one in outside if self.moves}
        yield from (move for one, move in moves.items() if not logical.declared[one].uses(inner))
        if tile[inner] < shape[inner]:
            yield Tile(_only({inner: tile[inner]}, outer))
        yield from (move for one, move in moves.items() if logical.declared[one].uses(inner))


def _only(sizes: dict[int, int], shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(sizes.get(loop, extent) for loop, extent in enumerate(shape))
