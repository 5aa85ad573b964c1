"""Mappers: their proposals apply, give correct programs, and none is below a bound."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Mapping as Names
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from morello_bounds import hooks
from morello_bounds.certificate import cuts_of
from morello_bounds.hooks import Mapper, hookimpl
from morello_bounds.mappers import STANDARD, mappers_for
from morello_bounds.mappers.bayesian import BO, bayesian
from morello_bounds.mappers.direct import GREEDY, INTEGER_TILE, RANDOM
from morello_bounds.mappers.gradient import GRADIENT
from morello_bounds.mappers.linear_programs import CONV_LP, LP, MPLP, table_tile
from morello_bounds.mappers.mapped import Completion
from morello_bounds.mappers.plan import TileContext, tiling_plans
from morello_bounds.nest import nest_of
from morello_bounds.traffic import reads_beyond

from morello import api
from morello.api.goals import Goal
from morello.errors import MorelloError, PluginError
from morello.host import missing_features
from morello.ir.impl import Node, cost_and_peak
from morello.plugins.discovery import manager_of
from morello.plugins.registry import installed
from morello.rewrites.move import MoveStep
from morello.rewrites.tile import Tile
from morello.schedule import Statement, Subschedule, schedule_text
from morello.testing.trials import Trials

#: Little memory, so that small products have several tiles in each level.
LIMITS = "[64, 512, 512, 2048, 8192, 1048576]"
#: All but that for windows, with few trials.
FOR_PRODUCTS = [one for one in STANDARD if one not in (BO, CONV_LP)]
if importlib.util.find_spec("sklearn"):
    FOR_PRODUCTS.append(bayesian(trials=3))


def product(m: int, k: int, n: int, target: str = "x86_avx2", limits: str = LIMITS) -> Goal:
    text = f"(Matmul(1×{m}×{k}×{n}, (f32, GL), (f32, GL), (f32, GL), serial), {limits})"
    return api.goal(text, target=target, profile="base")


@cache
def mapping(m: int, k: int, n: int) -> Completion:
    goal = product(m, k, n)
    return Completion(goal, cuts_of(goal.spec, goal.target))


POWERS = st.sampled_from([1, 2, 4, 8])


@pytest.mark.slow
@settings(max_examples=3)
@given(POWERS, POWERS, POWERS, st.integers(0, 3))
def test_no_program_of_a_mapper_is_below_what_is_proven(m: int, k: int, n: int, seed: int) -> None:
    """Sizes of integer tiles are none that search tries, so that those programs might cost less than it finds."""
    made = mapping(m, k, n)
    optimum = cost_and_peak(made.goal.synthesize(db=False).impl).cost
    for mapper in FOR_PRODUCTS:
        found = {objective: made.best(mapper, seed, objective) for objective in ("cost", "bytes")}
        for best in found.values():
            assert not best.refused
            assert best.cost == cost_and_peak(best.goal.impl).cost
            assert mapper == INTEGER_TILE or best.cost >= optimum
            for across, cut in zip(best.moved, made.cuts, strict=True):
                if not reads_beyond(best.goal.impl, made.goal.target, cut.level):
                    assert across >= cut.traffic.bytes
        assert sum(found["bytes"].moved) <= sum(found["cost"].moved)
        assert found["cost"].cost <= found["bytes"].cost


@pytest.mark.slow
def test_programs_of_mappers_are_right() -> None:
    target = "reference_c" if missing_features(installed().target("x86_avx2").info.cpu_features) else "x86_avx2"
    goal = product(3, 4, 10, target, LIMITS if target == "x86_avx2" else "...")
    made = Completion(goal, cuts_of(goal.spec, goal.target))
    impls = {made.best(mapper, objective=one).goal.impl for mapper in FOR_PRODUCTS for one in ("cost", "bytes")}
    whole = [impl for impl in impls if isinstance(impl, Node)]
    assert whole
    trials = Trials(whole, goal.target)
    for index in range(len(whole)):
        trials.check(index)


@pytest.mark.parametrize("mapper", [*STANDARD[:-2], bayesian(trials=8), RANDOM], ids=lambda one: one.name)
def test_the_same_seed_gives_the_same(mapper: Mapper) -> None:
    if mapper.adaptive:
        pytest.importorskip("sklearn")
    goal = product(4, 6, 8)
    first, again, other = ([*mapper.propose(goal.spec, goal.target, seed)] for seed in (5, 5, 6))
    assert first == again
    assert (first == other) == (mapper.name not in (BO.name, RANDOM.name))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("Matmul(1×64×512×64, (f32, GL), (f32, GL), (f32, GL))", marks=pytest.mark.slow),
        "Matmul(1×67×61×59, (u8, GL), (i8, GL), (i32, GL), serial)",
        "Softmax(64×512, (f32, GL), (f32, GL), serial)",
        "Conv[padding=1](1×4×8×14×14×3×3, (f32, GL), (f32, GL), (f32, GL), serial)",
        "Compose([Relu, Relu], [(512×8, f32, GL), (512×8, f32, GL)], serial)",
        "Move(64×64, (f32, GL), (f32, L1), serial)",
    ],
)
def test_all_steps_of_proposals_apply(text: str) -> None:
    goal = api.goal(text, target="x86_avx2", profile="base")
    for mapper in (LP, MPLP, GREEDY, RANDOM):
        proposals = [*mapper.propose(goal.spec, goal.target, 0)]
        assert proposals
        for proposal in proposals:
            assert goal.apply(proposal).schedule


def test_convolutions_are_padded_before_they_are_tiled() -> None:
    text = "Conv[padding=1, stride=2](1×16×16×28×28×3×3, (f32, GL), (f32, GL), (f32, GL), serial)"
    goal = api.goal(text, target="x86_avx2", profile="base")
    proposals = [*CONV_LP.propose(goal.spec, goal.target, 0)]
    for proposal in proposals:
        assert goal.apply(proposal).schedule.startswith("pad to L2")
    tiles = [statement.sizes for proposal in proposals for statement in _tiles(proposal)]
    assert any(sizes[3] < 28 for sizes in tiles)
    # Rows of two lines and filters stay whole, as kernels take few pixels of a row badly.
    assert all(sizes[4:] == (28, 3, 3) for sizes in tiles)
    plain = product(8, 8, 8)
    assert not [*CONV_LP.propose(plain.spec, plain.target, 0)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "mapper", "most"),
    [
        ("Conv(1×8×8×14×14×3×3, (f32, GL), (f32, GL), (f32, GL), serial)", MPLP, 2 * 112_107),
        ("Matmul(1×128×128×128, (u8, GL), (i8, GL), (i32, GL), serial)", GRADIENT, 2 * 1_169_704),
    ],
)
def test_the_smaller_space_has_programs_where_all_has_none(text: str, mapper: Mapper, most: int) -> None:
    """They cost at most twice as much as search's program."""
    goal = api.goal(text, target="x86_avx2", profile="base")
    made = Completion(goal, ()).best(mapper)
    assert cost_and_peak(made.goal.impl).cost == made.cost <= most
    assert made.goal.target is goal.target


