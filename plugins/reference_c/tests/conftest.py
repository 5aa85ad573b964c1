"""Kernels of the target."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from morello.api.kernel import Kernel
from morello.build.toolchain import Compiler
from morello.ir.dtypes import DType
from morello.ir.layout import Layout, row_major
from morello.ir.ops import by_name
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import OperandState
from morello.plugins import Target
from morello.verify.reference import implement

Make = Callable[..., Kernel]


@pytest.fixture(scope="session")
def make(target: Target) -> Make:
    """Make a kernel from data types, and layouts and contiguity where they are not the usual ones."""

    def build(
        op: str,
        shape: tuple[int, ...],
        dtypes: Sequence[DType],
        layouts: Sequence[Layout] | None = None,
        contigs: Sequence[int] | None = None,
        compiler: Compiler | None = None,
    ) -> Kernel:
        operands = by_name(op).operands(len(shape))
        layouts = layouts or [row_major(len(one.dims)) for one in operands]
        contigs = contigs or [len(layout.dims) for layout in layouts]
        states = tuple(
            OperandState(dtype, "GL", layout, contig)
            for dtype, layout, contig in zip(dtypes, layouts, contigs, strict=True)
        )
        impl = implement(LogicalSpec(by_name(op), shape, states), target)
        return Kernel.of(impl, target, target.emitter.emit(impl, target, "reference"), compiler)

    return build
