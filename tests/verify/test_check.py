"""Verification: right kernels pass, and every known way of breaking one is found."""

from __future__ import annotations

import random
from collections.abc import Callable

import attrs
import numpy as np
import pytest

from morello.api.kernel import Kernel
from morello.build.toolchain import Compiler, find_compiler
from morello.errors import VerificationError
from morello.frontend import parse_spec
from morello.ir.dtypes import ALL, BF16, F32, I8, I16, I32, U8, U32, DType
from morello.ir.impl import Impl
from morello.ir.layout import Dynamic, Layout, OddEven, Packed, col_major, row_major
from morello.ir.ops import Compose, by_name
from morello.ir.ops.common import as_type
from morello.ir.ops.matmul import Matmul
from morello.ir.ops.named_graphs import named_graph
from morello.ir.ops.softmax import Softmax
from morello.ir.ops.unary import Scale
from morello.ir.program import Program
from morello.ir.signature import Signature
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import OperandState
from morello.plugins import Target
from morello.run.arrays import convert
from morello.testing.graphs import random_compose
from morello.verify.datasets import DataSet, DataSetting, data_sets
from morello.verify.reference import Reference
from morello.verify.tolerance import as_float64, expectations

Make = Callable[..., Kernel]

STRIPS = Layout((Dynamic(0), Dynamic(1), Dynamic(2), Packed(1, 2), OddEven(2, 4)))
MATMUL = (2, 5, 6, 8)
SLOW = pytest.mark.slow

RIGHT = [
    ("Matmul", MATMUL, F32),
    ("Matmul", (1, 1, 1, 1), F32),
    ("Matmul", (1, 3, 700, 2), BF16),
    ("Matmul", MATMUL, [F32, (F32, STRIPS), (F32, col_major(3))]),
    ("MatmulAccum", MATMUL, [(BF16, row_major(3), 0), (F32, col_major(3), 1), (BF16, row_major(3), 2)]),
    ("MatmulAccum", MATMUL, [U8, I8, I32]),
    ("MatmulAccum", MATMUL, [I32, U32, I8]),
    ("Matmul", MATMUL, [I32, U8, F32]),
    ("Matmul", MATMUL, [I32, F32, BF16]),
    ("Move", (3, 4, 5), F32),
    ("Move", (4, 8), [(BF16, Layout((Dynamic(0), Dynamic(1), OddEven(1, 8)))), F32]),
    ("Move", (3, 2, 3, 2), [(I16, row_major(4), 2), U8]),
    ("Move", (7,), [U32, BF16]),
    ("FillZero", (4, 5), (F32, row_major(2), 1)),
    ("FillZero", (3,), I8),
]


@pytest.mark.parametrize(
    ("op", "shape", "kinds"), [pytest.param(*row, marks=SLOW if number % 3 else ()) for number, row in enumerate(RIGHT)]
)
def test_right_kernels_pass(make: Make, target: Target, compiler: Compiler, op: str, shape, kinds) -> None:
    report = make(op, shape, kinds, compiler=compiler).check(thorough=True, reference=target)
    assert report.worst <= 1
    assert all(result.reference == 0 for result in report.results)
    assert report.compiler == str(compiler)


def test_the_report_lists_the_data_sets(make: Make, target: Target) -> None:
    report = make("Matmul", MATMUL).check(seed=3, reference=target)
    names = [result.name for result in report.results]
    for name in ("normal", "uniform", "small integers", "zeros", "ones", "alternating signs", "cancellation"):
        assert name in names
    for name in ("extremes", "infinities", "NaN", "subnormals", "negative zeros"):
        assert name in names
    assert all(name in str(report) for name in names)
    assert "seed 3" in str(report)
    assert 0 < report.worst < 1
    integers = make("Matmul", MATMUL, I8).check(reference=target)
    assert "NaN" not in [result.name for result in integers.results]