def test_a_table_has_the_tiles_of_the_program() -> None:
    """For values of four bytes in 2^14 bytes: 64×64×64; with k whole, 32 rows and columns of 2 KiB fit into 2^16."""
    nest = nest_of(product(512, 512, 512).spec)
    assert table_tile(nest, 1 << 14) == pytest.approx([1, 64, 64, 64], rel=1e-4)
    found = table_tile(nest, 1 << 16, {2})
    assert found == pytest.approx((1, 32, 512, 32), rel=1e-4)
    assert table_tile(nest, 1 << 10, {2}) is None


def _tiles(schedule: Sequence[Statement]) -> Iterator[Tile]:
    for statement in schedule:
        if isinstance(statement, Subschedule):
            yield from _tiles(statement.body)
        elif isinstance(statement, Tile):
            yield statement


def test_operands_move_where_no_loop_further_in_changes_their_part() -> None:
    """The first operand changes with m and k, the second with k and n, the output with m and n."""
    goal = product(16, 16, 16)
    tile = (1, 8, 8, 16)
    first = next(
        tiling_plans(goal.spec, goal.target, lambda context: None if context.nest.sizes == tile else (tile, (1, 3)))
    )
    assert schedule_text(first).splitlines() == [
        "to_accum",
        "tile [1, 16, 8, 16]",
        "move 1 to L2",
        "tile [1, 8, 8, 16]",
        "move 0 to L2",
        "move 2 to L2",
    ]


def test_threads_share_tiles_first() -> None:
    goal = api.goal("Matmul(1×64×64×64, (f32, GL), (f32, GL), (f32, GL))", target="x86_avx2", profile="base")
    first = next(iter(LP.propose(goal.spec, goal.target, 0)))[0]
    assert isinstance(first, Tile)
    assert first.parallel


