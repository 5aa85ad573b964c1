"""Calling kernels, and errors for arrays that do not fit."""

from __future__ import annotations

import gc
import mmap
import threading
import weakref
from collections.abc import Callable
from typing import Any

import attrs
import ml_dtypes
import numpy as np
import pytest

import morello
from morello.api.kernel import Kernel
from morello.build.toolchain import Compiler
from morello.errors import ArgumentError, EmitError, ToolchainError
from morello.ir.dtypes import BF16, F32, I8, I32, U8
from morello.ir.impl import Leaf
from morello.ir.layout import Dynamic, Layout, Packed, col_major, row_major
from morello.ir.program import Program
from morello.plugins import Target
from morello.run import fastcall
from morello.run.arrays import empty, pack

Make = Callable[..., Kernel]


def matrices(*shapes: tuple[int, ...], dtype: type = np.float32) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(-4, 5, shape).astype(dtype) for shape in shapes]


def test_writes_in_place(make: Make, compiler: Compiler) -> None:
    kernel = make("Matmul", (1, 2, 3, 4), compiler=compiler)
    lhs, rhs, out = matrices((1, 2, 3), (1, 3, 4), (1, 2, 4))
    assert kernel(lhs, rhs, out) is None
    assert np.array_equal(out, lhs @ rhs)


def test_outputs_that_are_left_out_are_returned(make: Make) -> None:
    kernel = make("Matmul", (1, 2, 3, 4), [F32, F32, (F32, col_major(3))])
    lhs, rhs = matrices((1, 2, 3), (1, 3, 4))
    out = kernel(lhs, rhs)
    assert np.array_equal(out, lhs @ rhs)
    assert out.strides[1:] == (4, 8)
    assert np.array_equal(make("FillZero", (2, 3))(), np.zeros((2, 3)))


def test_an_output_that_is_read_cannot_be_left_out(make: Make) -> None:
    kernel = make("MatmulAccum", (1, 2, 3, 4))
    lhs, rhs, out = matrices((1, 2, 3), (1, 3, 4), (1, 2, 4))
    before = out.copy()
    kernel(lhs, rhs, out)
    assert np.array_equal(out, before + lhs @ rhs)
    with pytest.raises(ArgumentError, match="takes 3 arrays, got 2"):
        kernel(lhs, rhs)


def test_repr(make: Make, target: Target) -> None:
    kernel = make("Matmul", (1, 2, 3, 4))
    assert kernel.schedule == "select Matmul"
    assert kernel.cost == 24
    assert kernel.peak == (0,)
    assert kernel.target is target
    assert kernel.spec.shape == (1, 2, 3, 4)
    assert "sample(" in kernel.source
    assert "sample(" in kernel.header
    assert kernel.library.suffix == ".so"
    assert "Matmul" in repr(kernel)
    with pytest.raises(EmitError, match=r"sample has 1 hole: Matmul\(1×2×3×4"):
        Kernel.of(Leaf(kernel.spec), target, kernel.program)


def test_bf16_arrays(make: Make) -> None:
    kernel = make("Move", (3,), [BF16, F32])
    values = np.array([1, -2.5, 0], ml_dtypes.bfloat16)
    assert kernel(values).tolist() == [1, -2.5, 0]
    assert kernel(values.view(np.uint16)).tolist() == [1, -2.5, 0]


def test_strides_of_operands_that_need_not_be_contiguous(make: Make) -> None:
    kernel = make("Matmul", (1, 4, 6, 8), [(F32, row_major(3), 1), (F32, col_major(3), 0), (F32, row_major(3), 1)])
    lhs, rhs, out = matrices((1, 8, 20), (1, 12, 16), (1, 9, 11))
    views = lhs[:, ::2, 3:9], rhs[:, 10:4:-1, ::2], out[:, 5:9, 3:11]
    untouched = out.copy()
    kernel(*views)
    assert np.array_equal(views[2], views[0] @ views[1])
    untouched[:, 5:9, 3:11] = views[2]
    assert np.array_equal(out, untouched)


