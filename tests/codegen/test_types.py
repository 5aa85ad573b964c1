"""Whole programs on integers and bf16: register tiles and matrix-vector products of every kind of kernel, verified."""

from __future__ import annotations

import random
import re

import attrs
import numpy as np
import pytest

import morello
from morello.api.goals import Goal
from morello.api.kernel import Kernel
from morello.errors import VerificationError
from morello.host import missing_features
from morello.ir.dtypes import ALL
from morello.ir.ops.matmul import Matmul
from morello.plugins.registry import installed
from morello.search.budget import SearchBudget

pytestmark = pytest.mark.slow

BYTES = {"x86_avx2": 32, "x86_avx512": 64}

#: A tile of two rows whose sums stay in registers; `{size}` values a vector of sums, `{k}` along k at a time.
TILE = """
    move 2 to VRF as row_major v{size}
    subschedule [0] {{ select VectorMove }}
    subschedule [2] {{ select VectorMove }}
    split {k}
    tile [1, 1, {n}]
    select {kernel}"""

#: Types of factors and sums, layout of the right-hand side, values along k at a time, and the kernel.
TILES = [
    ("u8", "i8", "i16", "row_major", 1, "BroadcastVecMultAddWiden"),
    ("u8", "i8", "i32", "row_major", 1, "BroadcastVecMultAddWiden"),
    ("u8", "i8", "i32", "layout[0, 1, 2, 1p2]", 2, "PairBroadcastVecMultAdd"),
    ("i16", "i16", "i32", "layout[0, 1, 2, 1p2]", 2, "PairBroadcastVecMultAdd"),
    ("bf16", "bf16", "f32", "row_major", 1, "BroadcastVecMultAddWiden"),
    ("u8", "i8", "i16", "layout[0, 1, 2, 1p2]", 2, "TwoVecBroadcastVecMultAddU8S8S16"),
    ("u8", "i8", "i32", "layout[0, 1, 2, 1p4]", 4, "BroadcastVpdpbusd"),
    ("i16", "i16", "i32", "layout[0, 1, 2, 1p2]", 2, "BroadcastVpdpwssd"),
    ("bf16", "bf16", "f32", "layout[0, 1, 2, 1p2]", 2, "BroadcastVdpbf16ps"),
]

#: A row times a matrix: the steps between moving operands to L1 and the dot product of each column.
PRODUCT = """
    {move}
    move 1 to L1
    move 2 to L1
    to_accum
    subschedule [0] {{ select MemsetZero }}
    tile [1, 1, 1]
    select {kernel}"""
ODD_EVEN = """move 0 to L1 as layout[0, 1, 2, 2oe{strip}]
    subschedule [0] {{ tile [1, 1, 1]
                      move 0 to L1
                      select Assign }}"""

#: Types, values along k, and the kernel.
PRODUCTS = [
    ("bf16", "bf16", "f32", 384, "DotProductLoopBf16Bf16F32"),
    ("f32", "bf16", "f32", 192, "DotProductLoopF32Bf16F32"),
    ("f32", "bf16", "f32", 192, "DotProductLoopF32InterleavedBf16F32"),
    ("u8", "i8", "i16", 192, "DotProductLoopInt"),
    ("u8", "i8", "i32", 192, "DotProductLoopPairs"),
    ("u8", "i8", "i16", 192, "DotProductLoopU8S8S16"),
    ("i32", "i32", "i32", 96, "DotProductLoopInt"),
    ("u8", "i8", "i32", 1024, "DotProductLoopVpdpbusd"),
    ("bf16", "bf16", "f32", 1024, "DotProductLoopVdpbf16ps"),
    ("bf16", "bf16", "f32", 1021, "DotProductTailVdpbf16ps"),
    ("f32", "f32", "f32", 37, "DotProductTail"),
]


def with_all_features(target: str) -> str:
    """Return the full name of a target with all of its optional CPU features."""
    return " + ".join((target, *installed().target(target).optional_features))


def verified(target: str, text: str, schedule: str, kernel: str) -> None:
    """Schedule a Spec, then hold the program against the operation's meaning and the reference."""
    goal = morello.goal(text, target=with_all_features(target))
    declared = goal.target.kernels_by_name.get(kernel)
    if declared is None:
        pytest.skip(f"{target} has no {kernel}")
    if missing := missing_features((*goal.target.info.cpu_features, *declared.cpu_features)):
        pytest.skip(f"this CPU lacks {', '.join(missing)}")
    if isinstance(declared.op, Matmul) and declared.op.saturating:
        logical = goal.impl.spec.logical
        assert isinstance(logical.op, Matmul)
        logical = attrs.evolve(logical, op=attrs.evolve(logical.op, saturating=True))
        goal = Goal.of(goal.target.spec(logical), goal.target)
    assert morello.compile(goal.apply(schedule)).check().results