def test_boundary_tiles_are_left_to_search() -> None:
    """With sizes that do not divide, the steps after the loop are for its main tiles."""
    goal = product(11, 4, 13, limits="[64, 512, 512, 1024, 4096, 1048576]")
    schedules = [
        *tiling_plans(goal.spec, goal.target, lambda context: ((1, min(2, context.nest.sizes[1]), 4, 13), (0,)))
    ]
    assert any(isinstance(statement, Subschedule) for statement in schedules[0])
    assert goal.apply(schedules[0]).schedule


@settings(max_examples=50)
@given(st.tuples(*[st.integers(1, 100)] * 3), st.tuples(*[st.floats(1, 100)] * 3), st.integers(200, 20_000))
def test_rounded_tiles_fit(sizes: tuple[int, int, int], shape: tuple[float, ...], memory: int) -> None:
    goal = product(*sizes)
    context = TileContext(goal.spec, goal.target, nest_of(goal.spec), memory, 64, frozenset({2}))
    tile = context.fitted([1.0, *shape])
    if tile is None:
        assert not context.fits((1, 1, sizes[1], 1))
        return
    assert context.fits(tile)
    assert tile[2] == sizes[1]
    for size, most, extent in zip((tile[1], tile[3]), (shape[0], shape[2]), (sizes[0], sizes[2]), strict=True):
        assert 1 <= size <= min(most + 1e-6, extent)
        assert extent % size == 0 or size & (size - 1) == 0 or size % 3 == 0 or size % 5 == 0


def mapper_of(propose: Callable[..., Any], name: str = "own") -> Mapper:
    return Mapper(name, propose)


def test_what_does_not_apply_is_passed_over() -> None:
    made = mapping(4, 4, 4)
    whole, level = Tile((1, 4, 4, 4)), MoveStep(0, "L2")
    best = made.best(mapper_of(lambda spec, target, seed: [(whole, level)]))
    assert best.schedule == (level,)
    ((statement, why),) = best.refused
    assert statement == "tile [1, 4, 4, 4]"
    assert "nothing gets smaller" in why


def _fails(*_: object) -> Any:
    raise ZeroDivisionError("by zero")


@pytest.mark.parametrize(
    ("propose", "error", "words"),
    [
        (lambda *_: [("tile [1, 2, 4, 4]",)], PluginError, "not a statement of a schedule"),
        (_fails, PluginError, "mapper 'own' fails: ZeroDivisionError"),
        (lambda *_: [(Tile((1, 4, 4, 4)),)], MorelloError, "no statement of it applies: tile .* nothing gets smaller"),
        (lambda *_: [()], MorelloError, "no statement of it applies, as it is empty"),
        (lambda *_: [], MorelloError, "proposes nothing"),
    ],
)
def test_mappers_that_fail(propose: Callable[..., Any], error: type[MorelloError], words: str) -> None:
    with pytest.raises(error, match=words):
        mapping(4, 4, 4).best(mapper_of(propose))


TWICE = mapper_of(_fails, "twice")


class Plugin:
    """Has mappers for every target."""

    def __init__(self, *mappers: Any):
        self.mappers = mappers

    @hookimpl
    def morello_mappers(self, target: str) -> Any:
        return self.mappers


def with_plugin(*mappers: Any) -> Names[str, Mapper]:
    return mappers_for("x86_avx2", plugins=manager_of(hooks.GROUP, hooks, {"more": Plugin(*mappers)}))


@pytest.mark.slow
def test_plugins_add_mappers() -> None:
    mappers = with_plugin(mapper_of(lambda spec, target, seed: [(MoveStep(1, "L1"),)]))
    assert [*mappers] == [*(each.name for each in STANDARD), "ttile", "own", "hybrid"]
    goal = product(4, 4, 4)
    assert (MoveStep(1, "L1"),) in mappers["hybrid"].propose(goal.spec, goal.target, 0)


@pytest.mark.parametrize(
    "given", [[mapper_of(_fails, "lp")], [mapper_of(_fails, "hybrid")], [mapper_of(_fails, "")], ["lp"], [TWICE, TWICE]]
)
def test_faulty_mappers_are_refused(given: list[Any]) -> None:
    with pytest.raises(PluginError, match="plugin 'more', mappers for target x86_avx2: "):
        with_plugin(*given)
