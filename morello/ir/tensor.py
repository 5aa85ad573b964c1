"""Tensor specs: the properties of a tensor known at compile time ([Kaufman2025] §2.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from morello.errors import Inapplicable, SpecError
from morello.ir.dtypes import DType
from morello.ir.layout import Dynamic, Layout, TileCode, name_of
from morello.ir.numbers import Mask, Num, NumT, ceil_div, choose, product


@attrs.frozen
class Every:
    """Every `step`th value of a dimension, from number `start` on; there are several."""

    dim: int
    step: int
    start: int = 0


@attrs.frozen
class Only:
    """One value of a dimension of several."""

    dim: int
    start: int


@attrs.frozen
class Collapsed:
    """Two dimensions as one, in which `inner` varies fastest."""

    outer: int
    inner: int


@attrs.frozen
class Block:
    """The blocks of `step` values of a dimension; the dimension itself is then that of the values of a block."""

    dim: int
    step: int


#: For each dimension of a tensor, the dimension of the underlying tensor; None for size 1.
DimMap = tuple[int | Every | Only | Collapsed | Block | None, ...]

#: Distances in bytes whose multiples states record: caches of few ways hold few lines at such distances.
SPACINGS = (2048, 4096)


@attrs.frozen(cache_hash=True)
class OperandState:
    """The labels of a tensor spec: everything but the shape.

    `layout` is None where every value is a register of its own. `contig` is the number of innermost physical dimensions
    whose values are adjacent. `aligned` tensors start at a multiple of the level's alignment (or of their element's
    size, if that is larger). `vector` is the number of values in a vector register, None outside vector levels.
    `spacing` is the largest of `SPACINGS` that divides the distance of runs of adjacent values, along the innermost
    dimension outside them; 0 if unknown.
    """

    dtype: DType
    level: str
    layout: Layout | None
    contig: int = 0
    aligned: bool = True
    vector: int | None = None
    spacing: int = 0

    def shifted(self, count: int) -> OperandState:
        """Return the state of the same tensor with `count` more leading dimensions of size 1, or fewer if negative."""
        if self.layout is None or not count:
            return self
        return attrs.evolve(self, layout=self.layout.shifted(count))

    @property
    def contiguous(self) -> bool:
        return self.layout is None or self.contig == len(self.layout.dims)

    def tile_codes(
        self,
        shape: Sequence[NumT],
        tile: Sequence[NumT],
        alignment: int,
        start: Sequence[NumT] | None = None,
        sliding: Sequence[bool] = (),
    ) -> tuple[NumT, ...]:
        """Return the codes that determine a tile's state: a `TileCode` for each physical dimension, then 1 if it is
        aligned, else 0, then the number of its spacing.

        Tiles follow each other from `start`, by default 0; along `sliding` dimensions they may start anywhere.
        """
        codes: Any = self.codes_of(self.tile_facts(shape, tile, alignment, start, sliding))
        return codes

    def tile_facts(
        self,
        shape: Sequence[Num],
        tile: Sequence[Num],
        alignment: int,
        start: Sequence[Num] | None = None,
        sliding: Sequence[bool] = (),
        codes: Sequence[Num] | None = None,
    ) -> tuple[Num, ...]:
        """Return the facts that determine `tile_codes`, for each physical dimension: `TileCode`s, then alignment of
        steps along each, then the number of the spacing of its values in the whole tensor.

        They depend only on the layout, the size of values and, with sliding dimensions, the size of vectors. `codes`
        are those of the layout, if known.
        """
        layout = self.layout
        if layout is None:
            return ()
        start, strides = start or [0] * len(shape), layout.strides(shape)
        codes = codes or layout.tile_codes(shape, tile, start)
        if any(sliding):
            codes = self._slid(codes, shape, tile, sliding)
        apart = [stride * self.dtype.bytes for stride in strides]
        # A power of two divides a number without lower bits.
        spacings = [sum((distance & (each - 1) == 0) * 1 for each in SPACINGS) for distance in apart]
        return (*codes, *self._regular(apart, tile, start, alignment, sliding), *spacings)

    def codes_of(self, facts: Sequence[Num]) -> tuple[Num, ...]:
        """Return the `tile_codes` determined by `tile_facts`."""
        if self.layout is None:
            return ()
        dims = len(self.layout.dims)
        codes, regular, spacings = facts[:dims], facts[dims : 2 * dims], facts[2 * dims :]
        return (*codes, self._keeps_alignment(codes, regular), self._tile_spacing(codes, spacings))

    def _slid(
        self, codes: Sequence[Num], shape: Sequence[Num], tile: Sequence[Num], sliding: Sequence[bool]
    ) -> tuple[Num, ...]:
        """Return codes in which sliding tiles break up strips and vectors, unless they are whole or single values."""
        assert self.layout is not None
        strides = self.layout.strides(shape)
        slid: list[Num] = []
        for physical, stride, code in zip(self.layout.dims, strides, codes, strict=True):
            size, part = shape[physical.dim], tile[physical.dim]
            if sliding[physical.dim]:
                whole = part == size
                if physical.size is not None:
                    code = choose(whole, code, choose(part == 1, TileCode.GONE, TileCode.STRADDLES))
                if self.vector is not None:
                    code = choose(whole | (stride % self.vector == 0), code, TileCode.STRADDLES)
            slid.append(code)
        return tuple(slid)

    def _regular(
        self,
        apart: Sequence[Num],
        tile: Sequence[Num],
        start: Sequence[Num],
        alignment: int,
        sliding: Sequence[bool],
    ) -> list[Num]:
        """Return, for each physical dimension, 2 if all values are aligned, 1 if offsets of tiles are, else 0.

        Offsets grow from start·stride in steps of step·stride.
        """
        assert self.layout is not None
        if alignment <= self.dtype.bytes:
            return [2] * len(apart)
        regular: list[Num] = []
        steps, places = layout_steps(self.layout, tile), layout_places(self.layout, start)
        for physical, unit, step, place in zip(self.layout.dims, apart, steps, places, strict=True):
            step = 1 if sliding and sliding[physical.dim] else step
            # An alignment is a power of two.
            regular.append(((unit * step & (alignment - 1) == 0) & (unit * place & (alignment - 1) == 0)) * 1)
        return regular

    def _keeps_alignment(self, codes: Sequence[Num], regular: Sequence[Num]) -> Num:
        """Return 1 if a tile is aligned, else 0; offsets of cuts outside the contiguous run are unknown."""
        if not self.aligned:
            return 0
        kept: Mask = True
        for position, (code, steps) in enumerate(zip(codes, regular, strict=True)):
            known = len(codes) - position <= self.contig
            kept = kept & ((code >= TileCode.WHOLE) | (steps >= (1 if known else 2)))
        return kept * 1

    def _tile_spacing(self, codes: Sequence[Num], spacings: Sequence[Num]) -> Num:
        """Return the number of the spacing of a tile's runs, given by the dimension around the innermost cut."""
        own, outside = spacing_number(self.spacing), len(codes) - self.contig - 1
        kept = [(code == TileCode.CUT) | (code == TileCode.WHOLE) for code in codes]
        found: Num = kept[outside] * own if own and outside >= 0 else 0
        for position in range(outside + 1, len(codes)):
            around: Num = 0
            if position:
                around = own if position - 1 == outside else spacings[position - 1]
                around = kept[position - 1] * around
            code = codes[position]
            found = choose(code == TileCode.CUT, around, (code != TileCode.GONE) * found)
        return found

    @property
    def code_count(self) -> int:
        """Return the number of `tile_codes`."""
        return 0 if self.layout is None else len(self.layout.dims) + 2

    def breaks_strips(self, codes: Sequence[int]) -> bool:
        """Return True if a tile with these `tile_codes` cuts through strips, and so has no state."""
        return self.layout is not None and TileCode.STRADDLES in codes[: len(self.layout.dims)]

    def tiled(self, codes: Sequence[int]) -> OperandState:
        """Return the state of a tile, given its `tile_codes`."""
        layout, contig = self.tiled_layout(codes)
        if layout is None:
            return self
        aligned, number = codes[-2:]
        spacing = (0, *SPACINGS)[number] if contig < len(layout.dims) else 0
        return OperandState(self.dtype, self.level, layout, contig, bool(aligned), self.vector, spacing)

    def tiled_layout(self, codes: Sequence[int]) -> tuple[Layout | None, int]:
        """Return the layout of a tile and its number of contiguous dimensions, given its `tile_codes`."""
        return (None, self.contig) if self.layout is None else self.layout.tiled(self.contig, codes[:-2])

    def under(self, dim_map: DimMap) -> OperandState:
        """Return the state in normal form under other dimensions: d is this tensor's `dim_map[d]`; None: size 1.

        Raises Inapplicable if the map leaves out a dimension of the layout, or the layout cannot skip values of one.
        """
        if self.layout is None:
            return self
        state = self
        for axis in dim_map:
            if isinstance(axis, Collapsed):
                state = state._collapsing(axis)
        assert state.layout is not None
        axes = enumerate(zip(plain(dim_map), dim_map, strict=True))
        names = {axis: dim for dim, (axis, seen) in axes if axis is not None and not isinstance(seen, Block)}
        if any(physical.dim not in names for physical in state.layout.dims):
            raise Inapplicable(
                f"{self.layout} has dimensions that are not of size 1 but left out",
                "move the operand to row_major first",
            )
        dims = tuple(attrs.evolve(physical, dim=names[physical.dim]) for physical in state.layout.dims)
        state = attrs.evolve(state, layout=Layout(dims))
        for dim, axis in enumerate(dim_map):
            if isinstance(axis, Every):
                state = state._skipping(dim, axis)
            elif isinstance(axis, Only):
                state = state._single(dim, axis)
            elif isinstance(axis, Block):
                state = state._in_blocks(dim, names[axis.dim])
        return state

    def _collapsing(self, axis: Collapsed) -> OperandState:
        """Return the state with two dimensions collapsed into the inner one."""
        assert self.layout is not None
        dims = self.layout.dims
        outer, inner = ([at for at, each in enumerate(dims) if each.dim == dim] for dim in (axis.outer, axis.inner))
        if not outer or not inner:
            # One of them has size 1.
            kept = (attrs.evolve(each, dim=axis.inner) if each.dim == axis.outer else each for each in dims)
            return attrs.evolve(self, layout=Layout(tuple(kept)))
        [*_, place] = outer
        strips = len(outer) + len(inner) > 2
        if strips or inner != [place + 1] or self.contig < len(dims) - place:
            raise Inapplicable(
                f"values of dimensions {axis.outer} and {axis.inner} of {self.layout} do not lie one after another",
                "move the operand to memory as row_major first, or tile one of the dimensions by 1",
            )
        return attrs.evolve(self, layout=Layout((*dims[:place], *dims[place + 1 :])), contig=self.contig - 1)

    def _skipping(self, dim: int, axis: Every) -> OperandState:
        """Return the state without some values along a dimension; with steps, no two are adjacent."""
        assert self.layout is not None
        inner = len(self.layout.dims) - self._place_without_strips(dim)
        run = min(self.contig, inner - (axis.step > 1))
        return attrs.evolve(self, contig=run, aligned=self.aligned and not axis.start, spacing=0)

    def _single(self, dim: int, axis: Only) -> OperandState:
        """Return the state of one value along a dimension."""
        assert self.layout is not None
        self._place_without_strips(dim)
        codes = [TileCode.GONE if each.dim == dim else TileCode.WHOLE for each in self.layout.dims]
        layout, contig = self.layout.tiled(self.contig, codes)
        return attrs.evolve(self, layout=layout, contig=contig, aligned=self.aligned and not axis.start, spacing=0)

    def _in_blocks(self, blocks: int, dim: int) -> OperandState:
        """Return the state with a dimension, of several blocks of several values, in blocks."""
        assert self.layout is not None
        dims, place = self.layout.dims, self._place_without_strips(dim)
        layout = Layout((*dims[:place], Dynamic(blocks), *dims[place:]))
        return attrs.evolve(self, layout=layout, contig=self.contig + (place >= len(dims) - self.contig))

    def _place_without_strips(self, dim: int) -> int:
        """Return the only physical dimension of a dimension. Raises Inapplicable if its values lie in strips."""
        assert self.layout is not None
        parts = [position for position, physical in enumerate(self.layout.dims) if physical.dim == dim]
        if len(parts) != 1 or self.layout.dims[parts[0]].size or self.vector is not None:
            raise Inapplicable(
                f"not all values of dimension {dim} of {self.layout} can be seen apart: they lie in strips or vectors",
                "move the operand to memory as row_major first",
            )
        return parts[0]


