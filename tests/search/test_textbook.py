"""Search equals the textbook recursion, in any order of goals, and obeys its laws."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar, Self

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from morello.errors import MorelloError
from morello.frontend.parser import parse_spec
from morello.ir.impl import Impl, KernelCall, Leaf, Node, child_limits, cost_and_peak, walk
from morello.ir.limits import fits
from morello.ir.spec import LogicalSpec, Spec
from morello.kernels.target import Target
from morello.plugins import Microkernel, Multiple, OperandPattern
from morello.plugins.registry import Registry, installed
from morello.rewrites import STANDARD, Rewrite, argument
from morello.rewrites.base import RewriteCase
from morello.rewrites.tile import loop_cases
from morello.search import library
from morello.search.session import SearchSession
from morello.search.solve.engine import Engine
from morello.search.solve.solver import Solver
from morello.testing.textbook import Textbook, differences, expansions
from tools.fuzz.sweep import NAMES, Bounded, Enough, random_goal, toy_plugin

TargetNamed = Callable[[str], Target]
#: An expansion: its own cost, and its parts as nodes with their numbers of runs.
Outcome = tuple[int, tuple[tuple[int, int], ...]]

seeds = st.integers(0, 10**9)
names = st.sampled_from(NAMES)


def goals(target: Target, seed: int, count: int) -> list[Spec]:
    rng = random.Random(seed)
    return [random_goal(rng, target) for _ in range(count)]


@pytest.mark.slow
@settings(max_examples=12)
@given(name=names, seed=seeds)
def test_random_goals_have_the_programs_of_the_recursion(name: str, seed: int, target_named: TargetNamed) -> None:
    target = target_named(name)
    textbook = Bounded(target)
    textbook.most = 1500
    with contextlib.suppress(Enough):
        textbook.solve(*goals(target, seed, 1))
    assert textbook.seen
    assert not [*differences(textbook.seen, SearchSession(target).programs)]


@pytest.mark.slow
@settings(max_examples=8)
@given(name=names, seed=seeds)
def test_pruning_changes_no_answer(name: str, seed: int, target_named: TargetNamed) -> None:
    target = target_named(name)
    specs = goals(target, seed, 3)
    assert SearchSession(target, prune=False).programs(specs) == SearchSession(target).programs(specs)


@pytest.mark.slow
@settings(max_examples=4)
@given(name=names, seed=seeds, rng=st.randoms(use_true_random=False))
def test_answers_do_not_depend_on_other_goals(
    name: str, seed: int, rng: random.Random, target_named: TargetNamed
) -> None:
    target = target_named(name)
    specs = goals(target, seed, 5)
    together = dict(zip(specs, SearchSession(target).programs(specs), strict=True))
    shuffled = rng.sample(specs, len(specs))
    search = SearchSession(target)
    parts = [shuffled[:2], shuffled[2:3], shuffled[1:]]
    assert [search.programs(part) for part in parts] == [[together[spec] for spec in part] for part in parts]
    assert SearchSession(target).programs(specs[:1]) == [together[specs[0]]]


@pytest.mark.slow
@settings(max_examples=12)
@given(name=names, seed=seeds)
def test_more_memory_never_costs_more(name: str, seed: int, target_named: TargetNamed) -> None:
    target = target_named(name)
    (spec,) = goals(target, seed, 1)
    richer = []
    for index, grid in enumerate(target.grids):
        limits = [int(limit) for limit in spec.limits]
        limits[index] = next((value for value in grid.values if value > limits[index]), grid.capacity)
        richer.append(Spec(spec.logical, target.limits(limits)))
    first, *others = SearchSession(target).programs([spec, *richer])
    if first:
        assert all(other and cost_and_peak(other).cost <= cost_and_peak(first).cost for other in others)


@pytest.mark.slow
@settings(max_examples=8)
@given(name=names, seed=seeds)
def test_parts_of_programs_are_optimal_themselves(name: str, seed: int, target_named: TargetNamed) -> None:
    target = target_named(name)
    search = SearchSession(target)
    found = search.programs(goals(target, seed, 3))
    parts = [node for impl in found if impl for node in walk(impl)]
    assert search.programs([part.spec for part in parts]) == parts
    assert all(fits(cost_and_peak(part).peak, part.spec.limits) for part in parts)


@pytest.mark.slow
def test_serial_and_parallel_specs_in_one_search(avx2: Target) -> None:
    """Operands of either are copied by Moves of their own kind."""
    text = "(MatmulAccum(1×4×1×4, L1, (f32, GL), (f32, L1, col_major){}), [16, 0, 256, 0, 0, 0])"
    specs = [parse_spec(text.format(flag), avx2) for flag in ("", ", serial")]
    parallel, serial = SearchSession(avx2).programs(specs)
    assert [parallel, serial] == [found and found.impl for found in map(Textbook(avx2).solve, specs)]
    assert {node.spec.logical.serial for impl in (parallel,) if impl for node in walk(impl)} == {False}


# The engine's laws.


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(2))
def test_steps_on_blocks_are_those_on_single_specs(name: str, seed: int, target_named: TargetNamed) -> None:
    """Without a limit on the cost, a node has the hyperedges of single rewrites of its Spec, the same step first."""
    target, rng = target_named(name), random.Random(seed)
    specs = goals(target, seed, 4)
    engine = Engine([spec.logical for spec in specs], target, prune=False)
    pending, compared = [*dict.fromkeys(engine.directory.nodes_of(specs))], 0
    for _ in range(4):
        children: set[int] = set()
        for node in pending:
            found: dict[Outcome, int] = {}
            for edge in engine.core.hyperedges(node, np.inf):
                parts = zip(edge.parts, map(int, edge.times), strict=True)
                outcome = int(edge.own), tuple(sorted(parts))
                found[outcome] = min(edge.priority, found.get(outcome, edge.priority))
                children.update(edge.parts)
            logical = engine.directory.logical(node)
            steps = {outcome: str(engine.step(node, priority)) for outcome, priority in found.items()}
            assert steps == outcomes(engine, node, logical), logical
            compared += len(steps)
        pending = rng.sample(sorted(children), min(20, len(children)))
    assert compared


def outcomes(engine: Engine, node: int, logical: LogicalSpec) -> dict[Outcome, str]:
    """Return the outcomes of single rewrites of a node's Spec, each with its first step."""
    target = engine.target
    limits = engine.directory.spec(node).limits
    found: dict[Outcome, str] = {}
    for made in expansions(logical, target):
        lowered = child_limits(made, limits, target.grids)
        if lowered is None:
            continue
        children = [Spec(part.logical, own) for part, own in zip(made.parts, lowered, strict=True)]
        nodes = engine.directory.nodes_of(children)
        parts = sorted((child, int(part.times)) for child, part in zip(nodes, made.parts, strict=True))
        found.setdefault((int(made.cost), tuple(parts)), str(made.step))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", [1])