def test_a_slow_reference_is_skipped_and_reported(make: Make, target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("morello.verify.check._REFERENCE_BUDGET", 1000)
    report = make("Matmul", MATMUL).check(reference=target)
    assert [result.reference for result in report.results[:3]] == [0, 0, None]
    assert "skipped" in str(report)


OUT = "out[out_at(b, m, n)] = sum;"
STRIDED = "out[out_at(b, m, n, out_stride0)] = sum;"
ROWS = [F32, F32, (F32, row_major(3), 2)]

WRONG = [
    ("one term too few", "Matmul", F32, {"k < 6": "k < 5"}, "out"),
    ("one term too few, bf16", "Matmul", BF16, {"k < 6": "k < 5"}, "out"),
    ("one term too few, integers", "Matmul", [U8, I8, I32], {"k < 6": "k < 5"}, "out"),
    ("a value not written", "Matmul", F32, {"n < 8": "n < 7"}, r"out\) at \(0, 0, 7\)"),
    ("a value not written, integers", "Matmul", I8, {"n < 8": "n < 7"}, r"at \(0, 0, 7\)"),
    ("a value not zeroed", "FillZero", F32, {"i3 < 8": "i3 < 7"}, r"at \(0, 0, 0, 7\)"),
    ("a negative zero", "FillZero", F32, {"= 0;": "= -0.0f;"}, "expected 0.0.*got -0.0"),
    ("adds to the output", "Matmul", F32, {"sum = 0": "sum = out[0]"}, "out"),
    ("overwrites the output", "MatmulAccum", F32, {"sum = out[out_at(b, m, n)]": "sum = 0"}, "out"),
    ("indices swapped", "Matmul", F32, {"lhs_at(b, m, k)]": "lhs_at(b, k % 5, m)]"}, "out"),
    ("input written", "Matmul", F32, {OUT: OUT + " ((float *)rhs)[3] = 1;"}, "rhs.*is an input"),
    ("write before", "Matmul", F32, {OUT: OUT + " out[-1] = sum;"}, "out.* outside of it .* 4 bytes before"),
    ("write after", "Matmul", F32, {OUT: OUT + " out[80] = sum;"}, "outside of it were .* 0 bytes after"),
    ("write into gaps", "Matmul", ROWS, {STRIDED: STRIDED + " out[41] = sum;"}, "out.* gaps"),
    ("strides ignored", "Matmul", ROWS, {"i0 * s0": "i0 * (s0 > 0 ? 40 : 0)"}, "out"),
    ("truncation", "Move", [F32, BF16], {"+ 0x7fff + ((bits >> 16) & 1)": "+ 0"}, "out"),
    ("rounding away", "Move", [F32, BF16], {"+ 0x7fff + ((bits >> 16) & 1)": "+ 0xffff"}, "out"),
    ("NaN lost", "Move", [F32, BF16], {"> 0x7f800000": "> 0x7fffffff"}, "expected nan"),
    ("NaN lost by a maximum", "Max", F32, {" || value != value": ""}, "expected nan"),
    ("NaN zeroed", "Matmul", F32, {OUT: "out[out_at(b, m, n)] = sum == sum ? sum : 0;"}, "expected nan"),
    ("infinity clipped", "Matmul", F32, {OUT: OUT.replace("sum", "(sum > 1e38f ? 1e38f : sum)")}, "out"),
    (
        "sign of zero lost",
        "Move",
        F32,
        {"= src[": "= 0.0f + src["},
        "-0.0",
    ),
    ("subnormals flushed", "Matmul", F32, {OUT: OUT.replace("sum", "(sum * sum < 1e-37f ? 0 : sum)")}, "out"),
    ("half precision", "Matmul", F32, {OUT: OUT.replace("sum", "(float)(int)(sum * 4096) / 4096")}, "out"),
]


@pytest.mark.parametrize(
    ("op", "kinds", "replace", "message"),
    [pytest.param(*row[1:], id=row[0], marks=SLOW if number % 3 else ()) for number, row in enumerate(WRONG)],
)
def test_wrong_kernels_do_not(make: Make, target: Target, op: str, kinds, replace, message: str) -> None:
    kernel = make(op, MATMUL, kinds, replace=replace)
    with pytest.raises(VerificationError, match=message) as caught:
        kernel.check(reference=target)
    assert "sample on data set" in str(caught.value)


def test_saturation_is_no_wrapping(make: Make, target: Target) -> None:
    kernel = make("Matmul", MATMUL, [I8, I8, I8], replace={"(int8_t)sum": "((int32_t)sum > 127 ? 127 : (int8_t)sum)"})
    with pytest.raises(VerificationError, match=r"expected .* got 127, allowed error 0 \("):
        kernel.check(reference=target)


def test_a_reference_that_is_wrong_is_named(make: Make, target: Target) -> None:
    class Wrong:
        def emit(self, impl: Impl, for_target: Target, name: str, signature: Signature | None = None) -> Program:
            program = target.emitter.emit(impl, for_target, name, signature)
            return attrs.evolve(program, source=program.source.replace("k < 6", "k < 4"))

    with pytest.raises(VerificationError, match=r"^reference_c on data set"):
        make("Matmul", MATMUL).check(reference=attrs.evolve(target, emitter=Wrong()))


def test_a_reference_without_the_operation_is_reported(make: Make, target: Target) -> None:
    with pytest.raises(VerificationError, match="reference_c cannot compute Matmul"):
        make("Matmul", MATMUL).check(reference=attrs.evolve(target, kernels=()))


def test_a_missing_reference_is_reported(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    from morello.plugins.registry import Registry

    monkeypatch.setattr("morello.verify.reference.installed", lambda: Registry.of())
    with pytest.raises(VerificationError, match="not installed") as caught:
        make("Matmul", MATMUL).check()
    assert "pip install" in str(caught.value)


@pytest.mark.parametrize("head", ["Matmul", "MatmulAccum"])
@pytest.mark.parametrize("dtypes", [[F32] * 4, [BF16] * 4, [I8] * 4, [BF16, F32, BF16, F32]])
def test_chains_run_on_the_reference(target: Target, head: str, dtypes) -> None:
    op = Compose.chain([by_name(head), by_name("Matmul")])
    shape = (1, 8, 16, 12, 30)
    states = tuple(OperandState(dtype, "GL", row_major(3), 3) for dtype in dtypes)
    logical = LogicalSpec(op, shape, states).canonical()
    reference = Reference(logical, find_compiler(), target)
    setting = DataSetting.of(op, shape, dtypes)
    for data in data_sets(setting, thorough=True):
        values = data.arrays(0, setting)
        reads = [value for value, one in zip(values, op.operands(len(shape)), strict=True) if one.reads]
        (expected,), (got,) = expectations(logical, reads, data.integral), reference(reads)
        assert expected.errors(got).max() <= 1, data.name
        if data.name == "normal":
            got[0, 3, 5] = -100 - got[0, 3, 5]
            if dtypes != [BF16] * 4:  # in bf16 the bound of so long a chain spans more than that
                assert expected.errors(got).max() > 1


GRAPHS = [
    (named_graph("LayerNorm", 3), (2, 3, 16), (F32,) * 4),
    *(random_compose(random.Random(seed), stages=3) for seed in (0, 2, 4, 6)),
]
MORE_GRAPHS = [
    (Compose.chain([Matmul(), Softmax(), Scale(by=0.5), Matmul()]), (1, 5, 9, 4, 8), (F32,) * 4),
    *(random_compose(random.Random(seed), stages=3) for seed in (1, 3, 5, 7)),
]


@pytest.mark.parametrize(
    ("op", "shape", "dtypes"), [*GRAPHS, *(pytest.param(*one, marks=SLOW) for one in MORE_GRAPHS)], ids=str
)
def test_graphs_run_on_the_reference(op: Compose, shape: tuple[int, ...], dtypes: tuple[DType, ...]) -> None:
    operands = zip(dtypes, op.operands(len(shape)), strict=True)
    states = tuple(OperandState(dtype, "GL", row_major(len(one.dims)), len(one.dims)) for dtype, one in operands)
    logical = LogicalSpec(op, shape, states).canonical()
    reference = Reference(logical, find_compiler())
    setting = DataSetting.of(op, shape, dtypes)
    for data in data_sets(setting, thorough=False):
        reads = data.arrays(0, setting)[: op.inputs]
        for expected, got in zip(expectations(logical, reads, data.integral), reference(reads), strict=True):
            assert expected.errors(got).max() <= 1, data.name
            if data.name == "normal":
                wrong = 2 * got + 100 if expected.dtype.is_float else got ^ (1 if expected.dtype.is_bool else 64)
                assert expected.errors(wrong.astype(got.dtype)).max() > 1


def check_stages_within_bounds(logical: LogicalSpec, data: DataSet, setting: DataSetting) -> None:
    """Check results whose every stage is rounded to its type, and no further, against their expectations."""
    op, shape, dtypes = logical.op, tuple(map(int, logical.shape)), [state.dtype for state in logical.states]
    assert isinstance(op, Compose)

    def stage(number: int, given: list[np.ndarray]) -> np.ndarray:
        *_, dtype = own = op.stage_dtypes(number, dtypes)
        values = [
            as_float64(one) if dtype.is_float or one.dtype.kind not in "iub" else one.astype(int) for one in given
        ]
        (made,) = op.stages[number].op.evaluate(op.stage_shape(number, shape), values, own)
        return convert(as_type(made, dtype), dtype)

    reads = data.arrays(0, setting)[: op.inputs]
    with np.errstate(all="ignore"):
        results = op.run(reads, stage)
    for number, expected in zip((*op.outputs, 0), expectations(logical, reads, data.integral), strict=True):
        assert expected.errors(results[number]).max() <= 1, data.name


@pytest.mark.parametrize(
    ("equations", "operands"),
    [
        ("o = Exp(x), i = ArgMax(x)", "x: (3×8, f32, GL), i: (3×1, i32, GL), o: (3×8, f32, GL)"),
        ("o = Exp(f), f = Move(s), s = Add(a, b)", "a: (9, i8, GL), b: (9, i8, GL), s: (9, i8, GL), o: (9, f32, GL)"),
        (
            "o = Move(q), q = Requantize[over=[0]](p, s, z), p = Mul(a, b)",
            "a: (9, i32, GL), b: (9, i32, GL), s: (1, f32, GL), z: (1, i8, GL), q: (9, i8, GL), o: (9, f32, GL)",
        ),
        (
            "o = Add(q, r), q = Quantize(x, s, z), x = Exp(y)",
            "y: (9, f32, GL), s: (9, f32, GL), z: (9, i8, GL), r: (9, i8, GL), o: (9, i8, GL)",
        ),
        ("Sqrt, Sum", "(9×16, f32, GL), (9×1, f32, GL)"),
        ("ArgMax, Exp", "(9×16, f32, GL), (9×1, i32, GL)"),
        ("Pad[value=0.5], Sum, ArgMin", "(3×4, f64, GL), (5×3, f64, GL)"),
    ],
)
def test_results_rounded_to_types_of_intermediates_are_within_bounds(
    target: Target, equations: str, operands: str
) -> None:
    logical = parse_spec(f"Compose([{equations}], [{operands}])", target).logical
    setting = DataSetting.of(logical.op, tuple(map(int, logical.shape)), [state.dtype for state in logical.states])
    for data in data_sets(setting, thorough=True):
        check_stages_within_bounds(logical, data, setting)


def test_random_results_rounded_to_types_of_intermediates_are_within_bounds() -> None:
    numbers = [dtype for dtype in ALL if not dtype.is_bool]
    for seed in range(25):
        op, shape, dtypes = random_compose(random.Random(seed), stages=3, numbers=numbers)
        operands = zip(dtypes, op.operands(len(shape)), strict=True)
        states = tuple(OperandState(dtype, "GL", row_major(len(one.dims)), len(one.dims)) for dtype, one in operands)
        setting = DataSetting.of(op, shape, dtypes)
        for data in data_sets(setting, thorough=False):
            check_stages_within_bounds(LogicalSpec(op, shape, states).canonical(), data, setting)


@pytest.mark.parametrize(
    ("masked", "names"), [("CausalMask(x, i, j)", "xij"), ("Where(c, x, n)", "cxn"), ("Add(x, n)", "xn")]
)
def test_garbage_does_not_pass_behind_a_mask(target: Target, masked: str, names: str) -> None:
    kept, i = np.tri(4, dtype=bool)[np.newaxis], np.arange(4.0).reshape(1, 4, 1)
    masks = {"c": kept, "n": np.where(kept, 0.0, -np.inf), "i": i, "j": i.reshape(1, 1, 4)}
    given = {"x": np.arange(16.0).reshape(1, 4, 4), **masks}
    types = {"c": "bool", "i": "i32", "j": "i32"}
    operands = [f"{one}: ({'×'.join(map(str, given[one].shape))}, {types.get(one, 'f32')}, GL)" for one in names]
    text = f"Compose([o = Softmax(m), m = {masked}], [{', '.join(operands)}, o: (1×4×4, f32, GL)])"
    (expected,) = expectations(parse_spec(text, target).logical, [given[one] for one in names], integral=False)
    assert expected.errors(expected.values).max() == 0
    assert expected.bound.max() < 1e-4
    for garbage in (7.0, np.nan):
        assert expected.errors(np.full((1, 4, 4), garbage, np.float32)).min() > 1


def test_bounds_of_a_clip_are_rounded_to_its_type(target: Target) -> None:
    logical = parse_spec("Clip[low=-0.1, high=0.1](4, (bf16, GL), (bf16, GL))", target).logical
    (expected,) = expectations(logical, [np.ones(4)], integral=False)
    assert expected.errors(convert(expected.values, BF16)).max() <= 1


def test_the_same_seed_gives_the_same_data() -> None:
    setting = DataSetting.of(by_name("Matmul"), MATMUL, [F32, BF16, F32])
    for data in data_sets(setting, thorough=True):
        once, again, other = (data.arrays(seed, setting) for seed in (1, 1, 2))
        assert all(a.tobytes() == b.tobytes() for a, b in zip(once, again, strict=True))
        if data.name == "normal":
            assert once[0].tobytes() != other[0].tobytes()


def test_data_has_the_special_values_of_its_type() -> None:
    for dtype in ALL:
        setting = DataSetting.of(by_name("Move"), (40,), [dtype, dtype])
        found = {data.name: as_float64(data.arrays(0, setting)[0]) for data in data_sets(setting, False)}
        assert dtype.limits[1] in found["extremes"]
        assert ("NaN" in found) == dtype.is_float
        if dtype.is_float:
            assert np.isnan(found["NaN"]).any()
            assert np.isinf(found["infinities"]).any()
            smallest = np.abs(found["subnormals"][found["subnormals"] != 0]).min()
            assert smallest < dtype.smallest_normal
            assert np.signbit(found["negative zeros"]).any()
