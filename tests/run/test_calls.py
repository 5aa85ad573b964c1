"""Operands are given by position, by name, as `out`, or with fewer dimensions, to first and quick calls."""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import morello
from morello.api.kernel import Kernel
from morello.errors import ArgumentError
from morello.ir.dtypes import F32, I32
from morello.ir.layout import Dynamic, Layout, Packed, col_major, row_major
from morello.plugins import Target
from morello.run.arrays import empty, pack

Make = Callable[..., Kernel]
STRIPS = Layout((Dynamic(0), Dynamic(1), Dynamic(2), Packed(1, 2)))
LHS, RHS = np.arange(6, dtype=np.float32).reshape(1, 2, 3), np.arange(12, dtype=np.float32).reshape(1, 3, 4)


def test_operands_by_name_and_out(make: Make) -> None:
    kernel = make("Matmul", (1, 2, 3, 4))
    for _ in range(2):
        out = np.zeros((1, 2, 4), np.float32)
        assert kernel(LHS, RHS, out=out) is out
        assert np.array_equal(out, LHS @ RHS)
        assert np.array_equal(kernel(rhs=RHS, lhs=LHS), LHS @ RHS)
        assert np.array_equal(kernel(LHS, rhs=RHS), LHS @ RHS)
        out[:] = 0
        assert kernel(LHS, rhs=RHS, out=(out,)) == (out,)
        assert np.array_equal(out, LHS @ RHS)


def test_out_of_an_accumulating_variant_is_read(make: Make) -> None:
    out = np.ones((1, 2, 4), np.float32)
    make("MatmulAccum", (1, 2, 3, 4))(LHS, RHS, out=out)
    assert np.array_equal(out, LHS @ RHS + 1)


def test_several_outputs(make: Make) -> None:
    kernel = make("SoftmaxDenominatorAndMax", (2, 3))
    src = np.array([[0, 1, 2], [3, 3, 3]], np.float32)
    for _ in range(2):
        largest, denominators = kernel(src)
        assert largest.ravel().tolist() == [2, 3]
        both = np.zeros_like(largest), np.zeros_like(denominators)
        assert kernel(src, out=both) is both
        assert np.array_equal(both, (largest, denominators))
        kernel(src, denom=both[0], max=both[1])
        assert np.array_equal(both, (denominators, largest))
    one = np.zeros((2, 1), np.float32)
    with pytest.raises(ArgumentError, match="has 2 outputs, got 1 as out") as caught:
        kernel(src, out=one)
    assert "max, denom" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("arrays", "named", "expected"),
    [
        ((LHS, RHS), {"lhs": LHS}, "operand lhs is given twice"),
        ((LHS, RHS, RHS), {"out": RHS}, "operand out is given twice"),
        ((LHS, RHS), {"weights": RHS}, "has no operand weights"),
        ((LHS,), {"out": RHS}, "takes 3 arrays, or 2 without outputs, got 2"),
        ((), {"rhs": RHS}, "takes 3 arrays, or 2 without outputs, got 1"),
        ((LHS, RHS, RHS, RHS), {}, "takes 3 arrays, or 2 without outputs, got 4"),
    ],
)
def test_unknown_operands(make: Make, arrays: Any, named: Any, expected: str) -> None:
    with pytest.raises(ArgumentError, match=expected) as caught:
        make("Matmul", (1, 2, 3, 4))(*arrays, **named)
    assert caught.value.hint


def test_first_dimensions_of_size_1_may_lack(make: Make) -> None:
    kernel = make("Matmul", (1, 2, 3, 4), [F32, (F32, col_major(3)), F32])
    rhs = np.asfortranarray(RHS[0])
    for _ in range(2):
        assert kernel(LHS[0], rhs).shape == (2, 4)
        assert np.array_equal(kernel(LHS[0], rhs), LHS[0] @ RHS[0])
        assert kernel(LHS, rhs).shape == (1, 2, 4)
        assert kernel(LHS[None], rhs[None, None]).shape == (1, 1, 2, 4)
        out = np.zeros((2, 4), np.float32)
        kernel(LHS, rhs, out)
        assert np.array_equal(out, LHS[0] @ RHS[0])


def test_dimensions_lack_beside_packed_operands(make: Make) -> None:
    kernel = make("Matmul", (1, 3, 4, 5), [F32, (F32, STRIPS), F32])
    lhs, rhs = np.ones((3, 4), np.float32), np.ones((1, 4, 5), np.float32)
    packed = pack(rhs[0], kernel.spec.operands[1])
    assert kernel(lhs, packed).tolist() == (lhs @ rhs[0]).tolist()
    with pytest.raises(
        ArgumentError, match=r"shape \(2, 5, 2\) \(the physical shape.*got shape \(1, 2, 5, 2\)"
    ) as caught:
        kernel(lhs, packed[None])
    assert caught.value.hint


