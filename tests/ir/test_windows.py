"""Convolutions and pools agree with their definitions, and images and outputs make padding exact."""

from __future__ import annotations

from itertools import product

import attrs
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from morello.errors import SpecError
from morello.ir.dtypes import F32
from morello.ir.ops import Operation
from morello.ir.ops.conv import Conv, Conv1d, Conv3d, GroupedConv
from morello.ir.ops.conv_transpose import ConvTranspose, GroupedConvTranspose
from morello.ir.ops.pool import AvgPool, MaxPool


def inputs_of(op: Operation, shape: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.uniform(0.5, 2, one.shape(shape)) for one in op.operands(len(shape)) if one.reads]


def test_convolutions_agree_with_their_definition() -> None:
    op = Conv(stride=(2, 1), dilation=(1, 2), padding=(1, 0, 2, 1))
    shape = (1, 1, 1, 3, 3, 2, 2)
    image, filters = inputs_of(op, shape)
    assert image.shape == (1, 1, 1 + 2 * 2 + 1 - 3, 1 + 2 + 2 - 1)
    (out,) = op.evaluate(shape, [image, filters], [F32] * 3)
    for h, w in product(range(3), range(3)):
        total = 0.0
        for fh, fw in product(range(2), range(2)):
            y, x = 2 * h + fh - 1, w + 2 * fw
            if 0 <= y < image.shape[2] and 0 <= x < image.shape[3]:
                total += image[0, 0, y, x] * filters[0, 0, fh, fw]
        assert out[0, 0, h, w] == pytest.approx(total)
    padded = np.pad(image, [(0, 0), (0, 0), (1, 2), (0, 1)])
    assert np.array_equal(op.unpadded().evaluate(shape, [padded, filters], [F32] * 3)[0], out)
    assert op.untiled(7) == (2, 3, 4, 5, 6)
    assert op.accumulating() == attrs.evolve(op, accumulate=True)


