"""Databases with right checksums and wrong contents; `python -m tools.faults.crafted` tries all kinds."""

from __future__ import annotations

from pathlib import Path

import pytest

from morello.api import goal
from morello.db.file import Damaged
from morello.db.store import SpecStore
from tools.faults import crafted


@pytest.mark.filterwarnings("ignore::morello.errors.NotSaved")
def test_crafted_databases_give_the_right_answer_or_one_message(tmp_path: Path) -> None:
    found = crafted.run(tmp_path, every=7)
    assert found["refused"] > 25
    assert found["right"] > 5
    assert found["refused"] + found["right"] > 40


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("a cost past 2^53", "its cost is more than 9,007,199,254,740,991"),
        ("a cost past 64 bits", "its cost is more than 9,007,199,254,740,991"),
        ("a cost past 64 bits as text", "its cost is no number"),
    ],
)
def test_costs_that_search_refuses_are_damage(name: str, rule: str, tmp_path: Path) -> None:
    crafted.make(tmp_path / "a.db")
    assert crafted.craft(tmp_path / "a.db", dict(crafted.kinds())[name])
    spec = goal(crafted.TEXT, target=crafted.TARGET)
    with pytest.raises(Damaged, match=rule):
        SpecStore(tmp_path / "a.db").find(spec.target, spec.spec)
