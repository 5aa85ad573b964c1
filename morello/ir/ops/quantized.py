"""Dequantize and QMatmul: weights of 4 or 8 bits with a scale and a zero point for each group of them.

Weights are rows of k×n. A group is `group` rows of a column, which share a scale and a zero point; without groups, all
rows of a column do. A byte holds one weight of 8 bits, or two of 4 bits of its column: in a group of 2·p rows, byte i
has row i in its lower half and row p + i in its upper one. Without groups, p is 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import attrs
import numpy as np

from morello.errors import SpecError
from morello.ir.dtypes import F32, F64, I8, U8, DType
from morello.ir.ops.base import (
    Arrays,
    ErrorAnalysis,
    Operand,
    Operation,
    SearchHints,
    Shape,
    operand,
    parameter,
)
from morello.ir.ops.common import Accumulating

#: Weights of 4 bits are 0 to this.
LARGEST = 15


def _check_bits(op: Operation, _field: object, bits: int) -> None:
    if bits not in (4, 8):
        raise SpecError(f"{op.name}: bits={bits} is not 4 or 8", "weights of other sizes are stored as 8 bits")


def _check_group(op: Quantized, _field: object, group: int) -> None:
    if group < 0 or (op.bits == 4 and group % 2):
        raise SpecError(
            f"{op.name}: group={group} is not a number of rows",
            "write an even number, or group=0 for one scale per column" if op.bits == 4 else "write one of at least 0",
        )


@attrs.frozen(cache_hash=True)
class Quantized(Operation):
    """An operation on weights w of `bits`, with scales s and zero points z: a weight is worth s·(w − z)."""

    bits: Literal[4, 8] = parameter(int, default=4, validator=_check_bits)
    group: int = parameter(int, default=32, validator=_check_group)

    @property
    def block(self) -> int:
        """Return the rows that a step along `g` takes."""
        return self.group or self.pack

    @property
    def pack(self) -> int:
        """Return the weights in a byte."""
        return 8 // self.bits

    def stored(self, g: int, n: int) -> tuple[Operand, ...]:
        """Return the weights, scales and zero points, whose dimensions are those of batch, groups and columns."""
        per_group = ((0, 1),), ((g, 1),) if self.group else (), ((n, 1),)
        return (
            in_blocks("weights", (0, g, n), 1, self.block // self.pack),
            Operand("scales", per_group),
            Operand("zeros", per_group),
        )

    def unpacked(self, weights: np.ndarray) -> np.ndarray:
        """Return the weights, b×k×n."""
        if self.bits == 8:
            return weights
        b, rows, n = weights.shape
        halves = self.block // 2
        packed = weights.astype(np.int64).reshape(b, rows // halves, 1, halves, n)
        return np.concatenate([packed & LARGEST, packed >> 4 & LARGEST], axis=2).reshape(b, 2 * rows, n).astype(float)

    def per_row(self, values: np.ndarray, rows: int) -> np.ndarray:
        """Return scales or zero points repeated for each row of their group."""
        return np.repeat(values, rows // values.shape[1], axis=1)

    def worth(self, weights: np.ndarray, scales: np.ndarray, zeros: np.ndarray) -> np.ndarray:
        """Return s·(w − z) of each weight, b×k×n."""
        values = self.unpacked(weights)
        with np.errstate(all="ignore"):
            return self.per_row(scales, values.shape[1]) * (values - self.per_row(zeros, values.shape[1]))

    def check_types(self, weights: DType, scales: DType, zeros: DType) -> SpecError | None:
        """Return the error for types of weights that are not those of their bits, or of scales that are not floats."""
        if weights not in ((U8,) if self.bits == 4 else (U8, I8)) or zeros != weights:
            kinds = "u8, two weights in each," if self.bits == 4 else "u8 or i8"
            return SpecError(
                f"weights are {kinds} and zeros of the same type, not {weights} and {zeros}",
                "write (u8, ...) for both",
            )
        return _float_up_to_f32("scales", scales)


@attrs.frozen(cache_hash=True)
class Dequantize(Quantized):
    """out[b, k, n] = scales[b, j, n] · (w[b, k, n] − zeros[b, j, n]), j being k / group, or 0 if `group` is 0."""

    flops_per_point: ClassVar[int] = 2

    @property
    def rank(self) -> int:
        return 3

    def dims(self, rank: int) -> tuple[str, ...]:
        return ("b", "g", "n")

    def operands(self, rank: int) -> tuple[Operand, ...]:
        return (*self.stored(1, 2), in_blocks("out", (0, 1, 2), 1, self.block, reads=False, writes=True))

    @property
    def only_types(self) -> tuple[DType, ...]:
        weights = U8 if self.bits == 4 else I8
        return weights, F32, weights, F32

    def flops(self, shape: Shape) -> int:
        return super().flops(shape) * self.block

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        return self.check_types(*dtypes[:3]) or _float_up_to_f32("out", dtypes[3])

    def evaluate(self, shape: Shape, inputs: Arrays, dtypes: Sequence[DType]) -> list[np.ndarray]:
        return [self.worth(*inputs)]


def _worth_error(op: Quantized, inputs: Arrays, errors: Arrays) -> np.ndarray:
    """Return the change of s·(w − z) if weights, scales and zero points change by at most their errors."""
    weights, scales, zeros = inputs
    values = op.unpacked(weights)
    # Any change of a byte may change both of its halves.
    moved = errors[0] if op.bits == 8 else op.unpacked(np.where(errors[0] > 0, 255, 0))
    apart = moved + op.per_row(errors[2], values.shape[1])
    difference = np.abs(values - op.per_row(zeros, values.shape[1]))
    with np.errstate(all="ignore"):
        changed = op.per_row(errors[1], values.shape[1]) * (difference + apart)
        return op.per_row(np.abs(scales), values.shape[1]) * apart + changed


class DequantizeErrors(ErrorAnalysis[Dequantize], of=Dequantize):
    """Errors of an exact difference times a scale, in f32, which is then rounded to the output's type."""

    whole_numbers = True

    def propagate_error(self, shape: Shape, inputs: Arrays, errors: Arrays) -> list[np.ndarray]:
        return [_worth_error(self.op, inputs, errors)]

    def roundings(self, shape: Shape) -> int:
        return 1

    def inner_roundings(self, shape: Shape) -> int:
        return 1


