"""The menu's items lead from the first program of [Hong2025] to the best one, by the counts of the model."""

from __future__ import annotations

from pathlib import Path

import pluggy
import pytest
from morello_tune import TuningCandidate, TuningTask
from morello_tune.beam import BeamOptions, BeamSearch, BeamState
from morello_tune.evaluate import Evaluator
from morello_tune.interface import tuning_info
from morello_tune.menu import menu_for
from morello_tune.proposers.offline import OFFLINE

from morello import api
from morello.api.goals import Goal
from morello.build.toolchain import find_compiler
from morello.frontend.specfile import show_spec
from morello.plugins.registry import Registry
from morello.schedule import schedule_text

SPECS = Path(__file__).parents[1] / "examples" / "gemm.spec"


def _work(goal: Goal) -> float:
    return api.compile(goal).readings()[0].value


def _completed(goal: Goal, schedule: str, registry: Registry) -> Goal:
    steps = f"{schedule}\nsynthesize"
    text = f"target gemmini\nspec p = {show_spec(goal.spec, goal.target)}\nschedule p {{\n{steps}\n}}"
    return api.parse(text, registry=registry)["p"].synthesize()


@pytest.mark.slow
def test_items_lead_to_the_best_program(registry: Registry, tuning_plugins: pluggy.PluginManager) -> None:
    plain, best = (
        api.parse(SPECS.read_text(encoding="utf-8"), registry=registry)[name] for name in ("plain", "resident")
    )
    menu, now = menu_for("gemmini", tuning_plugins), plain
    counts = [_work(now)]
    for name in ("resident", "overwrite"):
        of = TuningCandidate(target=now.target, impl=now.impl)
        made = [_completed(now, schedule_text(one), registry) for one in menu[name].edits(of)]
        now = min(made, key=lambda goal: api.compile(goal).cost)
        counts.append(_work(now))
    # All of B is loaded once, then sums do without zeros.
    assert counts == [21_224_448, 8_195_328, _work(best)]


@pytest.mark.slow
def test_tuning_goes_by_the_metric(registry: Registry, tuning_plugins: pluggy.PluginManager) -> None:
    text = SPECS.read_text(encoding="utf-8").replace("12544", "64")
    plain, best = (api.parse(text, registry=registry)[name] for name in ("plain", "resident"))
    evaluator = Evaluator(goal=plain, compiler=find_compiler())
    start, known = evaluator.start(plain.impl), menu_for("gemmini", tuning_plugins)
    menu = known["resident"], known["overwrite"]
    task = TuningTask(
        name="plain",
        start=start.candidate,
        info=tuning_info("gemmini", tuning_plugins),
        read=evaluator.read,
        menu=menu,
    )
    options = BeamOptions(beam=1, plans=2, implementations=1, iterations=3, dropout=0.0, seed=1)
    found = BeamSearch(evaluator, OFFLINE.start(task), menu, options).run(BeamState(start, [start])).best
    assert start.value == _work(plain)
    assert found.value == _work(best)
    assert found.spread == 0


def test_arrays_say_what_they_are(registry: Registry, tuning_plugins: pluggy.PluginManager) -> None:
    for name in registry.names:
        info = tuning_info(name, tuning_plugins)
        assert "layout[0, 2, 1, 2p" in info.description
        assert len(info.rules) > 3