def plain(dim_map: DimMap) -> tuple[int | None, ...]:
    """Return the map to plain dimensions: that of some values or blocks, the inner of collapsed ones."""
    inner = (axis.inner if isinstance(axis, Collapsed) else axis for axis in dim_map)
    return tuple(axis.dim if isinstance(axis, (Every, Only, Block)) else axis for axis in inner)


def spacing_number(spacing: int) -> int:
    """Return the number of a spacing among `SPACINGS`, from 1; 0 for none."""
    return (0, *SPACINGS).index(spacing)


def layout_steps(layout: Layout, tile: Sequence[Num]) -> tuple[Num, ...]:
    """Return the step of each physical index from one tile to the next."""
    inner: list[Num] = list(tile)
    steps: list[Num] = []
    for physical in reversed(layout.dims):
        part = inner[physical.dim]
        if physical.size is None:
            steps.append(part)
        else:
            whole = part % physical.size == 0
            steps.append(choose(whole, physical.size, part))
            inner[physical.dim] = choose(whole, part // physical.size, 1)
    return tuple(reversed(steps))


def layout_places(layout: Layout, point: Sequence[Num]) -> tuple[Num, ...]:
    """Return the index of a point along each physical dimension, with odd-even strips in plain order."""
    left: list[Num] = list(point)
    places: list[Num] = []
    for physical in reversed(layout.dims):
        at = left[physical.dim]
        places.append(at if physical.size is None else at % physical.size)
        left[physical.dim] = 0 if physical.size is None else at // physical.size
    return tuple(reversed(places))


@attrs.frozen(cache_hash=True)
class TensorSpec:
    """A shape and an operand state. In a batch, sizes may be arrays with a value for each cell."""

    shape: tuple[Num, ...]
    state: OperandState

    def without_leading(self, count: int) -> TensorSpec:
        """Return the tensor, in normal form, without its first `count` dimensions, of size 1."""
        return TensorSpec(self.shape[count:], self.state.shifted(-count)) if count else self

    def __str__(self) -> str:
        return f"({'×'.join(map(str, self.shape))}, {self.labels})"

    @property
    def labels(self) -> str:
        """Return the state in the Spec language: `f32, GL, row_major`."""
        state = self.state
        words = [str(state.dtype), state.level]
        if state.layout is not None:
            words.append(name_of(state.layout, self.shape) or str(state.layout))
        if not state.aligned:
            words.append("ua")
        if not state.contiguous:
            words.append(f"c{state.contig}")
        if state.spacing:
            words.append(f"s{state.spacing}")
        if state.vector is not None:
            words.append(f"v{state.vector}")
        return ", ".join(words)

    @property
    def volume(self) -> Num:
        return product(self.shape)

    @property
    def bytes(self) -> Num:
        return self.volume * self.state.dtype.bytes

    @property
    def physical_shape(self) -> tuple[Num, ...]:
        return () if self.state.layout is None else self.state.layout.physical_shape(self.shape)

    @property
    def run(self) -> Num:
        """Return the number of adjacent values in a run."""
        sizes = self.physical_shape
        return product(sizes[len(sizes) - self.state.contig :])

    def lines(self, line_bytes: int) -> Num:
        """Return the estimated number of cache lines of the tensor: those of a run, times the runs."""
        return self.runs * self.lines_of_run(line_bytes)

    def lines_of_run(self, line_bytes: int) -> Num:
        """Return the number of cache lines of a run that starts a line."""
        return ceil_div(self.run * self.state.dtype.bytes, line_bytes)

    @property
    def runs(self) -> Num:
        """Return the number of runs of adjacent values."""
        sizes = self.physical_shape
        return self.volume if self.state.layout is None else product(sizes[: len(sizes) - self.state.contig])

    @property
    def vectors(self) -> Num:
        """Return the number of registers: vectors, or values if they do not share registers."""
        return self.volume if self.state.vector is None else self.volume // self.state.vector

    def has_whole_vectors(self) -> Mask:
        """Return True if runs fill whole vectors, as a vector level requires."""
        return True if self.state.vector is None else self.run % self.state.vector == 0

    def canonical(self) -> TensorSpec:
        """Return the same tensor with dimensions of size 1 left out of its layout.

        Raises SpecError if the layout does not describe tensors of this shape.
        """
        layout = self.state.layout
        if layout is None:
            return self
        if not layout.applies(self.shape):
            raise SpecError(
                f"{layout} does not describe a tensor of shape {'×'.join(map(str, self.shape))}",
                "every dimension larger than 1 appears in it, and strips divide their dimension",
            )
        if not 0 <= self.state.contig <= len(layout.dims):
            raise SpecError(
                f"c{self.state.contig}: {layout} has {len(layout.dims)} physical dimensions",
                f"write c0 to c{len(layout.dims)}",
            )
        codes = layout.tile_codes(self.shape, self.shape)
        own = int(self.state.aligned), spacing_number(self.state.spacing)
        state = self.state.tiled((*map(int, codes), *own))
        return TensorSpec(self.shape, state)
