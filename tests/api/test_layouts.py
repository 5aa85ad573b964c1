"""Searches with all layouts: their programs, proofs and errors, and their own answers in databases."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import morello
from morello.errors import MorelloError
from morello.ir.impl import cost_and_peak
from morello.ir.layout import every_layout
from tools.fixtures import Cli, Write

#: The fastest program keeps the order of the source, which is not among the layouts that the target offers.
SPEC = "Tanh(8×2×1×1×1, (f32, L2, layout[1, 0]), (bf16, L2), serial)"
HEAD = f"spec turned = {SPEC}\n"


@pytest.fixture
def goal() -> morello.Goal:
    return morello.goal(SPEC, target="x86_avx2", profile="base")


def test_three_dimensions_have_the_layouts_of_the_paper() -> None:
    found = [*every_layout((99, 99, 99), (2, 4, 8), (8, 16))]
    assert len(found) == len({*found}) == 5496
    assert len([*every_layout((1, 99, 99), (2, 4, 8), (8, 16))]) == 122


@pytest.mark.slow
def test_more_layouts_make_a_cheaper_program_that_replays(goal: morello.Goal) -> None:
    few, many = goal.synthesize(db=False), goal.synthesize(db=False, layouts="all")
    assert cost_and_peak(many.impl).cost < cost_and_peak(few.impl).cost
    assert (few.proof, many.proof) == ("optimal", "optimal among programs with all layouts")
    assert goal.apply(many.schedule).impl == many.impl
    text = str(morello.compile(goal, db=False, layouts="all").explain())
    assert "optimal among programs with all layouts with tiles of powers of two; up to 25 layouts of a tensor" in text


@pytest.mark.slow
def test_the_language_and_commands_take_all_layouts(goal: morello.Goal, cli: Cli, write: Write) -> None:
    best = goal.synthesize(db=False, layouts="all").schedule
    scheduled = write(f"{HEAD}schedule turned {{ synthesize with all layouts }}\n")
    for command in ([scheduled], [write(HEAD, name="plain.spec"), "--layouts", "all"]):
        result = cli("compile", *command, "--no-db", "--profile", "base", "--emit", "schedule")
        assert best.splitlines()[0] in result.stdout
        assert result.stderr == "turned: optimal among programs with all layouts\n"


@pytest.mark.slow
def test_databases_keep_answers_with_all_layouts_apart(goal: morello.Goal, tmp_path: Path, cli: Cli) -> None:
    path = tmp_path / "kept.mdb"
    for layouts in ("all", "offered", "all"):
        found = goal.synthesize(db=path, layouts=layouts)
        assert found.impl == goal.synthesize(db=False, layouts=layouts).impl
    rows = json.loads(cli("db", "stats", str(path), "--json").stdout)["fingerprints"]
    assert {(row["target"], row["current"]) for row in rows} == {
        ("x86_avx2", True),
        ("x86_avx2 with all layouts", True),
    }


def test_too_many_layouts_are_refused() -> None:
    large = morello.goal("Move(16×16×16, (f32, L1), (f32, L1), serial)", target="x86_avx2")
    with pytest.raises(MorelloError, match="src of 16×16×16 has more than 256 layouts") as caught:
        large.synthesize(db=False, layouts="all")
    assert caught.value.hint
    assert "leave out `with all layouts`" in caught.value.hint
    with pytest.raises(MorelloError, match="layouts='many'"):
        large.synthesize(db=False, layouts="many")  # type: ignore[arg-type]