@pytest.mark.parametrize("target", BYTES)
@pytest.mark.parametrize(("lhs", "rhs", "out", "layout", "k", "kernel"), TILES)
def test_tiles_in_registers(target: str, lhs: str, rhs: str, out: str, layout: str, k: int, kernel: str) -> None:
    size = BYTES[target] // next(dtype.bytes for dtype in ALL if dtype.name == out)
    text = f"MatmulAccum(1×2×8×{2 * size}, ({lhs}, L1), ({rhs}, L1, {layout}), ({out}, L1), serial)"
    verified(target, text, TILE.format(size=size, n=2 * size, k=k, kernel=kernel), kernel)


@pytest.mark.parametrize("target", BYTES)
@pytest.mark.parametrize(("lhs", "rhs", "out", "k", "kernel"), PRODUCTS)
def test_row_times_matrix(target: str, lhs: str, rhs: str, out: str, k: int, kernel: str) -> None:
    text = f"Matmul(1×1×{k}×5, ({lhs}, GL), ({rhs}, GL, col_major), ({out}, GL), serial)"
    interleaved = ODD_EVEN.format(strip=BYTES[target] // 2)
    move = interleaved if "Interleaved" in kernel else "move 0 to L1"
    verified(target, text, PRODUCT.format(move=move, kernel=kernel), kernel)


#: Specs of f16, f64 and bool, and a kernel that their programs have.
SPECS = [
    ("Matmul(1×12×40×24, (f64, GL), (f64, GL), (f64, GL), serial)", "RegisterTileF64"),
    ("Matmul(1×16×64×32, (f16, GL), (f16, GL), (f16, GL), serial)", "VectorCast"),
    ("Matmul(1×3×20×5, (f64, GL), (f64, GL), (f32, GL), serial)", "MultAdd"),
    ("Mean(3×48, (f64, GL), (f64, GL), serial)", "VectorSum"),
    ("Softmax(3×40, (f64, GL), (f64, GL), serial)", "ValueExp|Softmax"),
    ("Softmax(3×40, (f16, GL), (f16, GL), serial)", "Vector|Softmax"),
    ("Gelu(3×41, (f16, GL), (f16, GL), serial)", "VectorGelu"),
    ("Maximum(3×41, (f64, GL), (f64, GL), (f64, GL), serial)", "VectorMaximum"),
    ("Move(3×41, (f64, GL), (f16, GL), serial)", "Cast"),
    ("Move(3×41, (f16, GL), (bool, GL), serial)", "VectorCast"),
    ("Move(3×41, (bool, GL), (f64, GL), serial)", "VectorCast"),
    ("Abs(64, (u8, L1), (u8, L1), serial)", "VectorAbs"),
    # Beyond f32.
    ("Clip[low=1e39](64, (f32, L1), (f32, L1), serial)", "VectorClip"),
    # Both have helpers that find the greater one.
    (
        "Compose([y = Greater(s, t), s = Softmax(x)], "
        "[x: (4×64, f32, GL), t: (4×64, f32, GL), y: (4×64, bool, GL)], serial)",
        "VectorComparison",
    ),
]


@pytest.mark.parametrize("target", BYTES)
@pytest.mark.parametrize(("text", "kernel"), SPECS, ids=[text for text, _ in SPECS])
def test_programs_of_other_types(target: str, text: str, kernel: str) -> None:
    goal = morello.goal(text, target=target)
    if missing := missing_features(goal.target.info.cpu_features):
        pytest.skip(f"this CPU lacks {', '.join(missing)}")
    found = goal.synthesize(budget=SearchBudget(expansions=3000))
    assert re.search(kernel, str(found))
    assert morello.compile(found).check().worst <= 1


def test_where_rounds_once() -> None:
    text = "Where(1, (bool, L1), (f64, L1), (f64, L1), (f16, L1), serial)"
    kernel = morello.compile(morello.goal(text, target="x86_avx2").select("ValueWhere"))
    # In f32, this is a tie of two values of f16.
    value = np.array([1 + 2.0**-11 + 2.0**-40])
    assert kernel(np.array([True]), value, value) == value.astype(np.float16)


@pytest.mark.parametrize("target", BYTES)
def test_vectors_convert_every_value_of_f16(target: str) -> None:
    if missing := missing_features(installed().target(target).info.cpu_features):
        pytest.skip(f"this CPU lacks {', '.join(missing)}")
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).reshape(64, 1024)
    ties = (halves.view(np.uint16).astype(np.uint32) << 13 | 0x1000).view(np.float32) * np.float32(2.0**112)
    budget = SearchBudget(expansions=3000)
    for source, values, out, dtype in (("f16", halves, "f32", np.float32), ("f32", ties, "f16", np.float16)):
        goal = morello.goal(f"Move(64×1024, ({source}, GL), ({out}, GL), serial)", target=target)
        kernel = morello.compile(goal.synthesize(budget=budget))
        assert ("_mm512_cvt" in kernel.program.source) == (target == "x86_avx512")
        with np.errstate(all="ignore"):
            assert np.array_equal(kernel(values), values.astype(dtype), equal_nan=True)