def test_layouts_with_strips(make: Make) -> None:
    strips = Layout((Dynamic(0), Dynamic(1), Dynamic(2), Packed(1, 2)))
    kernel = make("Matmul", (1, 4, 6, 8), [F32, (F32, strips), F32])
    lhs, rhs = matrices((1, 4, 6), (1, 6, 8))
    assert np.array_equal(kernel(lhs, pack(rhs, kernel.spec.operands[1])), lhs @ rhs)


def fits() -> list[np.ndarray]:
    return matrices((1, 2, 3), (1, 3, 4), (1, 2, 4))


def misaligned(shape: tuple[int, ...]) -> np.ndarray:
    return np.zeros(4 * int(np.prod(shape)) + 1, np.uint8)[1:].view(np.float32).reshape(shape)


def read_only(shape: tuple[int, ...]) -> np.ndarray:
    array = np.zeros(shape, np.float32)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("index", "wrong", "expected", "remedy"),
    [
        (0, [[[1.0]]], "operand 0 (lhs): expected a numpy array, got list", "asarray"),
        (0, np.zeros((1, 3, 2), np.float32), "expected shape (1, 2, 3), got shape (1, 3, 2)", "pack"),
        (1, np.zeros((1, 3, 4)), "operand 1 (rhs): expected data type float32, got float64", "astype('float32')"),
        (1, np.zeros((1, 3, 4), np.int32), "expected data type float32, got int32", "astype"),
        (0, np.zeros((1, 2, 3), ">f4"), "byte order", "newbyteorder"),
        (1, np.zeros((1, 4, 3), np.float32).swapaxes(1, 2), "strides (*, 16, 4) in bytes, got strides", "pack"),
        (1, np.zeros((1, 3, 8), np.float32)[:, :, ::2], "strides (*, 16, 4) in bytes, got strides", "pack"),
        (2, misaligned((1, 2, 4)), "starts at a multiple of 4 bytes, got one at 1 bytes past", "empty"),
        (2, read_only((1, 2, 4)), "operand 2 (out): expected a writable array, got a read-only", "copy"),
    ],
)
@pytest.mark.parametrize("known", [False, True], ids=["first call", "later call"])
def test_arrays_that_do_not_fit(make: Make, known: bool, index: int, wrong: Any, expected: str, remedy: str) -> None:
    kernel = make("Matmul", (1, 2, 3, 4))
    if known:
        kernel(*fits())
    arrays: list[Any] = list(fits())
    arrays[index] = wrong
    with pytest.raises(ArgumentError) as caught:
        kernel(*arrays)
    assert expected in caught.value.message
    assert f"operand {index}" in caught.value.message
    assert remedy in (caught.value.hint or "")


def test_wrong_number_of_arrays(make: Make) -> None:
    with pytest.raises(ArgumentError, match="takes 3 arrays, or 2 without outputs, got 1") as caught:
        make("Matmul", (1, 2, 3, 4))(fits()[0])
    assert "lhs, rhs, out" in str(caught.value)


def test_strips_ask_for_the_physical_shape(make: Make) -> None:
    kernel = make("Move", (4, 6), [(F32, Layout((Dynamic(0), Dynamic(1), Packed(0, 2)))), F32])
    with pytest.raises(ArgumentError, match=r"shape \(2, 6, 2\) \(the physical shape of layout\[0, 1, 0p2\]\)"):
        kernel(np.zeros((4, 6), np.float32))


def test_alignment_of_the_level(make: Make, target: Target) -> None:
    strict = attrs.evolve(target, levels=(attrs.evolve(target.levels[0], alignment=32),))
    kernel = make("Move", (8,), on=strict)
    source = empty(kernel.spec.operands[0])
    source[:] = 7
    assert kernel(source).tolist() == [7] * 8
    shifted = np.empty(24, np.float32)
    start = (-shifted.ctypes.data % 64) // 4 + 4
    with pytest.raises(ArgumentError, match=r"multiple of 32 bytes, got one at 16 bytes.*\n.*unaligned \(ua\)"):
        kernel(shifted[start : start + 8])
    with pytest.raises(ArgumentError, match=r"multiple of 4 bytes.*\n.*operands\[0\]\)$"):
        make("Move", (8,))(misaligned((8,)))


