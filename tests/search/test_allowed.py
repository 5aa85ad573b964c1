"""Search by allowed steps alone finds the cheapest of the target's programs that have no other steps."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from morello.errors import MorelloError
from morello.frontend.parser import parse_spec
from morello.ir.impl import AllowedSteps, Expansion, Impl, KernelCall, Node, cost_and_peak, walk
from morello.ir.ops import by_name
from morello.ir.spec import LogicalSpec
from morello.kernels.target import Target
from morello.plugins.registry import installed
from morello.rewrites.allowed import check_names, confined
from morello.rewrites.base import pending_dims
from morello.search.session import SearchSession
from morello.testing.textbook import differences
from tools.fuzz.sweep import NAMES, Bounded, Enough, random_goal

#: A product, a convolution whose tiles `spatial_split` and `one_group` restrict, and a softmax.
SPECS = (
    "Matmul(1×6×16×24, (f32, L1), (f32, L1), (f32, L1), serial)",
    "(GroupedConv(1×1×2×2×3×3×1×1, (f32, L1), (f32, L1), (f32, L1), serial), [8, 8, 2048, 0, 0, 0])",
    "Softmax(2×8, (f32, L1), (f32, L1), serial)",
)


def names_of(expansion: Expansion) -> set[str]:
    """The names of a step: its rewrite, and its kernel if it calls one."""
    return {expansion.step.keyword, *([expansion.kernel] if isinstance(expansion, KernelCall) else [])}


def used(impl: Impl) -> set[str]:
    """The kernels and rewrites of a program."""
    return {name for node in walk(impl) if isinstance(node, Node) for name in names_of(node.expansion)}


class Without(Bounded):
    """The recursion of a whole target, without the steps of some names."""

    names: frozenset[str] = frozenset()

    def expansions(self, logical: LogicalSpec) -> list[Expansion]:
        return [one for one in super().expansions(logical) if not names_of(one) & self.names]


@pytest.mark.slow
@settings(max_examples=30)
@given(name=st.sampled_from(NAMES), seed=st.integers(0, 10**9))
def test_programs_are_those_of_the_recursion_without_the_steps(
    name: str, seed: int, target_named: Callable[[str], Target]
) -> None:
    target, rng = target_named(name), random.Random(seed)
    spec = random_goal(rng, target)
    (best,) = SearchSession(target).programs([spec])
    names = sorted({*used(best)} - {"select"}) if best else [*target.kernels_by_name]
    without = rng.sample(names, min(len(names), rng.randint(1, 3)))
    textbook = Without(target)
    textbook.most, textbook.names = 1500, frozenset(without)
    with contextlib.suppress(Enough):
        textbook.solve(spec)
    allowed = confined(target, AllowedSteps(without=tuple(without)))
    assert not [*differences(textbook.seen, SearchSession(allowed).programs)]


@pytest.mark.slow
@pytest.mark.parametrize("text", SPECS)
def test_less_steps_never_cost_less_and_are_no_part_of_programs(text: str, avx2: Target) -> None:
    spec = parse_spec(text, avx2)
    (best,) = SearchSession(avx2).programs([spec])
    assert best
    for name in sorted(used(best)):
        (found,) = SearchSession(confined(avx2, AllowedSteps(without=(name,)))).programs([spec])
        assert found is None or name not in used(found)
        assert found is None or cost_and_peak(found).cost >= cost_and_peak(best).cost


def test_other_kernels_keep_the_tile_sizes_that_excluded_ones_ask_for(avx2: Target) -> None:
    spec = parse_spec(SPECS[0], avx2)
    less = confined(avx2, AllowedSteps(using=("MultAdd",)))
    assert less.tile_sizes(spec.op) == avx2.tile_sizes(spec.op) != {}


def test_an_excluded_rewrite_still_restricts_tiles(avx2: Target) -> None:
    less, op = confined(avx2, AllowedSteps(without=("one_group",))), by_name("GroupedConv")
    assert pending_dims(op, less) == pending_dims(op, avx2) == (0, 1)


@pytest.mark.parametrize(
    ("using", "operations"),
    [
        (["BroadcastVecMultAdd"], {"Matmul", "MatmulAccum"}),
        (["RegisterTile"], {"Matmul", "MatmulAccum"}),
        (["ConvTile", "VectorZero"], {"Conv", "FillZero"}),
    ],
)
def test_using_a_kernel_excludes_the_others_for_its_operation(
    using: list[str], operations: set[str], avx2: Target
) -> None:
    less = confined(avx2, AllowedSteps(using=tuple(using)))
    excluded = {one.op_name for one in avx2.kernels} - {one.op_name for one in less.kernels if one.name not in using}
    assert excluded == operations
    assert {*using} < {*less.kernels_by_name}
    assert less.rewrites == avx2.rewrites


def test_using_rewrites_excludes_all_others_but_select(avx2: Target) -> None:
    less = confined(avx2, AllowedSteps(using=("tile", "to_accum"), without=("to_accum",)))
    assert [*less.rewrites_by_name] == ["select", "tile"]
    assert less.kernels == avx2.kernels


def test_a_target_without_some_steps_can_lose_more(avx2: Target) -> None:
    once = confined(avx2, AllowedSteps(without=("fit",)))
    assert confined(once, AllowedSteps(without=("tile",))).excluded == ("tile", "fit")


@pytest.mark.parametrize(
    ("name", "hint"), [("RegisterTiles", "did you mean 'RegisterTile'?"), ("x", "x86_avx2 has the rewrites select, ")]
)
def test_unknown_names(name: str, hint: str, avx2: Target) -> None:
    for allowed in (AllowedSteps(using=(name,)), AllowedSteps(without=(name,))):
        with pytest.raises(MorelloError, match=f"x86_avx2 has no microkernel or rewrite '{name}'") as caught:
            check_names(avx2, allowed)
        assert caught.value.hint
        assert caught.value.hint.startswith(hint)


def test_kernels_for_other_cpus_can_be_excluded_only() -> None:
    target = installed().target("x86_avx2")
    name = target.unavailable[0].name
    check_names(target, AllowedSteps(without=(name,)))
    with pytest.raises(MorelloError, match=f"{name} needs avx_vnni, which x86_avx2 lacks"):
        check_names(target, AllowedSteps(using=(name,)))
