"""Databases with right checksums and wrong contents; `python -m tools.faults.adversarial` tries all kinds."""

from __future__ import annotations

import sqlite3
import zlib
from pathlib import Path

import pytest

from morello.api import goal
from morello.db.file import Damaged
from morello.db.store import SpecStore
from tools.faults import adversarial


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::morello.errors.MorelloWarning")
def test_adversarial_databases_give_the_right_answer_or_one_message(tmp_path: Path) -> None:
    found = adversarial.run(tmp_path, every=7)
    assert found["refused"] > 20
    assert found["right"] > 3
    assert found.total() > 35


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        (f"column 21 = {2**53 + 1}", "a cost is more than 9,007,199,254,740,991"),
        ("column 22 = 0", "a cost is not a fraction in lowest terms"),
        ("column 9 = -1", "a range ends before it begins"),
        ("steps = '[\"fly [1]\"]'", "an answer has no step|unknown step"),
        ("steps = printf('%.*c', 99999, '[')", "it is nested deeper than 50 levels"),
    ],
)
def test_rules_that_boxes_break(name: str, rule: str, tmp_path: Path) -> None:
    adversarial.make(tmp_path / "a.db")
    adversarial.craft(tmp_path / "a.db", dict(adversarial.kinds())[name])
    spec = goal(adversarial.TEXT, target=adversarial.TARGET)
    with pytest.raises(Damaged, match=rule):
        SpecStore(tmp_path / "a.db").program(spec.target, spec.spec)


def test_boxes_that_unpack_to_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    adversarial.make(tmp_path / "a.db")
    monkeypatch.setattr("morello.db.tables._MOST_BYTES", 1 << 20)
    bomb = zlib.compress(bytes(1 << 22))

    def change(connection: sqlite3.Connection) -> None:
        connection.execute("UPDATE tables SET boxes = ?", (bomb,))

    adversarial.craft(tmp_path / "a.db", change)
    with pytest.raises(Damaged, match="its boxes are cut, or have more than 1 MiB"):
        _ = [*SpecStore(tmp_path / "a.db").tables()]
