"""Laws of every operation: shapes, tiles and parts agree with its reference semantics."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from morello.errors import SpecError
from morello.ir.dtypes import ALL, BF16, BOOL, F16, F32, I8, I32, U8
from morello.ir.layout import row_major
from morello.ir.ops import BY_NAME, Operation, by_name
from morello.ir.ops.base import ErrorAnalysis
from morello.ir.ops.binary import Add, Maximum, Mul, Sub
from morello.ir.ops.broadcast import Broadcast
from morello.ir.ops.causal import CausalMask
from morello.ir.ops.compare import Comparison, Where
from morello.ir.ops.constants import Constants
from morello.ir.ops.conv import Conv, Conv1d, Conv3d, GroupedConv
from morello.ir.ops.conv_transpose import ConvTranspose
from morello.ir.ops.divide import DivideVecScalar
from morello.ir.ops.fill import Fill
from morello.ir.ops.functions import Clip, LeakyRelu
from morello.ir.ops.gather import Gather
from morello.ir.ops.max import Max, Min
from morello.ir.ops.pad import Pad
from morello.ir.ops.pool import AvgPool, MaxPool
from morello.ir.ops.quantize import Quantize, Requantize
from morello.ir.ops.quantized import Dequantize, QMatmul
from morello.ir.ops.rand_matmul import RandMatmul
from morello.ir.ops.reduce import Mean, Prod, Sum
from morello.ir.ops.resize import Resize
from morello.ir.ops.scan import ArgMax, ArgMin, CumSum, LinearScan, TopK
from morello.ir.ops.softmax import Softmax
from morello.ir.ops.softmax_parts import SoftmaxDenominatorAndMax, SoftmaxDenominatorAndMaxFromParts
from morello.ir.ops.softmax_per_part import SoftmaxDenominatorAndMaxPerPart
from morello.ir.ops.unary import Gelu, Scale, Shift, Unary
from morello.ir.ops.views import Concat, Slice, Transpose
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import OperandState

CONFIGURED: list[Operation] = [
    Max(dim=0),
    Min(dim=(0, 1)),
    Sum(dim=(0, 2)),
    Mean(dim=(1, 2)),
    Prod(dim=(0, 1, 2), accumulate=True),
    Sum(0, accumulate=True),
    Broadcast(0),
    DivideVecScalar(1),
    Softmax(0),
    SoftmaxDenominatorAndMax(1),
    SoftmaxDenominatorAndMax(1, accumulate=True),
    SoftmaxDenominatorAndMaxFromParts(0, accumulate=True),
    SoftmaxDenominatorAndMaxPerPart(of=5),
    Add(over=(0, 2)),
    Mul(over=(1,)),
    Sub(over=(1,), over_lhs=(0, 2)),
    Comparison(kind="LessEqual", over_lhs=(1,)),
    Where(over=(0,), over_lhs=(1,), over_condition=(0, 1)),
    Gelu(form="tanh"),
    Scale(by=0.5),
    Shift(by=-0.75),
    Clip(low=0.75, high=1.25),
    LeakyRelu(by=-2.0),
    Conv(stride=2),
    Conv(stride=(2, 1), dilation=(1, 2), padding=(1, 0, 2, 1)),
    GroupedConv(accumulate=True, dilation=2),
    RandMatmul(seed=7),
    Quantize(over=(1,)),
    Requantize(over=(0, 2)),
    CausalMask(window=1),
    Dequantize(bits=8, group=3),
    QMatmul(group=0),
    QMatmul(bits=8, group=0, accumulate=True),
    Conv1d(stride=2, padding=(1, 0)),
    Conv3d(stride=(2, 1, 1), dilation=(1, 2, 1), padding=(1, 0, 1, 0, 0, 1)),
    ConvTranspose(stride=2, padding=(1, 0, 2, 1)),
    ConvTranspose(accumulate=True, stride=(3, 1), dilation=2),
    MaxPool(stride=2, padding=(1, 0, 2, 1)),
    AvgPool(stride=(2, 1), dilation=(1, 2), padding=1),
    AvgPool(padding=1, count_include_pad=True),
    Resize(image=(3, 2), mode="linear"),
    Resize(image=(7, 3), grid="align_corners"),
    Transpose(order=(1, 0, 2)),
    Transpose(order=(1, 2, 0)),
    Slice(start=(1, 0, 2), rest=(0, 0, 3)),
    Slice(start=(0, 0, 1), step=(1, 3, 2)),
    Concat(sizes=(2, 3)),
    Gather(dim=1),
    ArgMin(dim=0),
    TopK(dim=1, k=3),
    CumSum(dim=1, exclusive=True),
    CumSum(reverse=True),
    LinearScan(dim=1),
    Concat(dim=0, sizes=(1, 1, 1)),
    Pad(padding=(0, 1, 0, 1, 1, 0), value=0.5),
    Pad(padding=(1, 0), mode="edge"),
    Pad(padding=(1, 1, 0, 1), mode="reflect"),
]
#: Those of the plain form that has no shape of the sizes here.
OTHER_SIZES = {"SoftmaxDenominatorAndMaxPerPart", "Concat"}
OPS = [*(op for op in BY_NAME.values() if op.name not in OTHER_SIZES), *CONFIGURED]
SHAPES: dict[int | None, tuple[int, ...]] = {
    None: (3, 4, 5),
    3: (2, 3, 4),
    4: (2, 3, 5, 4),
    5: (2, 3, 2, 4, 3),
    6: (2, 3, 3, 4, 3, 2),
    7: (2, 2, 3, 4, 3, 2, 3),
    8: (2, 2, 2, 3, 3, 4, 2, 2),
    9: (2, 2, 1, 2, 3, 2, 2, 1, 3),
}
each_op = pytest.mark.parametrize("op", OPS, ids=str)


def inputs_of(op: Operation, shape: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.uniform(0.5, 2, one.shape(shape)) for one in op.operands(len(shape)) if one.reads]


def types_of(op: Operation, shape: tuple[int, ...]) -> list:
    """Return data types that the operation takes: F32 where it can be, else bool."""
    count = len(op.operands(len(shape)))
    kinds = [op.only_types] if op.only_types else product([F32, BOOL, I32], repeat=count)
    return next([*each] for each in kinds if op.refusal(shape, each) is None)


def by_tiles(op: Operation, shape: tuple[int, ...], dim: int, size: int, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The operation computed by tiles of `size` along a dimension, one after another, as a loop does."""
    declared = op.operands(len(shape))
    waiting = iter(inputs)
    arrays = [next(waiting).copy() if one.reads else np.full(one.shape(shape), np.nan) for one in declared]
    for start in range(0, shape[dim], size):
        starts = [start if dim == other else 0 for other in range(len(shape))]
        tile = tuple(min(size, n - start) if dim == d else n for d, n in enumerate(shape))
        places = [
            tuple(slice(at, at + extent) for at, extent in zip(one.start(starts), one.shape(tile), strict=True))
            for one in declared
        ]
        given = [array[place] for array, place, one in zip(arrays, places, declared, strict=True) if one.reads]
        made = iter(op.evaluate(tile, given, types_of(op, shape)))
        for array, place, one in zip(arrays, places, declared, strict=True):
            if one.writes:
                array[place] = next(made)
    return [array for array, one in zip(arrays, declared, strict=True) if one.writes]


