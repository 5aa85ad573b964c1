"""Databases with right checksums and wrong contents; `python -m morello.testing.crafted` tries all kinds."""

from __future__ import annotations

from pathlib import Path

import pytest

from morello.testing import crafted


@pytest.mark.filterwarnings("ignore::morello.errors.NotSaved")
def test_crafted_databases_give_the_right_answer_or_one_message(tmp_path: Path) -> None:
    found = crafted.run(tmp_path, every=7)
    assert found["refused"] > 25
    assert found["right"] > 5
    assert found["refused"] + found["right"] > 40
