"""Random whole programs are right, and faults of programs are found."""

from __future__ import annotations

import attrs
import pytest

from morello import api
from morello.ir.impl import Node
from morello.ir.ops import BY_NAME
from morello.ir.ops.compose import Compose
from morello.kernels.target import Target
from morello.plugins.registry import Registry
from morello.testing.draws import COMPOSE, Draws
from morello.testing.trials import Trials, spec_file
from tools.fuzz.isolated import outcomes
from tools.fuzz.sweep import toy_plugin


@pytest.mark.slow
def test_draws_repeat(avx2: Target) -> None:
    drawn = [*Draws(avx2, 3).programs(20)]
    assert [one.impl for one in Draws(avx2, 3).programs(10)] == [one.impl for one in drawn[:10]]
    assert drawn[:10] != [*Draws(avx2, 4).programs(10)]
    assert len({one.dtypes for one in drawn}) > 6


@pytest.mark.slow
def test_draws_reach_every_operation_and_rewrite(avx2: Target) -> None:
    names = {*BY_NAME, COMPOSE}
    drawn = [one for name in names for one in Draws(avx2, 3, [name]).programs(3)]
    drawn += [one for name in ("Max", "SoftmaxDenominatorAndMax") for one in Draws(avx2, 2, [name]).programs(20)]
    assert {COMPOSE if isinstance(one.op, Compose) else one.op.name for one in drawn} == names
    # Constants, and the graphs and long rows that these are for, are rarely drawn.
    rare = {"pack", "rematerialize", "parallel_split_softmax"}
    assert {*avx2.rewrites_by_name} - {name for one in drawn for name in one.rewrites} <= rare


def test_a_program_is_told_as_a_file_that_makes_it_again(avx2: Target) -> None:
    for one in Draws(avx2, 4).programs(12):
        assert isinstance(one.impl, Node)
        (goal,) = api.parse(spec_file(one.impl, avx2)).values()
        assert goal.impl == one.impl


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "told"),
    [("{out} = 7;", "expected"), ("__builtin_trap();", "crashes"), ('for (;;) {{ __asm__(""); }}', "does not end")],
)
def test_faults_are_told_one_by_one(code: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that crashes or hangs takes nothing with it."""
    monkeypatch.setenv("MORELLO_CC_TIMEOUT", "4")
    plugin = toy_plugin()
    kernels = [attrs.evolve(one, template=code) if one.name == "Zero" else one for one in plugin.kernels]
    target = Registry.of(toy_cpu=attrs.evolve(plugin, kernels=tuple(kernels))).target("toy_cpu")
    draws = Draws(target, 0, ["FillZero"]).programs(100)
    wrong = [one for one in draws if "Zero" in one.kernels][:1]
    # Threads that wait for one another take long on a busy machine, as if they did not end.
    right = [one for one in Draws(target, 1, ["Move"]).programs(9) if one.impl.spec.logical.serial]
    drawn = [right[0], *wrong, right[1]]
    faults = [*outcomes(Trials([one.impl for one in drawn], target))]
    assert [fault is None for fault in faults] == [True, False, True]
    assert told in str(faults[1])
    assert "select Zero" in str(faults[1])
