"""Certificates: below every program, close to known optima, and refused where they were tampered with."""

from __future__ import annotations

import random
from collections.abc import Iterator
from fractions import Fraction

import attrs
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from morello_bounds.certificate import Certificate, certificate, cuts_of, memory_inside, verify
from morello_bounds.traffic import program_traffic, reads_beyond

from morello.errors import MorelloError
from morello.frontend.parser import parse_spec
from morello.ir.impl import Node, cost_and_peak
from morello.ir.spec import LogicalSpec
from morello.kernels.machine import Machine
from morello.kernels.target import Target
from morello.plugins.registry import Registry, installed
from morello.rewrites.base import RewriteCase
from morello.rewrites.tile import Tile
from morello.testing.generate import RandomPrograms
from tools.fuzz.certificates import examine
from tools.fuzz.specs import drawn_spec
from tools.fuzz.sweep import toy_plugin

#: What the cheapest programs cost on x86_avx2 as it is declared; each takes search a while to prove.
OPTIMA = {
    "Matmul(1×512×512×512, (f32, GL), (f32, GL), (f32, GL), serial)": 96_661_058,
    "Matmul(1×64×64×64, (f32, GL), (f32, GL), (f32, GL), serial)": 251_511,
    "Relu(64×1024, (f32, GL), (f32, GL), serial)": 854_544,
}


@pytest.fixture(scope="module")
def avx2() -> Target:
    return installed().target("x86_avx2", "base")


@pytest.fixture(scope="module")
def product(avx2: Target) -> Certificate:
    return certificate(parse_spec("Matmul(1×64×64×64, (f32, GL), (f32, GL), (f32, GL), serial)", avx2), avx2)


@pytest.mark.slow
@pytest.mark.parametrize("text", OPTIMA)
def test_close_to_the_optimum_without_search(avx2: Target, text: str) -> None:
    found = certificate(parse_spec(text, avx2), avx2)
    assert 0.7 * OPTIMA[text] <= found.cost <= OPTIMA[text]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["x86_avx2", "x86_avx512"])
@pytest.mark.parametrize("number", range(2))
def test_no_program_of_a_drawn_spec_costs_less(name: str, number: int) -> None:
    target = installed().target(name, "base")
    assert examine(drawn_spec(target, 7, number), target, seconds=1).holds


@pytest.mark.slow
def test_one_tensor_may_be_several_operands(avx2: Target) -> None:
    """The square of a tensor has it as both of its operands, but in memory once."""
    op = "Compose([y = Relu(z), z = Mul(x, x)], [x: (1×64, f32, GL), y: (1×64, f32, GL)], serial)"
    spec = attrs.evolve(parse_spec(op, avx2), limits=avx2.limits((64, 512, 512, 0, 0, 1 << 30)))
    result = examine(spec, avx2, seconds=None)
    assert result.cost is not None
    assert result.holds


@pytest.mark.slow
def test_no_program_of_a_product_in_little_memory_costs_less(avx2: Target) -> None:
    """Values come more than once, so that all terms matter."""
    spec = parse_spec("MatmulAccum(1×16×16×16, (f32, L2), (f32, L2), (f32, L2), serial)", avx2)
    result = examine(attrs.evolve(spec, limits=avx2.limits((64, 512, 512, 0, 0, 1 << 30))), avx2, seconds=None)
    assert result.proven
    assert result.holds
    assert any(cut.rate for cut in result.certified.cuts)


F32 = "(f32, GL)"
#: Operations and their operands, for sizes m, k and n.
DRAWN = [
    f"Matmul(1×{{m}}×{{k}}×{{n}}, {F32}, {F32}, {F32}, serial)",
    f"MatmulAccum(2×{{m}}×{{k}}×{{n}}, {F32}, {F32}, {F32}, serial)",
    "Matmul(1×{m}×{k}×{n}, (u8, GL), (i8, GL), (i32, GL), serial)",
    f"Conv[padding=1](1×{{m}}×{{k}}×2×{{n}}×3×3, {F32}, {F32}, {F32}, serial)",
    f"Softmax({{m}}×{{n}}, {F32}, {F32}, serial)",
    "Move({m}×{n}, (f32, GL), (f32, L2), serial)",
    "Compose([Relu, Matmul], [(1×{m}×{k}, f32, GL), (1×{k}×{n}, f32, GL), (1×{m}×{n}, f32, GL)], serial)",
]
SIZES = st.tuples(st.integers(1, 6), st.integers(1, 5), st.sampled_from([1, 3, 8, 16]))
MEMORIES = st.sampled_from([None, (64, 512, 256, 512, 0, 1 << 30), (64, 512, 1024, 4096, 0, 1 << 30)])


def programs(
    target: Target, text: str, sizes: tuple[int, ...], memory: tuple[int, ...] | None, seed: int
) -> list[Node]:
    """Programs drawn at random for a Spec of these sizes: any that the rewrites and kernels allow."""
    spec = parse_spec(text.format(**dict(zip("mkn", sizes, strict=True))), target)
    if memory is not None:
        spec = attrs.evolve(spec, limits=target.limits(memory))
    draws = RandomPrograms(target, random.Random(seed), wild=seed % 3)
    return [impl for impl in (draws.draw(spec) for _ in range(3)) if isinstance(impl, Node)]


