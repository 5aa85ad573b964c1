"""Kernels, goals, Specs, programs, targets and errors can be pickled, also for other processes."""

from __future__ import annotations

import importlib
import multiprocessing
import pickle
from collections.abc import Iterator
from multiprocessing.pool import Pool
from typing import Any

import attrs
import numpy as np
import pytest

import morello
from morello.errors import ArgumentError, MorelloError, PluginError
from morello.frontend import SourceError
from morello.plugins.registry import Registry, installed

SPEC = "MatmulAccum(1×2×4×8, L1, L1, L1, serial)"
UNPROVEN = "(Softmax(3×5, L1, L1, serial), [12, 32, 128, 0, 0, 0])"
FILE = "target x86_avx2\nspec a = FillZero(8, (f32, L1), serial)\nspec b = FillZero(4, (f32, L1), serial)\n"


def back(thing: Any) -> Any:
    return pickle.loads(pickle.dumps(thing))


@pytest.fixture(scope="module")
def goal() -> morello.Goal:
    return morello.goal(SPEC, target="x86_avx2").tile(1, 1, 8)


def test_unpickled_objects_are_equal(goal: morello.Goal) -> None:
    kernel = morello.compile(goal)
    for thing in (goal, goal.spec, goal.impl, kernel.impl, kernel.program, kernel.goal, kernel.explain()):
        assert back(thing) == thing
    again = back(kernel)
    assert type(again) is type(kernel)
    for name in ("goal", "impl", "source", "header", "schedule", "cost", "peak", "low", "proof", "tree", "target"):
        assert getattr(again, name) == getattr(kernel, name)


@pytest.mark.parametrize("profile", ["base", "zen4"])
def test_targets_are_those_of_the_process(profile: str) -> None:
    target = installed().target("x86_avx2", profile)
    assert back(target) is target


def test_unproven_bounds_are_pickled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("morello.search.solve.core.QUOTA", 1)  # let search end anywhere, though it is small
    kernel = morello.compile(UNPROVEN, target="x86_avx2", db=False, budget=morello.SearchBudget(gap=0.5))
    assert back(kernel).low == kernel.low < kernel.cost
    assert back(kernel).proof == kernel.proof


def test_goals_of_a_file_still_share_a_search() -> None:
    goals = back(morello.parse(FILE))
    assert [*goals] == ["a", "b"]
    assert goals["a"].searches is goals["b"].searches
    assert goals["a"].synthesize(db=False).proof == "optimal"


def test_a_target_that_is_not_installed_is_refused() -> None:
    own = Registry.of(x86_avx2=importlib.import_module("morello_x86_avx2.plugin").PLUGIN)
    goal = morello.goal(SPEC, target="x86_avx2", registry=own)
    assert back(goal.spec) == goal.spec
    for each in (goal, attrs.evolve(installed().target("x86_avx2"), mhz=1)):
        with pytest.raises(MorelloError, match="target x86_avx2 cannot be pickled: it is not an installed target"):
            pickle.dumps(each)


def test_plugins_that_are_missing_are_named(goal: morello.Goal, monkeypatch: pytest.MonkeyPatch) -> None:
    pickled = [pickle.dumps(each) for each in (goal, goal.target, morello.compile(goal))]
    monkeypatch.setattr("morello.plugins.registry.installed", lambda: Registry.of())
    for each in pickled:
        with pytest.raises(PluginError, match=r"target x86_avx2 needs the plugins .*, which are not") as caught:
            pickle.loads(each)
        assert "install morello-x86-avx2" in str(caught.value.hint)


def subclasses(kind: type[MorelloError]) -> Iterator[type[MorelloError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from subclasses(each)


def test_every_error_comes_back() -> None:
    with pytest.raises(SourceError) as caught:
        morello.parse("target x86_avx2\nspec a = FillZero(")
    for error in [caught.value, *(kind("why", "do") for kind in subclasses(MorelloError) if kind is not SourceError)]:
        again = back(error)
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        yield pool


@pytest.mark.slow
def test_kernels_run_in_spawned_processes(pool: Pool) -> None:
    kernel = morello.compile("Matmul(1×2×4×8, L1, L1, L1, serial)", target="x86_avx2", db=False)
    lhs, rhs = np.ones((3, 1, 2, 4), np.float32), np.arange(32, dtype=np.float32).reshape(1, 4, 8)
    results = pool.starmap_async(kernel, [(each, rhs) for each in lhs]).get(60)
    assert all((result == lhs[0] @ rhs).all() for result in results)
    # It is not built twice.
    assert pool.apply_async(getattr, (kernel, "library")).get(60) == kernel.library
    with pytest.raises(ArgumentError, match="lhs"):
        pool.apply_async(kernel, (rhs, rhs)).get(60)


@pytest.mark.slow
def test_spawned_processes_search(pool: Pool, goal: morello.Goal) -> None:
    (done,) = pool.map_async(morello.Goal.synthesize, [goal]).get(60)
    assert done == goal.synthesize()
    assert done.proof == "optimal"
    with pytest.raises(SourceError, match="unknown"):
        pool.apply_async(morello.parse, ("target nothing\nspec a = FillZero(4, L1)",)).get(60)
