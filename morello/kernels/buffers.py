"""Places of tensors in the emitted C: arrays in memory, or one variable per register."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from morello.ir.index import IndexExpr, as_index
from morello.ir.layout import row_major
from morello.ir.numbers import Num
from morello.ir.tensor import Block, Collapsed, DimMap, Every, Only, TensorSpec, plain

#: Of buffers that emitted code makes, and of the workspace.
ALIGNMENT = 64


@attrs.frozen
class Buffer:
    """A tensor's storage. `strides`, in values, are those of its physical dimensions, slowest first.

    It begins `start` values into the array. In registers `variables` names one C variable per scalar or per vector, in
    the order of the layout. Values that `mask` masks count for nothing.
    """

    name: str
    tensor: TensorSpec
    strides: tuple[IndexExpr | int, ...]
    variables: tuple[str, ...] | None = None
    start: IndexExpr | int = 0
    mask: PositionMask | None = None

    def offset(self, point: Sequence[IndexExpr | int]) -> IndexExpr:
        """Return the offset of a value from the start of the array, in values."""
        shape = self.tensor.shape
        layout = self.tensor.state.layout or row_major(len(shape))
        return as_index(layout.offset([as_index(each) for each in point], shape, self.strides)) + self.start

    @property
    def in_registers(self) -> bool:
        return self.variables is not None

    @property
    def strided(self) -> bool:
        """Return True for a tensor in memory, with a stride for each dimension."""
        layout = self.tensor.state.layout
        return not self.in_registers and not (layout and layout.has_strips)


@attrs.frozen
class PositionMask:
    """Masks scores b×m×n as CausalMask does: by positions of rows, b×m×1, and of columns, 1×1×n."""

    rows: View
    columns: View
    window: int


def strides_of(tensor: TensorSpec) -> tuple[int, ...]:
    """Strides of a fresh, contiguous buffer."""
    layout = tensor.state.layout or row_major(len(tensor.shape))
    return layout.strides(tuple(int(size) for size in tensor.shape))


@attrs.frozen
class View:
    """A tile of a buffer: the tensor it is seen as, and where it starts in the buffer's coordinates.

    Dimension d of the tensor is dimension `dim_map[d]` of the buffer (None: a dimension of size 1 that the buffer
    lacks), with every `steps[d]`th value.
    """

    buffer: Buffer
    tensor: TensorSpec
    starts: tuple[IndexExpr | int, ...]
    dim_map: tuple[int | None, ...]
    steps: tuple[int, ...]

    @classmethod
    def whole(cls, buffer: Buffer) -> View:
        rank = len(buffer.tensor.shape)
        return cls(buffer, buffer.tensor, (0,) * rank, tuple(range(rank)), (1,) * rank)

    def tile(self, tensor: TensorSpec, starts: Sequence[IndexExpr | int], dim_map: DimMap | None = None) -> View:
        """Return a tile of this tile, which starts at `starts` within it, with the dimensions that `dim_map` says."""
        moved = list(self.starts)
        for axis, step, start in zip(self.dim_map, self.steps, starts, strict=True):
            if axis is not None:
                moved[axis] = moved[axis] + as_index(start) * step
        if dim_map is None:
            return View(self.buffer, tensor, tuple(moved), self.dim_map, self.steps)
        if any(isinstance(axis, Collapsed) for axis in dim_map):
            assert not any(as_index(start).constant != 0 for start in starts), "collapsed dimensions are not tiled"
            return (
                self._collapsed_registers(tensor, dim_map) if tensor.state.layout is None else self._collapsed(tensor)
            )
        for axis in dim_map:
            if isinstance(axis, (Every, Only)) and (own := self.dim_map[axis.dim]) is not None:
                moved[own] = moved[own] + axis.start * self.steps[axis.dim]
        steps = (axis.step if isinstance(axis, (Every, Block)) else 1 for axis in dim_map)
        seen = [
            (None, 1) if axis is None else (self.dim_map[axis], self.steps[axis] * step)
            for axis, step in zip(plain(dim_map), steps, strict=True)
        ]
        return View(self.buffer, tensor, tuple(moved), tuple(axis for axis, _ in seen), tuple(step for _, step in seen))

    def seen_as(self, tensor: TensorSpec, dim_map: DimMap | None = None) -> View:
        """Return the same values as another tensor."""
        return self.tile(tensor, (0,) * len(self.dim_map), dim_map)

    def _collapsed(self, tensor: TensorSpec) -> View:
        """Return the same values as a tensor that has them in the same order, in fewer dimensions."""
        shape = tuple(int(size) for size in tensor.shape)
        layout = tensor.state.layout or row_major(len(shape))
        # All tiles of a loop have the same alignment: use the first one, which starts at 0.
        first = attrs.evolve(self, starts=(0,) * len(self.starts))
        strides = tuple(
            first.offset(dense) + first.offset() * -1 if size > 1 else 0
            for dense, size in zip(layout.strides(shape), layout.physical_shape(shape), strict=True)
        )
        # The tensor may be a view in a cache.
        stored = attrs.evolve(tensor, state=attrs.evolve(tensor.state, level=self.buffer.tensor.state.level))
        collapsed = Buffer(self.buffer.name, stored, strides, self.buffer.variables, self.offset())
        return attrs.evolve(View.whole(collapsed), tensor=tensor)

    def _collapsed_registers(self, tensor: TensorSpec, dim_map: DimMap) -> View:
        """Return registers of one value each, which lie in no order, as a tensor of fewer dimensions."""
        shape, sizes = (tuple(int(size) for size in one.shape) for one in (tensor, self.tensor))
        variables: list[str] = []
        for place in np.ndindex(shape):
            point = [0] * len(sizes)
            for axis, at in zip(dim_map, place, strict=True):
                if isinstance(axis, Collapsed):
                    point[axis.outer], point[axis.inner] = divmod(at, sizes[axis.inner])
                elif isinstance(axis, int):
                    point[axis] = at
            variables.append(self.variable(int(np.ravel_multi_index(point, sizes))))
        return View.whole(Buffer(self.buffer.name, tensor, strides_of(tensor), tuple(variables)))

    def offset(self, position: int = 0) -> IndexExpr:
        """Return the place in the buffer of this tile's value number `position`, counted in the order of its layout."""
        shape = tuple(int(size) for size in self.tensor.shape)
        layout = self.tensor.state.layout or row_major(len(shape))
        point = list(self.starts)
        for axis, step, at in zip(self.dim_map, self.steps, layout.point(position, shape), strict=True):
            if axis is not None:
                point[axis] = point[axis] + at * step
        return self.buffer.offset(point)

    def stride(self, dim: int, strip: int = 1) -> IndexExpr:
        """Return how many values lie between neighbouring strips of a dimension; 0 if there is one strip.

        Raises ValueError where neighbours are not always as far apart, as in strips.
        """
        last, axis = (int(self.tensor.shape[dim]) - 1) // strip, self.dim_map[dim]
        if last == 0 or axis is None:
            return IndexExpr()
        # All tiles of a loop have the same alignment: use the first one, which starts at 0.
        first, *others = (
            self.buffer.offset([place * strip * self.steps[dim] if at == axis else 0 for at in range(len(self.starts))])
            for place in (0, 1, last)
        )
        stride, whole = (other + first * -1 for other in others)
        if stride * last != whole:
            raise ValueError(
                f"dimension {dim} of {self.buffer.name} has no stride: its values lie in strips in "
                f"{self.buffer.tensor.state.layout}; the kernel is to ask for layouts without strips"
            )
        return stride

    def mask(self) -> PositionMask | None:
        """Return the mask of this tile; None without one, if the tile has several batches, or if it is transposed."""
        mask = self.buffer.mask
        if mask is None or self.dim_map != (0, 1, 2) or self.steps != (1, 1, 1) or self.tensor.shape[0] > 1:
            return None

        def part(view: View, shape: tuple[Num, ...]) -> View:
            starts = [at if own > 1 else 0 for at, own in zip(self.starts, view.tensor.shape, strict=True)]
            return view.tile(attrs.evolve(view.tensor, shape=shape), starts)

        _, rows, columns = self.tensor.shape
        return attrs.evolve(mask, rows=part(mask.rows, (1, rows, 1)), columns=part(mask.columns, (1, 1, columns)))

    def variable(self, position: int = 0) -> str:
        """Return the register that holds value number `position`."""
        assert self.buffer.variables is not None
        offset = self.offset(position).constant
        assert offset is not None, "loops over registers are unrolled"
        return self.buffer.variables[offset // (self.tensor.state.vector or 1)]
