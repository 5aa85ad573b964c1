"""The looks of the C."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from morello_reference_c.values import Value

from morello.api.kernel import Kernel
from morello.build.cache import cache_directory
from morello.build.library import build
from morello.build.toolchain import Compiler
from morello.errors import EmitError
from morello.ir.dtypes import BF16, F32, I8
from morello.ir.impl import Leaf
from morello.ir.layout import Dynamic, Layout, OddEven, Packed
from morello.ir.tensor import OperandState, TensorSpec
from morello.plugins import Target

Make = Callable[..., Kernel]
GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("op", ["Matmul", "MatmulAccum", "Move", "FillZero"])
@pytest.mark.parametrize(("dtypes", "contig"), [((F32, BF16, BF16), 0), ((I8, I8, I8), 3), ((F32, F32, F32), 0)])
def test_no_warnings(make: Make, compiler: Compiler, op: str, dtypes, contig: int) -> None:
    shape = (1, 2, 3, 4) if op.startswith("Matmul") else (1, 2, 3)
    count = {"FillZero": 1, "Move": 2}.get(op, 3)
    kernel = make(op, shape, [(dtype, contig) for dtype in dtypes[:count]])
    flags = (*kernel.program.flags, "-Wall", "-Wextra", "-Werror")
    assert build({**kernel.files, "user.c": '#include "sample.h"\n'}, flags, compiler).is_file()


def test_header_is_also_cpp(make: Make, compiler: Compiler, tmp_path: Path) -> None:
    kernel = make("Matmul", (1, 2, 3, 4), [F32, BF16, F32])
    (tmp_path / "sample.h").write_text(kernel.header)
    (tmp_path / "user.cpp").write_text('#include "sample.h"\n#include "sample.h"\nauto f = &sample;\n')
    command = [*compiler.command, "-x", "c++", "-Wall", "-Werror", "-c", "-o", "user.o", "user.cpp"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("matmul", ("Matmul", (2, 4, 6, 8), [F32, F32, F32])),
        (
            "matmul_accum_bf16",
            (
                "MatmulAccum",
                (1, 4, 6, 8),
                [
                    BF16,
                    (F32, Layout((Dynamic(0), Dynamic(1), Dynamic(2), Packed(1, 2), OddEven(2, 4)))),
                    (BF16, 1),
                ],
            ),
        ),
        ("move_i8", ("Move", (3, 5), [I8, F32])),
    ],
)
def test_golden(make: Make, name: str, arguments) -> None:
    """The C is as reviewed; `make golden` writes it."""
    kernel, path = make(*arguments), GOLDEN / f"{name}.c"
    if os.environ.get("MORELLO_UPDATE_GOLDEN"):
        path.write_text(kernel.source, encoding="utf-8")
    assert kernel.source == path.read_text(encoding="utf-8")


@st.composite
def values(draw: st.DrawFn) -> Value:
    rank = draw(st.integers(1, 3))
    shape = [draw(st.integers(1, 3)) for _ in range(rank)]
    dims = [Dynamic(dim) for dim in draw(st.permutations(range(rank)))]
    for _ in range(draw(st.integers(0, 2))):
        dim, size = draw(st.integers(0, rank - 1)), draw(st.sampled_from([2, 3, 4]))
        shape[dim] *= size
        dims.append(OddEven(dim, size) if size % 2 == 0 and draw(st.booleans()) else Packed(dim, size))
    layout = Layout(tuple(dims))
    tensor = TensorSpec(tuple(shape), OperandState(F32, "GL", layout, draw(st.integers(0, len(dims))))).canonical()
    assert tensor.state.layout
    return Value("x", tensor, len(tensor.state.layout.dims) - tensor.state.contig)


@given(values())
def test_index_functions_are_the_layout(value: Value) -> None:
    """The C expression, read as Python, against the layout's own arithmetic."""
    found = re.search(r"return (.*);", value.index_function())
    assert found
    expression = found.group(1).replace("/", "//")
    layout, shape = value.layout, [int(size) for size in value.tensor.shape]
    strides = list(layout.strides(shape))
    for position in range(value.strides):
        strides[position] = 1000 + 7 * position
    outer = {f"s{position}": strides[position] for position in range(value.strides)}
    for point in np.ndindex(*shape):
        variables = {f"i{dim}": index for dim, index in enumerate(point)}
        assert eval(expression, {**variables, **outer}) == layout.offset(point, shape, strides)


def test_only_finished_single_operations_are_printed(make: Make, target: Target) -> None:
    kernel = make("Matmul", (1, 2, 3, 4), [F32] * 3)
    with pytest.raises(EmitError, match="whole operations only") as caught:
        target.emitter.emit(Leaf(kernel.spec), target, "f")
    assert "select" in str(caught.value)


def test_its_kernels_cannot_be_part_of_other_programs(target: Target) -> None:
    with pytest.raises(EmitError, match="whole operations"):
        target.kernels[0].print(attrs.NOTHING)  # pyright: ignore[reportArgumentType]


def test_the_cost_is_the_volume(make: Make) -> None:
    assert make("Matmul", (2, 3, 4, 5), [F32] * 3).cost == 120
    assert cache_directory().is_dir()
