"""Precompiled headers: when they are used, equal code, and damage."""

from __future__ import annotations

import ctypes
import os
import shlex
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from morello.build.cache import clear_cache, contents
from morello.build.library import build, build_file
from morello.build.toolchain import Compiler, thread_flags
from morello.codegen.library import CFile
from morello.errors import ToolchainError

GOLDEN = Path(__file__).parents[1] / "golden"
SOURCE = "#include <stdint.h>\n#include <string.h>\nsize_t length(const char *text) { return strlen(text); }\n"
Build = Callable[..., list[str]]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MORELLO_CACHE_DIR", str(tmp_path / "private"))
    return tmp_path / "private"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def logged(cache: Path, compiler: Compiler, log: Path) -> Compiler:
    """A compiler that logs its arguments, a line for each call; next to a file `refuses` it makes no headers."""
    command = log.with_name("cc")
    command.write_text(
        f'#!/bin/sh\necho "$@" >> {log}\n[ -e {log.with_name("refuses")} ] && case "$*" in *c-header*) exit 1;; esac\n'
        f'exec {shlex.join(compiler.command)} "$@"\n'
    )
    command.chmod(0o700)
    return attrs.evolve(compiler, command=(str(command),))


@pytest.fixture
def build_log(logged: Compiler, log: Path) -> Build:
    """Build a source with another name each time; return the arguments of the compiler, a line for each call."""
    count = iter(range(100))

    def build_it(source: str = SOURCE) -> list[str]:
        log.write_text("")
        build({f"one{next(count)}.c": source}, (), logged)
        return log.read_text().splitlines()

    return build_it


def of_headers(lines: list[str]) -> list[str]:
    """Return the use of headers by each call of a compiler."""
    return ["makes" if "c-header" in line else "uses" if "-include" in line else "reads" for line in lines]


def only_entry(cache: Path) -> Path:
    (found,) = cache.glob("headers-*")
    return found


def test_headers_are_read_twice(build_log: Build, cache: Path) -> None:
    assert [of_headers(build_log()) for _ in range(4)] == [["reads"], ["makes", "uses"], ["uses"], ["uses"]]
    assert contents(cache)["precompiled headers"][0] == 1
    clear_cache()
    assert not [*cache.glob("headers-*")]
    assert of_headers(build_log()) == ["reads"]


def test_code_is_the_same(cache: Path, compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    if compiler.name == "zig cc":
        pytest.skip("zig's debug information names the folder of a build")
    source = (GOLDEN / "threads_avx2.c").read_text()
    _, _, build_log = next(line for line in source.splitlines() if " * Compile: " in line).partition("-fno-math-errno ")
    flags = [*build_log.partition(" -c ")[0].split(), *thread_flags(compiler)]

    def built(before: str = "") -> bytes:
        return build({"one.c": before + source}, flags, compiler).read_bytes()

    monkeypatch.setenv("MORELLO_CACHE_LIMIT", "1MiB")
    read = built()
    monkeypatch.delenv("MORELLO_CACHE_LIMIT")
    clear_cache()
    for text in ("/* asks first */\n", "/* asks again */\n"):
        built(text)
    assert built() == read
    assert (only_entry(cache) / "headers.h.gch").stat().st_size


def test_files_to_link_are_made_with_them(logged: Compiler, log: Path) -> None:
    units = {f"one{place}.c": CFile(SOURCE.replace("length", f"length{place}"), ("-DX=1",)) for place in range(4)}
    made = build_file("a", units, {}, logged)
    lines = [line for line in log.read_text().splitlines() if " -c " in line or "c-header" in line]
    assert of_headers(lines) == ["reads", "makes", "uses", "uses", "uses"]
    if logged.name != "zig cc":  # its debug information names the folder of a build
        assert build_file("a", units, {}, logged) == made


def test_damage_is_mended(build_log: Build, cache: Path) -> None:
    for _ in range(2):
        build_log()
    made = only_entry(cache) / "headers.h.gch"
    os.truncate(made, made.stat().st_size // 2)
    assert of_headers(build_log()) == ["uses", "reads"]
    assert not made.exists()
    assert [of_headers(build_log()) for _ in range(2)] == [["reads"], ["makes", "uses"]]


def test_errors_in_c_are_reported(build_log: Build, cache: Path) -> None:
    for _ in range(2):
        build_log()
    with pytest.raises(ToolchainError, match="failed with exit code") as caught:
        build_log(f"{SOURCE}int wrong(void) {{ return nothing; }}\n")
    assert "-include" not in str(caught.value)
    assert of_headers(build_log()) == ["uses"]


def test_a_compiler_that_cannot_precompile_is_not_tried_again(build_log: Build, log: Path) -> None:
    log.with_name("refuses").touch()
    assert [of_headers(build_log()) for _ in range(4)] == [["reads"], ["makes", "reads"], ["reads"], ["reads"]]


@pytest.mark.parametrize(
    ("before", "after"), [("#define _GNU_SOURCE", ""), ("#undef _OPENMP", ""), ("#ifdef __linux__", "#endif\n")]
)
def test_headers_after_definitions_are_not_precompiled(build_log: Build, cache: Path, before: str, after: str) -> None:
    source = f"{before}\n{SOURCE}{after}"
    assert {*of_headers([line for _ in range(3) for line in build_log(source)])} == {"reads"}
    assert not [*cache.glob("headers-*")]


def test_headers_of_the_program_are_not_precompiled(cache: Path, compiler: Compiler) -> None:
    for number in range(4):
        sources = {"one.c": "#include <own.h>\nint one(void) { return OWN; }\n", "own.h": f"#define OWN {number}\n"}
        assert ctypes.CDLL(str(build(sources, ("-I.",), compiler))).one() == number


def test_a_small_cache_has_no_precompiled_headers(
    build_log: Build, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MORELLO_CACHE_LIMIT", "200MiB")
    assert {*of_headers([line for _ in range(3) for line in build_log()])} == {"reads"}
    assert not [*cache.glob("headers-*")]


def test_an_interrupt_leaves_nothing_behind(build_log: Build, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    build_log()
    with monkeypatch.context() as patch:
        patch.setattr("morello.build.pch.run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            build_log()
    assert not [*only_entry(cache).iterdir()]
    assert of_headers(build_log()) == ["makes", "uses"]


def test_no_process_waits_for_another(build_log: Build, cache: Path) -> None:
    build_log()
    begun = only_entry(cache) / "headers.h"
    begun.touch()
    assert of_headers(build_log()) == ["reads"]
    # It has had as long as a compiler may take.
    os.utime(begun, (0, 0))
    assert of_headers(build_log()) == ["makes", "uses"]
