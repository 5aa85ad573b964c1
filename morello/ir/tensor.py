"""Tensor specs: what is known of a tensor at compile time (paper §2.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from morello.errors import Inapplicable, SpecError
from morello.ir.dtypes import DType
from morello.ir.layout import Fit, Layout
from morello.ir.numbers import Mask, Num, ceil_div, product


@attrs.frozen(cache_hash=True)
class OperandState:
    """All that a tensor spec says besides the shape: labels, no numbers of the tensor.

    `layout` is None where every value is a register of its own. `contig` counts the innermost physical
    dimensions whose values are known to be adjacent. `aligned` tensors start at a multiple of the level's
    alignment (or of their element's size, if that is larger). `vector` is the number of values per
    vector register, None outside vector levels.
    """

    dtype: DType
    level: str
    layout: Layout | None
    contig: int = 0
    aligned: bool = True
    vector: int | None = None

    @property
    def contiguous(self) -> bool:
        return self.layout is None or self.contig == len(self.layout.dims)

    def tile_codes(self, shape: Sequence[Num], tile: Sequence[Num], alignment: int) -> tuple[Any, ...]:
        """What a tile's state depends on besides this state: `Fit` codes, then 1 if tiles stay aligned."""
        if self.layout is None:
            return ()
        codes = self.layout.fit(shape, tile)
        return (*codes, self._keeps_alignment(codes, shape, tile, alignment))

    def _keeps_alignment(self, codes: Sequence[Any], shape: Sequence[Num], tile: Sequence[Num], alignment: int) -> Any:
        """Offsets of tiles are multiples of step·stride along each cut dimension; outside the run, unknown."""
        layout = self.layout
        if not self.aligned or layout is None or alignment <= self.dtype.bytes:
            return int(self.aligned)
        kept: Any = True
        strides = layout.strides(shape)
        steps = layout_steps(layout, tile)
        for position in range(len(layout.dims)):
            known = len(layout.dims) - position <= self.contig
            whole = codes[position] >= Fit.WHOLE
            offset = strides[position] * steps[position] * self.dtype.bytes
            kept = kept & (whole | ((offset % alignment == 0) & known))
        return kept * 1

    def tiled(self, codes: Sequence[int]) -> OperandState:
        """The state of a tile, given its `tile_codes`."""
        if self.layout is None:
            return self
        layout, contig = self.layout.tiled(self.contig, codes[:-1])
        return attrs.evolve(self, layout=layout, contig=contig, aligned=bool(codes[-1]))

    def under(self, axes: Sequence[int | None]) -> OperandState:
        """The state in normal form, seen under other dimensions: dimension d is this one's `axes[d]`, None: of size 1.

        Raises Inapplicable where the layout has a dimension that is left out.
        """
        if self.layout is None:
            return self
        names = {axis: dim for dim, axis in enumerate(axes) if axis is not None}
        if any(physical.dim not in names for physical in self.layout.dims):
            raise Inapplicable(f"{self.layout} has dimensions that are not of size 1 but left out")
        dims = tuple(attrs.evolve(physical, dim=names[physical.dim]) for physical in self.layout.dims)
        return attrs.evolve(self, layout=Layout(dims))


def layout_steps(layout: Layout, tile: Sequence[Any]) -> tuple[Any, ...]:
    """By how much each physical index moves from one tile to the next."""
    inner: list[Any] = list(tile)
    steps: list[Any] = []
    for physical in reversed(layout.dims):
        part = inner[physical.dim]
        if physical.size is None:
            steps.append(part)
        else:
            steps.append(physical.size if part % physical.size == 0 else part)
            inner[physical.dim] = part // physical.size if part % physical.size == 0 else 1
    return tuple(reversed(steps))


@attrs.frozen(cache_hash=True)
class TensorSpec:
    """A shape and an operand state. In a batch the sizes are arrays, one value per cell."""

    shape: tuple[Num, ...]
    state: OperandState

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
        """How many values are known to lie next to each other."""
        sizes = self.physical_shape
        return product(sizes[len(sizes) - self.state.contig :])

    def lines(self, line_bytes: int) -> Num:
        """Estimated number of cache lines that hold the tensor: those of a contiguous run, times the runs."""
        run = self.run
        return self.volume // run * ceil_div(run * self.state.dtype.bytes, line_bytes)

    @property
    def vectors(self) -> Num:
        """Number of vector registers; the volume where values do not share registers."""
        return self.volume if self.state.vector is None else self.volume // self.state.vector

    def has_whole_vectors(self) -> Mask:
        """Whether each register's values lie together, as they must in a vector level."""
        return True if self.state.vector is None else self.run % self.state.vector == 0

    def canonical(self) -> TensorSpec:
        """The same tensor with dimensions of size 1 left out of its layout.

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
        state = self.state.tiled((*layout.fit(self.shape, self.shape), int(self.state.aligned)))
        return TensorSpec(self.shape, state)
