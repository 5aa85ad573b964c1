"""The menu: edits of items apply, change the schedule, and are the same every time."""

from __future__ import annotations

import importlib
from itertools import islice
from typing import Any

import pluggy
import pytest
from morello_tune import MenuItem, Proposer, TuningCandidate, TuningInfo, TuningPlugin, interface
from morello_tune.interface import tuning_info
from morello_tune.menu import STANDARD, menu_for, sizes_near
from morello_tune.proposers import proposers_for
from morello_x86_avx2.plugin import PLUGIN as X86_AVX2

from morello.errors import PluginError
from morello.frontend.parser import parse_schedule
from morello.ir.impl import Leaf
from morello.plugins import Registry, derive
from morello.plugins.discovery import manager_of
from morello.schedule import Position, Schedule, apply, schedule_text

from .conftest import SPECS, candidate


def with_x86(plugin: Any) -> pluggy.PluginManager:
    own = importlib.import_module("morello_x86_avx2.tuning").PLUGIN
    return manager_of(interface.GROUP, interface, {"x86_avx2": own, "other": plugin})


def edits(item: MenuItem, of: TuningCandidate, most: int | None = None) -> list[Schedule]:
    return [*islice(item.edits(of), most)] if item.applies(of) else []


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SPECS])
def test_edits_of_items_apply_and_change_the_schedule(name: str) -> None:
    of = candidate(name)
    own = of.schedule
    for item in menu_for("x86_avx2").values():
        made = edits(item, of, 40)
        assert len({*made}) == len(made)
        assert own not in made
        for schedule in made[:20]:
            # As text, as in a Spec file or a trace.
            read = parse_schedule(schedule_text(schedule), of.target)
            apply(Position(Leaf(of.spec)), read, of.target, Leaf)
        if item.name != "mapper":
            assert made[:5] == edits(item, of, 5)


@pytest.mark.slow
def test_items_do_what_they_say() -> None:
    of = candidate("product")
    by_name = {item.name: [schedule_text(one) for one in edits(item, of)] for item in STANDARD}
    steps = of.text.splitlines()
    assert any(len(one.splitlines()) < len(steps) for one in by_name["fuse"])
    assert any("to_accum\nsplit 8" in one for one in by_name["k_split"])
    assert any(" as " in one for one in by_name["pack"])
    assert any(one.startswith("fit 1 [") for one in by_name["fit"])
    assert any("move" in one for one in by_name["place"])
    loops = of.text.count("tile") + of.text.count("fit")
    assert any(one.count("tile") + one.count("fit") > loops for one in by_name["split"])
    assert not by_name["threads"]
    shared = edits(menu_for("x86_avx2")["threads"], candidate("shared"))
    assert any("parallel" in schedule_text(one) for one in shared)


def test_streaming_kernels_are_exchanged() -> None:
    of = candidate("relu")
    made = [schedule_text(one) for one in edits(menu_for("x86_avx2")["stream"], of)]
    assert made
    assert all(("Streamed" in one) != ("Streamed" in of.text) for one in made)


def test_sizes_near_one_are_others_that_fit() -> None:
    assert sizes_near(48, 16)[:2] == [32, 8]
    assert {12, 24} <= {*sizes_near(48, 16)}
    assert all(one % 4 == 0 and one < 48 for one in sizes_near(48, 16, 4))
    assert sizes_near(2, 2) == [1]


def test_plugins_add_items_and_proposers() -> None:
    item = MenuItem(name="mine", text="does nothing", edits=lambda candidate: ())
    proposer = Proposer(name="own", start=lambda task: None)  # pyright: ignore
    plugins = with_x86(TuningPlugin(target="x86_avx2", menu=[item], proposers=[proposer]))
    assert {"mine", "stream"} <= {*menu_for("x86_avx2", plugins)}
    assert "mine" not in menu_for("reference_c", plugins)
    assert "own" in proposers_for("x86_avx2", plugins)
    assert tuning_info("x86_avx2", plugins).description
    assert not tuning_info("reference_c", plugins).description


def test_a_derived_target_has_what_plugins_add_to_its_base(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry.of(x86_avx2=X86_AVX2, variant=derive("x86_avx2", name="variant"))
    for module in ("interface", "menu", "proposers"):
        monkeypatch.setattr(f"morello_tune.{module}.installed", lambda: registry)
    item = MenuItem(name="mine", text="does nothing", edits=lambda candidate: ())
    plugins = with_x86(TuningPlugin(target="variant", menu=[item]))
    assert {"mine", "stream"} <= {*menu_for("variant", plugins)}
    assert "mine" not in menu_for("x86_avx2", plugins)
    assert tuning_info("variant", plugins) == tuning_info("x86_avx2", plugins)


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"menu": [MenuItem(name="tile", text="", edits=lambda candidate: ())]}, "the name tile is taken"),
        ({"menu": ["item"]}, "MenuItem objects with names, not 'item'"),
        ({"proposers": ["one"]}, "Proposer objects with names, not 'one'"),
        ({"info": TuningInfo(description="more")}, "returns one morello_tune.TuningInfo"),
    ],
)
def test_faulty_plugins_are_errors(more: dict[str, Any], word: str) -> None:
    plugins = with_x86(TuningPlugin(target="x86_avx2", **more))
    with pytest.raises(PluginError, match=word):
        _ = menu_for("x86_avx2", plugins), proposers_for("x86_avx2", plugins), tuning_info("x86_avx2", plugins)
