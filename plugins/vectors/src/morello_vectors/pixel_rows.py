"""Vectors of pixels of a row of an image, for convolutions: padding is 0 in them and not loaded."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

import attrs

from morello.ir.dtypes import DType
from morello.ir.index import IndexExpr, as_index
from morello.ir.ops.windows import Windows
from morello.kernels.site import KernelSite, OperandSite
from morello_vectors.convert import vector_as
from morello_vectors.lanes import repeat, separated, spread


@attrs.frozen
class PixelRow:
    """Vectors of `values` pixels of a row of an image, as sums of type `total` are.

    Convolutions use those at the columns of `used`, for pixels of the output that begin at one of `starts`: columns
    count from where the filter lies then, and `line` is the C of a pointer to the first of them.
    """

    site: KernelSite
    op: Windows
    image: OperandSite
    values: int
    total: DType
    line: str
    used: Container[int]
    starts: Sequence[int]

    def at(self, column: int) -> str | None:
        """Return the vector of pixels at a column; None if all are padding.

        Of pixels that lie in the padding in part, the vector of those next to them is loaded, and shifted.
        """
        values, step, width = self.values, self._step, self._width
        start = self.starts[0] * step + column
        lanes = [0 <= start + step * lane < width for lane in range(values)]
        if not any(lanes):
            return None
        # The first lane that is loaded: within the image for all, and as near to the first as possible.
        least, most = -(start // step), (width - 1 - start) // step - values + 1
        first = min(max(0, least), most)
        stepped = self._stepped(column + step * first)
        loaded = vector_as(self.site, stepped, self._dtype, self.total, values)
        if all(lanes):
            return loaded
        order = [lane - first if valid else values for lane, valid in enumerate(lanes)]
        return _shuffled(loaded, f"({self.site.vector_type(self.total, values)}){{0}}", order)

    def _stepped(self, column: int) -> str:
        """Return the vector of pixels at a column, as far apart as the stride: 2 or 1.

        With 2, even and odd pixels are separated from the same two vectors, which compilers load once. A vector that
        another one has all pixels of but one is made of that.
        """
        site, dtype, values = self.site, self._dtype, self.values
        if self._step == 1:
            return f"{site.load(dtype, values)}({self._address(column)})"
        if values <= 4:
            # Compilers merge the shuffles of such short vectors to more of them.
            return f"{spread(site, dtype, values, 2)}({self._address(column)})"
        beside = column + (2 if column < 0 else -2)
        if not 0 <= column < 2 and beside in self.used and self._holds(beside, 2 * values - 1):
            added, own = column + (2 * values - 2) * (column > 0), self._stepped(beside)
            one = f"{repeat(site, dtype, values)}(*({self._address(added)}))"
            if column < 0:
                return _shuffled(one, own, range(values - 1, 2 * values - 1))
            return _shuffled(own, one, range(1, values + 1))
        odd = column % 2
        if self._holds(column - odd, 2 * values):
            return f"{separated(site, dtype, values, odd)}({self._address(column - odd)})"
        return f"{spread(site, dtype, values, 2)}({self._address(column)})"

    def _holds(self, column: int, count: int) -> bool:
        """Return True if `count` pixels from a column on lie in the image, wherever the output begins."""
        first, last = (start * self._step + column for start in (self.starts[0], self.starts[-1]))
        return first >= 0 and last + count <= self._width

    def _address(self, column: int) -> str:
        return plus(self.line, as_index(self.image.stride(self._columns) * column))

    @property
    def _columns(self) -> int:
        return len(self.image.tensor.shape) - 1

    @property
    def _dtype(self) -> DType:
        return self.image.tensor.state.dtype

    @property
    def _step(self) -> int:
        return self.op.strides[1]

    @property
    def _width(self) -> int:
        return int(self.image.tensor.shape[self._columns])


def plus(pointer: str, offset: IndexExpr) -> str:
    """Return the C of a pointer at an offset."""
    return pointer if offset.constant == 0 else f"{pointer} + {offset}"


def _shuffled(first: str, second: str, order: Iterable[int]) -> str:
    return f"__builtin_shufflevector({first}, {second}, {', '.join(map(str, order))})"
