"""Constant operands: packed once, into the layout in which the program costs least."""

from __future__ import annotations

import contextlib
import gc
import subprocess
from ctypes import CDLL, c_void_p
from pathlib import Path

import attrs
import numpy as np
import pytest

import morello
from morello import api
from morello.errors import ArgumentError, EmitError, Inapplicable
from morello.frontend.diagnostics import SourceError
from morello.frontend.graphs import parse_operation
from morello.ir.impl import cost_and_peak
from morello.ir.layout import Dynamic, Layout, Packed
from morello.ir.spec import Spec
from morello.rewrites.pack import Pack, packed
from morello.search.session import SearchSession
from morello.testing.textbook import Textbook, differences

TEXT = "Matmul(4×8×32, (f32, GL), (f32, GL, constant), (f32, GL), serial)"
BLOCK = """Compose([y = Add(h, x), h = Relu(g), g = Matmul(x, w)],
    [w: (1×16×16, f32, GL, constant), x: (1×4×16, f32, GL), y: (1×4×16, f32, GL)], serial)"""


class Slots:
    """An array without weak references."""

    __slots__ = ("__array_interface__",)

    def __init__(self, interface: object) -> None:
        self.__array_interface__ = interface


def goal(text: str = TEXT, target: str = "x86_avx2") -> morello.Goal:
    return morello.goal(text, target=target, profile="base")


@pytest.fixture(scope="module")
def kernel() -> morello.Kernel:
    return morello.compile(goal(), db=False, progress=False)


def arrays(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.random((4, 8), np.float32), rng.random((8, 32), np.float32)


def test_the_text_of_a_spec_keeps_its_constants() -> None:
    for text in (TEXT, BLOCK):
        spec = goal(text).spec
        assert goal(str(spec)).spec == spec
        assert parse_operation(str(spec.op), len(spec.shape), goal().target.operations) == spec.op


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_no_fixed_layout_has_a_cheaper_program(dtype: str) -> None:
    free = goal(f"Matmul(2×4×16, ({dtype}, GL), ({dtype}, GL, constant), (f32, GL), serial)")
    found = free.synthesize(db=False, progress=False)
    assert found.proof == "optimal"
    search = SearchSession(free.target)
    specs: list[Spec] = []
    for step in Pack.steps(free.spec.logical, free.target):
        with contextlib.suppress(Inapplicable):
            specs.append(packed(free.apply(str(step)).impl).spec)
    assert len(specs) >= 3
    costs = [cost_and_peak(search.synthesize(one)).cost for one in specs]
    assert cost_and_peak(found.impl).cost == min(costs)
    assert packed(found.impl).spec.limits == found.spec.limits


@pytest.mark.slow
def test_search_equals_the_recursion() -> None:
    text = "Matmul(1×2×8, (f32, GL, constant), (f32, GL, constant), (f32, GL), serial)"
    small = goal(text)
    spec = Spec(small.spec.logical, small.target.limits([0, 64 * 32, 0, 0, 0, 1 << 20]))
    textbook = Textbook(small.target)
    textbook.solve(spec)
    assert not [*differences({spec: textbook.seen[spec]}, SearchSession(small.target).programs)]


def test_the_schedule_replays_and_the_program_is_the_same_each_time(kernel: morello.Kernel) -> None:
    assert kernel.schedule.startswith("pack 1 as ")
    again = morello.compile(goal().apply(kernel.schedule), db=False)
    assert (again.goal.impl, again.source) == (kernel.goal.impl, kernel.source)
    assert goal(str(kernel.goal.spec)).spec == kernel.goal.spec


def test_arrays_are_packed_once_and_released(kernel: morello.Kernel) -> None:
    x, w = arrays()
    assert np.allclose(kernel(x, w), x @ w, atol=1e-5)
    expected, out = x @ w, np.empty((4, 32), np.float32)
    w *= 2
    assert kernel(x, w, out=out) is out
    assert np.allclose(out, expected, atol=1e-5), "changes after the first call are not seen"
    kernel.forget(w)
    assert np.allclose(kernel(x, w), x @ w, atol=1e-5)
    held = kernel.pack(w)
    assert np.allclose(kernel(x, held), x @ w, atol=1e-5)
    count = len(gc.get_referrers(kernel.packing[1]))
    for seed in range(3):
        _, other = arrays(seed)
        assert np.allclose(kernel(lhs=x, rhs=other), x @ other, atol=1e-5)
        del other
    assert len(gc.get_referrers(kernel.packing[1])) == count
    assert not [one for constant in kernel._constants.values() for one in constant._known.values() if one[0]() is None]


def test_arrays_that_do_not_fit_are_errors(kernel: morello.Kernel) -> None:
    x, w = arrays()
    words = r"the constant rhs: expected shape \(8, 32\), got shape \(32, 8\)"
    with pytest.raises(ArgumentError, match=words) as caught:
        kernel(x, w.T.copy())
    assert "kernel." not in str(caught.value.hint)
    with pytest.raises(ArgumentError, match="no weak references to Slots"):
        kernel(x, Slots(w.__array_interface__))
    with pytest.raises(ArgumentError, match="expected a constant packed as"):
        kernel(x, attrs.evolve(kernel.pack(w), tensor=kernel.spec.operands[0]))
    with pytest.raises(ArgumentError, match="no constant lhs"):
        kernel.pack(x, "lhs")


@pytest.mark.parametrize(
    ("operands", "message"),
    [
        ("GL, GL, (f32, GL, constant)", "out is written, so that it is not constant"),
        ("GL, (f32, L1, constant), GL", "a constant in L1"),
        ("GL, (f32, GL, c1, constant), GL", "a contiguity of a constant"),
        ("GL, (f32, GL, constant, ua), GL", "ua of a constant"),
        ("GL, (f32, GL, constant, constant), GL", "a second constant for this operand"),
    ],
)
def test_operands_that_cannot_be_constant_are_errors(operands: str, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        goal(f"Matmul(4×8×32, {operands}, serial)")


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("pack 0 as row_major", "operand 0 is not constant"),
        ("tile [1, 1, 8]\npack 1 as row_major", "comes after constants are packed"),
        ("move 1 to L1", "comes after constants are packed"),
    ],
)
def test_constants_are_packed_before_other_steps(step: str, message: str) -> None:
    with pytest.raises(Inapplicable, match=message):
        goal().apply(step)


