"""The cache of built libraries, and compilers that fail."""

from __future__ import annotations

import ctypes
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from morello.build.library import build, build_file
from morello.build.toolchain import Compiler, find_compiler
from morello.codegen.library import CFile
from morello.errors import ToolchainError

ONE = {"one.c": '#include "one.h"\nint one(void) { return ONE; }\n', "one.h": "#define ONE 1\nint one(void);\n"}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "private"
    monkeypatch.setenv("MORELLO_CACHE_DIR", str(folder))
    return folder


def test_builds_once(cache: Path, compiler: Compiler) -> None:
    library = build(ONE, (), compiler)
    assert ctypes.CDLL(str(library)).one() == 1
    before = library.stat()
    assert build(dict(reversed(ONE.items())), (), compiler) == library
    assert library.stat().st_ino == before.st_ino
    assert os.listdir(cache) == [library.name]
    assert cache.stat().st_mode & 0o777 == 0o700


def test_the_key_of_the_cache(cache: Path) -> None:
    compiler = find_compiler()
    variants = [
        build(ONE, (), compiler),
        build(ONE, ("-DTWO",), compiler),
        build({**ONE, "one.h": "#define ONE 2\nint one(void);\n"}, (), compiler),
        build(ONE, (), attrs.evolve(compiler, version="another")),
    ]
    assert len(set(variants)) == len(variants)


def test_a_compiler_that_fails(cache: Path, compiler: Compiler) -> None:
    with pytest.raises(ToolchainError, match="the C is stored in") as caught:
        build({"bad.c": "int bad(void) { return nothing; }\n"}, (), compiler)
    assert "nothing" in caught.value.message
    kept = re.search(r"stored in (.*)$", caught.value.message, re.MULTILINE)
    assert kept
    assert "return nothing" in Path(kept.group(1)).read_text()
    assert not list(cache.glob("building-*"))
    with pytest.raises(ToolchainError, match=re.escape(kept.group(1))):
        build({"bad.c": "int bad(void) { return nothing; }\n"}, (), compiler)


def test_long_errors_are_cut(cache: Path, script: Callable[[str], str]) -> None:
    compiler = Compiler((script("seq 1000 >&2; exit 1"),), "fake", "1")
    with pytest.raises(ToolchainError) as caught:
        build(ONE, (), compiler)
    lines = [line.strip() for line in str(caught.value).splitlines()]
    assert len(lines) < 20
    assert lines[1:12] == [*map(str, range(1, 11)), "(987 more lines)"]
    assert lines[12:15] == ["998", "999", "1000"]


def test_a_compiler_that_hangs(cache: Path, script: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = Compiler((script("sleep 60"),), "fake", "1")
    monkeypatch.setenv("MORELLO_CC_TIMEOUT", "0.3")
    with pytest.raises(ToolchainError, match=r"stopped after 0\.3 s.*one\.c"):
        build(ONE, (), compiler)


def test_a_compiler_that_hangs_instead_of_naming_its_archiver(
    cache: Path, script: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MORELLO_CC_TIMEOUT", "2")
    cc = shlex.join(find_compiler().command)
    compiler = Compiler((script(f"case $1 in -print*) sleep 60;; esac\nexec {cc} $@"),), "slow", "1")
    with pytest.raises(ToolchainError, match=r"slow was stopped after 2 s[^$]*MORELLO_CC_TIMEOUT"):
        build_file("a", {"one.c": CFile(ONE["one.c"], ())}, {"one.h": ONE["one.h"]}, compiler)


def test_a_compiler_that_is_gone(cache: Path) -> None:
    with pytest.raises(ToolchainError, match="cannot be started"):
        build(ONE, (), Compiler(("/nowhere/cc",), "fake", "1"))


def test_c_that_cannot_be_stored(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", refuse)
    with pytest.raises(ToolchainError, match=r"nothing.*(?s:.*)could not be stored in .*: No space left"):
        build({"bad.c": "int bad(void) { return nothing; }\n"}, (), find_compiler())


def test_processes_that_build_at_once(cache: Path) -> None:
    imports = "from morello.build.library import build\nfrom morello.build.toolchain import find_compiler\n"
    code = f"{imports}print(build({ONE!r}, ('-DTOGETHER',), find_compiler()))\n"
    running = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(4)]
    printed = {process.communicate(timeout=120)[0].strip() for process in running}
    assert [process.returncode for process in running] == [0] * 4
    assert len(printed) == 1
    assert ctypes.CDLL(printed.pop()).one() == 1
    assert len(os.listdir(cache)) == 1


def test_programs_are_linked_without_flags_of_cpus(cache: Path, script: Callable[[str], str], tmp_path: Path) -> None:
    """Zig builds its C library for each set of them, which takes minutes."""
    log = tmp_path / "log"
    fake = script(f'echo "$@" >> {log}; while [ "$1" != -o ]; do shift; done; touch "$2"')
    program = {"main.c": "int main(void) { return 0; }\n", "one.c": "int one(void) { return 1; }\n"}
    build(program, ("-mcpu=generic+i8mm", "-pthread"), Compiler((fake,), "fake", "1"), base=("-O1",))
    *compiled, linked = log.read_text(encoding="utf-8").splitlines()
    assert len([line for line in compiled if " -c " in line and "-mcpu=generic+i8mm" in line]) == 2
    assert linked == "-O1 -pthread -o library.so main.c.o one.c.o -lm"