def test_errors_for_bf16_list_valid_types(make: Make) -> None:
    with pytest.raises(ArgumentError, match=r"bfloat16 \(ml_dtypes\.bfloat16, or uint16 bit patterns\), got float16"):
        make("Move", (3,), [BF16, F32])(np.zeros(3, np.float16))


def test_strides_that_are_no_whole_values(make: Make) -> None:
    array = np.zeros(4, np.dtype([("value", "<f4"), ("rest", "u1")]))["value"]
    with pytest.raises(ArgumentError, match="multiples of 4 bytes, got 5 along axis 0"):
        make("Move", (4,), [(F32, row_major(1), 0), F32])(array)


def test_outputs_that_overlap(make: Make) -> None:
    memory = np.zeros(64, np.float32)
    kernel = make("Move", (2, 8), [(F32, row_major(2), 1), (F32, row_major(2), 1)])
    square = memory.reshape(4, 16)
    kernel(square[:2, :8], square[:2, 8:])
    with pytest.raises(ArgumentError, match=r"operand 1 \(out\).*overlaps operand 0 \(src\)"):
        kernel(square[:2, :8], square[:2, 7:15])
    with pytest.raises(ArgumentError, match=r"operand 1 \(out\).*overlaps operand 0 \(src\)"):
        kernel(square[1:3, :8], square[:2, :8])
    with pytest.raises(ArgumentError, match="elements are all distinct memory"):
        kernel(square[:2, :8], np.lib.stride_tricks.as_strided(memory[32:], (2, 8), (16, 4)))


def test_inputs_may_overlap_and_repeat(make: Make) -> None:
    kernel = make("Matmul", (1, 2, 2, 2), [(F32, row_major(3), 0), (F32, row_major(3), 0), F32])
    one = np.broadcast_to(np.float32(3), (1, 2, 2))
    assert np.array_equal(kernel(one, one), one @ one)


def test_cpu_without_the_features(make: Make, target: Target) -> None:
    info = attrs.evolve(target.info, cpu_features=("sse2", "no_such_feature"))
    kernel = make("FillZero", (2,), on=attrs.evolve(target, info=info))
    assert kernel.library.is_file(), "compiling is possible anywhere"
    with pytest.raises(ArgumentError, match=r"CPU lacks .*no_such_feature, which code for reference_c needs"):
        kernel()


def test_c_that_does_not_compile(make: Make, compiler: Compiler) -> None:
    with pytest.raises(ToolchainError, match="stored in"):
        make("FillZero", (2,), compiler=compiler, replace={"= 0;": "= zero;"})()


def test_library_that_cannot_be_loaded(make: Make, script: Callable[[str], str]) -> None:
    compiler = Compiler((script("echo damaged > library.so"),), "fake", "1")
    with pytest.raises(ToolchainError, match="cannot be loaded") as caught:
        make("FillZero", (2,), compiler=compiler)()
    assert "delete" in str(caught.value)


@pytest.mark.slow
def test_shared_threads_that_cannot_be_loaded(script: Callable[[str], str], runnable: str) -> None:
    compiler = Compiler(
        (script('cc "$@" || exit; case "$*" in *team.c*) echo damaged > library.so;; esac'),), "fake", "1"
    )
    goal = morello.goal("Move(4×200, GL, GL)", target=runnable).tile(1, 200, parallel=True).synthesize(db=False)
    kernel = Kernel.of(goal.impl, goal.target, goal.program, compiler)
    with pytest.raises(ToolchainError, match="cannot be loaded") as caught:
        kernel(np.zeros((4, 200), np.float32))
    assert kernel.library.name not in str(caught.value)


def test_parameters_that_are_not_the_operands(make: Make, target: Target) -> None:
    kernel = make("Move", (2,))
    short = attrs.evolve(kernel.program, parameters=kernel.program.parameters[:1])
    with pytest.raises(EmitError, match="1 parameters for 2 operands"):
        Kernel.of(kernel.impl, target, short)
    strided = tuple(attrs.evolve(each, strides=1) for each in kernel.program.parameters)
    with pytest.raises(EmitError, match="src takes 1 strides, its Spec has 0"):
        Kernel.of(kernel.impl, target, attrs.evolve(kernel.program, parameters=strided))