def test_bounds_and_costs_of_nodes(name: str, seed: int, target_named: TargetNamed) -> None:
    """No Spec below some goals costs less than its first bound, and search ends with its cost."""
    target = target_named(name)
    textbook = Bounded(target)
    for spec in goals(target, seed, 3):
        textbook.most = len(textbook.seen) + 1500
        with contextlib.suppress(Enough):
            textbook.solve(spec)
    costs = np.array([found.cost_and_peak.cost if found else np.inf for found in textbook.seen.values()])
    engine = Engine([spec.logical for spec in goals(target, seed, 3)], target).refined()
    assert engine
    assert all(engine.directory.covers(spec.logical) for spec in textbook.seen)
    nodes = engine.directory.nodes_of([*textbook.seen])
    assert np.all(engine.core.nodes().low[nodes] <= costs)
    Solver(engine).solve(nodes)
    known = engine.core.nodes()
    assert np.array_equal(known.low[nodes], costs)
    assert np.array_equal(known.high[nodes], costs)


@pytest.mark.slow
def test_searches_in_two_threads_are_independent(avx2: Target) -> None:
    """Nodes and tables have the same numbers in each, for other Specs."""
    texts = (
        "(Matmul(1×5×3×7, L1, L1, L1, serial), [8, 64, 0, 0, 0, 0])",
        "(Matmul(1×2×9×4, L1, L1, L1, serial), [8, 0, 0, 0, 0, 0])",
    )
    made = [Engine([parse_spec(text, avx2).logical], avx2).refined() for text in texts]
    engines = [engine for engine in made if engine]
    goals = [engine.directory.nodes_of([parse_spec(text, avx2)]) for engine, text in zip(engines, texts, strict=True)]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda engine, goal: Solver(engine).solve(goal), engines, goals))
    for engine, (goal,), text in zip(engines, goals, texts, strict=True):
        cost = cost_and_peak(SearchSession(avx2).synthesize(parse_spec(text, avx2))).cost
        assert engine.core.costs(goal) == (cost, cost)


