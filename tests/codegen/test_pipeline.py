"""Pipelines: stages that pass intermediates on, in memory and in registers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Self

import attrs
import pytest

from morello import Kernel, goal
from morello.host import missing_features
from morello.ir.dtypes import F32
from morello.ir.impl import Node, Part, Pipeline, cost_and_peak, expand
from morello.ir.layout import row_major
from morello.ir.ops import by_name
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import TensorSpec
from morello.kernels.target import Target
from morello.rewrites import Rewrite, RewriteCase, Word, argument
from morello.search.session import SearchSession


@attrs.frozen(cache_hash=True)
class Detour(Rewrite):
    """A Move by way of two intermediates, as a third party might write one."""

    keyword: ClassVar[str] = "detour"
    level: str = argument(Word)

    @classmethod
    def steps(cls, logical: LogicalSpec, target: Target) -> Iterator[Self]:
        yield from ()

    def cases(self, logical: LogicalSpec, target: Target) -> Iterator[RewriteCase]:
        source, out = logical.states
        vector = 8 if target.level(self.level).kind == "vector" else None
        middle = target.state(self.level, F32, row_major(len(logical.shape)), vector=vector)
        tensor = TensorSpec(logical.shape, middle).canonical()
        live = tuple(2 * held for held in target.footprint(tensor))
        stages = ((source, tensor.state, (0, 2)), (tensor.state, tensor.state, (2, 3)), (tensor.state, out, (3, 1)))
        parts = tuple(
            Part(LogicalSpec(logical.op, logical.shape, (start, end)), args, 1, live, role="stage")
            for start, end, args in stages
        )
        cost = 2 * target.move_cost(tensor)
        yield RewriteCase(None, Pipeline(self, cost, target.nothing(), parts, (tensor, tensor)))


@pytest.mark.slow
@pytest.mark.parametrize(("level", "shape"), [("L1", (4, 8)), ("L1", (32, 64)), ("VRF", (2, 16)), ("RF", (2, 3))])
def test_intermediates_hold_results_of_stages(level: str, shape: tuple[int, int], avx2: Target, prove) -> None:
    state = avx2.state("L1", F32, row_major(2))
    spec = avx2.spec(LogicalSpec(by_name("Move"), shape, (state, state)))
    node = expand(spec, Detour(level).expansion(spec.logical, avx2), avx2.grids)
    assert node is not None
    search = SearchSession(avx2)
    impl = Node(spec, node.expansion, tuple(search.synthesize(leaf.spec) for leaf in node.children), node.grids)
    kernel = prove(impl, avx2)
    assert kernel.source.count("between") > 2
    held = avx2.footprint(TensorSpec(shape, impl.expansion.tensors[0].state))
    assert all(peak >= 2 * size for peak, size in zip(cost_and_peak(impl).peak, held, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Maximum", "Minimum"])
def test_a_value_is_not_compared_with_itself(name: str, avx2: Target, prove) -> None:
    """Compilers warn of that."""
    text = f"Compose([y = {name}(c, c), c = Relu(x)], [x: (1×1, i32, GL), y: (1×1, i32, GL)], serial)"
    prove(goal(text, target=avx2.name).synthesize().impl, avx2)


@pytest.mark.slow
@pytest.mark.parametrize("image", ["GL", "GL, nhwc", "GL, nchw4c", "GL, layout[0, 1, 3, 2]"])
@pytest.mark.parametrize("stride", ["2", "[1, 3]"])
def test_products_that_see_pixels_that_lie_apart(image: str, stride: str, avx2: Target, prove) -> None:
    conv = f"ConvAccum[stride={stride}](1×9×4×3×7×2×2, (f32, {image}), (f32, GL), (f32, GL, nhwc), serial)"
    done = goal(conv, target="x86_avx2").tile(0, 0, 0, 1, 0, 1, 1).apply("spatial_split").synthesize()
    prove(done.impl, avx2)


@pytest.mark.parametrize(
    ("name", "kernel", "buffers"), [("Tanh", "VectorTanh", 1), ("CumSum[dim=0]", "CumSumColumns", 2)]
)
def test_intermediates_share_the_workspace(name: str, kernel: str, buffers: int) -> None:
    """A function of each value is stored over its operand; other stages take turns with two buffers."""
    text = f"Compose([{', '.join([name] * 4)}], [(32×64, f32, L1), (32×64, f32, L1)], serial)"
    selects = (f"subschedule [{stage}] {{ select {kernel} }}" for stage in range(4))
    scheduled = goal(text, target="x86_avx2").apply("; ".join(["bufferize to L1", *selects]))
    assert scheduled.program.workspace == buffers * 32 * 64 * 4
    if not missing_features(scheduled.target.info.cpu_features):
        Kernel.of(scheduled.impl, scheduled.target).check()
