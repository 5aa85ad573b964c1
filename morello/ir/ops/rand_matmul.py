"""Random and RandMatmul: matrices of random numbers computed from their positions, and products with them.

Each number is a hash of a seed, the counter of its row and that of its column, as in counter-based generators
([Salmon2011]), so that the order of computation does not matter. Counters are operands and are tiled like others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import attrs
import numpy as np
import numpy.typing as npt

from morello.errors import SpecError
from morello.ir.dtypes import F32, U32, DType
from morello.ir.ops.base import Arrays, ErrorAnalysis, Operand, Operation, SearchHints, Shape, operand, parameter
from morello.ir.ops.common import Accumulating

B, M, K, N = range(4)
#: The factor of column counters: 2^32 divided by the golden ratio, made odd.
COLUMN_FACTOR = 0x9E3779B9
#: A hash of 32 bits is x ^= x >> shift and x *= factor in turn: the finaliser of MurmurHash3, a bijection.
MIXING = ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1))
#: The upper 24 bits of the hash, as a signed number, times this: exact in f32.
SHIFT, SCALE = 8, 2.0**-23

_Words = npt.NDArray[np.uint32]


def mixed(words: _Words) -> _Words:
    """Return the hash of each word."""
    for shift, factor in MIXING:
        words = (words ^ (words >> np.uint32(shift))) * np.uint32(factor)
    return words


def seed_word(seed: int) -> int:
    """Return the word that is combined with row counters."""
    return int(mixed(np.array([seed], np.uint32))[0])


def random_values(seed: int, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return the numbers of [-1, 1) at counters of rows and columns, broadcast, as float64."""
    row_words, column_words = (np.asarray(one).astype(np.int64).astype(np.uint32) for one in (rows, columns))
    keys = mixed(row_words ^ np.uint32(seed_word(seed)))
    words = mixed(keys ^ (column_words * np.uint32(COLUMN_FACTOR)))
    return (words.view(np.int32) >> SHIFT) * SCALE


def _check_seed(op: Operation, _field: object, seed: int) -> None:
    if not 0 <= seed < 2**32:
        raise SpecError(f"{op.name}: seed={seed} is not an unsigned 32-bit number", "write one from 0 to 4294967295")


@attrs.frozen(cache_hash=True)
class _Seeded(Operation):
    """An operation on counters u32 of rows, b×m×1, and of columns, 1×1×k."""

    seed: int = parameter(int, default=0, validator=_check_seed)

    def generated(self, inputs: Arrays) -> np.ndarray:
        """Return the random numbers, b×m×k."""
        return random_values(self.seed, inputs[0], inputs[1])

    def generated_error(self, errors: Arrays) -> np.ndarray:
        """Return the errors of the numbers: the whole range where a counter is not exact."""
        return np.where((errors[0] > 0) | (errors[1] > 0), 2.0, 0.0)

    @property
    def only_types(self) -> tuple[DType, ...]:
        return tuple(U32 if one in _COUNTERS else F32 for one in self.operands(self.rank or 0))

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        if any(dtype != U32 for dtype in dtypes[:2]):
            return SpecError(f"its counters are u32, not {dtypes[0]} and {dtypes[1]}", "write (u32, GL) for both")
        if any(dtype != F32 for dtype in dtypes[2:]):
            return SpecError("all but its counters are f32", "convert others with a Move")
        return None


@attrs.frozen(cache_hash=True)
class Random(_Seeded):
    """out[b, m, k] = the random number at counters rows[b, m] and columns[k], evenly distributed in [-1, 1)."""

    @property
    def rank(self) -> int:
        return 3

    def dims(self, rank: int) -> tuple[str, ...]:
        return ("b", "m", "k")

    def operands(self, rank: int) -> tuple[Operand, ...]:
        return (*_COUNTERS, operand("out", (B, M, K), reads=False, writes=True))

    def evaluate(self, shape: Shape, inputs: Arrays, dtypes: Sequence[DType]) -> list[np.ndarray]:
        return [self.generated(inputs)]


class RandomErrors(ErrorAnalysis[Random], of=Random):
    """Errors of numbers that are right to the bit."""

    @property
    def copies(self) -> bool:
        return True

    def propagate_error(self, shape: Shape, inputs: Arrays, errors: Arrays) -> list[np.ndarray]:
        return [self.op.generated_error(errors)]


@attrs.frozen(cache_hash=True)
class RandMatmul(_Seeded, Accumulating):
    """out (+)= Random(rows, columns) · rhs for each b; values are multiplied and added as those of a Matmul."""

    flops_per_point: ClassVar[int] = 2

    accumulate: bool = False

    @property
    def rank(self) -> int:
        return 4

    def dims(self, rank: int) -> tuple[str, ...]:
        return ("b", "m", "k", "n")

    def operands(self, rank: int) -> tuple[Operand, ...]:
        return _ACCUMULATING if self.accumulate else _PLAIN

    @property
    def indirect(self) -> tuple[int, ...]:
        return (0, 1)

    @property
    def search_hints(self) -> SearchHints:
        # Kernels exist only for the operations that it is rewritten to; sums may be in registers before.
        return SearchHints(in_registers=(3,))

    def evaluate(self, shape: Shape, inputs: Arrays, dtypes: Sequence[DType]) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            out = np.matmul(self.generated(inputs), inputs[2])
            return [out + inputs[3] if self.accumulate else out]


class RandMatmulErrors(ErrorAnalysis[RandMatmul], of=RandMatmul):
    """Errors of sums of products with an exact factor."""

    def magnitude(self, shape: Shape, inputs: Arrays) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            sums = np.matmul(np.abs(self.op.generated(inputs)), np.abs(inputs[2]))
            return [sums + np.abs(inputs[3]) if self.op.accumulate else sums]

    def propagate_error(self, shape: Shape, inputs: Arrays, errors: Arrays) -> list[np.ndarray]:
        moved = self.op.generated_error(errors)
        factors = np.abs(self.op.generated(inputs)) + moved
        bound = np.matmul(factors, errors[2]) + np.matmul(moved, np.abs(inputs[2]))
        return [bound + errors[3] if self.op.accumulate else bound]

    def roundings(self, shape: Shape) -> int:
        return 2 * shape[K] + 1


_COUNTERS = (Operand("rows", (((B, 1),), ((M, 1),), ())), Operand("columns", ((), (), ((K, 1),))))
_INPUTS = (*_COUNTERS, operand("rhs", (B, K, N)))
_PLAIN = (*_INPUTS, operand("out", (B, M, N), reads=False, writes=True))
_ACCUMULATING = (*_INPUTS, operand("out", (B, M, N), writes=True))

OPERATIONS: tuple[Operation, ...] = (Random(), RandMatmul(), RandMatmul(accumulate=True))
