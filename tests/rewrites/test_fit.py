"""fit: tiles of several sizes that cover a dimension exactly."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import morello
from morello.errors import Inapplicable, PluginError
from morello.frontend.parser import parse_schedule, parse_spec
from morello.host import missing_features
from morello.ir.impl import Expansion, Impl, Loop, Node, Part, cost_and_peak, leaves, walk
from morello.ir.limits import Limits
from morello.ir.spec import LogicalSpec
from morello.kernels.target import Target
from morello.plugins.registry import installed
from morello.rewrites.fit import ExactFit
from morello.rewrites.tile import Tile
from morello.schedule import schedule_of
from morello.search.session import SearchSession
from morello.testing.trials import Trials


def matmul(shape: str = "1×34×8×16", op: str = "MatmulAccum", operands: str = "GL, GL, GL") -> morello.Goal:
    return morello.goal(f"{op}({shape}, {operands}, serial)", target="x86_avx2")


def parts(goal: morello.Goal) -> tuple[Part, ...]:
    assert isinstance(goal.impl, Node)
    assert isinstance(goal.impl.expansion, Loop)
    return goal.impl.expansion.parts


def covered(goal: morello.Goal, dim: int) -> list[tuple[int, int, int]]:
    assert isinstance(goal.impl, Node)
    return covers(goal.impl.expansion, dim)


def covers(loop: Expansion, dim: int) -> list[tuple[int, int, int]]:
    ranges = [part.ranges[dim] for part in loop.parts if part.ranges]
    return [(int(one.start), int(one.size), int(one.trips)) for one in ranges]


def test_34_rows_are_two_tiles_of_11_and_one_of_12() -> None:
    goal = matmul().fit(1, 11, 12)
    assert covered(goal, 1) == [(0, 11, 2), (22, 12, 1)]
    assert covered(goal, 3) == [(0, 16, 1)] * 2
    assert [(part.role, part.times, part.logical.shape) for part in parts(goal)] == [
        ("body", 2, (1, 11, 8, 16)),
        ("body", 1, (1, 12, 8, 16)),
    ]
    assert goal.schedule == "fit 1 [11, 12]"
    assert parse_schedule(goal.schedule, goal.target) == (ExactFit(1, (11, 12)),)


def test_numbers_of_tiles_may_be_given() -> None:
    """[Tollenaere2021] Figure 5: i from 0 to 72 by 6, then to 128 by 7; the fewest tiles are 5·6 + 14·7."""
    goal = matmul("1×128×8×16").fit(1, 6, 7, times=[12, 8])
    assert covered(goal, 1) == [(0, 6, 12), (72, 7, 8)]
    assert goal.schedule == "fit 1 [6, 7] times [12, 8]"
    assert parse_schedule(goal.schedule, goal.target) == (ExactFit(1, (6, 7), (12, 8)),)
    assert covered(matmul("1×128×8×16").fit(1, 6, 7), 1) == [(0, 6, 5), (30, 7, 14)]


def test_covers_of_the_paper() -> None:
    """[Tollenaere2021] Figure 2, 136 = (8 + 13·2)·4, and 17 = 2·6 + 5."""
    goal = matmul("1×136×8×16").apply("tile [1, 34, 8, 16]; fit 1 [8, 13]")
    outer, inner = (node.expansion for node in walk(goal.impl) if isinstance(node, Node))
    assert covers(outer, 1) == [(0, 34, 4)]
    assert covers(inner, 1) == [(0, 8, 1), (8, 13, 2)]
    assert covered(matmul("1×17×8×16").fit(1, 6, 5), 1) == [(0, 6, 2), (12, 5, 1)]


def test_threads_share_the_tiles_of_each_size() -> None:
    goal = morello.goal("Matmul(1×46×8×16, GL, GL, GL)", target="x86_avx2").fit(1, 11, 12, parallel=True)
    assert covered(goal, 1) == [(0, 11, 2), (22, 12, 2)]
    assert [int(part.times) for part in parts(goal)] == [-(-2 // goal.target.weights.threads)] * 2
    assert goal.schedule == "fit 1 [11, 12] parallel"
    assert parse_schedule(goal.schedule, goal.target) == (ExactFit(1, (11, 12), parallel=True),)
    with pytest.raises(Inapplicable, match="serial"):
        matmul().fit(1, 11, 12, parallel=True)
    with pytest.raises(Inapplicable, match="write the same values"):
        morello.goal("MatmulAccum(1×4×34×16, GL, GL, GL)", target="x86_avx2").fit(2, 11, 12, parallel=True)
    tiled = goal.subschedule([0], lambda one: one.tile(1, 1, 8)).subschedule([1], lambda one: one.tile(1, 1, 8))
    kernel = morello.compile(tiled.synthesize(db=False, progress=False), db=False)
    assert "passed" in str(kernel.check())
    assert kernel.source.count("morello_parallel(") == 3


@given(st.integers(1, 60), st.lists(st.integers(1, 12), min_size=1, max_size=3, unique=True))
def test_tiles_cover_the_dimension_and_are_as_few_as_possible(extent: int, sizes: list[int]) -> None:
    assume(extent > max(sizes))
    trips = [
        one
        for one in itertools.product(*(range(1, extent // size + 1) for size in sizes))
        if sum(size * times for size, times in zip(sizes, one, strict=True)) == extent
    ]
    goal = matmul(f"1×{extent}×2×2")
    if not trips:
        with pytest.raises(Inapplicable, match="no number of tiles"):
            goal.fit(1, sizes)
        return
    by_size = sorted(range(len(sizes)), key=lambda at: -sizes[at])
    best = min(trips, key=lambda one: (sum(one), [-one[at] for at in by_size]))
    found = covered(goal.fit(1, sizes), 1)
    assert [(size, times) for _, size, times in found] == list(zip(sizes, best, strict=True))
    starts = itertools.accumulate((size * times for _, size, times in found), initial=0)
    assert [start for start, _, _ in found] == list(starts)[:-1]


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda goal: goal.fit(4, 2), "no dimension 4"),
        (lambda goal: goal.fit(1, 11, 11), "each is given once"),
        (lambda goal: goal.fit(1, 0, 34), "are positive"),
        (lambda goal: goal.fit(1, 34), "as large as it is: m is 34"),
        (lambda goal: goal.fit(1, 10, 20), "no number of tiles of 10 and 20 makes 34, the size of m"),
        (lambda goal: goal.fit(1, 12, 34), "as large as it is"),
        (lambda goal: goal.fit(1, 11, 12, times=[2]), "each size has at least one tile"),
        (lambda goal: goal.fit(1, 11, 12, times=[3, 0]), "each size has at least one tile"),
        (lambda goal: goal.fit(1, 11, 12, times=[1, 2]), "covers 35: m is 34"),
    ],
)
def test_steps_that_do_not_apply_say_why(step: Callable[[morello.Goal], morello.Goal], message: str) -> None:
    with pytest.raises(Inapplicable, match=message):
        step(matmul())


def test_fit_keeps_whole_dimensions_of_tile() -> None:
    with pytest.raises(Inapplicable, match="needs k whole"):
        matmul("1×4×12×16", op="Matmul").fit(2, 6)
    assert covered(matmul("1×4×12×16").fit(2, 6), 2) == [(0, 6, 2)]
    packed = "L1, (f32, L1, layout[0, 2, 1, 2p16]), L1"
    with pytest.raises(Inapplicable, match="breaks up strips"):
        matmul("1×4×8×48", operands=packed).fit(3, 12)
    with pytest.raises(Inapplicable, match="breaks up strips"):
        matmul("1×4×8×48", operands=packed).fit(3, 4, 16, 8)  # Those of 16 would start at 8.
    assert covered(matmul("1×4×8×48", operands=packed).fit(3, 16, 8, 4), 3) == [(0, 16, 2), (32, 8, 1), (40, 4, 2)]
    with pytest.raises(Inapplicable, match="split its vectors of 8"):
        matmul("1×4×8×24", operands="L1, L1, (f32, VRF, row_major, v8)").fit(3, 12)


def test_tiles_are_aligned_only_where_they_start_so(avx2: Target) -> None:
    strict = attrs.evolve(avx2, levels=tuple(attrs.evolve(level, alignment=16) for level in avx2.levels))

    def aligned(goal: morello.Goal) -> list[bool]:
        return [part.logical.states[0].aligned for part in parts(goal)]

    row = morello.Goal.of(parse_spec("FillZero(1×22, GL, serial)", strict), strict)
    assert aligned(row.fit(1, 7, 8)) == [False, False]
    assert aligned(row.fit(1, 8, 7)) == [True, False]
    row = morello.Goal.of(parse_spec("FillZero(1×33, GL, serial)", strict), strict)
    assert aligned(row.tile(1, 17)) == [False, False]


def asking(target: Target, **sizes: tuple[int, ...]) -> Target:
    """Return the target with kernels that declare these tile sizes along m or n, and no others."""
    own = {"m": 1, "n": 3}
    kernels = [attrs.evolve(one, tile_sizes={}) for one in target.kernels]
    for name, wanted in sizes.items():
        (at,) = (at for at, one in enumerate(kernels) if one.name == {"m": "MultAdd", "n": "BroadcastVecMultAdd"}[name])
        kernels[at] = attrs.evolve(kernels[at], tile_sizes={own[name]: wanted})
    return attrs.evolve(target, kernels=tuple(kernels))


def tried_on(target: Target, shape: str) -> list[str]:
    """Return the steps that search tries on a product of this shape."""
    logical = parse_spec(f"MatmulAccum({shape}, GL, GL, GL, serial)", target).logical
    return [str(step) for step in ExactFit.steps(logical, target) if step.worth_trying(logical, target)]


def test_kernels_say_which_sizes_search_tries(avx2: Target) -> None:
    """Make up any extent of one size, of two, or of the fewest near-equal tiles; tile has powers of two."""
    rows = asking(avx2, m=(4, 5, 6))
    assert set(tried_on(rows, "1×32×64×64")) == {
        *("fit 1 [2, 6]", "fit 1 [4, 6]", "fit 1 [6, 5]"),
        *("fit 1 [2, 5]", "fit 1 [4, 5]"),
    }
    assert set(tried_on(rows, "1×7×64×64")) == {"fit 1 [6, 1]", "fit 1 [2, 5]", "fit 1 [4, 1]", "fit 1 [4, 3]"}
    assert tried_on(asking(avx2, m=(6, 12)), "1×36×64×64") == ["fit 1 [12]", "fit 1 [6]"]
    # Sizes differ by multiples of 16.
    assert set(tried_on(asking(avx2, n=(32, 48)), "1×8×64×80")) == {"fit 3 [32, 16]", "fit 3 [32, 48]"}


def test_restricted_spaces_try_neighbours(avx2: Target) -> None:
    """More pairs would delay their first program: Conv[padding=1](1×64×64×56×56×3×3) had none in time."""
    rows = attrs.evolve(asking(avx2, m=(4, 5, 6)), size_bits=2)
    assert tried_on(rows, "1×30×64×64") == ["fit 1 [6]", "fit 1 [4, 5]", "fit 1 [5]"]
    assert tried_on(rows, "1×7×64×64") == []


def test_dimensions_without_tile_sizes_use_default_sizes(avx2: Target) -> None:
    rows = asking(avx2, m=(6,))
    own = [step for step in tried_on(asking(avx2), "1×30×64×30") if step.startswith("fit 3")]
    assert own
    assert sorted(tried_on(rows, "1×30×64×30")) == sorted(["fit 1 [6]", *own])


def test_tile_sizes_of_all_kernels_are_combined(avx2: Target) -> None:
    both = asking(avx2, m=(6,), n=(24,))
    assert tried_on(both, "1×12×64×48") == ["fit 1 [6]", "fit 3 [24]"]
    fill = parse_spec("FillZero(1×12, GL, serial)", both).logical
    assert not both.tile_sizes(fill.op)
    assert "fit 1 [6]" in [str(step) for step in ExactFit.steps(fill, both)]


def test_rows_of_any_number_are_covered_by_cheap_register_tiles(avx2: Target) -> None:
    """Rows from 5 on cost at most 7 % more each than those of the cheapest tile of two vectors ([Tollenaere2021])."""
    kernel = avx2.kernels_by_name["RegisterTileAccum"]
    assert kernel.cost

    def product_of(rows: int) -> LogicalSpec:
        return parse_spec(f"MatmulAccum(1×{rows}×128×16, L1, L1, L1, serial)", avx2).logical

    costs = {rows: int(kernel.cost(product_of(rows), avx2)) for rows in range(1, 7)}
    least = min(cost / rows for rows, cost in costs.items())
    for extent in range(5, 401):
        whole = product_of(extent)
        tried = [step for step in ExactFit.steps(whole, avx2) if step.dim == 1 and step.worth_trying(whole, avx2)]
        covers = [
            [(part.ranges[1].trips, part.ranges[1].size) for part in step.expansion(whole, avx2).parts if part.ranges]
            for step in tried
        ]
        covers += [[(extent // size, size)] for size in costs if extent % size == 0]
        sums = [sum(int(trips) * costs[int(size)] for trips, size in cover) for cover in covers]
        assert least * extent / min(sums) >= 0.93, extent


def test_batches_try_the_sizes_of_each_spec(avx2: Target) -> None:
    rows = asking(avx2, m=(4, 5, 6))
    logical = parse_spec("MatmulAccum(1×512×64×64, GL, GL, GL, serial)", rows).logical
    extents = [7, 11, 12, 16, 30, 512]
    batch = attrs.evolve(logical, shape=(1, np.array(extents), 64, 64))
    for step in ExactFit.steps(batch, rows):
        alone = [step.worth_trying(attrs.evolve(logical, shape=(1, one, 64, 64)), rows) for one in extents]
        assert np.asarray(step.worth_trying(batch, rows)).tolist() == alone
        assert any(alone)


def registers_by_rows(target: Target, most: int) -> Target:
    """Return the target with a kernel for rows of any number, which takes a register for each and costs 1."""
    (name,) = {one.name for one in target.kernels if one.name == "ValueRelu"}
    kernel = target.kernels_by_name[name]
    rows = attrs.evolve(
        kernel,
        name="ReluRows",
        shape=None,
        when=None,
        operands=tuple(attrs.evolve(one, levels=("L1",)) for one in kernel.operands),
        cost=lambda spec, machine: 1,
        registers={"VRF": lambda spec: spec.shape[0]},
        emit=lambda site: None,
        template=None,
    )
    assert target.level("VRF").capacity == most * target.level("VRF").unit
    return attrs.evolve(target, kernels=(*target.kernels, rows))


def test_registers_by_a_function_of_the_spec_limit_search(avx2: Target) -> None:
    target = registers_by_rows(avx2, 16)

    def found(rows: int, vectors: int) -> tuple[str, Limits]:
        text = f"(Relu({rows}×8, (f32, L1), (f32, L1), serial), [0, {32 * vectors}, 0, 0, 0])"
        impl = SearchSession(target).synthesize(parse_spec(text, target))
        assert isinstance(impl, Node)
        return str(impl.expansion.step), cost_and_peak(impl).peak

    assert found(4, 4) == ("select ReluRows", (0, 128, 0, 0, 0, 0))
    assert found(4, 16) == ("select ReluRows", (0, 128, 0, 0, 0, 0))
    step, peak = found(4, 3)
    assert step != "select ReluRows"
    assert peak[1] <= 96


@pytest.mark.parametrize("field", [{"registers": {"VRF": lambda spec: -1}}, {"registers": {"VRF": lambda spec: 0.5}}])
def test_functions_that_give_no_number_of_registers(avx2: Target, field: dict[str, Any]) -> None:
    target = registers_by_rows(avx2, 16)
    wrong = attrs.evolve(target, kernels=(*target.kernels[:-1], attrs.evolve(target.kernels[-1], **field)))
    goal = morello.Goal.of(parse_spec("Relu(4×8, (f32, L1), (f32, L1), serial)", wrong), wrong)
    with pytest.raises(PluginError, match="its registers in VRF are integers that are not negative"):
        goal.select("ReluRows")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("Matmul(1×3×4×5, GL, GL, GL, serial)", marks=pytest.mark.slow),
        "Move(6×7, GL, (f32, GL, col_major), serial)",
    ],
)
def test_a_level_that_is_not_tracked_gives_the_same_optimum(avx2: Target, text: str) -> None:
    answers = set()
    for tracked in (True, False):
        levels = tuple(attrs.evolve(one, tracked=tracked) if one.name == "L2" else one for one in avx2.levels)
        target = attrs.evolve(avx2, levels=levels)
        for limits in ("...", "[64, 512, 1024, 64, 0, 0]"):
            impl = SearchSession(target).synthesize(parse_spec(f"({text}, {limits})", target))
            answers.add((limits, tracked, cost_and_peak(impl), str(schedule_of(impl))))
    assert len({(limits, *rest) for limits, _, *rest in answers}) * 2 == len(answers)


def test_runs_pay_for_misses(avx2: Target) -> None:
    memory = avx2.level("GL")

    def cost(rows: int, miss: int) -> int:
        levels = (*avx2.levels[:-1], attrs.evolve(memory, miss_cost=miss))
        target = attrs.evolve(avx2, levels=levels)
        whole = parse_spec("FillZero(8×64, GL, serial)", target).logical
        tile = Tile((rows, 32)).expansion(whole, target).parts[0].logical
        return int(target.move_cost(tile.operands[0]))

    # Rows of 32 values are two lines each, and a run.
    assert cost(4, 0) == memory.start_cost + 4 * 2 * memory.hit_cost
    assert cost(4, 7) - cost(4, 0) == 4 * 7
    assert cost(1, 7) - cost(1, 0) == 7


def test_search_tries_default_sizes_without_tile_sizes(avx2: Target) -> None:
    def tried(shape: str) -> list[str]:
        return tried_on(asking(avx2), shape)

    assert tried("1×64×34×16") == []
    assert tried("1×34×64×64") == ["fit 1 [12, 11]", "fit 1 [8, 9]", "fit 1 [6, 7]", "fit 1 [6, 5]", "fit 1 [4, 5]"]
    assert tried("1×4×64×30") == ["fit 3 [15]", "fit 3 [10]", "fit 3 [8, 7]", "fit 3 [6]", "fit 3 [4, 5]", "fit 3 [5]"]


@pytest.mark.slow
def test_the_model_prefers_it_where_few_accumulators_fit(avx2: Target) -> None:
    """34 rows in eight vector registers: tiles of 4 and 2 load each value of rhs nine times, those of 6 and 5 six."""
    without = attrs.evolve(avx2, rewrites=tuple(one for one in avx2.rewrites if one is not ExactFit))
    text = "(MatmulAccum(1×34×16×8, (i32, L1), (i32, L1), (i32, L1), serial), [8, 256, 0, 0, 0, 0])"
    found = SearchSession(avx2).synthesize(parse_spec(text, avx2))
    plain = SearchSession(without).synthesize(parse_spec(text, without))
    assert cost_and_peak(found).cost < cost_and_peak(plain).cost
    assert isinstance(found, Node)
    assert str(found.expansion.step) == "fit 1 [6, 5]"
    assert [(part.role, part.times) for part in found.expansion.parts] == [("body", 4), ("body", 2)]
    assert boundaries_with_accumulators(found) == 0 < boundaries_with_accumulators(plain)


def boundaries_with_accumulators(impl: Impl) -> int:
    """Count the remainder kernels: boundaries that move their output to registers of their own."""
    return sum(
        any(str(below.expansion.step).startswith("move 2 to VRF") for below in walk(child) if isinstance(below, Node))
        for node in walk(impl)
        if isinstance(node, Node)
        for part, child in zip(node.expansion.parts, node.children, strict=True)
        if part.role == "boundary"
    )


#: [Tollenaere2021], Figures 8 and 10: pixels of a row of the output, rows of the filter, and stride of its 23 layers.
LAYERS = [
    *((544, 3, 1), (272, 3, 1), (136, 3, 1), (136, 1, 1), (68, 3, 1), (68, 1, 1), (34, 3, 1), (34, 1, 1), (17, 3, 1)),
    *((17, 1, 1), (112, 7, 2), (56, 3, 1), (56, 1, 1), (28, 3, 2), (28, 1, 2), (28, 3, 1), (14, 3, 2), (14, 3, 1)),
    *((7, 3, 2), (7, 1, 2), (7, 3, 1)),
]


@pytest.mark.slow
@pytest.mark.skipif(bool(missing_features(installed().target("x86_avx2").info.cpu_features)), reason="needs AVX2")
def test_layers_of_the_paper_are_covered_by_two_kernels(avx2: Target) -> None:
    """All of them compile by composition and are right, and no tile is partial: two rows, 16 filters, 2 channels."""
    impls: dict[tuple[object, ...], Node] = {}
    for pixels, rows, stride in LAYERS:
        name = f"Conv[stride={stride}]" if stride > 1 else "Conv"
        filters, nhwc = "(f32, GL, layout[2, 3, 1, 0])", "(f32, GL, nhwc)"
        text = f"{name}(1×16×2×2×{pixels}×{rows}×{rows}, {nhwc}, {filters}, {nhwc}, serial)"
        row = morello.Goal.of(parse_spec(text, avx2), avx2).tile(1, 16, 2, 1, pixels, rows, rows)
        (leaf,) = leaves(row.impl)
        offered = [step for step in ExactFit.steps(leaf.spec.logical, avx2) if step.dim == 4]
        fitting = [one for one in offered if max(one.sizes) <= 6 and one.worth_trying(leaf.spec.logical, avx2)]
        sizes = min((one.sizes for one in fitting), key=lambda sizes: (-max(sizes), len(sizes), -min(sizes)))
        body = "move 0 to L1; move 1 to L1; move 2 to L1; select ConvTile"
        parts = "\n".join(f"subschedule [{at}] {{ {body} }}" for at in range(len(sizes)))
        goal = row.apply(f"fit 4 [{', '.join(map(str, sizes))}]\n{parts if len(sizes) > 1 else body}")
        assert isinstance(goal.impl, Node)
        loops = [one for one in walk(goal.impl) if isinstance(one, Node)]
        assert "boundary" not in {part.role for one in loops for part in one.expansion.parts}
        # Of the same sizes, the shortest runs.
        impls[sizes, rows, stride] = goal.impl
    trials = Trials([*impls.values()], avx2)
    for index in range(len(impls)):
        trials.check(index)
