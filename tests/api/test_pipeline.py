"""Functions of `morello` accept text, Paths, Specs and databases, and report progress."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

import morello
from morello import progress
from morello.db.store import SpecStore
from morello.errors import MorelloError, NotSaved
from morello.search.progress import Progress

SPEC = "Matmul(1×2×2×4, L1, L1, L1, serial)"
FILE = f"# target\n  # spec\ntarget x86_avx2\nspec tiny = {SPEC}\n"
SECOND = "Matmul(1×2×2×8, L1, L1, L1, serial)"


def test_a_path_is_a_file(tmp_path: Path) -> None:
    file = tmp_path / "tiny.spec"
    file.write_text(FILE, encoding="utf-8")
    kernel = morello.compile(file)
    assert kernel.program.name == "tiny"
    assert morello.synthesize(file) == kernel.impl
    assert morello.parse(file).keys() == {"tiny"}
    file.write_text("target x86_avx2\nspec\n", encoding="utf-8")
    with pytest.raises(MorelloError, match=r"tiny\.spec:2:5: error"):
        morello.compile(file)
    with pytest.raises(MorelloError, match="cannot read"):
        morello.compile(tmp_path / "missing.spec")


def test_text_with_a_target_is_a_spec_or_a_file() -> None:
    alone = morello.compile(SPEC, target="x86_avx2")
    assert alone.program.name == "kernel"
    assert morello.compile(f"# {SPEC}\n({SPEC}, ...)", target="x86_avx2").impl == alone.impl
    assert morello.compile(FILE, target="x86_avx2").program.name == "tiny"
    assert morello.compile(f"let k = 4\n{FILE}", target="x86_avx2").program.name == "tiny"
    assert morello.synthesize(SPEC, target=alone.target) == alone.impl


@pytest.mark.parametrize(
    ("text", "target", "message"),
    [
        (SPEC, None, r"(?s)a Spec needs a target.*target="),
        (f"({SPEC}, ...)", None, "a Spec needs a target"),
        ("", None, "no specs"),
        ("", "x86_avx2", "ends too early"),
        ("spec", "x86_avx2", "ends too early"),
        ("tiny.spec", None, r"(?s)the name of a file.*pathlib\.Path\('tiny\.spec'\)"),
        ("tiny.spec", "x86_avx2", "the name of a file"),
        (__file__, None, "the name of a file"),
    ],
)
def test_text_that_is_neither(text: str, target: str | None, message: str) -> None:
    with pytest.raises(MorelloError, match=message):
        morello.compile(text, target=target)


def test_parse_takes_no_name_of_a_file() -> None:
    with pytest.raises(MorelloError, match="the name of a file"):
        morello.parse("examples/tiny.spec")


@pytest.mark.slow
def test_the_default_database_is_that_of_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MORELLO_DB", str(tmp_path / "own.db"))
    morello.compile(SPEC, target="x86_avx2", db=False)
    assert not (tmp_path / "own.db").exists()
    kernel = morello.compile(SPEC, target="x86_avx2")
    store = SpecStore(tmp_path / "own.db")
    assert store.find(kernel.target, kernel.spec) is not None
    goal = morello.goal(SECOND, target="x86_avx2").synthesize()
    assert store.find(goal.target, goal.spec) is not None
    monkeypatch.setenv("MORELLO_DB", "off")
    assert morello.synthesize(SPEC, target="x86_avx2") == kernel.impl


def test_a_database_is_a_path_or_open(tmp_path: Path) -> None:
    goal = morello.goal(SPEC, target="x86_avx2")
    for number, given in enumerate((str(tmp_path / "0.db"), tmp_path / "1.db", SpecStore(tmp_path / "2.db"))):
        goal.synthesize(given)
        assert SpecStore(tmp_path / f"{number}.db").find(goal.target, goal.spec) is not None


def test_calls_with_one_path_share_searches(tmp_path: Path) -> None:
    goal = morello.goal(SPEC, target="x86_avx2")
    seen: list[Progress] = []
    goal.synthesize(tmp_path / "solved.db", seen.append)
    (store,) = (one for one in goal.searches._found if one is not None)
    goal.synthesize(str(tmp_path / "solved.db"))
    assert set(goal.searches._found) == {store}


@pytest.mark.parametrize(
    ("given", "message"), [(True, "not a database"), (7, "not a database"), (".", "is not a file")]
)
def test_invalid_databases(given: object, message: str) -> None:
    with pytest.raises(MorelloError, match=message):
        morello.compile(SPEC, target="x86_avx2", db=given)  # pyright: ignore[reportArgumentType]


def test_a_default_database_that_cannot_be_used_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text").write_text("not a database" * 1000)
    monkeypatch.setenv("MORELLO_DB", str(tmp_path / "text"))
    with pytest.warns(NotSaved, match="going on without a database"):
        assert morello.compile(SPEC, target="x86_avx2").cost


@pytest.mark.slow
def test_progress_is_reported_to_a_listener_or_stderr(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "UPDATE_SECONDS", 0.001)
    text = "Matmul(1×64×64×64, GL, GL, GL, serial)"
    morello.synthesize(text, target="x86_avx2")
    assert capfd.readouterr().err == "", "stderr is not a terminal"
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    morello.synthesize(text, target="x86_avx2")
    assert "kernel, 0 s" in capfd.readouterr().err
    seen: list[Progress] = []
    morello.synthesize(text, target="x86_avx2", progress=False)
    morello.synthesize(text, target="x86_avx2", progress=seen.append)
    assert capfd.readouterr().err == ""
    assert seen


def test_notebooks_show_progress_where_they_have_widgets(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Console(force_jupyter=True)
    monkeypatch.setattr(progress, "find_spec", lambda name: name)
    assert progress._is_live(screen)
    monkeypatch.setattr(progress, "find_spec", lambda name: None)
    assert not progress._is_live(screen)
