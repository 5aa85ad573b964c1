"""Bytes that well-known algorithms for convolutions move, by formulas, and the bound on direct ones.

The comparison follows [Dinh2023] §4.3.1. The models of Winograd's algorithm and of Fourier transforms are Morello's
own. Both multiply less, so the bound on direct convolutions does not hold for them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs

from morello.errors import MorelloError
from morello.ir.ops.conv import Conv, GroupedConv
from morello.ir.spec import Spec
from morello_bounds.nest import Nest, nest_of, parse_nest
from morello_bounds.tiles import best_tiling
from morello_bounds.traffic import traffic

#: Outputs along each side of a tile of Winograd's algorithm: F(2×2, r×r).
_WINOGRAD = 2

#: In the order of tables.
ALGORITHMS = ("direct", "im2col", "winograd", "fft", "naive")


@attrs.frozen
class Layer:
    """A convolution: its nest, with loops of the names that Conv or GroupedConv gives them, and its steps."""

    nest: Nest
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)

    @classmethod
    def of(cls, spec: Spec) -> Layer:
        """Return the layer of a Spec. Raises MorelloError for another operation."""
        op = spec.op
        if not isinstance(op, (Conv, GroupedConv)):
            raise MorelloError(f"{op} is not a convolution", "algorithms are compared for Conv and GroupedConv")
        (down, right), (apart, aside) = op.strides, op.dilations
        return cls(nest_of(spec), (down, right), (apart, aside))

    def size(self, loops: str) -> int:
        """Return the points of several loops together, such as `b h w`; those missing count once."""
        sizes = dict(zip(self.nest.loops, self.nest.sizes, strict=True))
        return math.prod(sizes.get(loop, 1) for loop in loops.split())

    @property
    def bytes(self) -> tuple[int, int, int]:
        """Return the bytes of a value of the image, the filters and the output."""
        image, filters, out = (array.bytes for array in self.nest.arrays)
        return image, filters, out

    @property
    def once(self) -> tuple[int, int, int]:
        """Return the bytes that the image, the filters and the output hold, as far as they are touched."""
        image, filters, out = (self.nest.touched(array) * array.bytes for array in self.nest.arrays)
        return image, filters, out

    def moves(self, algorithm: str, memory: int) -> int | None:
        """Return the bytes that an algorithm moves with this fast memory; its operands once if all its data fits.

        Return None if it does not apply. Raises MorelloError for an unknown name.
        """
        if algorithm not in ALGORITHMS:
            raise MorelloError(f"unknown algorithm {algorithm!r}", f"algorithms are {', '.join(ALGORITHMS)}")
        return getattr(self, f"_{algorithm}")(memory)

    def bound(self, memory: int) -> int:
        """Return the lower bound for direct convolutions, in bytes."""
        return traffic(self.nest, memory).bytes

    def _direct(self, memory: int) -> int | None:
        """Return the bytes that the nest moves in the best tiles found."""
        if sum(self.once) <= memory:
            return self.nest.compulsory
        found = best_tiling(self.nest, memory)
        return None if found is None else found.bytes

    def _naive(self, memory: int) -> int:
        """Return the bytes moved without reuse: each point moves its pixel, its weight and its sum."""
        if sum(self.once) <= memory:
            return self.nest.compulsory
        return self.nest.points * sum(self.bytes)

    def _im2col(self, memory: int) -> int:
        """Return the bytes of writing all patches, and the bound on the products with them."""
        patches = self.size("b g h w c fh fw") * self.bytes[0]
        if sum(self.once) + patches <= memory:
            return self.nest.compulsory
        return self.once[0] + patches + self.size("g") * traffic(self.patches, memory).bytes

    @property
    def patches(self) -> Nest:
        """Return the product of a group's patches and filters."""
        return _product(self.size("b h w"), self.size("c fh fw"), self.size("f"), self.bytes)

    def _winograd(self, memory: int) -> int | None:
        """Return the bytes of transforms and of a product per value of a tile; None for strides or dilations."""
        if {*self.strides, *self.dilations} != {1}:
            return None
        tiles = self.size("b") * math.prod(-(-self.size(loop) // _WINOGRAD) for loop in ("h", "w"))
        values = math.prod(_WINOGRAD + self.size(loop) - 1 for loop in ("fh", "fw"))
        wide = self.bytes[2]
        image, filters, out = (
            self.size("g") * values * count * wide
            for count in (tiles * self.size("c"), self.size("c f"), tiles * self.size("f"))
        )
        if sum(self.once) + image + filters + out <= memory:
            return self.nest.compulsory
        product = _product(tiles, self.size("c"), self.size("f"), (wide,) * 3)
        products = self.size("g") * values * traffic(product, memory).bytes
        return sum(self.once) + image + filters + products + out

    def _fft(self, memory: int) -> int:
        """Return the bytes of the transforms, of log n / log M passes each, and of one product per frequency."""
        rows, columns = (
            step * (self.size(out) - 1) + apart * (self.size(window) - 1) + 1
            for step, apart, out, window in zip(self.strides, self.dilations, ("h", "w"), ("fh", "fw"), strict=True)
        )
        frequencies, wide = rows * (columns // 2 + 1), 2 * self.bytes[2]
        planes = [self.size("g") * self.size(loops) for loops in ("b c", "c f", "b f")]
        transformed = sum(planes) * frequencies * wide
        if sum(self.once) + transformed <= memory:
            return self.nest.compulsory
        passes = max(1.0, math.log(rows * columns) / math.log(max(2.0, memory / wide)))
        product = _product(self.size("b"), self.size("c"), self.size("f"), (wide,) * 3)
        products = self.size("g") * frequencies * traffic(product, memory).bytes
        return sum(self.once) + math.ceil((2 * passes - 1) * transformed) + products


def _product(m: int, k: int, n: int, sizes: Sequence[int]) -> Nest:
    nest = parse_nest({"m": m, "k": k, "n": n}, "A[m,k] B[k,n] C[m,n]")
    arrays = tuple(attrs.evolve(array, bytes=each) for array, each in zip(nest.arrays, sizes, strict=True))
    return attrs.evolve(nest, arrays=arrays)