@pytest.mark.slow
@settings(max_examples=12)
@given(st.sampled_from(DRAWN), SIZES, MEMORIES, st.integers(0, 1 << 20))
def test_no_random_program_costs_or_moves_less(
    text: str, sizes: tuple[int, ...], memory: tuple[int, ...] | None, seed: int
) -> None:
    """Only the bytes moved are bounded for a program with steps that search does not try."""
    target = installed().target("x86_avx2", "base")
    found = programs(target, text, sizes, memory, seed)
    assume(found)
    spec = found[0].spec
    least = certificate(spec, target).cost
    for impl in found:
        assert seed % 3 or cost_and_peak(impl).cost >= least
        for cut in cuts_of(spec, target):
            # What kernels compute with beyond the cut they may read more often than is counted.
            if not reads_beyond(impl, target, cut.level):
                assert program_traffic(impl, target, cut.level) >= cut.traffic.bytes


def test_it_is_verified(product: Certificate) -> None:
    verify(product)
    assert product.cost > 1


@pytest.mark.parametrize(
    "tampered",
    [
        lambda made: attrs.evolve(made, work=tuple(price * 2 for price in made.work)),
        lambda made: attrs.evolve(made, work=()),
        lambda made: attrs.evolve(made, cuts=made.cuts[1:]),
        lambda made: attrs.evolve(made, touch=tuple(price + Fraction(1, 1 << 25) for price in made.touch)),
        lambda made: attrs.evolve(made, touch=tuple(Fraction(2) for _ in made.touch)),
        lambda made: attrs.evolve(made, again=tuple(Fraction(-1) for _ in made.again)),
        lambda made: attrs.evolve(made, cuts=tuple(attrs.evolve(cut, made=cut.made - 1) for cut in made.cuts)),
        lambda made: attrs.evolve(made, spec=attrs.evolve(made.spec, limits=tuple(x // 2 for x in made.spec.limits))),
    ],
)
def test_tampered_certificates_are_refused(product: Certificate, tampered) -> None:
    with pytest.raises(MorelloError, match="not proven"):
        verify(tampered(product))


@pytest.mark.slow
def test_threads_share_the_work(avx2: Target) -> None:
    """The bound is at most that of one thread."""
    text = "Matmul(1×32×32×32, (f32, GL), (f32, GL), (f32, GL){})"
    alone, shared = (certificate(parse_spec(text.format(end), avx2), avx2) for end in (", serial", ""))
    assert shared.threads == avx2.weights.threads
    assert shared.cost <= alone.cost


def test_what_begins_in_fast_memory_need_not_come_there(avx2: Target) -> None:
    text = "Matmul(1×32×32×32, (f32, {0}), (f32, {0}), (f32, {0}), serial)"
    far, near = (certificate(parse_spec(text.format(level), avx2), avx2) for level in ("GL", "L1"))
    assert near.cost <= far.cost
    assert [cut.touched for cut in near.cuts[1:]] == [0, 0, 0]


def test_memory_inside_counts_limits(avx2: Target) -> None:
    spec = parse_spec("Matmul(1×8×8×8, (f32, GL), (f32, GL), (f32, GL))", avx2)
    assert memory_inside(spec, avx2, 2) == 16 * 4 + 16 * 32
    assert memory_inside(spec, avx2, 3) == 16 * 4 + 16 * 32 + (32 << 10)


def test_a_spec_without_programs_has_a_bound_nonetheless(avx2: Target) -> None:
    spec = parse_spec("Matmul(1×8×8×8, (f32, GL), (f32, GL), (f32, GL))", avx2)
    found = certificate(attrs.evolve(spec, limits=(0,) * 6), avx2)
    verify(found)
    assert found.cost >= 1


@pytest.mark.parametrize(
    ("name", "text"),
    [("x86_avx2", "Move(1×8, (f32, VRF, v8), (f32, VRF, v8), serial)"), ("reference_c", "FillZero(2×3, (f32, GL))")],
)
def test_where_nothing_is_to_be_moved_or_computed_kernels_cost_something(name: str, text: str) -> None:
    target = installed().target(name, "base")
    found = certificate(parse_spec(text, target), target)
    verify(found)
    assert found.cost == 1


def test_strange_rewrites_are_not_trusted() -> None:
    class Mystery(Tile):
        """A rewrite that may leave out points."""

        keyword = "mystery"

        def cases(self, logical: LogicalSpec, target: Machine) -> Iterator[RewriteCase]:
            yield from super().cases(logical, target)

    plugin = toy_plugin()
    changed = attrs.evolve(plugin, rewrites=(*plugin.rewrites, Mystery))
    target = Registry.of(toy_cpu=changed).target("toy_cpu")
    spec = parse_spec("Matmul(1×2×2×2, (f32, MEM), (f32, MEM), (f32, MEM), serial)", target)
    with pytest.raises(MorelloError, match="mystery"):
        certificate(spec, target)