def test_a_row_too_short_for_vectors() -> None:
    text = "MatmulAccum(1×2×3×21, (i16, L1), (i16, L1), (i16, L1), serial)"
    schedule = "tile [1, 1, 1, 21]; select MaskedBroadcastMultAdd"
    verified("x86_avx512", text, schedule, "MaskedBroadcastMultAdd")


@pytest.mark.parametrize("seed", range(3))
def test_sums_of_any_types(seed: int) -> None:
    """One scalar kernel multiplies and adds every combination of types that has a meaning."""
    rng = random.Random(seed)
    op, kinds = Matmul(), (ALL[0], ALL[0], ALL[6])
    while seed and op.refusal((1, 2, 3, 2), kinds := (rng.choice(ALL), rng.choice(ALL), rng.choice(ALL))):
        pass
    operands = ", ".join(f"({dtype}, L1)" for dtype in kinds)
    text = f"MatmulAccum(1×2×3×2, {operands}, serial)"
    verified("x86_avx2", text, "tile [1, 1, 1, 1]; select MultAdd", "MultAdd")


def test_verification_tolerates_kernels_that_flush_subnormals() -> None:
    """vdpbf16ps flushes subnormals to zero: a kernel without that declaration fails."""
    target = installed().target("x86_avx512 + avx512_bf16")
    kernel = target.kernels_by_name["DotProductLoopVdpbf16ps"]
    if missing := missing_features((*target.info.cpu_features, *kernel.cpu_features)):
        pytest.skip(f"this CPU lacks {', '.join(missing)}")
    text = "MatmulAccum(1×1×32×1, (bf16, L1), (bf16, L1), (f32, L1), serial)"
    goal = morello.goal(text, target=target.full_name).select(kernel.name)
    silent = attrs.evolve(target, kernels=tuple(attrs.evolve(one, flush_to_zero=False) for one in target.kernels))
    compiled = morello.compile(goal)
    assert compiled.check().worst <= 1
    with pytest.raises(VerificationError, match="subnormals"):
        Kernel.of(goal.impl, silent, compiled.program).check()


def test_programs_say_which_features_their_kernels_need() -> None:
    """A program requires VNNI only where it uses it, and is built with the flag for it."""
    text = "MatmulAccum(1×1×64×1, (u8, L1), (i8, L1), (i32, L1), serial)"
    goal = morello.goal(text, target="x86_avx512 + avx512_vnni")
    plain = morello.compile(goal.select("DotProductLoopPairs")).program
    asking = morello.compile(goal.select("DotProductLoopVpdpbusd")).program
    assert plain.cpu_features == ()
    assert "-mavx512vnni" not in plain.flags
    assert asking.cpu_features == ("avx512_vnni",)
    assert "-mavx512vnni" in asking.flags


def test_pairs_saturate_before_they_are_added() -> None:
    """255·127·2 is more than i16 holds; two such pairs wrap around."""
    op = Matmul(saturating=True)
    lhs, rhs = np.full((1, 1, 4), 255), np.full((1, 4, 1), 127)
    kinds = [next(dtype for dtype in ALL if dtype.name == name) for name in ("u8", "i8", "i16")]
    (out,) = op.evaluate((1, 1, 4, 1), [lhs, rhs], kinds)
    assert out.tolist() == [[[2 * 32767]]]
    assert op.check((1, 1, 3, 1), kinds)
    assert not op.check((1, 1, 4, 1), kinds)
    assert str(op.accumulating()) == "MatmulAccum[saturating]"
    assert op.tile_multiple(2) == 2