@pytest.mark.slow
def test_the_functions_of_the_c_file_pack_and_use(tmp_path: Path) -> None:
    both = ", ".join(["(f32, GL, constant)"] * 2)
    text = f"target x86_avx2\nspec block = {BLOCK}\nspec two = Matmul(4×16×32, {both}, GL, serial)"
    for name, found in morello.parse(text, profile="base").items():
        program = morello.compile(found, db=False, progress=False).program
        (tmp_path / f"{name}.c").write_text(program.including(f"{name}.h"))
        (tmp_path / f"{name}.h").write_text(program.header)
        flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", *program.flags]
        subprocess.run(["cc", "-std=gnu11", *flags, f"{name}.c", "-o", f"{name}.so", "-lm"], cwd=tmp_path, check=True)
    rng, f32 = np.random.default_rng(0), np.float32
    w, x, y, packed_w = rng.random((16, 16), f32), rng.random((4, 16), f32), np.empty((4, 16), f32), np.empty(256, f32)
    block = CDLL(str(tmp_path / "block.so"))
    block.block_pack(*pointers(w, packed_w))
    block.block(*pointers(packed_w, x, y))
    assert np.allclose(y, np.maximum(x @ w, 0) + x, atol=1e-5)
    a, b, c, packed_a, packed_b = x, rng.random((16, 32), f32), *(np.empty(n, f32) for n in (128, 64, 512))
    two = CDLL(str(tmp_path / "two.so"))
    two.two_pack_lhs(*pointers(a, packed_a))
    two.two_pack_rhs(*pointers(b, packed_b))
    two.two(*pointers(packed_a, packed_b, c))
    assert np.allclose(c.reshape(4, 32), a @ b, atol=1e-5)
    assert "#define TWO_PACK_RHS_BYTES 2048" in (tmp_path / "two.h").read_text()


def pointers(*arrays: np.ndarray) -> list[c_void_p]:
    return [c_void_p(one.ctypes.data) for one in arrays]


@pytest.mark.slow
def test_a_library_packs_and_uses_by_the_same_choice_of_a_target(tmp_path: Path) -> None:
    targets = ("x86_avx2", "x86_avx512")
    goals = api.named_by_target([attrs.evolve(goal(target=one), name="dense") for one in targets])
    kernels = [morello.compile(one, db=False, progress=False) for one in goals]
    (tmp_path / "ops.so").write_bytes(api.build_library("so", "ops", kernels))
    x, w = arrays()
    ops, packed_w, out = CDLL(str(tmp_path / "ops.so")), np.empty(256, np.float32), np.empty((4, 32), np.float32)
    ops.dense_pack(*pointers(w, packed_w))
    ops.dense(*pointers(x, packed_w, out))
    assert np.allclose(out, x @ w, atol=1e-5)
    header = api.make_library("ops", kernels).header
    assert "/* rhs: 8×32 f32, as dense_pack packs it */" in header
    assert "/* packed: 8×32 f32, as dense_pack packs it */" in header
    clash = attrs.evolve(goal(TEXT.replace(", constant", "")), name="dense_x86_avx2_pack")
    with pytest.raises(EmitError, match="defines 'dense_x86_avx2_pack' twice"):
        api.make_library("ops", [kernels[0], morello.compile(clash, db=False, progress=False)])


def test_names_of_constants_hide_no_types_and_kernels_of_programs_pack() -> None:
    made = morello.compile(f"{TEXT}(a, f32x8, c)", target="x86_avx2", db=False, progress=False)
    x, w = arrays()
    for one in (made, morello.Kernel.of(made.impl, made.target)):
        assert np.allclose(one(x, w), x @ w, atol=1e-5)


def test_filters_have_strips_of_their_own() -> None:
    conv = goal("Conv(1×32×4×6×6×3×3, (f32, GL), (f32, GL, constant), (f32, GL), serial)")
    strips = (*map(Dynamic, (0, 2, 3, 1)), Packed(0, 16))
    assert Layout(strips) in [step.layout for step in Pack.steps(conv.spec.logical, conv.target)]
    assert Layout(strips) not in conv.target.layouts(conv.spec.logical.states[1].dtype, 4)
