"""Bounds on traffic: known values, the oracle, and tampered proofs."""

from __future__ import annotations

from fractions import Fraction

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from morello_bounds.hbl import Exponents, least_sigma
from morello_bounds.nest import Nest, nest_of, parse_nest
from morello_bounds.tiles import tile_moves
from morello_bounds.traffic import Traffic, best_segments, check, smooth, traffic

from morello.errors import MorelloError
from morello.frontend.parser import parse_spec
from morello.plugins.registry import installed
from tools.fuzz.pebbling import pebble

from .programs import convolution, product

HALF = Fraction(1, 2)
WORDS = 8192


def exponents(nest: Nest, s: Fraction, **zeta: Fraction) -> Exponents:
    return Exponents((s,) * 3, tuple(zeta.get(loop.strip("′″"), Fraction(0)) for loop in nest.loops))


def second(nest: Nest, memory: int) -> float:
    """The term 9G/(4M) − M of [Dinh2023] Theorem 15."""
    return smooth(nest, memory, exponents(nest, Fraction(2, 3)))


def third(nest: Nest, memory: int) -> float:
    """The term 2G/√(Q·M) − 2M, with Q the positions of a filter that windows share, or the windows if fewer."""
    nest = nest.lifted()
    by_loop = dict(zip([loop.removesuffix("′") for loop in nest.loops], nest.sizes, strict=True))
    chosen = {min(pair, key=lambda loop: by_loop[loop]) for pair in (("w", "r"), ("h", "s"))}
    zeta = tuple(HALF if loop.removesuffix("′") in chosen else Fraction(0) for loop in nest.loops)
    return smooth(nest, memory, Exponents((HALF,) * 3, zeta))


def uncorrected(layer: Nest, stride: int, memory: int) -> float:
    """The last term of Theorem 15 as printed, 2G·√(σσ)/√(rs·M) − 2M; with strides it does not bound."""
    positions = layer.sizes[-1] * layer.sizes[-2]
    return 2 * stride * layer.points / (positions * memory) ** 0.5 - 2 * memory


def test_product_of_large_matrices() -> None:
    """2G/√M − 2M: tiles of 90×90 whose sums stay move 3.9 % more than that."""
    nest = product(2048, 2048, 2048)
    assert smooth(nest, WORDS, least_sigma(nest)) == pytest.approx(189_796_147.2, abs=0.1)
    found = traffic(nest, WORDS)
    assert 189_796_147 <= found.bytes <= 192_937_984 + 4_194_304
    check(found)


def test_product_in_bytes() -> None:
    nest = product(2048, 2048, 2048, 4)
    assert smooth(nest, 4 * WORDS, least_sigma(nest)) == pytest.approx(759_184_589, abs=1)
    assert traffic(nest, 4 * WORDS).bytes >= 759_184_589


@pytest.mark.parametrize(("shape", "words"), [((1, 16384, 2048), 33_572_864), ((8, 16384, 2048), 33_701_888)])
def test_products_of_few_rows_move_what_they_touch(shape: tuple[int, int, int], words: int) -> None:
    assert traffic(product(*shape), WORDS).bytes == words


def test_between_touching_and_reuse_a_mixed_inequality_is_best() -> None:
    found = traffic(product(32, 2048, 2048), WORDS)
    assert found.compulsory == 4_325_376
    assert found.bytes >= 4_650_000
    assert smooth(found.nest, WORDS, least_sigma(found.nest)) == pytest.approx(2_949_437, abs=1)
    assert found.segments is not None
    assert [*map(float, found.segments.exponents.zeta)] == pytest.approx([0.76, 0, 0], abs=0.02)
    check(found)


def test_mttkrp() -> None:
    nest = parse_nest({"i": 512, "j": 512, "k": 512, "r": 1024}, "X[i,j,k] A[j,r] B[k,r] C[i,r]")
    assert smooth(nest, WORDS, least_sigma(nest)) == pytest.approx(1_014_610_156.7, abs=0.1)


