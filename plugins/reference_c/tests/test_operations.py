"""Every operation, on every data type that it takes, against its meaning in numpy."""

from __future__ import annotations

import math

import ml_dtypes
import pytest

from morello.ir.dtypes import ALL, BF16, BOOL, F16, F32, F64, I32, I64, DType
from morello.ir.impl import Node
from morello.ir.layout import row_major
from morello.ir.ops import BY_NAME, Operation
from morello.ir.ops.binary import Add, Maximum
from morello.ir.ops.broadcast import Broadcast
from morello.ir.ops.causal import CausalMask
from morello.ir.ops.compare import Where
from morello.ir.ops.conv import Conv, Conv1d, Conv3d, GroupedConv
from morello.ir.ops.conv_transpose import ConvTranspose, GroupedConvTranspose
from morello.ir.ops.gather import Gather
from morello.ir.ops.max import Min
from morello.ir.ops.pad import Pad
from morello.ir.ops.pool import AvgPool, MaxPool
from morello.ir.ops.quantize import Quantize, Requantize
from morello.ir.ops.quantized import Dequantize, QMatmul
from morello.ir.ops.rand_matmul import RandMatmul
from morello.ir.ops.reduce import Mean, Prod
from morello.ir.ops.resize import Resize
from morello.ir.ops.scan import Arg, ArgMin, CumSum, LinearScan, TopK
from morello.ir.ops.softmax import Softmax
from morello.ir.ops.softmax_parts import SoftmaxDenominatorAndMax
from morello.ir.ops.softmax_per_part import SoftmaxDenominatorAndMaxPerPart
from morello.ir.ops.unary import Gelu, Scale
from morello.ir.ops.views import Concat, Slice, Transpose
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import OperandState
from morello.plugins import Target
from morello.testing import Trials
from morello.verify.reference import implement

SHAPES = {
    None: (2, 9),
    3: (2, 3, 9),
    4: (2, 3, 5, 4),
    5: (2, 3, 2, 4, 3),
    6: (2, 3, 3, 2, 3, 2),
    9: (2, 2, 1, 2, 3, 2, 2, 1, 3),
    7: (1, 2, 3, 3, 2, 3, 2),
    8: (1, 2, 2, 2, 3, 2, 2, 2),
}
CONFIGURED: list[Operation] = [
    Add(over=(0,)),
    Maximum(over=(1,), over_lhs=(0,)),
    Where(over=(0,), over_lhs=(1,), over_condition=(0, 1)),
    Min(dim=(0, 1)),
    Mean(dim=(0, 1)),
    Prod(dim=(0, 1), accumulate=True),
    ArgMin(dim=0),
    TopK(k=4),
    CumSum(dim=0, reverse=True, exclusive=True),
    LinearScan(dim=0),
    Broadcast(0),
    CausalMask(window=2),
    Softmax(0),
    SoftmaxDenominatorAndMax(0, accumulate=True),
    SoftmaxDenominatorAndMaxPerPart(of=9),
    Gelu(form="tanh"),
    Scale(by=0.3),
    RandMatmul(seed=4294967295, accumulate=True),
    Quantize(over=(1,)),
    Requantize(over=(0,)),
    Dequantize(bits=8, group=3),
    QMatmul(group=0, accumulate=True),
    QMatmul(bits=8, group=0),
    Conv(stride=(2, 1), dilation=(1, 2), padding=(1, 0, 2, 1)),
    GroupedConv(accumulate=True, padding=1),
    Conv1d(stride=2, padding=(1, 0)),
    Conv3d(stride=(2, 1, 1), dilation=(1, 2, 1), padding=(1, 0, 1, 0, 0, 1)),
    ConvTranspose(stride=2, padding=(1, 0, 2, 1)),
    GroupedConvTranspose(accumulate=True, stride=(3, 1), dilation=2),
    MaxPool(stride=2, padding=(1, 0, 2, 1)),
    AvgPool(stride=(2, 1), dilation=(1, 2), padding=1),
    AvgPool(padding=1, count_include_pad=True),
    Resize(image=(3, 2), mode="linear"),
    Resize(image=(7, 3), grid="align_corners"),
    Transpose(order=(0, 1)),
    Slice(start=(1, 0), step=(2, 3), rest=(0, 1)),
    Concat(sizes=(2, 6, 1)),
    Concat(dim=0, sizes=(1, 1)),
    Pad(padding=(1, 0, 0, 2), value=3),
    Pad(padding=(1, 2), value=-math.inf),
    Pad(padding=(1, 2), mode="edge"),
    Pad(padding=(0, 1, 1, 2), mode="reflect"),
]
#: Those of the plain form that has no shape of the sizes here.
OTHER_SIZES = {"SoftmaxDenominatorAndMaxPerPart", "Concat"}
OPS = [*(op for op in BY_NAME.values() if op.name not in OTHER_SIZES), *CONFIGURED]
#: Operations whose C differs from one integer type to another.
BY_SIGN = ("Abs", "Less", "Maximum", "Max", "Min", "MaxPool", "Relu", "FillMin", "FillPosInf")
#: Types as plugins declare them.
FP8 = DType("f8e4m3", ml_dtypes.float8_e4m3fn), DType("f8e5m2", ml_dtypes.float8_e5m2)


def dtypes_of(op: Operation) -> list[tuple[DType, ...]]:
    """Types of the operands: of all the same, and of mixed ones."""
    count = len(op.operands(len(SHAPES[op.rank])))
    if op.only_types is not None:
        return [op.only_types]
    if isinstance(op, Gather):
        return [(F32, I64, F32), *((dtype, I32, dtype) for dtype in ALL)]
    if isinstance(op, TopK):
        return [(F32, F32, I64), *((dtype, dtype, I32) for dtype in ALL if not dtype.is_bool)]
    if isinstance(op, Arg):
        return [(F32, I64), *((dtype, I32) for dtype in ALL if not dtype.is_bool)]
    same = (*(ALL if op.name in BY_SIGN else (F32, BF16, ALL[1], F16, F64)), *FP8)
    found = [(dtype,) * count for dtype in same]
    if count > 1:
        found += [(*(F32,) * (count - 1), BF16), (*(F64,) * (count - 1), F16), (*(F16,) * (count - 1), F64)]
    # Conditions and results of comparisons are bool.
    found += [each for one in found for each in ((*one[:-1], BOOL), (BOOL, *one[1:]))]
    found += [(BOOL,) * count]
    return [kinds for kinds in dict.fromkeys(found) if op.refusal(SHAPES[op.rank], kinds) is None]


CASES = [(op, kinds) for op in OPS for kinds in dtypes_of(op)]


@pytest.fixture(scope="module")
def trials(target: Target) -> Trials:
    """Return the programs of all cases, which are built together."""
    return Trials([impl_of(target, *case) for case in CASES], target, reference=target)


@pytest.mark.slow
@pytest.mark.xdist_group("operations of reference_c")
@pytest.mark.parametrize("case", range(len(CASES)), ids=[f"{op}-{'-'.join(map(str, kinds))}" for op, kinds in CASES])
def test_agrees_with_the_meaning(trials: Trials, case: int) -> None:
    trials.check(case)


def impl_of(target: Target, op: Operation, dtypes: tuple[DType, ...]) -> Node:
    shape = SHAPES[op.rank]
    states = tuple(
        OperandState(dtype, "GL", row_major(len(one.dims)), len(one.dims))
        for dtype, one in zip(dtypes, op.operands(len(shape)), strict=True)
    )
    return implement(LogicalSpec(op, shape, states), target)
