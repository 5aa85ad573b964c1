"""The menu: what items propose applies, changes something, and is the same every time."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from morello.errors import PluginError
from morello.frontend.parser import parse_schedule
from morello.ir.impl import Leaf
from morello.plugins import Candidate, MenuItem, Proposer, TuningInfo, hookimpl
from morello.plugins.registry import Registry, installed
from morello.schedule import Position, Schedule, apply, schedule_text
from morello.tuning.menu import STANDARD, menu_for, sizes_near

from .conftest import SPECS, candidate


def x86(plugin: Any = None) -> Registry:
    own = importlib.import_module("morello_x86_avx2.plugin").PLUGIN
    return Registry.of(x86_avx2=own, **({"other": plugin} if plugin else {}))


def edits(item: MenuItem, of: Candidate) -> list[Schedule]:
    return [*item.edits(of)] if item.applies(of) else []


@pytest.mark.parametrize("name", [*SPECS])
def test_all_that_items_propose_applies_and_changes_something(name: str) -> None:
    of = candidate(name)
    own = of.schedule
    for item in menu_for("x86_avx2", installed()).values():
        made = edits(item, of)
        assert len({*made}) == len(made)
        assert own not in made
        for schedule in made[:40]:
            # As text, as a Spec file or a trace has it.
            read = parse_schedule(schedule_text(schedule), of.target)
            apply(Position(Leaf(of.spec)), read, of.target, Leaf)
        if item.name != "mapper":
            assert made[:5] == edits(item, of)[:5]


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
    shared = edits(menu_for("x86_avx2", installed())["threads"], candidate("shared"))
    assert any("parallel" in schedule_text(one) for one in shared)


def test_streaming_kernels_are_exchanged() -> None:
    of = candidate("relu")
    made = [schedule_text(one) for one in edits(menu_for("x86_avx2", installed())["stream"], of)]
    assert made
    assert all(("Streamed" in one) != ("Streamed" in of.text) for one in made)


def test_sizes_near_one_are_others_that_fit() -> None:
    assert sizes_near(48, 16)[:2] == [32, 8]
    assert {12, 24} <= {*sizes_near(48, 16)}
    assert all(one % 4 == 0 and one < 48 for one in sizes_near(48, 16, 4))
    assert sizes_near(2, 2) == [1]


class _Plugin:
    def __init__(self, *items: Any, proposers: Any = (), info: Any = None):
        self.items, self.proposers, self.info = items, proposers, info

    @hookimpl
    def morello_optimization_menu(self, target: str) -> Any:
        return [*self.items]

    @hookimpl
    def morello_proposers(self, target: str) -> Any:
        return [*self.proposers]


def test_plugins_add_items_and_proposers() -> None:
    item = MenuItem(name="mine", text="does nothing", edits=lambda candidate: ())
    proposer = Proposer(name="own", start=lambda task: None)  # pyright: ignore
    registry = x86(_Plugin(item, proposers=[proposer]))
    assert "mine" in menu_for("x86_avx2", registry)
    assert [*registry.proposers("x86_avx2")] == ["own"]
    assert registry.tuning("x86_avx2").description
    assert not registry.target("x86_avx2").metrics


@pytest.mark.parametrize(
    ("plugin", "word"),
    [
        (_Plugin(MenuItem(name="tile", text="", edits=lambda candidate: ())), "another menu item tile"),
        (_Plugin("item"), "a menu item is a morello.plugins.MenuItem"),
        (_Plugin(proposers=["one"]), "a proposer is a morello.plugins.Proposer"),
    ],
)
def test_faulty_contributions_are_told_of(plugin: Any, word: str) -> None:
    registry = x86(plugin)
    with pytest.raises(PluginError, match=word):
        _ = menu_for("x86_avx2", registry), registry.proposers("x86_avx2")


def test_only_one_plugin_tells_of_a_target() -> None:
    class Other:
        @hookimpl
        def morello_tuning(self, target: str) -> TuningInfo:
            return TuningInfo(description="more")

    with pytest.raises(PluginError, match="morello_tuning"):
        x86(Other()).tuning("x86_avx2")