def test_pairs() -> None:
    """G/M − M with two arrays, 2G/M − M with three."""
    nest = parse_nest({"i": 10**5, "j": 10**5}, "P[i] Q[j]")
    assert smooth(nest, WORDS, Exponents((Fraction(1), Fraction(1)), (Fraction(0),) * 2)) == pytest.approx(
        10**10 / WORDS - WORDS
    )
    nest = parse_nest({"i": 10**5, "j": 10**5}, "P[i] Q[j] F[i]")
    # σ = 2, and the exponents of the two arrays of i share the rest.
    found = smooth(nest, WORDS, Exponents((HALF, Fraction(1), HALF), (Fraction(0),) * 2))
    assert found == pytest.approx(2 * 10**10 / WORDS - WORDS)


@pytest.mark.parametrize(
    ("sizes", "factor"), [((1, 1, 1), 9 / 4), ((1, 1, 2), 4), ((1, 1, 4), 8), ((HALF / 2, HALF / 2, 1), 1 / 2)]
)
def test_constants_of_convolutions(sizes: tuple[Fraction, ...], factor: float) -> None:
    """(p_I + p_F + p_O)²/4, or p_j·(p_k + p_l) where one is larger than both others together."""
    nest = convolution(64, 64, 56, 3)
    scale = 4
    whole = tuple(int(one * scale) for one in sizes)
    nest = attrs.evolve(
        nest, arrays=tuple(attrs.evolve(one, bytes=size) for one, size in zip(nest.arrays, whole, strict=True))
    )
    total = sum(whole)
    largest = max(whole)
    if 2 * largest <= total:
        s = [Fraction(2 * one, total) for one in whole]
    else:
        s = [Fraction(1) if one == largest else Fraction(one, total - largest) for one in whole]
    found = smooth(nest, WORDS * scale, Exponents(tuple(s), (Fraction(0),) * 7))
    assert (found + WORDS * scale) * WORDS / nest.points / scale == pytest.approx(factor)


@pytest.mark.parametrize(
    ("layer", "compulsory", "terms"),
    [
        (convolution(3, 64, 112, 7, 2), 969_547, (24_221.5, 635_557.1)),
        (convolution(64, 64, 56, 3), 452_864, (23_560.0, 835_131.0)),
        (convolution(128, 128, 28, 3), 363_008, None),
        (convolution(256, 256, 14, 3), 705_536, None),
        (convolution(512, 512, 7, 3), 2_425_856, None),
    ],
    ids=["conv1", "conv2_x", "conv3_x", "conv4_x", "conv5_x"],
)
def test_layers_of_resnet(layer: Nest, compulsory: int, terms: tuple[float, float] | None) -> None:
    assert layer.points == (118_013_952 if layer.arrays[1].rows(7) and layer.sizes[1] == 3 else 115_605_504)
    assert layer.compulsory == compulsory
    found = traffic(layer, WORDS)
    check(found)
    if terms:
        assert (second(layer, WORDS), third(layer, WORDS)) == pytest.approx(terms, abs=0.5)
        assert found.bytes >= max(compulsory, *terms) - 1
    else:
        assert found.bytes >= compulsory


def test_batches_of_resnet() -> None:
    memory = 262_144
    for channels, size in ((64, 56), (128, 28), (256, 14), (512, 7)):
        layer = convolution(channels, channels, size, 3, batch=1000)
        assert third(layer, memory) == pytest.approx(150_003_712, abs=1)
    first = convolution(3, 64, 112, 7, 2, batch=1000)
    assert third(first, memory) == pytest.approx(114_723_712, abs=1)
    # As a product of matrices of patches it moves about three times as much.
    patches = product(1000 * 56 * 56, 64 * 9, 64)
    assert smooth(patches, memory, least_sigma(patches)) == pytest.approx(451_059_712, abs=1)


def test_strides_skip_no_more_than_filters_have() -> None:
    """The term as it is printed takes 7/2 positions for four, and for 1×1 filters 1/2 for one.

    There a product of as many pixels moves less than that, in tiles of 90 by 90 sums.
    """
    first = convolution(3, 64, 112, 7, 2)
    assert uncorrected(first, 2, WORDS) == pytest.approx(728_691.6, abs=0.1)
    assert third(first, WORDS) < uncorrected(first, 2, WORDS)
    assert uncorrected(convolution(3, 64, 112, 7, 2, batch=1000), 2, 262_144) == pytest.approx(131_187_712, abs=1)
    single = convolution(1024, 1024, 1024, 1, 2)
    moved = tile_moves(product(1 << 20, 1024, 1024), (90, 1, 90), 1)
    assert moved == pytest.approx(2.618e10, rel=1e-3)
    assert traffic(single, WORDS).bytes <= moved < uncorrected(single, 2, WORDS) == pytest.approx(4.859e10, rel=1e-3)