@given(
    st.sampled_from([Conv(), GroupedConv(accumulate=True)]),
    *[st.tuples(st.integers(low, high), st.integers(low, high)) for low, high in ((1, 9), (1, 3), (1, 3), (1, 3))],
    st.tuples(*[st.integers(0, 3)] * 4),
)
def test_an_image_makes_the_padding_exact(op, image, filters, stride, dilation, padding) -> None:
    pads = (padding[:2], padding[2:])
    spare = [
        size + before + after - apart * (each - 1) - 1
        for size, each, apart, before, after in zip(image, filters, dilation, *pads, strict=True)
    ]
    assume(min(spare) >= 0)
    # As frameworks round.
    output = [over // step + 1 for over, step in zip(spare, stride, strict=True)]
    shape = (*[1] * ((op.rank or 0) - 4), *output, *filters)
    given = {"stride": stride, "dilation": dilation, "padding": padding}
    unread = [over % step for over, step in zip(spare, stride, strict=True)]
    if any(over > after for over, after in zip(unread, padding[2:], strict=True)):
        with pytest.raises(SpecError, match="no filter reaches"):
            op.configured({**given, "image": image}, shape)
        return
    exact = op.configured({**given, "image": image}, shape)
    assert exact.operands(op.rank)[0].shape(shape)[-2:] == image
    assert exact.pads == (*padding[:2], padding[2] - unread[0], padding[3] - unread[1])
    assert exact.implied(shape).startswith(f"image {'×'.join(map(str, exact.operands(op.rank)[0].shape(shape)))}")
    wrong = (*shape[:-4], output[0] + 1, *shape[-3:])
    with pytest.raises(SpecError, match=f"make an output of {output[0]}×{output[1]}, not {output[0] + 1}×"):
        op.configured({**given, "image": image}, wrong)


@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize(("stride", "dilation", "padding"), [(1, 1, 0), ((2, 1), (1, 2), (1, 0, 2, 1)), (3, 1, 1)])
def test_pools_agree_with_their_definition(stride, dilation, padding, counted: bool) -> None:
    given = {"stride": stride, "dilation": dilation, "padding": padding}
    largest, mean = MaxPool(**given), AvgPool(**given, count_include_pad=counted)
    shape = (2, 2, 3, 4, 3, 2)
    (image,) = inputs_of(largest, shape)
    image = image - 1
    got = [op.evaluate(shape, [image], [F32, F32])[0] for op in (largest, mean)]
    (down, right), (apart, aside), (top, left, _, _) = largest.strides, largest.dilations, largest.pads
    for b, c, h, w in product(*map(range, shape[:4])):
        places = [
            (h * down + fh * apart - top, w * right + fw * aside - left) for fh, fw in product(range(3), range(2))
        ]
        seen = [image[b, c, y, x] for y, x in places if 0 <= y < image.shape[2] and 0 <= x < image.shape[3]]
        assert got[0][b, c, h, w] == max(seen)
        assert got[1][b, c, h, w] == pytest.approx(sum(seen) / (6 if counted else len(seen)))


def test_outputs_of_pools_may_be_rounded_up() -> None:
    shape = (1, 1, 3, 3, 2, 2)
    up = MaxPool().configured({"stride": 2, "image": 5}, shape)
    assert up == MaxPool(stride=2, padding=(0, 0, 1, 1))
    mean = AvgPool().configured({"stride": 2, "image": 5}, shape)
    assert mean.evaluate(shape, [np.ones((1, 1, 5, 5))], [])[0].tolist() == [[[[1.0] * 3] * 3]]
    with pytest.raises(SpecError, match="windows do not go beyond the padding"):
        AvgPool().configured({"stride": 2, "image": 5, "count_include_pad": True}, shape)
    with pytest.raises(SpecError, match="make an output of 3×3, not 4×4"):
        MaxPool().configured({"stride": 2, "image": 6}, (1, 1, 4, 4, 2, 2))


@pytest.mark.parametrize(
    ("op", "shape"),
    [
        (Conv1d(stride=2, dilation=2, padding=(1, 0)), (2, 3, 2, 4, 3)),
        (Conv3d(stride=(2, 1, 1), dilation=(1, 2, 1), padding=(1, 0, 1, 0, 0, 1)), (1, 2, 2, 2, 3, 2, 2, 1, 3)),
    ],
    ids=["1d", "3d"],
)
def test_convolutions_of_other_axes_agree_with_their_definition(op, shape: tuple[int, ...]) -> None:
    image, filters = inputs_of(op, shape)
    n = op.axes
    expected = np.zeros(op.operands(len(shape))[2].shape(shape))
    for b, f, c, *rest in product(*map(range, shape)):
        steps = zip(rest[:n], op.strides, rest[n:], op.dilations, op.pads[:n], strict=True)
        at = [own * stride + other * apart - before for own, stride, other, apart, before in steps]
        if all(0 <= one < size for one, size in zip(at, image.shape[2:], strict=True)):
            expected[(b, f, *rest[:n])] += image[(b, c, *at)] * filters[(f, c, *rest[n:])]
    np.testing.assert_allclose(op.evaluate(shape, [image, filters], [F32] * 3)[0], expected)


@pytest.mark.parametrize(("stride", "dilation", "padding"), [(1, 1, 0), (2, 1, (1, 0, 2, 1)), ((3, 1), (1, 2), 1)])
def test_transposed_convolutions_agree_with_their_definition(stride, dilation, padding) -> None:
    op, shape = ConvTranspose(stride=stride, dilation=dilation, padding=padding), (2, 3, 2, 3, 4, 3, 2)
    image, filters = inputs_of(op, shape)
    expected = np.zeros(op.operands(7)[2].shape(shape))
    (down, right), (apart, aside), (top, left, _, _) = op.strides, op.dilations, op.pads
    for b, f, c, h, w, fh, fw in product(*map(range, shape)):
        y, x = h * down + fh * apart - top, w * right + fw * aside - left
        if 0 <= y < expected.shape[2] and 0 <= x < expected.shape[3]:
            expected[b, f, y, x] += image[b, c, h, w] * filters[c, f, fh, fw]
    np.testing.assert_allclose(op.evaluate(shape, [image, filters], [F32] * 3)[0], expected)


def test_groups_of_transposed_convolutions_are_apart() -> None:
    given, rng = {"stride": 2, "padding": (1, 0, 0, 1)}, np.random.default_rng(0)
    image, filters = rng.normal(size=(2, 3, 2, 4, 3)), rng.normal(size=(3, 2, 5, 3, 2))
    (made,) = GroupedConvTranspose(**given).evaluate((2, 3, 5, 2, 4, 3, 3, 2), [image, filters], [F32] * 3)
    for group in range(3):
        inputs = [image[:, group], filters[group]]
        (expected,) = ConvTranspose(**given).evaluate((2, 5, 2, 4, 3, 3, 2), inputs, [F32] * 3)
        np.testing.assert_allclose(made[:, group], expected)


def test_sizes_that_follow_are_those_that_windows_move_on() -> None:
    shape = (1, 2, 3, 4, 5, 3, 3)
    assert Conv(stride=2).implied(shape) == "image 1×3×9×11"
    assert ConvTranspose(stride=2).implied(shape) == "out 1×2×9×11"


@pytest.mark.parametrize("op", [Conv(), Conv1d(), Conv3d(), MaxPool()], ids=str)
@pytest.mark.parametrize("name", ["stride", "dilation", "padding"])
def test_equal_numbers_of_the_right_count_are_one(op: Conv | Conv1d | Conv3d | MaxPool, name: str) -> None:
    count = op.axes * (2 if name == "padding" else 1)
    assert op.configured({name: (2,) * count}) == op.configured({name: 2})
    for wrong in {0, 1, 2, 3, 4, 6} - {count}:
        with pytest.raises(SpecError, match=f"{name} is a number of at least"):
            op.configured({name: (2,) * wrong})


def test_an_output_makes_the_padding_of_a_transposed_convolution_exact() -> None:
    shape = (1, 1, 1, 5, 5, 3, 3)
    op = ConvTranspose().configured({"stride": 2, "padding": 1, "output": 10}, shape)
    assert op == ConvTranspose(stride=2, padding=(1, 1, 0, 0))
    assert op.operands(7)[2].shape(shape) == (1, 1, 10, 10)
    with pytest.raises(SpecError, match="no product reaches the last rows or columns of an output of 12×12"):
        ConvTranspose().configured({"stride": 2, "output": 12}, shape)


def test_windows_of_large_images_are_checked_without_their_pixels() -> None:
    assert MaxPool(padding=1).refusal((1, 1, 2**20, 2**20, 3, 3), [F32, F32]) is None