def test_dimensions_of_other_sizes_may_not_lack(make: Make) -> None:
    with pytest.raises(ArgumentError, match=r"shape \(2, 2, 3\), got shape \(2, 3\)"):
        make("Matmul", (2, 2, 3, 4))(LHS[0], np.ones((2, 3, 4), np.float32))
    with pytest.raises(ArgumentError, match=r"shape \(1, 2, 3\), got shape \(2, 1, 2, 3\)"):
        make("Matmul", (1, 2, 3, 4))(np.ones((2, 1, 2, 3), np.float32), RHS)


def test_inputs_whose_strides_are_free_are_repeated_along_first_dimensions(make: Make) -> None:
    kernel = make("Matmul", (2, 2, 3, 4), [F32, (F32, row_major(3), 2), F32])
    lhs = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    for _ in range(2):
        for rhs in (RHS[0], RHS, np.broadcast_to(RHS, (2, 3, 4)), np.concatenate([RHS, RHS + 1])):
            assert np.array_equal(kernel(lhs, rhs), lhs @ rhs)
    with pytest.raises(ArgumentError, match=r"shape \(2, 2, 3\), got shape \(1, 2, 3\)"):
        kernel(LHS, RHS)  # the left one is contiguous
    with pytest.raises(ArgumentError, match="expected shape"):
        kernel(lhs, RHS[:, :1])
    with pytest.raises(ArgumentError, match=r"out.*expected shape"):
        make("Move", (2, 4), [F32, (F32, row_major(2), 1)])(np.ones((2, 4), np.float32), np.ones(4, np.float32))


@pytest.mark.parametrize("kind", [F32, (F32, col_major(3)), (F32, STRIPS)], ids=["rows", "columns", "strips"])
def test_the_hint_of_a_shape_leads_to_a_call_that_works(make: Make, kind: Any) -> None:
    kernel = make("Move", (2, 4, 3), [kind, F32])
    for shape in ((2, 4, 3), (24,), (2, 3, 4), (4, 6), (2, 12), (1, 2, 4, 3)):
        expected = np.arange(24).reshape(shape)
        array = expected.astype(np.float32)
        if kind != F32 or shape not in ((2, 4, 3), (1, 2, 4, 3)):
            with pytest.raises(ArgumentError) as caught:
                kernel(array)
            remedy = (caught.value.hint or "").split(": ")[1]
            array = eval(remedy, {"morello": morello, "array": array, "kernel": kernel})
        result = expected.swapaxes(1, 2) if shape == (2, 3, 4) else expected
        assert np.array_equal(kernel(array).ravel(), result.ravel()), shape


def test_hints_for_other_sizes_and_outputs(make: Make) -> None:
    kernel = make("Matmul", (1, 2, 3, 4))
    with pytest.raises(ArgumentError) as caught:
        kernel(np.ones((2, 5), np.float32), RHS)
    assert caught.value.hint == "compile the Spec with the sizes of the array"
    with pytest.raises(ArgumentError) as caught:
        kernel(LHS, RHS, np.ones((2, 5), np.float32))
    assert caught.value.hint == "leave it out, or make it: morello.empty(kernel.spec.operands[2])"


def test_quick_calls_check_addresses(make: Make) -> None:
    kernel = make("Move", (16,))
    memory = np.arange(65, dtype=np.float32)
    kernel(memory[:16], memory[16:32])
    kernel(memory[16:32], memory[32:48])
    assert memory[32:48].tolist() == list(range(16))
    with pytest.raises(ArgumentError, match="overlaps"):
        kernel(memory[:16], memory[15:31])
    with pytest.raises(ArgumentError, match="overlaps"):
        kernel(memory[15:31], memory[:16])
    with pytest.raises(ArgumentError, match="at 1 bytes past"):
        kernel(memory.view(np.uint8)[1:65].view(np.float32), memory[32:48])
    memory.flags.writeable = False
    with pytest.raises(ArgumentError, match="read-only"):
        kernel(np.zeros(16, np.float32), memory[:16])
    kernel(memory[:16], np.zeros(16, np.float32))


def test_quick_calls_detect_arrays_changed_in_place(make: Make) -> None:
    kernel = make("Move", (2, 8))
    source, out = np.zeros((2, 8), np.float32), np.zeros((2, 8), np.float32)
    kernel(source, out)
    source.shape = (4, 4)
    with pytest.raises(ArgumentError, match=r"got shape \(4, 4\)"):
        kernel(source, out)
    source.shape = (2, 8)
    out.flags.writeable = False
    with pytest.raises(ArgumentError, match="read-only"):
        kernel(source, out)


