"""Kernels of the third-party plugins compute their declared results, and search picks them where they are cheapest."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

from morello import api
from morello.api.goals import Goal
from morello.api.kernel import Kernel
from morello.errors import Inapplicable, PluginError
from morello.host import missing_features
from morello.ir.impl import Impl, KernelCall, Node, cost_and_peak, walk
from morello.ir.ops.matmul import Matmul
from morello.ir.ops.unary import Relu
from morello.plugins import hookimpl
from morello.plugins.registry import Registry
from morello.run.arrays import empty
from morello.testing import kernel_checks
from morello.testing.generate import RandomPrograms
from morello.testing.sanitize import run_sanitized

TOY_KERNELS = {
    "MultAdd": "MatmulAccum(1×1×1×1, ({dtype}, R), ({dtype}, C), ({dtype}, C, ua), serial)",
    "AddScaledRow": "MatmulAccum(1×1×1×12, ({dtype}, C), ({dtype}, C), ({dtype}, C), serial)",
}

#: A product by x86_avx2 whose sums stay in four vector registers; the extension's kernel does each step along k.
GEMM = """
target x86_avx2

spec gemm = Matmul(1×8×5×16, (f32, GL), (f32, GL), (f32, GL), serial)

schedule gemm {
    to_accum
    subschedule [0] { select MemsetZero }
    tile [1, 4, 8]
    move 0 to L1
    move 1 to L1
    move 2 to L1
    move 2 to VRF as row_major v8
    subschedule [0] {
        tile [1, 1, 8]
        select VectorMove
    }
    subschedule [2] {
        tile [1, 1, 8]
        select VectorMove
    }
    split 1
    select OuterProduct4x8
}
"""
needs_avx2 = pytest.mark.skipif(bool(missing_features(("avx2", "fma"))), reason="needs a CPU with AVX2 and FMA")


def kernels(impl: Impl) -> Iterator[str]:
    """The microkernels that a program calls."""
    for node in walk(impl):
        if isinstance(node, Node) and isinstance(node.expansion, KernelCall):
            yield node.expansion.kernel


def toy(text: str, registry: Registry) -> Goal:
    return api.goal(text, target="toy_cpu", registry=registry)


@pytest.mark.parametrize("dtype", ["f32", "i32"])
def test_search_on_toy_cpu(dtype: str, registry: Registry) -> None:
    done = toy(f"Matmul(1×2×2×4, ({dtype}, MEM), ({dtype}, MEM), ({dtype}, MEM), serial)", registry).synthesize()
    assert {*kernels(done.impl)} == {"ZeroBytes", "AddScaledRow"}
    api.compile(done).check()


def test_rows_that_do_not_stay_aligned_are_computed_value_by_value(registry: Registry) -> None:
    done = toy("MatmulAccum(1×2×1×6, (i32, C), (i32, C), (i32, C), serial)", registry).synthesize()
    assert "AddScaledRow" not in {*kernels(done.impl)}
    api.compile(done).check()


def test_patterns_may_require_alignment(registry: Registry) -> None:
    aligned = toy("MatmulAccum(1×1×1×4, (f32, C), (f32, C), (f32, C), serial)", registry)
    assert cost_and_peak(aligned.select("AddScaledRow").impl).cost == 3 + 3 + 3 + 4
    unaligned = toy("MatmulAccum(1×1×1×4, (f32, C), (f32, C, ua), (f32, C), serial)", registry)
    with pytest.raises(Inapplicable, match="AddScaledRow does not implement this MatmulAccum"):
        unaligned.select("AddScaledRow")


def test_a_view_of_unaligned_memory_is_not_aligned(toy_plugin: Any) -> None:
    loose = [attrs.evolve(level, alignment=1) if level.name == "MEM" else level for level in toy_plugin.levels]
    registry = Registry.of(toy_cpu=attrs.evolve(toy_plugin, levels=tuple(loose)))
    goal = toy("MatmulAccum(1×1×1×4, (f32, MEM), (f32, MEM), (f32, MEM), serial)", registry)
    viewed = goal.move_param(0, "C").move_param(1, "C").move_param(2, "C")
    with pytest.raises(Inapplicable, match="AddScaledRow does not implement this MatmulAccum"):
        viewed.select("AddScaledRow")


@pytest.mark.parametrize("kernel", ["MultAdd", "AddScaledRow"])
def test_integers_wrap_around_without_undefined_behaviour(kernel: str, registry: Registry) -> None:
    made = api.compile(toy(TOY_KERNELS[kernel].format(dtype="i32"), registry).select(kernel))
    lhs, rhs, out = (empty(tensor) for tensor in made.spec.operands)
    lhs[...], rhs[...], out[...] = 2**31 - 1, -(2**31) + 3, -(2**31)
    (got,) = run_sanitized(made.program, made.spec, [lhs, rhs, out], made.compiler)
    expected = (2**31 - 1) * (-(2**31) + 3) - 2**31
    assert np.all(got == np.array(expected % 2**32, np.uint32).astype(np.int32))


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 6))])
def test_programs_of_toy_cpu_are_correct(seed: int, registry: Registry) -> None:
    dtype = "f32" if seed % 2 else "i32"
    goal = toy(f"Matmul(2×3×5×6, ({dtype}, MEM), ({dtype}, MEM), ({dtype}, MEM), serial)", registry)
    impl = RandomPrograms(goal.target, random.Random(seed)).draw(goal.spec)
    assert impl is not None
    program = goal.target.emitter.emit(impl, goal.target, "drawn")
    Kernel.of(impl, goal.target, program).check()


def test_the_toy_emitter_prints_plain_c(registry: Registry) -> None:
    goal = toy(TOY_KERNELS["AddScaledRow"].format(dtype="i32"), registry).select("AddScaledRow")
    program = api.compile(goal).program
    assert program.flags == ("-ffp-contract=off",)
    assert "(uint32_t)" in program.source
    assert "immintrin" not in program.source


def test_an_extension_adds_a_kernel(registry: Registry) -> None:
    target = registry.target("x86_avx2")
    assert registry.owner("x86_avx2") == "x86_avx2"
    assert target.origins["microkernel OuterProduct4x8"] == "avx2_extra"
    assert target.kernels[-1].name == "OuterProduct4x8"


@pytest.mark.slow
@needs_avx2
@pytest.mark.parametrize("name", ["FusedMultiplyAdd8", "OuterProduct4x8"])
def test_added_kernels_compute_their_declared_results(name: str, registry: Registry) -> None:
    target = registry.target("x86_avx2")
    only = attrs.evolve(target, kernels=(target.kernels_by_name[name],))
    for check in kernel_checks(only, sanitize=True):
        check()


def test_a_kernel_of_one_line_is_declared_in_eight(third_party: Path) -> None:
    source = (third_party / "avx2_extra" / "src" / "avx2_extra" / "plugin.py").read_text()
    declaration = source.partition("FUSED_MULTIPLY_ADD = ")[2].partition("\n)\n")[0]
    assert len(declaration.splitlines()) + 1 <= 8


@needs_avx2
def test_search_prefers_the_cheaper_kernel(registry: Registry, unextended: Registry) -> None:
    text = "MatmulAccum(1×4×1×8, (f32, L1), (f32, L1), (f32, L1), serial)"
    done, before = (api.goal(text, target="x86_avx2", registry=each).synthesize() for each in (registry, unextended))
    assert "OuterProduct4x8" in {*kernels(done.impl)}
    assert "OuterProduct4x8" not in {*kernels(before.impl)}
    assert cost_and_peak(done.impl).cost < cost_and_peak(before.impl).cost
    api.compile(done).check()


@needs_avx2
def test_a_schedule_with_the_added_kernel(registry: Registry) -> None:
    goal = api.parse(GEMM, registry=registry)["gemm"]
    assert "OuterProduct4x8" in {*kernels(goal.impl)}
    api.compile(goal).check()


@needs_avx2
def test_an_operation_of_a_plugin(registry: Registry) -> None:
    """reference_c lacks the operation, which is reported."""
    assert registry.target("x86_avx2").kernels_by_name["ClippedSwishOne"].op_name == "ClippedSwish"
    goal = api.goal(
        "ClippedSwish(1×8, (f32, L1), (f32, L1), serial)", target="x86_avx2", registry=registry
    ).synthesize()
    report = api.compile(goal).check()
    assert report.unknown == "ClippedSwish of plugin avx2_extra"
    assert "lacks ClippedSwish of plugin avx2_extra" in str(report)
    assert all(result.reference is None for result in report.results)


@attrs.frozen
class RMSNorm(Relu):
    """An object other than an operation, with the name of one."""


def test_names_of_operations_are_unique(extra_plugin: Any) -> None:
    class Another:
        @hookimpl
        def morello_operations(self) -> list[Any]:
            return [*extra_plugin.morello_operations()]

    assert Registry.of(avx2_extra=extra_plugin).names == []
    with pytest.raises(PluginError, match=r"plugin 'other', operation ClippedSwish: .* in use .* avx2_extra"):
        _ = Registry.of(other=Another(), avx2_extra=extra_plugin).names


@pytest.mark.parametrize(
    ("op", "rule"),
    [
        ("Relu", "instances of"),
        (Matmul(), "the name is in use by an operation of Morello"),
        (RMSNorm(), "the name is in use by an operation of Morello"),
    ],
    ids=str,
)
def test_operations_that_are_refused(op: Any, rule: str) -> None:
    class Faulty:
        @hookimpl
        def morello_operations(self) -> list[Any]:
            return [op]

    with pytest.raises(PluginError, match=f"plugin 'faulty', operation .*{rule}"):
        _ = Registry.of(faulty=Faulty()).names
