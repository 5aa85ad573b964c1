"""Gather: rows of a table by their numbers, as an embedding reads them."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from morello.errors import SpecError
from morello.ir.dtypes import I32, INDICES, DType
from morello.ir.ops.base import Arrays, Operand, Operation, SearchHints, Shape, operand, parameter
from morello.ir.ops.common import AnyRank, CopyErrors


@attrs.frozen(cache_hash=True)
class Gather(AnyRank):
    """out[..., i, ...] = table[..., indices[i], ...], with i along `dim`, by default the first.

    The iteration dimensions are those of out, then that of the table's rows. Negative indices count from the end; those
    outside of the table are those of its first or last row. Table and out have the same type, indices are i32 or i64.
    """

    dim: int = parameter(int, default=0)

    def dims(self, rank: int) -> tuple[str, ...]:
        return (*(f"i{dim}" for dim in range(rank - 1)), "rows")

    def operands(self, rank: int) -> tuple[Operand, ...]:
        rows = rank - 1
        table = [rows if dim == self.dim else dim for dim in range(rows)]
        out = operand("out", range(rows), reads=False, writes=True)
        # `check` refuses other dimensions.
        return (operand("table", table), operand("indices", (max(0, min(self.dim, rows - 1)),)), out)

    def reductions(self, rank: int) -> tuple[int, ...]:
        # Out has no rows, but nothing is added up along them.
        return ()

    def untiled(self, rank: int) -> tuple[int, ...]:
        return (rank - 1,)

    @property
    def reads_types(self) -> tuple[DType | None, ...]:
        return None, I32

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        if len(shape) < 2:
            return SpecError("it has the sizes of out and the number of rows of the table", "write 2 sizes or more")
        if not 0 <= self.dim < len(shape) - 1:
            message = f"dimension {self.dim} does not exist; out has 0 to {len(shape) - 2}"
            return SpecError(message, "choose one of them")
        table, indices, out = dtypes
        if indices not in INDICES:
            return SpecError(f"indices are {indices}", "make them i32 or i64")
        if table == out:
            return None
        message = f"table is {table}, out {out}: both have the same type"
        return SpecError(message, "convert with a Move before or after it")

    def evaluate(self, shape: Shape, inputs: Arrays, dtypes: Sequence[DType]) -> list[np.ndarray]:
        rows = np.clip(inputs[1], -shape[-1], shape[-1] - 1).astype(np.int64)
        return [np.take(inputs[0], rows, axis=self.dim)]

    @property
    def search_hints(self) -> SearchHints:
        # Its kernels copy in memory.
        return SearchHints(in_registers=())


class GatherErrors(CopyErrors, of=Gather):
    """Errors of rows that are copied."""

    op: Gather

    def propagate_error(self, shape: Shape, inputs: Arrays, errors: Arrays) -> list[np.ndarray]:
        (bound,) = self.op.evaluate(shape, [errors[0], inputs[1]], [])
        # Another index may lead to any row.
        high = np.max(inputs[0] + errors[0], axis=self.op.dim, keepdims=True)
        low = np.min(inputs[0] - errors[0], axis=self.op.dim, keepdims=True)
        moved = np.expand_dims(errors[1] > 0, tuple(range(1, len(shape) - 1 - self.op.dim)))
        return [np.where(moved, np.maximum(bound, high - low), bound)]

    def roundings(self, shape: Shape) -> int:
        return 0


OPERATIONS: tuple[Operation, ...] = (Gather(),)