def test_interleaved_operands_are_apart(make: Make) -> None:
    """Their ranges meet, so C leaves it to Python to see that no value does."""
    kernel = make("Move", (2, 8), [(F32, row_major(2), 1), (F32, row_major(2), 1)])
    square = np.arange(64, dtype=np.float32).reshape(4, 16)
    for _ in range(3):
        kernel(square[:2, :8], square[:2, 8:])
        assert np.array_equal(square[:2, :8], square[:2, 8:])
        with pytest.raises(ArgumentError, match="overlaps"):
            kernel(square[:2, :8], square[:2, 7:15])


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 3)] * 4, st.booleans(), st.booleans()), min_size=1, max_size=30))
def test_calls_with_any_strides_in_any_order(make: Make, calls: list[tuple[int, int, int, int, bool, bool]]) -> None:
    kernel = make("Matmul", (1, 2, 3, 4), [(F32, row_major(3), 1), (F32, row_major(3), 0), (F32, row_major(3), 1)])
    for step, more, gap, start, left_out, flat in calls:
        lhs = np.arange(400, dtype=np.float32).reshape(20, 20)[
            start : start + 2 * (step + 1) : step + 1, start : 3 + start
        ]
        rhs = np.arange(start, 12 * (more + 1) + start, dtype=np.float32).reshape(3, -1)[:, : 4 * (more + 1) : more + 1]
        memory = np.full((1, 2, 4 + gap), -1, np.float32)
        given = (lhs, rhs) if flat else (lhs[None], rhs[None])
        if left_out:
            out = kernel(*given)
            assert out.shape == ((2, 4) if flat else (1, 2, 4))
        else:
            out = memory[0, :, :4] if flat else memory[:, :, :4]
            kernel(*given, out=out)
            assert (memory[:, :, 4:] == -1).all()
        assert np.array_equal(out, given[0] @ given[1])


def test_outputs_that_are_left_out_are_fresh_and_aligned(make: Make, target: Target) -> None:
    strict = attrs.evolve(target, levels=(attrs.evolve(target.levels[0], alignment=128),))
    kernel = make("Move", (8,), on=strict)
    source = empty(kernel.spec.operands[0], 128)
    source[:] = 1
    made = [kernel(source) for _ in range(100)]
    assert len({each.ctypes.data for each in made}) == 100
    assert all(each.ctypes.data % 128 == 0 and each.tolist() == [1] * 8 for each in made)


def test_quick_calls_leak_nothing(make: Make) -> None:
    kernel = make("Move", (8,))
    arrays = np.ones(8, np.float32), np.ones(8, np.float32)
    kernel(*arrays)
    counted = (arrays[0], arrays[0].dtype, np.ndarray, True, False)
    before = [sys.getrefcount(each) for each in counted]
    for _ in range(1000):
        kernel(*arrays)
        kernel(arrays[0])
    assert all(abs(sys.getrefcount(each) - count) < 100 for each, count in zip(counted, before, strict=True))


@pytest.mark.slow
def test_quick_calls_belong_to_a_thread(make: Make) -> None:
    kernel, results = make("Move", (8,)), list[float]()

    def call(value: float) -> None:
        for _ in range(3):
            results.append(float(kernel(np.full(8, value, np.float32)).sum()))

    for value in range(5):
        thread = threading.Thread(target=call, args=(value,))
        thread.start()
        thread.join()
        gc.collect()
    assert results == [8.0 * value for value in range(5) for _ in range(3)]


SLEEPS = """
#define _DEFAULT_SOURCE
#include <stdint.h>
#include <unistd.h>
{prototype} {{
    usleep(2000);
    while (!*(volatile const int32_t *)src) {{}}
    out[0] = src[0];
}}
"""


def test_long_quick_calls_release_the_lock(make: Make, target: Target) -> None:
    """One thread's call waits for a flag that only another thread can set."""
    kernel = make("Move", (1,), I32)
    program = attrs.evolve(kernel.program, source=SLEEPS.format(prototype=kernel.program.prototype))
    waiting = Kernel.of(kernel.impl, target, program)
    flag, out = np.ones(1, np.int32), np.zeros(1, np.int32)
    set_later = threading.Timer(0.5, lambda: flag.fill(5))
    for _ in range(3):
        waiting(flag, out)
    flag[0] = 0
    set_later.start()
    waiting(flag, out)
    assert out[0] == 5


def test_short_calls_do_not_wait_for_other_threads(make: Make) -> None:
    """A call that gave Python away would have it back after a switch interval only."""
    kernel, stop = make("Move", (1,), I32), threading.Event()
    source, out = np.ones(1, np.int32), np.zeros(1, np.int32)
    busy = threading.Thread(target=lambda: [None for _ in iter(stop.is_set, True)])
    for _ in range(3):
        kernel(source, out)
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.1)
    busy.start()
    try:
        start = time.perf_counter()
        for _ in range(300):
            kernel(source, out)
        assert time.perf_counter() - start < 10, "300 intervals are 30 s"
    finally:
        stop.set()
        sys.setswitchinterval(before)
        busy.join()
