"""Holds what algorithms for convolutions move against known values, and direct ones against the bound."""

from __future__ import annotations

import attrs
import pytest
from morello_bounds.convolutions import ALGORITHMS, Layer
from morello_bounds.hbl import least_sigma
from morello_bounds.nest import Nest, parse_nest
from morello_bounds.traffic import smooth

from morello.errors import MorelloError
from morello.frontend.parser import parse_spec
from morello.plugins.registry import installed


def layer(text: str) -> Layer:
    return Layer.of(parse_spec(text, installed().target("x86_avx2", "base")))


def words(batch: int, channels: int, filters: int, size: int, window: int) -> Nest:
    loops = {"b": batch, "f": filters, "c": channels, "h": size, "w": size, "fh": window, "fw": window}
    return parse_nest(loops, "image[b,c,h+fh,w+fw] filters[f,c,fh,fw] out[b,f,h,w]")


CONV2_X = Layer(words(1000, 64, 64, 56, 3))


def test_products_of_patches_of_resnet() -> None:
    """2G/√M − 2M for im2col of conv2_x, three times the bound on the convolution: 150,003,712."""
    products = CONV2_X.patches
    assert smooth(products, 1 << 18, least_sigma(products)) == pytest.approx(451_059_712, abs=1)
    assert CONV2_X.bound(1 << 18) >= 150_003_712
    # The patches alone are more than that: 1000·56² of 9·64 values, written and read.
    moved = CONV2_X.moves("im2col", 1 << 18)
    assert moved is not None
    assert moved >= 2 * 1000 * 56**2 * 9 * 64


def test_naive_moves_three_values_for_each_point() -> None:
    assert CONV2_X.moves("naive", 1 << 18) == 3 * 115_605_504_000


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "Conv(1×4×4×8×8×3×3, (f32, GL), (f32, GL), (f32, GL), serial)",
        "Conv[stride=2, padding=1](2×4×3×6×6×3×3, (u8, GL), (i8, GL), (i32, GL), serial)",
        "GroupedConv(1×2×2×2×5×5×3×3, (bf16, GL), (bf16, GL), (f32, GL), serial)",
    ],
)
def test_no_direct_one_is_below_the_bound(text: str) -> None:
    one = layer(text)
    for memory in (256, 1024, 1 << 20):
        for name in ("direct", "im2col", "naive"):
            moved = one.moves(name, memory)
            assert moved is None or moved >= one.bound(memory)
    assert {one.moves(name, 1 << 30) for name in ALGORITHMS} <= {one.nest.compulsory, None}


@pytest.mark.slow
def test_more_memory_moves_no_more() -> None:
    one = layer("Conv(1×16×16×14×14×3×3, (f32, GL), (f32, GL), (f32, GL), serial)")
    for name in ("im2col", "winograd", "fft", "naive"):
        moved = [one.moves(name, 1 << at) or 0 for at in range(8, 22, 2)]
        assert moved == sorted(moved, reverse=True)


def test_winograd_has_sixteen_products_and_steps_of_one() -> None:
    one = layer("Conv(1×2×3×4×4×3×3, (f32, GL), (f32, GL), (f32, GL), serial)")
    tiles, values = 4, 16
    operands = 4 * (3 * 6 * 6 + 2 * 3 * 3 * 3 + 2 * 4 * 4)
    transformed = 4 * values * (tiles * 3 + 2 * 3 + tiles * 2)
    # Each of the products is so small that it moves its operands once; they are written and read between.
    assert one.moves("winograd", 512) == operands + 2 * transformed
    assert layer("Conv[stride=2](1×2×3×4×4×3×3, GL, GL, GL, serial)").moves("winograd", 512) is None
    assert layer("Conv[dilation=2](1×2×3×4×4×3×3, GL, GL, GL, serial)").moves("winograd", 512) is None


def test_groups_are_convolutions_of_their_own() -> None:
    grouped = layer("GroupedConv(1×3×2×2×5×5×3×3, (f32, GL), (f32, GL), (f32, GL), serial)")
    single = layer("Conv(1×2×2×5×5×3×3, (f32, GL), (f32, GL), (f32, GL), serial)")
    for name in ("im2col", "winograd", "fft", "naive"):
        each = single.moves(name, 64)
        assert each is not None
        assert grouped.moves(name, 64) == pytest.approx(3 * each, rel=0.001)


def test_other_operations_are_refused() -> None:
    with pytest.raises(MorelloError, match="Relu is not a convolution"):
        layer("Relu(8, (f32, GL), (f32, GL), serial)")
    with pytest.raises(MorelloError, match="unknown algorithm 'magic'"):
        CONV2_X.moves("magic", 1024)


def test_strides_count_in_transforms() -> None:
    """The whole image is transformed, also where outputs are few."""
    dense = layer("Conv(1×2×2×9×9×3×3, (f32, GL), (f32, GL), (f32, GL), serial)")
    strided = layer("Conv[stride=2](1×2×2×5×5×3×3, (f32, GL), (f32, GL), (f32, GL), serial)")
    fewer = 4 * 2 * (81 - 25)
    whole, less = dense.moves("fft", 256), strided.moves("fft", 256)
    assert whole is not None
    assert less is not None
    assert whole - less == fewer
    assert attrs.evolve(strided, strides=(1, 1)).moves("fft", 256) != less
