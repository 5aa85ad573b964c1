"""An unexpected exception is one message, and a file with the information needed to find the fault."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
from click.testing import CliRunner, Result

from morello import crash
from morello.api import pipeline
from morello.cli.app import main
from morello.plugins.registry import installed
from morello.search.session import SearchSession

Write = Callable[..., str]

#: Where something goes wrong: in the parser, in search, in an emitter.
PLACES: dict[str, Callable[[], tuple[object, str]]] = {
    "parse": lambda: (pipeline, "parse_file"),
    "search": lambda: (SearchSession, "synthesize"),
    "emit": lambda: (type(installed().target("x86_avx2").emitter), "emit"),
}
SPEC = "spec one = Matmul(1×1×1×1,\n    (f32, GL, row_major),"


def fails(error: Exception) -> Callable[..., NoReturn]:
    def fail(*_: Any, **__: Any) -> NoReturn:
        raise type(error)(*error.args)

    return fail


def bundle(result: Result) -> str:
    """Return the text of the file that the message names."""
    found = re.search(r"the report is in (\S+)\n", result.stderr)
    assert found, result.stderr
    return Path(found[1]).read_text(encoding="utf-8")


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.mark.parametrize("place", PLACES)
def test_one_message_and_a_file(place: str, write: Write, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*PLACES[place](), fails(KeyError("bf16")))
    monkeypatch.setenv("MORELLO_THREADS", "1")
    monkeypatch.setenv("MORELLO_OPENAI_KEY", "sk-secret")
    path = write()
    result = CliRunner().invoke(main, ["compile", path, "--no-db"])
    assert result.exit_code == 70
    assert result.stdout == ""
    assert re.match(r"error: KeyError at test_crash.py:\d+: 'bf16'\n  this is a bug of Morello", result.stderr)
    assert "Traceback" not in result.stderr
    report_text = bundle(result)
    assert [*state.rglob("morello-crash-KeyError-*.txt")]
    for words in (
        Path(path).read_text(encoding="utf-8"),
        "Traceback (most recent call last)",
        "MORELLO_THREADS=1",
        "MORELLO_OPENAI_KEY=***",
        "morello-x86-avx2",
        f"python {sys.version.split()[0]}",
        "numpy ",
        "compiler: ",
        *(["== target\n\nx86_avx2", SPEC] if place != "parse" else []),
    ):
        assert words in report_text


def test_the_same_fault_fills_no_disk(write: Write, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SearchSession, "synthesize", fails(KeyError("bf16")))
    for name in ("test.spec", "test.spec", "other.spec"):
        text = "spec two = FillZero(4, GL)\n" if name == "other.spec" else "spec one = FillZero(4, GL)\n"
        CliRunner().invoke(main, ["compile", write(text, name=name), "--no-db"])
    assert len([*state.rglob("*.txt")]) == 2


@pytest.mark.slow
def test_a_process_ends_with_the_message(write: Write, state: Path) -> None:
    """The output on the terminal, and the command in the file, without a runner of tests."""
    code = "import morello.api.pipeline, morello.cli; morello.api.pipeline.parse_file = None; morello.cli.main()"
    path = write()
    done = subprocess.run([sys.executable, "-c", code, "check", path], capture_output=True, text=True)
    assert done.returncode == 70
    assert done.stdout == ""
    assert re.fullmatch(
        r"error: TypeError at morello/api/pipeline.py:\d+: .*\n  this is a bug .*\n  the report .*\n  hint: .*\n",
        done.stderr,
    )
    (file,) = state.rglob("*.txt")
    assert f"-c check {path}\n" in file.read_text(encoding="utf-8")


def test_places_that_cannot_be_written(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fallbacks are the working directory and a temporary one; without any the message has all details."""
    monkeypatch.setattr(SearchSession, "synthesize", fails(IndexError("out of range")))
    (tmp_path / "here").mkdir()
    (tmp_path / "temporary").mkdir()
    path = write()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null/state")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))

    def run() -> Result:
        return CliRunner().invoke(main, ["compile", path, "--no-db"])

    assert "IndexError" in bundle(run())
    assert len([*(tmp_path / "here").iterdir()]) == 1
    shutil.rmtree(tmp_path / "here")
    assert "IndexError" in bundle(run())
    assert len([*(tmp_path / "temporary").rglob("*.txt")]) == 1
    shutil.rmtree(tmp_path / "temporary")
    result = run()
    assert result.exit_code == 70
    assert re.match(r"error: IndexError at .*: out of range\n", result.stderr)
    assert "cannot be saved (a temporary directory: No such file or directory)" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_failing_section_hides_no_other() -> None:
    error = ValueError("first")
    with pytest.raises(ValueError, match="first"), crash.context(good="yes", bad=fails(KeyError("second"))):
        raise error
    report_text = crash.report(error)
    assert "== good\n\nyes\n" in report_text
    assert "== bad\n\nunavailable: KeyError: 'second'" in report_text


@pytest.mark.slow
def test_too_deep_for_python(write: Write, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def deeper(*_: Any, **__: Any) -> Any:
        return deeper()

    monkeypatch.setattr("morello.api.pipeline.parse_file", deeper)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(5000)
    try:
        result = CliRunner().invoke(main, ["compile", write(), "--no-db"])
    finally:
        sys.setrecursionlimit(limit)
    assert result.exit_code == 70
    assert "nested too deeply" in result.stderr
    assert "Previous line repeated" in bundle(result)
    assert [*state.rglob("*.txt")]


def test_the_users_mistakes_are_no_crashes(write: Write, state: Path) -> None:
    for arguments in (["compile", write("spec a = Nothing(4, GL)\n")], ["compile"], ["compile", "--help"], ["none"]):
        assert CliRunner().invoke(main, arguments).exit_code in (0, 1, 2)
    assert not state.exists()
