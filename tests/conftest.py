"""Kernels of the reference target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import attrs
import pytest

from morello.api.kernel import Kernel
from morello.build.toolchain import Compiler
from morello.ir.dtypes import F32, DType
from morello.ir.layout import Layout, row_major
from morello.ir.ops import Operation, by_name
from morello.ir.program import Program
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import OperandState
from morello.plugins import Target
from morello.verify.reference import implement

#: Data type, and where it is not row-major or contiguous, layout and contiguity.
Kind = DType | tuple[DType, Layout] | tuple[DType, Layout, int]
Make = Callable[..., Kernel]


def _state(kind: Kind, rank: int) -> OperandState:
    dtype, rest = (kind[0], kind[1:]) if isinstance(kind, tuple) else (kind, ())
    layout = next((each for each in rest if isinstance(each, Layout)), row_major(rank))
    contig = next((each for each in rest if isinstance(each, int)), len(layout.dims))
    return OperandState(dtype, "GL", layout, contig)


@pytest.fixture
def make(target: Target) -> Make:
    """Makes a reference kernel; `replace` swaps pieces of its C, to break it."""

    def build(
        op: str | Operation,
        shape: Sequence[int],
        kinds: list[Kind] | Kind = F32,
        *,
        compiler: Compiler | None = None,
        replace: dict[str, str] | None = None,
        on: Target | None = None,
    ) -> Kernel:
        op = by_name(op) if isinstance(op, str) else op
        operands = op.operands(len(shape))
        listed = kinds if isinstance(kinds, list) else [kinds] * len(operands)
        states = tuple(_state(kind, len(one.dims)) for kind, one in zip(listed, operands, strict=True))
        impl = implement(LogicalSpec(op, tuple(shape), states), on or target)
        program: Program = target.emitter.emit(impl, target, "sample")
        for old, new in (replace or {}).items():
            assert old in program.source
            program = attrs.evolve(program, source=program.source.replace(old, new))
        return Kernel.of(impl, on or target, program, compiler)

    return build


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], str]:
    """Makes an executable shell script, such as a compiler that misbehaves."""

    def write(body: str) -> str:
        path = tmp_path / "fakecc"
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return str(path)

    return write