def steepest(
    op: Operation, shape: tuple[int, ...], inputs: list[np.ndarray], step: float
) -> Iterator[list[np.ndarray]]:
    """Yield the inputs, each value changed by `step`, so that one output value changes as much as it can.

    Signs are those of the derivatives of some output values, and their opposites.
    """
    kinds = types_of(op, shape)

    def outputs(given: list[np.ndarray]) -> np.ndarray:
        return np.concatenate([np.ravel(value) for value in op.evaluate(shape, given, kinds)])

    count = sum(value.size for value in inputs)
    flat = np.concatenate([np.ravel(value) for value in inputs])

    def shaped(values: np.ndarray) -> list[np.ndarray]:
        ends = np.cumsum([value.size for value in inputs])[:-1]
        return [part.reshape(value.shape) for part, value in zip(np.split(values, ends), inputs, strict=True)]

    tiny = np.eye(count) * 1e-6
    slopes = [outputs(shaped(flat + one)) - outputs(shaped(flat - one)) for one in tiny]
    for slope in np.transpose(slopes)[:: max(1, len(slopes[0]) // 6)]:
        for direction in (slope, -slope):
            yield shaped(flat + step * np.where(direction < 0, -1, 1))


@each_op
def test_shapes_are_those_of_the_operands(op: Operation) -> None:
    shape = SHAPES[op.rank]
    inputs = inputs_of(op, shape)
    written = [one.shape(shape) for one in op.operands(len(shape)) if one.writes]
    errors = [np.full(value.shape, 1e-6) for value in inputs]
    for made in (
        op.evaluate(shape, inputs, types_of(op, shape)),
        op.error_analysis.magnitude(shape, inputs),
        op.error_analysis.largest_intermediate(shape, inputs),
        op.error_analysis.propagate_error(shape, inputs, errors),
    ):
        assert [value.shape for value in made] == written
    assert len(op.error_analysis.underflow_loss(shape, inputs, F32.smallest)) == len(written)
    assert op.refusal(shape, types_of(op, shape)) is None


@each_op
@pytest.mark.parametrize("size", [1, 2])
def test_tiles_compose(op: Operation, size: int) -> None:
    shape = SHAPES[op.rank]
    inputs = inputs_of(op, shape)
    whole = op.evaluate(shape, inputs, types_of(op, shape))
    for dim in range(len(shape)):
        if dim not in op.untiled(len(shape)):
            for got, expected in zip(by_tiles(op, shape, dim, size, inputs), whole, strict=True):
                np.testing.assert_allclose(got, expected, rtol=1e-12)


@each_op
def test_accumulating_from_the_initial_values_is_the_operation(op: Operation) -> None:
    accumulating, shape = op.accumulating(), SHAPES[op.rank]
    if accumulating is None:
        assert op.initials() == ()
        return
    inputs = inputs_of(op, shape)
    written = [one for one in op.operands(len(shape)) if one.writes]
    held = [
        initial.evaluate(one.shape(shape), [], [F32])[0]
        for one, initial in zip(written, op.initials(), strict=True)
        if initial is not None
    ]
    expected = op.evaluate(shape, inputs, types_of(op, shape))
    for dim in {*op.reductions(len(shape))} - {*accumulating.untiled(len(shape))}:
        for got, value in zip(by_tiles(accumulating, shape, dim, 2, [*inputs, *held]), expected, strict=True):
            np.testing.assert_allclose(got, value, rtol=1e-12)


@each_op
@pytest.mark.parametrize("step", [1e-3, 0.4])
def test_propagated_errors_bound_changes_of_results(op: Operation, step: float) -> None:
    shape = SHAPES[op.rank]
    inputs = inputs_of(op, shape)
    if not inputs:
        assert not np.any(op.error_analysis.propagate_error(shape, [], []))
        return
    errors = [np.full(value.shape, step) for value in inputs]
    kinds = types_of(op, shape)
    whole, bounds = op.evaluate(shape, inputs, kinds), op.error_analysis.propagate_error(shape, inputs, errors)
    for changed in steepest(op, shape, inputs, step):
        for got, value, bound in zip(op.evaluate(shape, changed, kinds), whole, bounds, strict=True):
            with np.errstate(invalid="ignore"):
                change = np.where(got == value, 0, np.abs(got - value))
            assert np.all(change <= bound * (1 + 1e-9) + 1e-15)


@pytest.mark.parametrize("error", [2000.0, np.inf])
@pytest.mark.parametrize("name", ["Softmax", "Exp", "SoftmaxDenominator"])
def test_underflow_may_be_undone(name: str, error: float) -> None:
    op = by_name(name)
    row = [np.array([[0.0]])] if name == "SoftmaxDenominator" else []
    inputs, moved = ([np.array([[low, 0.0]]), *row] for low in (-1000.0, 1000.0 if name == "Softmax" else 5.0))
    errors = [np.full(value.shape, error if place == 0 else 0.0) for place, value in enumerate(inputs)]
    kinds = [F32] * len(op.operands(2))
    bounds = op.error_analysis.propagate_error((1, 2), inputs, errors)
    for value, other, bound in zip(
        op.evaluate((1, 2), inputs, kinds), op.evaluate((1, 2), moved, kinds), bounds, strict=True
    ):
        assert np.all(np.abs(value - other) <= bound)


def test_an_operation_without_an_analysis_is_not_part_of_a_compose() -> None:
    @attrs.frozen
    class Negate(Unary):
        def function(self, values: np.ndarray) -> np.ndarray:
            return -values

        def flops(self, shape: tuple[int, ...]) -> int:
            return self.volume(shape)

    values = np.array([1.0, -2.0])
    for analysis, roundings in ((Negate().error_analysis, 1), (ErrorAnalysis(Negate()), 0)):
        assert analysis.roundings((2,)) == roundings
        assert np.array_equal(analysis.largest_intermediate((2,), [values]), [np.abs(values)])
        assert analysis.underflow_loss((2,), [values], F32.smallest) == [roundings * F32.smallest]
        with pytest.raises(SpecError, match=r"Negate does not define how errors .* part of a Compose"):
            analysis.propagate_error((2,), [values], [values])


def test_fills_are_initial_values_of_each_type() -> None:
    for dtype in ALL:
        assert Fill("Min").constant(dtype) == Fill("NegInf").constant(dtype) or dtype.is_float
        assert Fill("One").constant(dtype) == 1
        if not dtype.is_float:
            assert Fill("NegInf").constant(dtype) == (0 if dtype.is_bool else np.iinfo(dtype.numpy).min)
            assert Fill("PosInf").constant(dtype) == (1 if dtype.is_bool else np.iinfo(dtype.numpy).max)
    assert Fill("NegInf").constant(BF16) == -np.inf
    with pytest.raises(ValueError, match="Largest"):
        Fill("Largest")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("name", ["SoftmaxDenominatorAndMax", "SoftmaxDenominatorAndMaxAccum"])
def test_rows_of_minus_infinity_have_the_denominator_0(name: str) -> None:
    values = np.array([[-np.inf, -np.inf], [-np.inf, 1.0]])
    held = [np.full((2, 1), -np.inf), np.zeros((2, 1))] if name.endswith("Accum") else []
    largest, denom = by_name(name).evaluate((2, 2), [values, *held], [])
    assert largest.tolist() == [[-np.inf], [1.0]]
    assert denom.tolist() == [[0.0], [1.0]]


@pytest.mark.parametrize(("dtype", "expected"), [(U8, 200), (I8, 3)])
def test_integers_are_converted_before_they_are_compared(dtype, expected: int) -> None:
    values, others = np.array([200]), np.array([3])
    assert Maximum().evaluate((1,), [values, others], [I32, I32, dtype])[0].tolist() == [expected]


WRONG = [
    (lambda: Conv(stride=0), "stride is a number of at least 1"),
    (lambda: Conv(dilation=(1, 2, 3)), "dilation is a number of at least 1, or two"),
    (lambda: Conv(padding=(1, 2)), "padding is a number of at least 0, or four"),
    (lambda: QMatmul(bits=5), "bits=5 is not 4 or 8"),  # pyright: ignore[reportArgumentType]
    (lambda: Dequantize(group=3), "group=3 is not a number of rows"),
    (lambda: Add(over=(1, 0)), "is not an ascending list of dimensions"),
    (lambda: Gelu(form="cubic"), "unknown form=cubic"),  # pyright: ignore[reportArgumentType]
    (lambda: Clip(low=1, high=0), "low=1.0 is not at most high=0.0"),
    (lambda: Scale(by=1e300), "by=1e\\+300 is not a finite f32"),
    (lambda: Pad(padding=(1, 0, 1)), "padding is two numbers of at least 0 for each"),
    (lambda: Pad(mode="wrap"), "unknown mode=wrap"),  # pyright: ignore[reportArgumentType]
    (lambda: by_name("Max").configured({"stride": 2}), "Max has no parameter 'stride'"),
    (lambda: Sum(dim=(1, 0)), "is not an ascending list of dimensions"),
    (lambda: TopK(k=0), "k is a number of at least 1"),
    (lambda: Transpose(order=(0, 0)), "order lists each dimension once"),
    (lambda: Slice(step=(0, 1)), "step has numbers of at least 1"),
    (lambda: Slice(start=(1, 1)).configured({"stop": (3, 3)}, (2, 2)), "stop needs the shape of src"),
    (lambda: Slice().configured({"stop": (3, 3), "of": (4, 4)}, (2, 2)), "make an output of 3×3"),
    (lambda: Slice().configured({"of": (4, 4)}, (5, 2)), "src of 4×4 has no such values"),
    (lambda: Concat(sizes=()), "sizes lists the inputs' sizes"),
    (lambda: Concat(sizes=(1,) * 9), "1 to 8"),
]


@pytest.mark.parametrize(("make", "message"), WRONG, ids=[message for _, message in WRONG])
def test_parameters_that_make_no_sense_are_refused(make, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        make()


def test_hard_swish_of_large_numbers_is_finite() -> None:
    (large,) = by_name("HardSwish").evaluate((1,), [np.array([1e308])], [])
    assert large == 1e308


def test_operations_with_constants_take_the_same_types() -> None:
    assert Constants(Where(), (2,)).refusal((4,), [BOOL, F32, F32, F32]) is None
    assert Constants(Add(), (1,)).refusal((4,), [BOOL, I8, I8])


REFUSED = [
    (Softmax(), (2, 3), [I8, I8], "for floats"),
    (SoftmaxDenominatorAndMax(), (2, 3), [BF16, F16, F32], "does not hold every bf16"),
    (Softmax(dim=2), (2, 3), [F32, F32], "dimension 2 does not exist"),
    (TopK(k=4), (2, 3), [F32, F32, I32], "picks 4 of 3 values"),
    (Sum(dim=(0, 2)), (2, 3), [F32, F32], "dimension 2 does not exist"),
    (Add(over=(0, 2)), (2, 3), [F32] * 3, "rank 2 has the dimensions 0 to 1"),
    (Add(), (2, 3), [F32, I8, I8], "f32 does not convert to i8"),
    (Add(), (2, 3), [BOOL, BOOL, I8], "numbers, not for bool"),
    (by_name("Less"), (2, 3), [I8, I32, BOOL], "i8 and i32 do not compare"),
    (by_name("Max"), (2, 3), [F32, BOOL], "it chooses among f32 for bool"),
    (by_name("Sum"), (2, 3), [BOOL, BOOL], "it makes numbers, not bool"),
    (by_name("Less"), (2, 3), [F32, F32, F32], "it makes bool, not f32"),
    (by_name("And"), (2, 3), [BOOL, I8, BOOL], "it is for bool, not for i8"),
    (Where(), (2, 3), [I8, F32, F32, F32], "its condition is bool, not i8"),
    (Where(), (2, 3), [BOOL, BOOL, F32, F32], "it chooses among bool and f32"),
    (Dequantize(), (1, 2, 3), [I8, F32, I8, F32], "weights are u8, two weights in each"),
    (Dequantize(bits=8), (1, 2, 3), [I8, F32, U8, F32], "zeros of the same type, not i8 and u8"),
    (Quantize(), (2,), [I32, F32, U8, U8], "src is i32, not a float"),
    (Requantize(), (2,), [F32, F32, U8, U8], "src is f32, not i32"),
    (Quantize(), (2,), [F32, F32, I8, U8], "zero of its type, not f32, u8 and i8"),
    (Quantize(over=(2,)), (2, 3), [F32, F32, U8, U8], "rank 2 has the dimensions 0 to 1"),
    (QMatmul(), (1, 1, 2, 3), [F32, U8, I32, U8, F32], "scales are i32, not floats of up to 32 bits"),
    (ConvTranspose(padding=2), (1, 1, 1, 2, 2, 1, 1), [F32] * 3, "nothing is left of out"),
    (MaxPool(padding=2), (1, 1, 4, 4, 2, 2), [F32] * 2, "in the padding alone"),
    (Pad(value=0.5), (4, 4), [I8] * 2, "value=0.5 is no value of i8"),
    (Pad(value=-np.inf), (4, 4), [I8] * 2, "value=-inf is no value of i8"),
    (Pad(mode="reflect"), (3, 3), [F32] * 2, "padding that reflects is smaller than src"),
    (AvgPool(), (1, 1, 4, 4, 2, 2), [I8] * 2, "for floats"),
    (Conv(padding=2), (1, 1, 1, 1, 1, 2, 2), [F32] * 3, "an image of -2×-2"),
    (Transpose(order=(1, 0)), (2, 3, 4), [F32] * 2, "order lists 2 dimensions"),
    (Slice(start=(1, 0)), (2, 3, 4), [F32] * 2, "start has 2 numbers"),
    (Concat(sizes=(1, 1)), (2, 3), [F32] * 3, "sizes [1, 1] have the sum 2, not 3"),
    (Concat(sizes=(1, 2)), (2, 3), [F32, F32, I8], "f32 does not convert to i8"),
]


@pytest.mark.parametrize(("op", "shape", "dtypes", "message"), REFUSED, ids=[row[3] for row in REFUSED])
def test_shapes_and_types_that_make_no_sense_are_refused(op: Operation, shape, dtypes, message: str) -> None:
    refused = op.refusal(shape, dtypes)
    assert refused
    assert message in refused.message
    assert refused.hint


def test_the_last_dimension_is_the_default() -> None:
    states = tuple(OperandState(F32, "GL", row_major(2), 2) for _ in range(2))
    assert LogicalSpec(Max(dim=1), (2, 3), states).canonical() == LogicalSpec(Max(), (2, 3), states).canonical()
    assert LogicalSpec(Max(dim=0), (2, 3), states).canonical().op == Max(dim=0)
    assert LogicalSpec(Max(dim=(1,)), (2, 3), states).canonical().op == Max()
    assert LogicalSpec(Max(dim=(0, 1)), (2, 3), states).canonical().op == Max(dim=(0, 1))


def test_parameters_are_written_if_they_are_given() -> None:
    assert str(Conv(stride=(2, 2), padding=(1, 0, 1, 0))) == "Conv[stride=2, padding=[1, 0, 1, 0]]"
    assert str(Max(dim=0, accumulate=True)) == "MaxAccum[dim=0]"
    assert str(Add(over=(0,))) == "Add[over=[0]]"


def test_relu_converts_first() -> None:
    """As in docs/language.md: −1 of i8 is 255 in u8, which is not less than 0; every target does so."""
    (found,) = by_name("Relu").evaluate((2,), [np.array([-1, 5], dtype=np.int8)], [I8, U8])
    assert found.astype(np.uint8).tolist() == [255, 5]


def test_padding_is_written_in_one_way() -> None:
    for rank, padding, normal in (
        (3, (0, 1, 0, 0, 1, 0), (1, 0, 1, 0)),
        (4, (1, 2), (0, 1, 0, 2)),
        (1, (1, 2), (1, 2)),
        (3, (1, 0, 0, 0, 0, 0), (1, 0, 0, 0, 0, 0)),
        (2, (1, 1, 1, 1), (1, 1, 1, 1)),
    ):
        assert Pad(padding=padding).normal(rank) == Pad(padding=normal)
    assert str(Pad(padding=(1, 0, 0, 0))) == "Pad[padding=[1, 0, 0, 0]]"


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect"])
def test_padding_agrees_with_its_definition(mode) -> None:
    op = Pad(padding=(1, 0, 2, 1), value=-2, mode=mode)
    source = np.arange(12.0).reshape(2, 3, 2)
    if mode == "reflect":
        source = np.arange(24.0).reshape(2, 4, 3)
    shape = (2, source.shape[1] + 3, source.shape[2] + 1)
    (out,) = op.evaluate(shape, [source], [F32, F32])
    for b, y, x in product(*map(range, shape)):
        place = [y - 1, x]
        outside = False
        for axis, size in enumerate(source.shape[1:]):
            at = place[axis]
            outside = outside or not 0 <= at < size
            place[axis] = {"edge": min(max(at, 0), size - 1), "reflect": min(abs(at), 2 * size - 2 - at)}.get(mode, at)
        assert out[b, y, x] == (-2 if outside and mode == "constant" else source[b, place[0], place[1]])


def test_zeros_go_around_two_dimensions_or_more() -> None:
    assert Pad().check((4, 4), [F32, F32]) is None
    assert Pad().check((2, 4, 4), [F32, F32]) is None
    refused = Pad().check((8,), [F32, F32])
    assert refused
    assert refused.hint == "write 1×8"


@given(st.data())
def test_slices_are_those_of_python(data: st.DataObject) -> None:
    source = data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=3))
    ends = [sorted(data.draw(st.tuples(st.integers(0, size - 1), st.integers(0, size - 1)))) for size in source]
    start, stop = [first for first, _ in ends], [last + 1 for _, last in ends]
    step = [data.draw(st.integers(1, 3)) for _ in source]
    values = np.arange(np.prod(source)).reshape(source)
    expected = values[tuple(map(slice, start, stop, step))]
    given = {"start": tuple(start), "stop": tuple(stop), "step": tuple(step)}
    op = Slice().configured({**given, "of": tuple(source)}, expected.shape)
    assert op == Slice().configured(given, None, [source])
    assert op.operands(len(source))[0].shape(expected.shape) == tuple(source)
    assert np.array_equal(op.evaluate(expected.shape, [values], [I32, I32])[0], expected)


def test_indices_count_from_the_end_and_are_clamped() -> None:
    table, indices = np.arange(6).reshape(3, 2), np.array([0, 2, -1, -3, 3, -4, 2**31 - 1, -(2**31)])
    (rows,) = Gather().evaluate((8, 2, 3), [table, indices], [I32] * 3)
    assert rows.tolist() == table[[0, 2, 2, 0, 2, 0, 2, 0]].tolist()


@pytest.mark.parametrize(("pixels", "made"), [(4, 8), (3, 7), (7, 3), (5, 1), (1, 4)])
def test_resized_images_have_values_between_pixels(pixels: int, made: int) -> None:
    rows, x = np.random.default_rng(0).normal(size=(2, 3, pixels, 1)), np.arange(made)
    ends = (pixels - 1) / max(1, made - 1)
    grids = {"half_pixel": (x + 0.5) * pixels / made - 0.5, "asymmetric": x * pixels / made, "align_corners": x * ends}
    for grid, places in grids.items():
        linear = Resize().configured({"mode": "linear", "grid": grid}, None, [rows.shape])
        (found,) = linear.evaluate((2, 3, made, 2), [rows], [F32] * 2)
        expected = [np.interp(places, np.arange(pixels), row) for row in rows.reshape(6, pixels)]
        np.testing.assert_allclose(found[..., 1].reshape(6, made), expected, rtol=1e-12, atol=1e-12)
        nearest = np.floor(places + (0 if grid == "asymmetric" else 0.5) + 1e-9).astype(int)
        (found,) = attrs.evolve(linear, mode="nearest").evaluate((2, 3, made, 2), [rows], [F32] * 2)
        np.testing.assert_array_equal(found[..., 0], rows[:, :, nearest, 0])


def test_the_first_of_equal_values_and_nan_are_found() -> None:
    rows = np.array([[1.0, 3.0, 3.0], [-0.0, 0.0, -1.0], [2.0, np.nan, np.nan], [np.inf, np.inf, 0.0]])
    assert ArgMax().evaluate((4, 3), [rows], [F32, I32])[0].ravel().tolist() == [1, 0, 1, 0]
    values, indices = TopK(k=2).evaluate((4, 3), [rows], [F32, F32, I32])
    assert indices.tolist() == [[1, 2], [0, 1], [1, 2], [0, 1]]
    np.testing.assert_array_equal(values, np.take_along_axis(rows, indices, 1))
    assert ArgMin().evaluate((4, 3), [rows], [F32, I32])[0].ravel().tolist() == [0, 2, 1, 2]


def test_a_linear_scan_multiplies_what_is_before() -> None:
    factors, values = np.array([[9.0, 2.0, -1.0], [9.0, 1.0, 0.0]]), np.array([[1.0, 2.0, 4.0], [3.0, 5.0, 7.0]])
    (made,) = LinearScan().evaluate((2, 3), [factors, values], [F32] * 3)
    assert made.tolist() == [[1, 4, 0], [3, 8, 7]]
    (made,) = LinearScan(dim=0).evaluate((3, 2), [factors.T, values.T], [F32] * 3)
    assert made.T.tolist() == [[1, 4, 0], [3, 8, 7]]


def test_sums_go_either_way_and_may_leave_out_a_value() -> None:
    values = np.array([1, 2, 4])
    ways = [(False, False), (False, True), (True, False), (True, True)]
    found = [CumSum(None, *way).evaluate((3,), [values], [I32, I32])[0].tolist() for way in ways]
    assert found == [[1, 3, 7], [0, 1, 3], [7, 6, 4], [6, 4, 0]]