def test_a_stride_over_single_filter_positions_does_not_tighten() -> None:
    """Of 1×1 filters with stride 2 no window overlaps another: the ceiling of 1/2 is 1, and tiles achieve 2.618e10."""
    loops = {"c": 1024, "k": 1024, "w": 1024, "h": 1024, "r": 1, "s": 1}
    nest = parse_nest(loops, "In[c,2w+r,2h+s] F[k,c,r,s] Out[k,w,h]")
    lifted = nest.lifted()
    zeta = tuple(HALF if loop in ("r′", "s′") else Fraction(0) for loop in lifted.loops)
    found = smooth(lifted, WORDS, Exponents((HALF,) * 3, zeta))
    assert found == pytest.approx(2.430e10, rel=1e-3)
    assert traffic(nest, WORDS).bytes <= 2.618e10


def test_small_outputs_reuse_no_filter_position() -> None:
    """One pixel is fewer than 16×8 positions, so slices along pixels are better."""
    loops = {"b": 256, "c": 16, "k": 128, "w": 1, "h": 1, "r": 16, "s": 8}
    nest = parse_nest(loops, "In[b,c,w+r,h+s] F[k,c,r,s] Out[b,k,w,h]")
    assert third(nest, 256) == pytest.approx(2 * nest.points / 16 - 2 * 256)
    assert traffic(nest, 256).bytes >= third(nest, 256) - 1


def test_segments_of_hong_and_kung() -> None:
    """The older bound n³/√(2M) is 512 for 16³ and 32 values, and below this one."""
    assert traffic(product(16, 16, 16), 32).bytes >= 16**3 / (2 * 32) ** 0.5 == 512


SLOW = pytest.mark.slow
PEBBLED = {
    "product 2×2×2": (parse_nest({"m": 2, "k": 2, "n": 2}, "A[m,k] B[k,n] C[m,n]"), (17, 14, 13, 12)),
    "pairs 3×3": (parse_nest({"i": 3, "j": 3}, "P[i] Q[j] F[i]"), (13, 11, 9, 9)),
    "pairs 4×3": (parse_nest({"i": 4, "j": 3}, "P[i] Q[j] F[i]"), (17, 14, 11, 11)),
    "convolution 3, 3": (parse_nest({"w": 3, "r": 3}, "I[w+r] F[r] O[w]"), (19, 14, 12, 11)),
    "strided 3, 3": (parse_nest({"w": 3, "r": 3}, "I[2w+r] F[r] O[w]"), (19, 15, 13, 13)),
    "dot 4": (parse_nest({"k": 4}, "A[k] B[k] C[]"), (9, 9, 9, 9)),
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=SLOW if name == "pairs 4×3" else ()) for name in PEBBLED])
def test_exact_pebblings(name: str) -> None:
    nest, least = PEBBLED[name]
    for memory, moves in zip((3, 4, 5, 6), least, strict=True):
        assert pebble(nest, memory) == moves
        assert traffic(nest, memory).bytes <= moves


@pytest.mark.slow
def test_exact_pebbling_of_a_longer_convolution() -> None:
    nest = parse_nest({"w": 4, "r": 3}, "I[w+r] F[r] O[w]")
    assert [pebble(nest, memory) for memory in (3, 4, 5, 6)] == [25, 16, 14, 13]


def test_pebbling_sums_that_go_on() -> None:
    nest = PEBBLED["product 2×2×2"][0]
    arrays = tuple(attrs.evolve(one, reads=True) for one in nest.arrays)
    assert pebble(attrs.evolve(nest, arrays=arrays), 4) == 14 + 4


def test_pebbling_refuses_what_takes_too_long_or_has_no_room() -> None:
    with pytest.raises(MorelloError, match="too many states"):
        pebble(product(4, 4, 4), 5)
    with pytest.raises(MorelloError, match="too few"):
        pebble(product(1, 2, 1), 2)


