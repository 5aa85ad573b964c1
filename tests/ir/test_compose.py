"""A Compose: its tiles and pieces compute the same as the whole."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from morello.errors import Inapplicable, SpecError
from morello.ir.dtypes import BF16, BOOL, F32, I8, I32, DType
from morello.ir.ops import Compose, ComposeStage, Operation, arranged, by_name
from morello.ir.ops.base import Operand
from morello.ir.ops.binary import Add, Mul
from morello.ir.ops.compare import Where
from morello.ir.ops.conv import Conv
from morello.ir.ops.gather import Gather
from morello.ir.ops.matmul import Matmul
from morello.ir.ops.named_graphs import named_graph
from morello.ir.ops.scan import ArgMax
from morello.ir.ops.softmax import Softmax
from morello.ir.ops.unary import Gelu, Relu, Scale
from morello.ir.ops.views import Transpose
from morello.testing.graphs import random_compose

SEEDS = st.integers(0, 10**6)


def mlp() -> Compose:
    """y = h + gelu(h)·w2 with h = x·w1."""
    stages = [
        ComposeStage(Add(), 3, (~3, ~1)),
        ComposeStage(Matmul(), 4, (~2, 0)),
        ComposeStage(Gelu(), 3, (~3,)),
        ComposeStage(Matmul(), 4, (1, 2)),
    ]
    return arranged(stages).compose


def read_values(
    op: Operation, shape: tuple[int, ...], types: Sequence[DType], rng: np.random.Generator
) -> list[np.ndarray]:
    return [
        rng.normal(size=one.shape(shape)) if dtype.is_float else rng.integers(0, 2, one.shape(shape))
        for one, dtype in zip(op.operands(len(shape)), types, strict=True)
        if one.reads
    ]


def tile_of(value: np.ndarray, one: Operand, starts: Sequence[int], sizes: Sequence[int]) -> np.ndarray:
    corner, extent = one.start(starts), one.shape(sizes)
    return value[tuple(slice(at, at + size) for at, size in zip(corner, extent, strict=True))]


def close(one: np.ndarray, other: np.ndarray) -> None:
    np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@settings(max_examples=300)
@given(seed=SEEDS)
def test_each_tile_computes_its_part_of_the_whole(seed: int) -> None:
    rng = random.Random(seed)
    op, shape, types = random_compose(rng)
    head = op.accumulating()
    if head is not None and rng.random() < 0.5:
        assert isinstance(head, Compose)
        op = head
    rank = len(shape)
    inputs = read_values(op, shape, types, np.random.default_rng(seed))
    operands = op.operands(rank)
    whole = op.evaluate(shape, inputs, types)
    written = [one for one in operands if one.writes]
    assert [value.shape for value in whole] == [one.shape(shape) for one in written]
    fixed, summed = op.untiled(rank), op.reductions(rank)
    split = {dim: rng.randint(1, shape[dim]) for dim in range(rank) if dim not in fixed}
    result = [np.array(inputs[-1] if one.reads else np.full(one.shape(shape), np.nan)) for one in written]
    # One cut in each dimension that may be tiled, at any place.
    for corner in np.ndindex(*[2 if dim in split and split[dim] < shape[dim] else 1 for dim in range(rank)]):
        starts = [split[dim] if second else 0 for dim, second in enumerate(corner)]
        sizes = tuple(shape[dim] - at if at else split.get(dim, shape[dim]) for dim, at in enumerate(starts))
        given_tile = [tile_of(value, one, starts, sizes) for value, one in zip(inputs, operands, strict=False)]
        if operands[-1].reads:
            given_tile[-1] = tile_of(result[-1], operands[-1], starts, sizes)
        made = op.evaluate(sizes, given_tile, types)
        for value, one, own in zip(result, written, made, strict=True):
            tile = tile_of(value, one, starts, sizes)
            assert one.reads or np.isnan(tile).all()
            tile[...] = own
    assert operands[-1].reads or not set(summed) & split.keys()
    for value, expected in zip(result, whole, strict=True):
        close(value, expected)


@given(seed=SEEDS)
def test_pieces_one_after_another_compute_the_whole(seed: int) -> None:
    rng = random.Random(seed)
    op, shape, types = random_compose(rng, stages=5)
    inputs = read_values(op, shape, types, np.random.default_rng(seed))
    values = op.values(shape, inputs, types)
    cut = {stage for stage in range(1, len(op.stages)) if rng.random() < 0.5}
    try:
        pieces = op.cut(cut)
    except Inapplicable:
        assert len(cut) < len(op.stages) - 1  # all of them can always be cut
        assert cut or op.outputs  # and none, with one output
        return
    cut |= {*op.outputs}
    assert len(pieces) == len(cut) + 1
    written = {len(inputs) + at: number for at, number in enumerate((*op.outputs, 0))}
    whole = op.operands(len(shape))
    tensors = dict(enumerate(inputs))
    for piece in pieces:
        own = piece.shape(shape)
        declared = piece.op.operands(len(own))
        assert isinstance(piece.op, Compose) or piece.op.rank in (None, len(own))
        for one, entry in zip(declared, piece.args, strict=True):
            expected = whole[entry].shape(shape) if entry >= 0 else op.intermediate_shape(~entry, shape)
            assert one.shape(own) == expected
        given_values = [tensors[entry] for entry in piece.args[:-1]]
        own_types = [types[entry] if entry >= 0 else op.intermediate_dtype(~entry, types) for entry in piece.args]
        tensors[piece.args[-1]] = piece.op.evaluate(own, given_values, own_types)[0]
        close(tensors[piece.args[-1]], values[written.get(piece.args[-1], ~piece.args[-1])])
    assert pieces[-1].args[-1] == len(types) - 1
    assert {*written} <= {*tensors}


@given(seed=SEEDS)
def test_shapes_of_stages_are_the_same_in_numbers_and_in_arrays(seed: int) -> None:
    op, shape, _ = random_compose(random.Random(seed))
    batch = tuple(np.array([size, size + 1]) for size in shape)
    for stage in range(len(op.stages)):
        columns = np.broadcast_arrays(*op.stage_shape(stage, batch), batch[0])[:-1]
        assert tuple(int(column[0]) for column in columns) == op.stage_shape(stage, shape)


def test_a_chain_unifies_dimensions_of_intermediates() -> None:
    op = Compose.chain([Matmul(), Matmul()])
    assert op.dims(op.rank) == ("b0", "m0", "k0", "n0", "k1")
    assert (op.reductions(5), op.untiled(5)) == ((2, 4), (2, 4))
    added = op.accumulating()
    assert added is not None
    assert str(added) == "Compose([MatmulAccum, Matmul])"
    assert added.untiled(5) == (4,)
    assert added.accumulating() is None
    assert [str(one) for one in op.initials()] == ["FillZero"]


def test_softmax_keeps_its_dimension_whole_for_all() -> None:
    attention = Compose.chain([Matmul(accumulate=True), Softmax(), Scale(by=0.125), Matmul()])
    assert attention.dims(5) == ("b0", "m0", "k0", "n0", "k3")
    assert attention.untiled(5) == (2, 4)


def test_convolutions_ask_for_their_halo() -> None:
    op = Compose.chain([Conv(stride=2), Relu(), Conv()])
    shape = dict.fromkeys(op.dims(op.rank), 1) | {"h0": 4, "w0": 3, "fh0": 3, "fw0": 3, "fh2": 5}
    assert op.stage_shape(2, tuple(shape.values()))[3:5] == (9, 7)
    image = next(one for one in op.operands(op.rank) if one.name == "image2")
    assert image.shape(tuple(shape.values()))[2:] == (13, 7)
    tile = tuple((shape | {"h0": 2}).values())
    start = [2 if name == "h0" else 0 for name in shape]
    assert (image.start(start)[2], image.shape(tile)[2]) == (4, 9)


def test_dimensions_used_in_several_ways_stay_whole() -> None:
    op = mlp()
    assert str(op) == (
        "Compose([out = Add(out3, out1), out1 = Matmul(out2, rhs1), out2 = Gelu(out3), out3 = Matmul(lhs3, rhs3)])"
    )
    # h is read along n by Add and along k by Matmul.
    assert op.dims(op.rank) == ("i0_0", "i1_0", "i2_0", "k3")
    assert op.untiled(op.rank) == (2, 3)


def test_sizes_that_must_agree() -> None:
    stages = [ComposeStage(Add(), 4, (~1, ~2)), *(ComposeStage(Conv(), 7, (0, filters)) for filters in (1, 2))]
    op = arranged(stages).compose
    dtypes, sizes = [F32] * 4, dict.fromkeys(op.dims(op.rank), 3)
    assert op.check(tuple(sizes.values()), dtypes) is None
    refused = op.check(tuple({**sizes, "fw2": 2}.values()), dtypes)
    assert refused
    assert refused.message == "image1 is needed with size 5 and with size 4"


def test_sizes_that_follow_from_others_are_no_dimensions() -> None:
    stages = [ComposeStage(Add(), 4, (~1, 0)), ComposeStage(Conv(padding=1), 7, (0, 1))]
    op = arranged(stages).compose
    # c is f, and the image has the size of out if the filters are 3×3.
    assert op.dims(op.rank) == ("i0_0", "i1_0", "i2_0", "i3_0")
    assert op.untiled(op.rank) == (1, 2, 3)
    assert [one.shape((1, 2, 5, 6)) for one in op.operands(4)][:2] == [(1, 2, 5, 6), (2, 2, 3, 3)]


def test_other_outputs_share_dimensions_and_no_tile_writes_them_twice() -> None:
    """Two outputs from the same inputs have the same tiles; a product and its left operand share rows only."""
    pair = arranged([ComposeStage(Add(), 2, (0, 1)), ComposeStage(Mul(), 2, (0, 1))], [1])
    assert (pair.compose.dims(2), pair.compose.untiled(2)) == (("i0_0", "i1_0"), ())
    assert [one.name for one in pair.compose.operands(2)] == ["lhs0", "rhs0", "out1", "out"]
    assert str(pair.compose) == "Compose([out = Add(lhs0, rhs0), out1 = Mul(lhs0, rhs0)], [out1])"
    product = arranged([ComposeStage(Matmul(), 4, (~1, 0)), ComposeStage(Relu(), 3, (1,))], [1]).compose
    assert product.untiled(4) == (2, 3)
    assert product.accumulating() is None
    assert product.stage_dtypes(0, [F32, BF16, I8, F32]) == (I8, F32, F32)
    assert [str(piece.op) for piece in product.cut([])] == ["Relu", "Matmul"]
    assert [piece.args for piece in product.cut([])] == [(1, 2), (2, 0, 3)]


def test_the_form_does_not_depend_on_how_it_was_written() -> None:
    once = arranged([ComposeStage(Add(), 3, (~2, ~1)), ComposeStage(Relu(), 3, (7,)), ComposeStage(Gelu(), 3, (~1,))])
    again = arranged([ComposeStage(Add(), 3, (~1, ~2)), ComposeStage(Gelu(), 3, (~2,)), ComposeStage(Relu(), 3, (0,))])
    assert once.compose == again.compose
    assert (once.order, once.inputs) == ((0, 2, 1), (7,))
    with pytest.raises(SpecError, match="not in normal order"):
        Compose((ComposeStage(Add(), 3, (~2, ~1)), ComposeStage(Relu(), 3, (0,)), ComposeStage(Gelu(), 3, (~1,))))


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        (
            [ComposeStage(Relu(), 3, (~1,)), ComposeStage(Relu(), 3, (0,)), ComposeStage(Relu(), 3, (0,))],
            "nothing uses the output of Relu",
        ),
        (
            [ComposeStage(Relu(), 3, (~1,)), ComposeStage(Add(), 3, (~2, 0)), ComposeStage(Relu(), 3, (~1,))],
            "depends on its own output",
        ),
        (
            [ComposeStage(Relu(), 3, (~1,)), ComposeStage(Relu(), 2, (0,))],
            "Relu reads 3 dimensions, but Relu before it makes 2",
        ),
        ([ComposeStage(Add(), 3, (~1, 0)), ComposeStage(Relu(), 3, (0, 1))], r"Relu has 1 input \(src\), not 2"),
        ([ComposeStage(Matmul(), 3, (~1, 0)), ComposeStage(Relu(), 3, (0,))], "Matmul has 4 dimensions, not 3"),
        ([ComposeStage(Relu(), 2, (~1,)), ComposeStage(Softmax(dim=2), 2, (0,))], "does not apply to 2 dimensions"),
        ([ComposeStage(Relu(), 4, (~1,)), ComposeStage(mlp(), 4, (0, 1, 2))], "cannot contain a Compose"),
        (
            [ComposeStage(Add(), 3, (~1, 0)), ComposeStage(Matmul(accumulate=True), 4, (0, 1))],
            "only the first operation may do",
        ),
    ],
)
def test_invalid_graphs(stages: list[ComposeStage], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        arranged(stages)


def test_the_first_operation_runs_last() -> None:
    with pytest.raises(SpecError, match="Gelu makes an output from that of Relu, which comes first"):
        arranged([ComposeStage(Relu(), 3, (0,)), ComposeStage(Gelu(), 3, (~0,))], [1])


def test_a_stage_for_two_pieces_is_refused() -> None:
    with pytest.raises(Inapplicable, match="Matmul is needed both by Matmul and by Add"):
        mlp().cut([1])
    with pytest.raises(Inapplicable, match="has no intermediate 4"):
        mlp().cut([4])
    assert [str(piece.op) for piece in mlp().cut([3])] == [
        "Matmul",
        "Compose([out = Add(lhs0, out1), out1 = Matmul(out2, rhs1), out2 = Gelu(lhs0)])",
    ]


@pytest.mark.parametrize(
    ("dtypes", "intermediate"),
    [([F32] * 4, F32), ([BF16] * 4, BF16), ([BF16, BF16, F32, BF16], F32), ([I8, I8, I8, I32], I32), ([I8] * 4, I8)],
)
def test_types_of_intermediates(dtypes: list[DType], intermediate: DType) -> None:
    op = Compose.chain([Matmul(), Matmul()])
    assert op.stage_dtypes(1, dtypes) == (*dtypes[1:3], intermediate)
    assert op.stage_dtypes(0, dtypes) == (intermediate, dtypes[0], dtypes[3])


@pytest.mark.parametrize(
    ("op", "dtypes", "types"),
    [
        (Compose.chain([ArgMax(), Relu()], [2, 2]), [F32, I32], [I32, F32]),
        (Compose.chain([ArgMax(), Relu()], [2, 2]), [I8, I32], [I32, I8]),
        (
            arranged([ComposeStage(Gather(), 3, (0, ~1)), ComposeStage(Add(), 1, (1, 2))]).compose,
            [F32, I32, I32, F32],
            [F32, I32],
        ),
        (
            Compose.chain([Where(), by_name("And"), Transpose()], [2] * 3),
            [F32, F32, BOOL, BOOL, F32],
            [F32, BOOL, BOOL],
        ),
    ],
    ids=str,
)
def test_operations_decide_types_of_what_they_make_and_read(
    op: Compose, dtypes: list[DType], types: list[DType]
) -> None:
    shape = (2,) * len(op.dims(op.rank))
    assert op.refusal(shape, dtypes) is None
    assert [op.intermediate_dtype(stage, dtypes) for stage in range(len(types))] == types


def test_intermediates_have_the_types_of_their_piece() -> None:
    """A piece of f32 reads an output of bf16, so that programs that cut there compute as precisely."""
    stages = [ComposeStage(Relu(), 3, (~1,)), ComposeStage(Gelu(), 3, (~2,)), ComposeStage(Matmul(), 4, (0, 1))]
    op = arranged(stages, [1]).compose
    assert [op.intermediate_dtype(stage, [BF16, BF16, BF16, F32]) for stage in range(3)] == [F32, BF16, BF16]
    assert [op.intermediate_dtype(stage, [BF16, F32, BF16, BF16]) for stage in range(3)] == [BF16, BF16, F32]
    assert Compose(op.stages).intermediate_dtype(2, [BF16, BF16, F32]) == F32


def test_integers_wrap_around_on_the_way() -> None:
    op = Compose.chain([Relu(), Mul()], [1, 1])
    lhs, rhs = np.array([100]), np.array([2])
    assert op.evaluate((1,), [lhs, rhs], [I8] * 3)[0].tolist() == [0]  # 200 is -56 as i8
    assert op.evaluate((1,), [lhs, rhs], [I32] * 3)[0].tolist() == [200]


def test_norms() -> None:
    rng = np.random.default_rng(0)
    x, gamma, beta = rng.normal(size=(2, 3, 8)), rng.normal(size=(1, 1, 8)), rng.normal(size=(1, 1, 8))
    centred = x - x.mean(-1, keepdims=True)
    normal = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + np.float64(np.float32(1e-5)))
    for op, inputs, expected in [
        (named_graph("LayerNorm", 3), [beta, gamma, x], normal * gamma + beta),
        (named_graph("RMSNorm", 3, eps=0.0), [gamma, x], x / np.sqrt((x**2).mean(-1, keepdims=True)) * gamma),
    ]:
        assert op.rank == 3
        assert op.untiled(3) == (2,)
        close(op.evaluate((2, 3, 8), inputs, [F32] * (len(inputs) + 1))[0], expected)


def work(count: int) -> int:
    """Return the number of bytecode instructions to make a Compose of this many stages."""
    stages = (*(ComposeStage(Relu(), 2, (~(index + 1),)) for index in range(count - 1)), ComposeStage(Relu(), 2, (0,)))
    done = 0

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal done
        frame.f_trace_opcodes = True
        done += event == "opcode"
        return trace

    sys.settrace(trace)
    try:
        Compose(stages)
    finally:
        sys.settrace(None)
    return done


def test_work_grows_with_the_number_of_stages() -> None:
    """It is linear, so that thousands of stages parse at once."""
    few, many = work(200), work(400)
    assert 0 < few < many < 2.1 * few