SCRATCH = """
#include <stddef.h>
#include <stdint.h>
void sample(const int32_t *restrict src, int32_t *restrict out, void *restrict workspace) {
    volatile int32_t *scratch = workspace;
    for (int round = 0; round < 200; round++) {
        for (int i = 0; i < 1000; i++) scratch[i] = src[0];
        for (int i = 0; i < 1000; i++) if (scratch[i] != src[0]) { out[0] = -1; return; }
    }
    out[0] = (uintptr_t)workspace % 64 == 0 ? src[0] : -2;
}
"""


@pytest.fixture
def scratch(make: Make, target: Target) -> Kernel:
    """Copies a number by way of its workspace."""
    kernel = make("Move", (1,), I32)
    prototype = "void sample(const int32_t *restrict src, int32_t *restrict out, void *restrict workspace)"
    program: Program = attrs.evolve(kernel.program, source=SCRATCH, prototype=prototype, workspace=4000)
    return Kernel.of(kernel.impl, target, program)


@pytest.mark.parametrize("huge", [True, False], ids=["huge pages", "no huge pages"])
def test_large_workspaces_are_in_huge_pages(huge: bool, scratch: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    if not huge:
        monkeypatch.delattr(mmap, "MADV_HUGEPAGE", raising=False)
    size = (4 << 20) + 64
    kernel = Kernel.of(scratch.impl, scratch.target, attrs.evolve(scratch.program, workspace=size))
    workspace = kernel.function.workspace()
    assert workspace.size == size
    assert workspace.ctypes.data % ((2 << 20) if huge and hasattr(mmap, "MADV_HUGEPAGE") else 64) == 0
    workspace[:] = 1  # all of it is there
    assert kernel.function.workspace() is workspace
    assert kernel(np.array([7], np.int32)) == 7


def test_each_thread_has_a_workspace(scratch: Kernel) -> None:
    wrong: list[object] = []
    start = threading.Barrier(4)

    def call(number: int) -> None:
        start.wait()
        for _ in range(50):
            got = scratch(np.array([number], np.int32))
            if got[0] != number:
                wrong.append((number, got[0]))

    threads = [threading.Thread(target=call, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_fast_calls_keep_what_they_point_to(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that make a kernel's first call each make a FastCaller, and all but one are dropped."""
    monkeypatch.setattr(fastcall, "_built", fastcall._built.__wrapped__)
    kernel = make("Move", (3,))
    arrays = [np.arange(3, dtype=np.float32), np.zeros(3, np.float32)]
    arguments, program = kernel.arguments, kernel.program
    maker = fastcall.caller_of(program, kernel.function.compiler)
    address = kernel.function.load().address
    fast = maker.fast_call(address, arguments, arrays, arrays, kernel.function.numbers(arrays, 1))
    assert fast
    method = weakref.ref(maker._call)
    del maker
    gc.collect()
    assert method()
    assert fast.call(*arrays)
    assert (arrays[0] == arrays[1]).all()


def test_calls_release_the_lock(make: Make, target: Target) -> None:
    """One thread's call waits for a flag that only another thread can set."""
    kernel = make("Move", (1,), I32)
    source = (
        "#include <stdint.h>\n"
        f"{kernel.program.prototype} {{ while (!*(volatile const int32_t *)src) {{}} out[0] = src[0]; }}\n"
    )
    waiting = Kernel.of(kernel.impl, target, attrs.evolve(kernel.program, source=source))
    flag, out = np.zeros(1, np.int32), np.zeros(1, np.int32)
    waiting.function.load()
    thread = threading.Thread(target=waiting, args=(flag, out), daemon=True)
    thread.start()
    flag[0] = 5
    thread.join(timeout=30)
    assert out[0] == 5


def test_wraps_around(make: Make) -> None:
    kernel = make("Matmul", (1, 1, 2, 1), [U8, I8, I8])
    out = kernel(np.full((1, 1, 2), 200, np.uint8), np.full((1, 2, 1), -3, np.int8))
    assert out.item() == np.int64(2 * 200 * -3).astype(np.int8)