@attrs.frozen(cache_hash=True)
class QMatmul(Quantized, Accumulating):
    """out (+)= lhs · Dequantize(weights, scales, zeros) for each b.

    Programs may add up products with w and with z apart, and multiply their difference by s.
    """

    flops_per_point: ClassVar[int] = 2

    accumulate: bool = False

    @property
    def rank(self) -> int:
        return 4

    @property
    def optional_batch(self) -> bool:
        return True

    def dims(self, rank: int) -> tuple[str, ...]:
        return ("b", "m", "g", "n")

    def operands(self, rank: int) -> tuple[Operand, ...]:
        out = operand("out", (0, 1, 3), reads=self.accumulate, writes=True)
        return (in_blocks("lhs", (0, 1, 2), 2, self.block), *self.stored(2, 3), out)

    @property
    def only_types(self) -> tuple[DType, ...]:
        weights = U8 if self.bits == 4 else I8
        return F32, weights, F32, weights, F32

    @property
    def search_hints(self) -> SearchHints:
        # Its own kernels have sums in L1; `dequantize` leads to operations on registers.
        return SearchHints(in_registers=(4,))

    def flops(self, shape: Shape) -> int:
        return super().flops(shape) * self.block

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        lhs, weights, scales, zeros, out = dtypes
        fault = self.check_types(weights, scales, zeros)
        return fault or _float_up_to_f32("lhs", lhs) or _float_up_to_f32("out", out)

    def evaluate(self, shape: Shape, inputs: Arrays, dtypes: Sequence[DType]) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            out = np.matmul(inputs[0], self.worth(*inputs[1:4]))
            return [out + inputs[4] if self.accumulate else out]


class QMatmulErrors(ErrorAnalysis[QMatmul], of=QMatmul):
    """Errors of products with w and with z that are added up apart: terms are |lhs|·|s|·(|w| + |z|)."""

    whole_numbers = True
    #: 0·∞ may come before or after a multiplication by s.
    any_for_nan = True

    def magnitude(self, shape: Shape, inputs: Arrays) -> list[np.ndarray]:
        weights, scales, zeros = inputs[1:4]
        return [self._sums(inputs, self._terms(weights, zeros), np.abs(scales))]

    def largest_intermediate(self, shape: Shape, inputs: Arrays) -> list[np.ndarray]:
        terms, scales = self._terms(inputs[1], inputs[3]), np.abs(inputs[2])
        with np.errstate(all="ignore"):
            worth = (self.op.per_row(scales, terms.shape[1]) * terms).max(axis=1)[:, np.newaxis]
            unscaled, scaled = (self._sums(inputs, terms, each) for each in (np.ones_like(scales), scales))
            return [np.fmax(np.fmax(unscaled, scaled), worth)]

    def propagate_error(self, shape: Shape, inputs: Arrays, errors: Arrays) -> list[np.ndarray]:
        moved = _worth_error(self.op, inputs[1:4], errors[1:4])
        lhs = np.abs(inputs[0])
        with np.errstate(all="ignore"):
            bound = np.matmul(lhs + errors[0], moved) + np.matmul(errors[0], np.abs(self.op.worth(*inputs[1:4])))
            return [bound + errors[4] if self.op.accumulate else bound]

    def roundings(self, shape: Shape) -> int:
        return 2 * shape[2] * self.op.block + 6

    def _terms(self, weights: np.ndarray, zeros: np.ndarray) -> np.ndarray:
        values = np.abs(self.op.unpacked(weights))
        return values + self.op.per_row(np.abs(zeros), values.shape[1])

    def _sums(self, inputs: Arrays, terms: np.ndarray, scales: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            sums = np.matmul(np.abs(inputs[0]), self.op.per_row(scales, terms.shape[1]) * terms)
            return sums + np.abs(inputs[4]) if self.op.accumulate else sums


def in_blocks(
    name: str, dims: tuple[int, int, int], axis: int, size: int, *, reads: bool = True, writes: bool = False
) -> Operand:
    """Return an operand with `size` values along `axis` for each step of its iteration dimension."""
    plain = operand(name, dims, reads=reads, writes=writes)
    if size == 1:
        return plain
    blocks = (*plain.dims[:axis], ((dims[axis], size),), *plain.dims[axis + 1 :])
    # A tile of one step is a block of `size` values, not one value.
    return attrs.evolve(plain, dims=blocks, shrink=tuple(1 - size if one == axis else 0 for one in range(3)))


def _float_up_to_f32(name: str, dtype: DType) -> SpecError | None:
    if dtype.is_float and dtype != F64:
        return None
    return SpecError(f"{name} are {dtype}, not floats of up to 32 bits", "convert them with a Move")


OPERATIONS: tuple[Operation, ...] = (Dequantize(), QMatmul(), QMatmul(accumulate=True))