@pytest.mark.slow
def test_the_engine_is_built_if_it_is_not_installed(
    avx2: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = parse_spec("(Matmul(1×2×2×3, L1, L1, L1, serial), [8, 0, 0, 0, 0, 0])", avx2)
    expected = SearchSession(avx2).synthesize(spec)
    monkeypatch.setenv("MORELLO_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(library, "installed", lambda: None)
    library.loaded.cache_clear()
    try:
        assert SearchSession(avx2).synthesize(spec) == expected
    finally:
        library.loaded.cache_clear()
    assert [*(tmp_path / "cache").glob("*.so")]


# Large costs.

BIG = 1 << 22


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "cost"),
    [
        # A memset touches every line of 16 values once, at 80 a line, 150 for its one run, 3,000 to start, and 5.
        (f"FillZero({BIG + 1}×{BIG - 31}, (f32, GL), serial)", -(-(BIG - 31) * (BIG + 1) // 16) * 80 + 3155),
        # Without memory there is only MultAdd: three lines of 2, and 5.
        (f"(MatmulAccum(1×{BIG}×3×{BIG}, L1, L1, L1, serial), [0, 0, 0, 0, 0, 0])", 11 * 3 * BIG * BIG),
        (
            f"(MatmulAccum(1×{BIG + 1}×5×{BIG + 2}, L1, L1, L1, serial), [0, 0, 0, 0, 0, 0])",
            11 * 5 * (BIG + 1) * (BIG + 2),
        ),
    ],
)
def test_costs_past_32_bits_are_exact(text: str, cost: int, avx2: Target) -> None:
    spec = parse_spec(text, avx2)
    assert 2**32 < cost_and_peak(SearchSession(avx2).synthesize(spec)).cost == cost
    engine = Engine([spec.logical], avx2)
    nodes = engine.directory.nodes_of([spec])
    Solver(engine).solve(nodes)
    assert engine.core.costs(nodes[0]) == (cost, cost)


@pytest.mark.slow
def test_costs_past_53_bits_are_an_error(avx2: Target) -> None:
    spec = parse_spec(
        f"(MatmulAccum(1×{BIG}×256×{BIG}, (u8, L1), (u8, L1), (u8, L1), serial), [0, 0, 0, 0, 0, 0])", avx2
    )
    with pytest.raises(MorelloError, match="costs past 2\\^53 cannot be counted exactly"):
        SearchSession(avx2).synthesize(spec)


@pytest.mark.parametrize("prune", [True, False])
def test_a_kernel_past_53_bits_is_an_error(prune: bool) -> None:
    """Also if no bound shows it earlier. As floats, both kernels cost the same."""
    plugin = toy_plugin()
    zero = next(kernel for kernel in plugin.kernels if kernel.name == "Zero")
    costs = {"Dear": 2**53 + 1, "Cheap": 2**53}
    kernels = [attrs.evolve(zero, name=name, cost=lambda spec, target, cost=cost: cost) for name, cost in costs.items()]
    target = Registry.of(toy_cpu=attrs.evolve(plugin, kernels=tuple(kernels))).target("toy_cpu")
    with pytest.raises(MorelloError, match="costs past 2\\^53 cannot be counted exactly"):
        SearchSession(target, prune=prune).synthesize(parse_spec("FillZero(1, C, serial)", target))


# Contributions of third parties.


def cut(logical: LogicalSpec, dim: int, size: int) -> tuple[int, ...]:
    return tuple(size if dim == other else 0 for other in range(len(logical.shape)))


@attrs.frozen(cache_hash=True)
class Halve(Rewrite):
    """`halve 1`: a loop over both halves of a dimension."""

    keyword: ClassVar[str] = "halve"
    dim: int = argument(int)

    @classmethod
    def steps(cls, logical: LogicalSpec, target: Target) -> Iterator[Self]:
        whole = {*logical.op.reductions(len(logical.shape))}
        yield from (cls(dim) for dim, size in enumerate(logical.shape) if dim not in whole and size % 2 == 0)

    def cases(self, logical: LogicalSpec, target: Target) -> Iterator[RewriteCase]:
        yield from loop_cases(logical, cut(logical, self.dim, int(logical.shape[self.dim]) // 2), self, target)


@attrs.frozen(cache_hash=True)
class Threes(Rewrite):
    """`threes 1`: a loop over tiles of 3 along a dimension, which no tile of a power of two leads to."""

    keyword: ClassVar[str] = "threes"
    dim: int = argument(int)

    @classmethod
    def steps(cls, logical: LogicalSpec, target: Target) -> Iterator[Self]:
        whole = {*logical.op.reductions(len(logical.shape))}
        yield from (cls(dim) for dim, size in enumerate(logical.shape) if dim not in whole and size > 3)

    def cases(self, logical: LogicalSpec, target: Target) -> Iterator[RewriteCase]:
        yield from loop_cases(logical, cut(logical, self.dim, 3), self, target)


def three_values(plugin: Any) -> Microkernel:
    """The toy CPU's kernel for rows, but for three values, and cheap: it pays to make tiles of three."""
    row = next(kernel for kernel in plugin.kernels if kernel.name == "AddScaledRow")
    near = OperandPattern(levels=("C",), dtypes=("f32", "i32"))
    operands = (near, near, near)
    return attrs.evolve(row, name="AddThree", operands=operands, shape=(1, 1, 1, 3), cost=lambda spec, target: 2)


@pytest.mark.slow
@pytest.mark.parametrize("first", [True, False], ids=["first", "last"])
@pytest.mark.parametrize(
    ("added", "texts"),
    [
        (
            (Halve,),
            ("(Matmul(1×2×2×6, C, C, C, serial), [8, 0, 0])", "(Move(6×4, (f32, C), (f32, C, col_major)), [4, 32, 0])"),
        ),
        ((Threes,), ("(MatmulAccum(1×2×2×8, C, C, C, serial), [8, 32, 0])", "(FillZero(7×5, C, serial), [4, 32, 0])")),
        ((Halve, Threes), ("(MatmulAccum(1×1×2×12, C, C, C, serial), [8, 0, 0])",)),
    ],
    ids=["halve", "threes", "both"],
)
def test_rewrites_of_third_parties(added: tuple[type[Rewrite], ...], texts: Sequence[str], first: bool) -> None:
    plugin = toy_plugin()
    rewrites = (*added, *STANDARD) if first else (*STANDARD, *added)
    kernels = (*plugin.kernels, three_values(plugin))
    target = Registry.of(toy_cpu=attrs.evolve(plugin, rewrites=rewrites, kernels=kernels)).target("toy_cpu")
    textbook, search = Textbook(target), SearchSession(target)
    for text in texts:
        textbook.solve(parse_spec(text, target))
    assert not [*differences(textbook.seen, search.programs)]
    assert set(search.generic_rewrites) == {one.keyword for one in added}
    steps = {type(step) for found in textbook.seen.values() if found for step in steps_of(found.impl)}
    # Behind the others, halves are never better: tiles do the same.
    assert steps.issuperset(added if first else {*added} - {Halve})


def steps_of(impl: Impl) -> Iterator[object]:
    for node in walk(impl):
        if isinstance(node, Node):
            yield node.expansion.step


@pytest.mark.slow
def test_a_cheaper_kernel_of_a_third_party_changes_the_answer(target_named: TargetNamed) -> None:
    plugin = toy_plugin()
    fives = attrs.evolve(three_values(plugin), name="AddFives", shape=(1, 1, 1, Multiple(of=5)))
    target = Registry.of(toy_cpu=attrs.evolve(plugin, kernels=(*plugin.kernels, fives))).target("toy_cpu")
    spec = parse_spec("(MatmulAccum(1×2×3×10, C, C, C, serial), [8, 32, 0])", target)
    before, after = SearchSession(target_named("toy_cpu")).synthesize(spec), SearchSession(target).synthesize(spec)
    expected = Textbook(target).solve(spec)
    assert expected
    assert after == expected.impl
    assert {call.kernel for call in calls(after)} == {"AddFives"}
    assert "AddFives" not in {call.kernel for call in calls(before)}
    assert cost_and_peak(after).cost == 12 < cost_and_peak(before).cost


def calls(impl: Impl) -> Iterator[KernelCall]:
    for node in walk(impl):
        if not isinstance(node, Leaf) and isinstance(node.expansion, KernelCall):
            yield node.expansion


@pytest.mark.slow
@pytest.mark.parametrize("sizes", ["1×5×6×7", "1×7×3×5", "3×5×1×6"])
def test_sizes_that_are_no_powers_of_two(sizes: str, avx2: Target) -> None:
    spec = parse_spec(f"(Matmul({sizes}, L1, L1, L1, serial), [8, 0, 0, 0, 0, 0])", avx2)
    expected = Textbook(avx2).solve(spec)
    assert expected
    assert SearchSession(avx2).synthesize(spec) == expected.impl


@pytest.mark.parametrize(
    ("name", "text", "cost"),
    [
        ("x86_avx2", "Mean(1×1×4×1, (bf16, L1), (bf16, GL))", 3267),
        ("x86_avx2", "Add(1×4×1, (i8, L1), (i16, GL), (u32, L1, ua))", 3257),
        ("x86_avx512", "Add(4, (i16, L1), (u8, L1), (u32, GL), serial)", 3257),
    ],
)
def test_new_tensors_in_vectors_next_to_sizes_of_one(name: str, text: str, cost: int) -> None:
    """Steps that put a new tensor into vector registers are tried, though smaller sizes on the way fill none."""
    target = installed().target(name)
    spec = parse_spec(text, target)
    assert cost_and_peak(SearchSession(target).synthesize(spec)).cost == cost
