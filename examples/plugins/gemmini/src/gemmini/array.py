"""A systolic array as data: its size, types and memories, and the model of it in C."""

from __future__ import annotations

from functools import cached_property
from importlib.resources import files

import attrs

from morello.plugins import F32, I8, I32, DType, Layout, MemoryLevel, Packed, row_major

#: What an instruction costs, in bytes that might be moved instead.
INSTRUCTION_COST = 16


@attrs.frozen
class Array:
    """`dim`×`dim` processing elements, which multiply values of `element` and add them up in values of `sums`."""

    name: str
    dim: int
    element: DType
    sums: DType
    scratchpad: int = 256 << 10
    accumulator: int = 64 << 10

    @property
    def levels(self) -> tuple[MemoryLevel, ...]:
        """Return the memories: software fills both of the array's, a row of `dim` values at a time.

        The kernels of moves declare their costs.
        """
        row, sums = self.dim * self.element.bytes, self.dim * self.sums.bytes
        return (
            MemoryLevel(name="ACC", kind="memory", capacity=self.accumulator, unit=sums, alignment=sums),
            MemoryLevel(name="SPAD", kind="memory", capacity=self.scratchpad, unit=row, alignment=row),
            MemoryLevel(name="GL", kind="memory", capacity=2 << 30, unit=64, destinations=("ACC", "SPAD")),
        )

    def layouts(self, dtype: DType, rank: int) -> list[Layout]:
        """Return the layouts of new buffers: matrices in blocks of `dim` columns, and row by row."""
        return [self.blocks(rank), row_major(rank)] if rank > 1 else [row_major(rank)]

    def blocks(self, rank: int) -> Layout:
        """Return the layout of matrices in the array's memories: `layout[0, 2, 1, 2p16]` for a batch of them."""
        *outer, row, column = row_major(rank).dims
        return Layout((*outer, column, row, Packed(column.dim, self.dim)))

    @cached_property
    def model(self) -> str:
        """Return the C of the model, and of what programs call."""
        rows = {
            "DIM": self.dim,
            "SCRATCHPAD_BYTES": self.scratchpad,
            "ACCUMULATOR_BYTES": self.accumulator,
            "IS_FLOAT": int(self.element.is_float),
            "INSTRUCTION_COST": INSTRUCTION_COST,
        }
        head = [f"#define GEMMINI_{name} {value}" for name, value in rows.items()]
        head += [f"typedef {self.element.c_name} gemmini_elem_t;", f"typedef {self.sums.c_name} gemmini_acc_t;"]
        parts = [(files("gemmini") / name).read_text(encoding="utf-8") for name in ("model.h", "driver.h")]
        return "\n".join([*head, "", *parts])


INT8 = Array("gemmini", 16, I8, I32)
FP32 = Array("gemmini_fp32", 4, F32, F32)
