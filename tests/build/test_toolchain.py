"""Finding a compiler, and errors if none works."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from morello.build.library import build
from morello.build.toolchain import Compiler, available_compilers, find_compiler, thread_flags
from morello.errors import ToolchainError

Script = Callable[[str], str]


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without compilers; programs in the directory are found."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("MORELLO_CC", raising=False)
    monkeypatch.setitem(sys.modules, "ziglang", None)
    return folder


def _install(folder: Path, name: str, body: str | None = None) -> None:
    path = folder / name
    real = shutil.which("gcc", path=os.defpath) or shutil.which("clang", path=os.defpath)
    assert real
    path.write_text(f'#!/bin/sh\nPATH={os.defpath}\n{body or f"exec {real}"} "$@"\n')
    path.chmod(0o755)


def test_a_compiler_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MORELLO_CC", raising=False)
    assert find_compiler() == available_compilers()[0]
    assert available_compilers()[0].version in str(find_compiler())


def test_no_compiler(alone: Path) -> None:
    with pytest.raises(ToolchainError, match=r"no working C compiler") as caught:
        find_compiler()
    assert all(word in str(caught.value) for word in ("apt install gcc", "xcode", "pip install ziglang"))
    assert available_compilers() == []


def test_clang_comes_before_gcc(alone: Path) -> None:
    _install(alone, "gcc")
    assert find_compiler().name == "gcc"
    _install(alone, "clang")
    assert find_compiler().name == "clang"
    assert [each.name for each in available_compilers()] == ["clang", "gcc"]


def test_one_that_does_not_work_is_passed_over(alone: Path) -> None:
    _install(alone, "clang", "echo no headers >&2; exit 1 #")
    _install(alone, "gcc")
    assert find_compiler().name == "gcc"
    (alone / "gcc").unlink()
    with pytest.raises(ToolchainError, match="no headers"):
        find_compiler()


def test_ziglang_is_the_last_resort(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _install(alone, "real")
    package = alone / "ziglang"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(
        f"import os, sys\nassert sys.argv[1] == 'cc'\nos.execv({str(alone / 'real')!r}, ['cc', *sys.argv[2:]])\n"
    )
    monkeypatch.delitem(sys.modules, "ziglang")
    monkeypatch.syspath_prepend(str(alone))
    monkeypatch.setenv("PYTHONPATH", str(alone))
    found = find_compiler()
    assert found.name == "zig cc"
    assert found.command[1:] == ("-m", "ziglang", "cc")
    assert build({"one.c": "int one(void) { return 1; }\n"}, (), found).is_file()


def test_the_argument_goes_before_the_environment(compiler, monkeypatch: pytest.MonkeyPatch, script: Script) -> None:
    monkeypatch.setenv("MORELLO_CC", script("exit 1"))
    command = shlex.join(compiler.command)
    assert find_compiler(command).name == compiler.name
    monkeypatch.setenv("MORELLO_CC", f"{command} -DWORD='two words'")
    assert find_compiler().command == (*compiler.command, "-DWORD=two words")
    assert find_compiler() in available_compilers()


@pytest.mark.parametrize("origin", ["--cc", "MORELLO_CC"])
def test_a_requested_compiler_that_is_missing(origin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    command = "/nowhere/cc -O1"
    monkeypatch.setenv("MORELLO_CC", command)
    with pytest.raises(ToolchainError, match=rf"'/nowhere/cc' \({origin}\) does not exist"):
        find_compiler(command if origin == "--cc" else None)


@pytest.mark.parametrize(("command", "fault"), [("'", "is not a command"), (" ", "is empty")])
def test_a_requested_compiler_that_is_no_command(command: str, fault: str) -> None:
    with pytest.raises(ToolchainError, match=fault):
        find_compiler(command)


def test_a_requested_compiler_that_is_not_executable(tmp_path: Path) -> None:
    path = tmp_path / "cc"
    path.touch()
    with pytest.raises(ToolchainError, match="is not executable"):
        find_compiler(str(path))


@pytest.mark.parametrize(
    ("body", "fault"), [("exit 1", "exit code 1"), ("echo bad >&2; exit 2", "bad"), ("exit 0", "")]
)
def test_a_requested_compiler_that_cannot_compile(script: Script, body: str, fault: str) -> None:
    with pytest.raises(ToolchainError, match=rf"cannot compile C.*{fault}"):
        find_compiler(script(body))


def test_a_requested_compiler_that_cannot_be_started(script: Script, tmp_path: Path) -> None:
    path = script("")
    Path(path).write_text("#!/nowhere/interpreter\n")
    with pytest.raises(ToolchainError, match="cannot be started"):
        find_compiler(path)


def test_one_that_hangs_is_killed_with_its_children(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = tmp_path / "child"
    monkeypatch.setenv("MORELLO_CC_TIMEOUT", "0.5")
    with pytest.raises(ToolchainError, match=r"was stopped after 0\.5 s; MORELLO_CC_TIMEOUT=SECONDS allows more"):
        find_compiler(script(f"sleep 60 & echo $! > {child}; wait"))
    assert not _runs(int(child.read_text()))


def test_a_hanging_compiler_is_reported_if_it_is_the_only_one(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _install(alone, "gcc", "sleep 60 #")
    monkeypatch.setenv("MORELLO_CC_TIMEOUT", "0.2")
    with pytest.raises(ToolchainError, match=r"no working C compiler.*after 0\.2 s; MORELLO_CC_TIMEOUT=SECONDS"):
        find_compiler()


def test_threads_are_no_reason_to_wait_for_ever(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MORELLO_CC_TIMEOUT", "0.2")
    with pytest.raises(ToolchainError, match=r"slow was stopped after 0\.2 s; MORELLO_CC_TIMEOUT=SECONDS"):
        thread_flags(Compiler((script("sleep 60"),), "slow", "1"))


def _runs(process: int) -> bool:
    """Return True if it still runs a little later; a killed one may stay a zombie until its new parent looks."""
    for _ in range(50):
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return False
        if state == "Z":
            return False
        time.sleep(0.05)
    return True


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("soon", "not a number"),
        ("nan", "not a number"),
        ("0", "not more than 0"),
        ("-1", "not more than 0"),
        ("-inf", "not more than 0"),
        ("inf", "more than 1,000,000"),
        ("1e300", "more than 1,000,000"),
    ],
)
def test_invalid_timeouts(text: str, fault: str, monkeypatch: pytest.MonkeyPatch, script: Script) -> None:
    monkeypatch.setenv("MORELLO_CC_TIMEOUT", text)
    with pytest.raises(ToolchainError, match=f"MORELLO_CC_TIMEOUT is '{text}', which is {fault}") as caught:
        find_compiler(script("exit 1"))
    assert "such as 300" in str(caught.value)
