"""Where tensors live in the emitted C: arrays in memory, or one variable per register."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from morello.ir.index import Index, as_index
from morello.ir.layout import row_major
from morello.ir.tensor import TensorSpec

#: Of buffers that emitted code makes, and of the workspace.
ALIGNMENT = 64


@attrs.frozen
class Buffer:
    """A tensor's storage. `strides`, in values, are those of its physical dimensions, slowest first.

    In registers `variables` names one C variable per scalar or per vector, in the order of the layout.
    """

    name: str
    tensor: TensorSpec
    strides: tuple[Index | int, ...]
    variables: tuple[str, ...] | None = None

    def offset(self, point: Sequence[Index | int]) -> Index:
        """Offset of a value from the start, in values."""
        shape = self.tensor.shape
        layout = self.tensor.state.layout or row_major(len(shape))
        return as_index(layout.offset([as_index(each) for each in point], shape, self.strides))

    @property
    def in_registers(self) -> bool:
        return self.variables is not None


def strides_of(tensor: TensorSpec) -> tuple[int, ...]:
    """Strides of a fresh, contiguous buffer."""
    layout = tensor.state.layout or row_major(len(tensor.shape))
    return layout.strides(tuple(int(size) for size in tensor.shape))


@attrs.frozen
class View:
    """A tile of a buffer: the tensor it is seen as, and where it starts in the buffer's coordinates."""

    buffer: Buffer
    tensor: TensorSpec
    starts: tuple[Index | int, ...]

    def tile(self, tensor: TensorSpec, starts: Sequence[Index | int]) -> View:
        """A tile of this tile, which starts at `starts` within it."""
        return View(self.buffer, tensor, tuple(mine + theirs for mine, theirs in zip(self.starts, starts, strict=True)))

    def offset(self, position: int = 0) -> Index:
        """Where the buffer holds this tile's value number `position`, counted in the order of its layout."""
        shape = tuple(int(size) for size in self.tensor.shape)
        layout = self.tensor.state.layout or row_major(len(shape))
        point = layout.point(position, shape)
        return self.buffer.offset([start + at for start, at in zip(self.starts, point, strict=True)])

    def variable(self, position: int = 0) -> str:
        """The register that holds value number `position`."""
        assert self.buffer.variables is not None
        offset = self.offset(position).constant
        assert offset is not None, "loops over registers are unrolled"
        return self.buffer.variables[offset // (self.tensor.state.vector or 1)]
