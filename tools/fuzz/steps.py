"""Draw steps that the language allows on a Spec, whether or not search tries them."""

from __future__ import annotations

import random
from collections.abc import Callable
from math import prod
from typing import Any

import attrs

from morello.ir.dtypes import DType
from morello.ir.layout import Layout, OddEven, Packed
from morello.ir.ops import Compose
from morello.ir.spec import LogicalSpec
from morello.kernels.target import Target
from morello.rewrites import Rewrite
from morello.rewrites.base import layout_name, rewrites_of
from morello.rewrites.fit import ExactFit
from morello.rewrites.move import MoveStep
from morello.rewrites.select import Select
from morello.rewrites.split import Split
from morello.rewrites.tile import Tile
from morello.testing.generate import layout_choices

#: Sizes of strips.
_STRIPS = (2, 4, 8, 16, 32, 64)
#: Sizes that are multiples of vectors, or that few powers of two make.
_SIZES = (3, 5, 6, 7, 10, 12, 14, 20, 24, 28, 40, 48, 56, 72, 80, 96)


#: The most shapes that tiles may make.
_SHAPES = 1_000


@attrs.define(eq=False)
class Steps:
    """Draws steps for the Specs below one goal.

    `sizes` of tiles, and layouts, are a few that are drawn once: then the drawn schedules share Specs to solve.
    """

    target: Target
    rng: random.Random
    sizes: tuple[int, ...]
    _layouts: dict[tuple[DType, int], tuple[Layout, ...]] = attrs.field(factory=dict)
    _offered: dict[tuple[LogicalSpec, type[Rewrite]], tuple[Rewrite, ...]] = attrs.field(factory=dict)

    @classmethod
    def below(cls, goal: LogicalSpec, target: Target, rng: random.Random) -> Steps:
        """Return the steps below a goal: usual sizes and any, as many as leave search few shapes."""
        extents = [int(size) for size in goal.shape]
        usual = {one for one in _SIZES if one < max(extents)}
        usual |= {one for size in extents for one in range(1, size) if size % one == 0}
        tried = rng.sample(sorted(usual), min(3, len(usual))) + [rng.randint(1, max(extents)) for _ in range(3)]
        kept: list[int] = []
        for size in rng.sample(tried, len(tried)):
            more = [*kept, size]
            if prod(size.bit_length() + sum(one < size for one in more) for size in extents) <= _SHAPES:
                kept = more
        return cls(target, rng, tuple(sorted({*kept})))

    def drawn(self, logical: LogicalSpec) -> Rewrite | None:
        """Return a step, which may be inapplicable, or None if the draw makes none."""
        makers: dict[type[Rewrite], Callable[[LogicalSpec], Rewrite | None]] = {
            Tile: self._tile,
            Split: self._split,
            ExactFit: self._fit,
            MoveStep: self._move,
        }
        kinds = [one for one in (Tile, Split, ExactFit, MoveStep, MoveStep) if one in self.target.rewrites]
        kind = self.rng.choice([*kinds, None])
        return makers[kind](logical) if kind else self._changed(logical)

    def offered(self, logical: LogicalSpec, rewrite: type[Rewrite]) -> tuple[Rewrite, ...]:
        """Return the steps of a rewrite that search tries on a Spec."""
        key = logical, rewrite
        if key not in self._offered:
            steps = rewrite.steps(logical, self.target)
            self._offered[key] = tuple(step for step in steps if step.worth_trying(logical, self.target))
        return self._offered[key]

    def usual(self, logical: LogicalSpec) -> Rewrite | None:
        """Return a step that search tries, or None if it has none other than kernels."""
        kinds = [one for one in rewrites_of(self.target) if not issubclass(one, Select)]
        found = [steps for one in kinds if (steps := self.offered(logical, one))]
        return self.rng.choice(self.rng.choice(found)) if found else None

    def difference(self, logical: LogicalSpec, step: Rewrite) -> str | None:
        """Return in what a step differs from the closest one that search tries; None if search tries it."""
        names = [field.name for field in attrs.fields(type(step))]
        offered = self.offered(logical, type(step))
        if not offered:
            return "on this operation"
        differing = ([name for name in names if getattr(step, name) != getattr(one, name)] for one in offered)
        # An operand or a dimension that search leaves alone is one for which it does not offer the rest.
        best = min(differing, key=lambda those: (len({*those} & {"operand", "dim"}), len(those), those))
        return " and ".join(best) or None

    def _tile(self, logical: LogicalSpec) -> Rewrite | None:
        free = _tiled(logical)
        if not free:
            return None
        dims = self.rng.sample(free, min(self.rng.choice([1, 1, 1, 2, 3]), len(free)))
        sizes = tuple(self._size(int(size)) if dim in dims else 0 for dim, size in enumerate(logical.shape))
        return Tile(sizes, parallel=not logical.serial and self.rng.random() < 0.3)

    def _split(self, logical: LogicalSpec) -> Rewrite | None:
        summed = [dim for dim in _tiled(logical) if dim in logical.op.reductions(len(logical.shape))]
        return Split(self._size(int(logical.shape[self.rng.choice(summed)]))) if summed else None

    def _fit(self, logical: LogicalSpec) -> Rewrite | None:
        rng, free = self.rng, _tiled(logical)
        if not free:
            return None
        dim = rng.choice(free)
        extent = int(logical.shape[dim])
        first = self._size(extent)
        count = rng.randint(1, extent // first)
        rest = extent - first * count
        if rest not in (0, first) and rng.random() < 0.3:
            return ExactFit(dim, (first, rest), (count, 1))
        others = [one for one in (rest, self._size(extent), self._size(extent)) if one]
        more = rng.sample(others, min(len(others), rng.choice([0, 1, 1, 1, 2])))
        return ExactFit(dim, tuple(dict.fromkeys([first, *more])))

    def _size(self, extent: int) -> int:
        """Return the size of a tile: one of the goal's, or a power of two."""
        smaller = [size for size in self.sizes if size < extent]
        powers = [1 << bit for bit in range((extent - 1).bit_length())]
        return self.rng.choice(smaller if smaller and self.rng.random() < 0.7 else powers)

    def _move(self, logical: LogicalSpec) -> Rewrite | None:
        index = self.rng.randrange(len(logical.states))
        state = logical.states[index]
        destinations = self.target.level(state.level).destinations
        if not destinations:
            return None
        level = self.rng.choice(destinations)
        wider = [to for start, to in sorted(self.target.info.casts) if start == state.dtype.name]
        cast = self.rng.choice(wider) if wider and self.rng.random() < 0.3 else None
        return MoveStep(index, level, *self._place(level, state.dtype, len(logical.operand(index).shape)), cast)

    def _place(self, name: str, dtype: DType, rank: int) -> tuple[Layout | str | None, int | None]:
        """Return a layout and a vector size for a level."""
        level = self.target.level(name)
        if level.kind == "scalar":
            return None, None
        layout = self.rng.choice(self._few_layouts(dtype, rank))
        vector = self.rng.choice(self.target.vector_sizes(level, dtype)) if level.kind == "vector" else None
        return layout_name(layout, rank) or layout, vector

    def _few_layouts(self, dtype: DType, rank: int) -> tuple[Layout, ...]:
        """Return row-major, and a few layouts of any order and strips."""
        if (dtype, rank) not in self._layouts:
            rng, choices = self.rng, layout_choices(self.target, dtype, rank)
            drawn = [choices[0], *(rng.choice(choices) for _ in range(3))]
            for _ in range(3):
                dims = next(one for one in iter(lambda: rng.choice(choices), None) if not one.has_strips).dims
                for _ in range(rng.choice([1, 1, 2])):
                    strip = rng.choice([Packed, Packed, OddEven])(rng.randrange(rank), rng.choice(_STRIPS))
                    dims = (*dims, strip)
                drawn.append(Layout(dims))
            self._layouts[dtype, rank] = tuple(dict.fromkeys(drawn))
        return self._layouts[dtype, rank]

    def _changed(self, logical: LogicalSpec) -> Rewrite | None:
        """Return a step of another rewrite with other arguments than search gives it."""
        special = (Select, Tile, Split, ExactFit, MoveStep)
        kinds = [one for one in rewrites_of(self.target) if not issubclass(one, special)]
        found = [steps for one in kinds if (steps := self.offered(logical, one))]
        if not found:
            return None
        step = self.rng.choice(self.rng.choice(found))
        names, changes = {field.name for field in attrs.fields(type(step))}, dict[str, Any]()
        if {"level", "layout", "vector"} <= names:
            like = self.rng.choice(logical.operands)
            level = self.rng.choice(self.target.operand_levels).name
            layout, vector = self._place(level, like.state.dtype, len(like.shape))
            changes |= {"level": level, "layout": layout or "row_major", "vector": vector}
        if isinstance(logical.op, Compose) and "at" in names:
            count = len(logical.op.stages)
            changes["at"] = tuple(sorted(self.rng.sample(range(1, count), self.rng.randint(1, count - 1))))
        if "size" in names:
            changes["size"] = self._size(int(logical.shape[-1]))
        return attrs.evolve(step, **changes)


def _tiled(logical: LogicalSpec) -> list[int]:
    """Return the dimensions that tiles can make smaller."""
    whole = logical.op.untiled(len(logical.shape))
    return [dim for dim, size in enumerate(logical.shape) if size > 1 and dim not in whole]
