"""Sobol's indices: those of a function that is known, and what the cost of moving depends on."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from morello_bounds.nest import nest_of
from morello_bounds.sensitivity import Input, MovesModel, SobolIndex, filled, of_bound, of_tiles, sobol_indices
from morello_bounds.tiles import held
from morello_bounds.traffic import estimate, traffic

from morello.errors import MorelloError
from morello.frontend.parser import parse_spec
from morello.ir.spec import Spec
from morello.plugins.registry import installed

PRODUCT = "Matmul(1×{}×{}×{}, (f32, GL), (f32, GL), (f32, GL), serial)"
TARGET = installed().target("x86_avx2", "base")


@pytest.fixture(autouse=True)
def needs_salib() -> None:
    pytest.importorskip("SALib")


def spec(m: int, k: int, n: int) -> Spec:
    return parse_spec(PRODUCT.format(m, k, n), TARGET)


def by_name(found: Sequence[SobolIndex], kind: str) -> dict[str, SobolIndex]:
    return {one.name: one for one in found if one.kind == kind}


def ishigami(x: Sequence[float]) -> float:
    return math.sin(x[0]) + 7 * math.sin(x[1]) ** 2 + 0.1 * x[2] ** 4 * math.sin(x[0])


def test_known_indices() -> None:
    inputs = [Input(name, "number", -math.pi, math.pi) for name in "abc"]
    found = sobol_indices(inputs, ishigami, 4096, seed=0)
    assert [one.alone for one in found] == pytest.approx([0.314, 0.442, 0.0], abs=0.02)
    assert [one.in_all for one in found] == pytest.approx([0.558, 0.442, 0.244], abs=0.02)


def test_a_seed_gives_the_same_again() -> None:
    inputs = [Input(name, "number", -1.0, 1.0) for name in "abc"]
    assert (
        sobol_indices(inputs, ishigami, 32, 0)
        == sobol_indices(inputs, ishigami, 32, 0)
        != sobol_indices(inputs, ishigami, 32, 8)
    )


def test_nothing_depends_on_what_a_constant_is() -> None:
    (found,) = sobol_indices([Input("a", "number", 0.0, 1.0)], lambda x: 3.0, 8, 0)
    assert (found.alone, found.in_all) == (0.0, 0.0)


@pytest.mark.parametrize("shape", [(64, 512, 128), (2048, 2048, 2048), (1, 4096, 64)])
@pytest.mark.parametrize("memory", [1 << 10, 1 << 15, 1 << 19])
def test_estimates_are_near_the_bound(shape: tuple[int, int, int], memory: int) -> None:
    nest = nest_of(spec(*shape))
    assert estimate(nest, memory) == pytest.approx(traffic(nest, memory).bytes, rel=0.03)


@pytest.mark.slow
def test_what_the_bound_on_moving_depends_on() -> None:
    """Sizes of a large cube count alike; where everything fits into L2, its size does not count."""
    found = sobol_indices(*of_bound(MovesModel.of(spec(1024, 1024, 1024), TARGET)), 64, 0)
    sizes = [one.in_all for one in by_name(found, "size").values()]
    assert len(sizes) == 3
    assert max(sizes) < 1.3 * min(sizes)
    assert by_name(found, "price")["GL"].in_all > by_name(found, "price")["L2"].in_all
    small = sobol_indices(*of_bound(MovesModel.of(spec(64, 64, 64), TARGET)), 8, 0)
    assert by_name(small, "memory")["L2"].in_all == 0
    assert sum(one.in_all for one in by_name(small, "size").values()) > 0.3


@pytest.mark.slow
def test_tiles_that_all_fit_decide_nothing() -> None:
    found = sobol_indices(*of_tiles(MovesModel.of(spec(64, 512, 128), TARGET)), 16, 0)
    tiles = by_name(found, "tile")
    assert all(tiles[f"{loop} in L2"].in_all < 0.05 for loop in "mkn")
    assert max(tiles[f"{loop} in L1"].in_all for loop in "mkn") > 0.1
    assert {*by_name(found, "order")} == {f"first loop in {level}" for level in ("VRF", "L1", "L2", "L3")}


@pytest.mark.parametrize("shape", [(1.0, 1.0, 1.0), (1.0, 0.001, 0.3), (0.01, 1.0, 0.02)])
def test_tiles_fit_and_fill_their_memory(shape: tuple[float, ...]) -> None:
    model = MovesModel.of(spec(512, 512, 512), TARGET)
    for memory in (576, 32 << 10):
        tile = filled(model, shape, memory)
        assert sum(int(held(array, tile)) for array in model.nest.arrays) <= memory
        longer = [min(512, size + 1) for size in tile]
        assert sum(int(held(array, longer)) for array in model.nest.arrays) > memory


def test_what_is_refused() -> None:
    with pytest.raises(MorelloError, match="3 samples are not a power of two"):
        sobol_indices([Input("a", "number", 0.0, 1.0)], lambda x: x[0], 3, 0)
    with pytest.raises(MorelloError, match="no input varies"):
        sobol_indices([], lambda x: 0.0, 8, 0)
    graph = parse_spec("Compose([Relu, Relu], [(2×8, f32, GL), (2×8, f32, GL)], serial)", TARGET)
    with pytest.raises(MorelloError, match="no single nest"):
        MovesModel.of(graph, TARGET)
    near = parse_spec("Relu(8, (f32, RF), (f32, RF), serial)", TARGET)
    with pytest.raises(MorelloError, match="in registers"):
        MovesModel.of(near, TARGET)
