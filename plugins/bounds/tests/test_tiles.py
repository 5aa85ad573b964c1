"""Tiles: known ones, those that attain bounds, and whole ones for several buffers."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from morello_bounds.nest import Nest, parse_nest
from morello_bounds.regions import TileTable, table
from morello_bounds.tiles import FastMemory, best_tiling, held, largest_tile, stretched, tile_moves, whole_tile
from morello_bounds.traffic import traffic

from morello.errors import MorelloError

from .programs import convolution, product, tile_exponents

OUTER = parse_nest({"i": 4096, "j": 4096, "l": 16}, "A[i,l] C[i,j] B[j,l]")
#: The scratchpad of inputs and filters and the accumulator of an accelerator, both half for what comes next, in values.
ACCELERATOR = (FastMemory(131_072, (0, 1)), FastMemory(8192, (2,)))


@pytest.mark.parametrize(("alpha", "sizes"), [(0, (256, 16, 16)), (0.5, (128, 32, 16)), (1, (64, 64, 16))])
def test_a_family_of_tiles_is_best(alpha: float, sizes: tuple[int, ...]) -> None:
    found = largest_tile(OUTER, 4096, alpha)
    assert found.sizes == pytest.approx(sizes, rel=1e-6)
    assert found.points == pytest.approx(65_536, rel=1e-6)
    assert OUTER.points * 4096 / found.points == pytest.approx(4096 * 4096, rel=1e-6)


@pytest.mark.parametrize(
    ("nest", "memory", "points", "moved"),
    [
        (attrs.evolve(OUTER, sizes=(4096, 4096, 1)), 4096, 4096, 16_777_216),
        (attrs.evolve(OUTER, sizes=(4096, 4096, 4096)), 4096, 262_144, 1_073_741_824),
        (parse_nest({"i": 10**5, "j": 10**5}, "P[i] Q[j]"), 8192, 67_108_864, 1_220_703.125),
        (parse_nest({"i": 10**3, "j": 10**5}, "P[i] Q[j]"), 8192, 8_192_000, 1e5),
        (parse_nest({"i": 10**3, "j": 10**3}, "P[i] Q[j]"), 8192, 1e6, 8192),
        (convolution(64, 64, 56, 3).lifted(), 8192, 2_224_366, None),
        (convolution(3, 64, 112, 7, 2).lifted(), 8192, 1_204_224, 802_816),
        # An output of one pixel: positions of the filter are no reuse.
        (
            parse_nest(
                {"b": 256, "c": 16, "k": 128, "w": 1, "h": 1, "r": 16, "s": 8},
                "In[b,c,w+r,h+s] F[k,c,r,s] Out[b,k,w,h]",
            ),
            256,
            4096,
            None,
        ),
    ],
)
def test_largest_tiles(nest: Nest, memory: int, points: float, moved: float | None) -> None:
    found = largest_tile(nest, memory)
    assert found.points == pytest.approx(points, rel=1e-4)
    if moved is not None:
        assert nest.points * memory / found.points == pytest.approx(moved, rel=1e-4)


def test_tiles_of_convolutions_are_no_larger_than_real_ones() -> None:
    """Σλ is 1.62 and 1.55 for the first layers of ResNet; 1.5 where the output is a pixel, less than by the image."""
    layers = convolution(64, 64, 56, 3), convolution(3, 64, 112, 7, 2)
    found = [sum(largest_tile(layer.lifted(), 8192).exponents) for layer in layers]
    assert found == pytest.approx([1.621920, 1.553821], abs=1e-6)
    sizes = {"b": 256, "c": 16, "k": 128, "w": 1, "h": 1, "r": 16, "s": 8}
    pixel = parse_nest(sizes, "In[b,c,w+r,h+s] F[k,c,r,s] Out[b,k,w,h]")
    assert math.log(pixel.points * 256 / pixel.touched(pixel.arrays[0]), 256) == pytest.approx(1.875)
    assert sum(largest_tile(pixel, 256).exponents) == pytest.approx(1.5)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(st.tuples(*[st.integers(1, 5000)] * 3), st.sampled_from([256, 4096]))
def test_tiles_have_as_many_points_as_the_dual_allows(sizes: tuple[int, ...], memory: int) -> None:
    nest = product(*sizes)
    beta = [Fraction(math.log(size, memory)) for size in sizes]
    exponents = tile_exponents(nest, beta)
    most = sum(float(b * z) for b, z in zip(beta, exponents.zeta, strict=True)) + float(exponents.sigma)
    assert sum(largest_tile(nest, memory).exponents) == pytest.approx(most, abs=1e-6)


@pytest.mark.parametrize(
    ("memory", "sides"),
    [(48, [4, 4, 4]), (300, [10, 10, 10]), pytest.param(8192, [49, 50, 58], marks=pytest.mark.slow)],
)
def test_whole_tiles_of_products(memory: int, sides: list[int]) -> None:
    """They have a little less than the (M/3)^(3/2) points of a cube that need not be whole."""
    nest = product(2048, 2048, 2048)
    assert sorted(whole_tile(nest, [FastMemory(memory, (0, 1, 2))])) == sides
    assert math.prod(sides) <= math.prod(stretched(nest, memory, [1.0] * 3)) == pytest.approx((memory / 3) ** 1.5)


@pytest.mark.parametrize(
    ("layer", "points", "sizes"),
    [
        (convolution(3, 64, 112, 7, 2), 24_576, None),
        (convolution(64, 64, 56, 3), 524_288, None),
        (convolution(128, 128, 28, 3), 1_048_576, None),
        (convolution(256, 256, 14, 3), 1_679_524, (1, 209, 41, 14, 14)),
        (convolution(512, 512, 7, 3), 675_122, (1, 83, 166, 7, 7)),
        (convolution(512, 512, 7, 3, batch=4), 1_518_804, None),
    ],
    ids=["conv1", "conv2_x", "conv3_x", "conv4_x", "conv5_x", "conv5_x of 4 images"],
)
def test_whole_tiles_of_an_accelerator(layer: Nest, points: int, sizes: tuple[int, ...] | None) -> None:
    tile = whole_tile(layer, ACCELERATOR, kept=(5, 6))
    assert math.prod(tile[:5]) == points
    assert sizes in (None, tile[:5])
    assert tile[5:] == layer.sizes[5:]
    for buffer in ACCELERATOR:
        assert sum(held(layer.arrays[one], tile) for one in buffer.arrays) <= buffer.capacity
    assert _rows(layer, tile) <= _rows(layer, _greedy(layer))


def _rows(layer: Nest, tile: tuple[int, ...]) -> float:
    """Values that tiles load and store, per point."""
    return int(sum(held(array, tile) for array in layer.arrays)) * layer.points / math.prod(tile)


def _greedy(layer: Nest) -> tuple[int, ...]:
    """A tile that grows along one loop after the other as long as it fits."""
    tile = [*([1] * 5), *layer.sizes[5:]]
    for loop in (3, 4, 2, 1, 0):
        while tile[loop] < layer.sizes[loop]:
            tile[loop] += 1
            if any(sum(held(layer.arrays[one], tile) for one in each.arrays) > each.capacity for each in ACCELERATOR):
                tile[loop] -= 1
                break
    return tuple(tile)


@settings(max_examples=25, deadline=None)
@given(st.tuples(*[st.integers(1, 6)] * 3), st.integers(3, 60))
def test_whole_tiles_are_the_largest(sizes: tuple[int, ...], memory: int) -> None:
    nest = product(*sizes)
    best = max(
        i * j * k
        for i in range(1, sizes[0] + 1)
        for j in range(1, sizes[1] + 1)
        for k in range(1, sizes[2] + 1)
        if i * j + j * k + i * k <= memory
    )
    assert math.prod(whole_tile(nest, [FastMemory(memory, (0, 1, 2))])) == best


def test_too_little_memory_for_a_tile() -> None:
    with pytest.raises(MorelloError, match="a tile of one point does not fit"):
        whole_tile(product(4, 4, 4), [FastMemory(2, (0, 1, 2))])
    with pytest.raises(MorelloError, match="no tiles"):
        largest_tile(product(4, 4, 4), 1)
    assert best_tiling(product(4, 4, 4), 2) is None


def test_tiles_come_close_to_the_bound() -> None:
    """Tiles of 90×89, whose sums stay, move 6.1 % more than any program must; powers of two 44 %."""
    nest = product(2048, 2048, 2048)
    found = best_tiling(nest, 8192)
    assert found is not None
    assert found.bytes <= 201_326_592
    assert found.bytes <= 1.07 * traffic(nest, 8192).bytes
    assert tile_moves(nest, (90, 1, 90), 1) == 192_937_984 + 4_194_304
    assert tile_moves(nest, (64, 1, 64), 1) == 268_435_456 + 4_194_304
    smallest = 2 * 2048**3 / 8192**0.5 - 2 * 8192
    assert tile_moves(nest, (90, 1, 90), 1) / smallest == pytest.approx(1.039, abs=1e-3)
    assert tile_moves(nest, (64, 1, 64), 1) / smallest == pytest.approx(1.44, abs=5e-3)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(st.tuples(*[st.integers(1, 64)] * 3), st.integers(3, 500))
def test_no_tiles_move_less_than_the_bound(sizes: tuple[int, ...], memory: int) -> None:
    nest = product(*sizes)
    found = best_tiling(nest, memory)
    assert found is not None
    assert sum(held(array, found.sizes) for array in nest.arrays) <= memory
    assert found.bytes >= traffic(nest, memory).bytes


@pytest.fixture(scope="module")
def regions() -> TileTable:
    return table(product(1, 1, 1))


def test_regions_of_products(regions: TileTable) -> None:
    """The value is 3/2, 1 + β of one loop, or Σβ: five functions."""
    values = {(one.value[-1], *one.value[:-1]) for one in regions.regions}
    units = {tuple(int(at == loop) for at in range(3)) for loop in range(3)}
    assert values == {(Fraction(3, 2), 0, 0, 0), (0, 1, 1, 1), *((1, *unit) for unit in units)}


def test_regions_agree_with_the_program(regions: TileTable) -> None:
    rng = random.Random(0)
    for _ in range(200):
        beta = [Fraction(rng.randrange(301), 100) for _ in range(3)]
        exponents = regions.exponents(beta)
        assert sum(exponents) == min(Fraction(3, 2), 1 + min(beta), sum(beta))
        assert all(0 <= one <= limit for one, limit in zip(exponents, beta, strict=True))
        assert max(a + b for a, b in zip(exponents, (*exponents[1:], exponents[0]), strict=True)) <= 1


@pytest.mark.parametrize(
    ("loops", "accesses", "regions"),
    [
        pytest.param("bckwr", "In[b,c,w+r] F[k,c,r] Out[b,k,w]", 26, marks=pytest.mark.slow),
        # Positions of the filter as r = 2r' + u, for a stride of 2 ([Dinh2023] §4.2).
        pytest.param("bckwru", "In[b,c,w+r,u] F[k,c,r,u] Out[b,k,w]", 36, marks=pytest.mark.slow),
    ],
)
def test_regions_of_convolutions(loops: str, accesses: str, regions: int) -> None:
    """They leave no gaps: random sizes find no other ones."""
    nest = parse_nest(dict.fromkeys(loops, 1), accesses)
    made = table(nest)
    rng = random.Random(0)
    for _ in range(60):
        beta = [Fraction(rng.randrange(2001), 1000) for _ in loops]
        sized = attrs.evolve(nest, sizes=tuple(round(4096 ** float(one)) for one in beta))
        exact = [Fraction(math.log(size, 4096)).limit_denominator(10**7) for size in sized.sizes]
        exponents = made.exponents(exact)
        assert float(sum(exponents)) == pytest.approx(sum(largest_tile(sized, 4096).exponents), abs=1e-5)
    assert len(made.regions) == regions


def test_regions_of_sizes_there_are_not(regions: TileTable) -> None:
    with pytest.raises(MorelloError, match="no region"):
        regions.exponents([Fraction(-1)] * 3)


@pytest.mark.parametrize(
    ("sizes", "accesses", "memory", "most"),
    [
        ("bckwhrs", "In[b,c,w+r,h+s] F[k,c,r,s]", 131_072, 12.724),
        ("bckwhrs", "In[b,c,w+r,h+s] F[k,c,r,s]", 103_680, 12),
        ("bckwhrs", "In[b,c,w+r,h+s] F[k,c,r,s]", 142_805, 13),
        ("mkn", "A[m,k] B[k,n] C[m,n]", 8192, 52.256),
    ],
)
def test_shapes_are_stretched_until_memory_is_full(sizes: str, accesses: str, memory: int, most: float) -> None:
    """With all loops as long as each other: 12 fit, which take 103,680 of 131,072 values, and 13 do not."""
    nest = parse_nest(dict.fromkeys(sizes, 1000), accesses)
    assert stretched(nest, memory, [1.0] * len(sizes)) == pytest.approx([most] * len(sizes), rel=1e-4)
    assert stretched(nest, 10**20, [1.0] * len(sizes)) == (1000.0,) * len(sizes)


@settings(max_examples=30, deadline=None)
@given(st.tuples(*[st.floats(0.01, 1)] * 7), st.integers(10, 10**6))
def test_each_shape_is_a_tile_that_fits(shape: tuple[float, ...], memory: int) -> None:
    layer = convolution(64, 64, 56, 3)
    tile = stretched(layer, memory, shape)
    whole = [max(1, int(one)) for one in tile]
    assert all(one <= size for one, size in zip(tile, layer.sizes, strict=True))
    if min(tile) >= 1:
        assert sum(held(array, whole) for array in layer.arrays) <= memory