nests = st.one_of(
    st.builds(product, st.integers(1, 2), st.integers(1, 3), st.integers(1, 2)),
    st.builds(lambda i, j: parse_nest({"i": i, "j": j}, "P[i] Q[j] F[i]"), st.integers(1, 4), st.integers(1, 3)),
    st.builds(
        lambda w, r, s: parse_nest({"w": w, "r": r}, f"I[{s}w+r] F[r] O[w]"),
        st.integers(1, 3),
        st.integers(1, 3),
        st.integers(1, 3),
    ),
)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(nests, st.integers(3, 6), st.booleans())
def test_no_pebbling_moves_less(nest: Nest, memory: int, accumulates: bool) -> None:
    if accumulates:
        arrays = tuple(attrs.evolve(one, reads=True) for one in nest.arrays)
        nest = attrs.evolve(nest, arrays=arrays)
    found = traffic(nest, memory)
    check(found)
    assert found.bytes <= pebble(nest, memory)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.tuples(*[st.integers(1, 40)] * 3), st.integers(4, 60), st.sampled_from(["mkn", "nmk", "kmn"]))
def test_no_tiling_moves_less(shape: tuple[int, int, int], memory: int, order: str) -> None:
    """Sums of a tile stay while k goes by: rows and columns are loaded for each tile."""
    m, k, n = shape
    side = max(1, int((memory + 1) ** 0.5) - 1)
    moved = m * k * -(-n // side) + k * n * -(-m // side) + m * n
    assert traffic(product(m, k, n), memory).bytes <= moved


def made() -> Traffic:
    return traffic(product(2048, 2048, 2048, 4), 4 * WORDS)


@pytest.mark.parametrize(
    "tampered",
    [
        lambda bound, proof: attrs.evolve(bound, compulsory=bound.compulsory + 1),
        lambda bound, proof: attrs.evolve(bound, memory=bound.memory // 2),
        lambda bound, proof: attrs.evolve(bound, nest=product(4096, 2048, 2048, 4)),
        lambda bound, proof: attrs.evolve(bound, segments=attrs.evolve(proof, share=proof.share + 1)),
        lambda bound, proof: attrs.evolve(bound, segments=attrs.evolve(proof, loaded=proof.loaded + 4)),
        lambda bound, proof: attrs.evolve(bound, segments=attrs.evolve(proof, loaded=proof.loaded + 1)),
        lambda bound, proof: attrs.evolve(
            bound,
            segments=attrs.evolve(proof, exponents=attrs.evolve(proof.exponents, s=(HALF, HALF, Fraction(1, 3)))),
        ),
        lambda bound, proof: attrs.evolve(bound, resident=frozenset({0})),
    ],
)
def test_tampered_proofs_are_refused(tampered) -> None:
    bound = made()
    check(bound)
    with pytest.raises(MorelloError, match="not proven"):
        check(tampered(bound, bound.segments))


def test_what_is_resident_is_free() -> None:
    """A matrix in fast memory is not loaded; the others are no less often."""
    nest = product(512, 512, 512)
    found = traffic(nest, WORDS, frozenset({2}))
    check(found)
    assert found.compulsory == 2 * 512 * 512
    assert found.bytes < traffic(nest, WORDS).bytes


def test_values_of_several_sizes() -> None:
    """With bytes of 1 and 4, a segment may load a value more than it has bytes left for."""
    arrays = product(512, 512, 512).arrays
    nest = attrs.evolve(product(512, 512, 512), arrays=(*arrays[:2], attrs.evolve(arrays[2], bytes=4)))
    found = best_segments(nest, 4096, frozenset())
    assert found is not None
    assert found.held == found.memory + found.loaded + 3


def test_any_spec_is_a_nest() -> None:
    target = installed().target("x86_avx2", "base")
    spec = parse_spec("Conv[stride=2, padding=1](2×8×4×7×7×3×3, (u8, GL), (i8, GL), (i32, GL))", target)
    nest = nest_of(spec)
    assert nest.loops == ("b", "f", "c", "h", "w", "fh", "fw")
    assert [one.bytes for one in nest.arrays] == [1, 1, 4]
    assert nest.touched(nest.arrays[0]) == 2 * 4 * 13 * 13
    assert 0 < nest.lost < nest.points
    compose = parse_spec("Compose([Relu, Matmul], [(1×4×8, f32, GL), (1×8×16, f32, GL), (1×4×16, f32, GL)])", target)
    assert [nest_of(compose).touched(one) for one in nest_of(compose).arrays] == [32, 128, 64]
