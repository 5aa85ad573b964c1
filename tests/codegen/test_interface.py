"""Emitted C compiles in C and C++ projects: with strict compilers and by its header. Missing flags are reported."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import morello
from morello.build.toolchain import Compiler, available_compilers
from morello.ir.program import Program

GOLDEN = Path(__file__).parent.parent / "golden"
SPECS = sorted(GOLDEN.glob("*.spec"))
STRICT = ("-Wall", "-Wextra", "-Werror")
CXX = [path for name in ("c++", "clang++") if (path := shutil.which(name))]

each_compiler = pytest.mark.parametrize("compiler", available_compilers(), ids=lambda compiler: compiler.name)


def errors(compiler: str | Compiler, folder: Path, *arguments: str) -> str:
    """Return the messages of a compiler, which are empty exactly if it succeeds."""
    command = compiler.command if isinstance(compiler, Compiler) else (compiler,)
    done = subprocess.run([*command, *arguments], cwd=folder, capture_output=True, text=True, timeout=300)
    assert bool(done.stderr) == (done.returncode != 0), done.stderr
    return done.stderr


def program(name: str) -> Program:
    return morello.compile(morello.parse((GOLDEN / f"{name}.spec").read_text(encoding="utf-8"))[name]).program


def flags(source: str) -> list[str]:
    """Return the flags for the target in the compile command at the top of the C."""
    found = re.search(r"Compile: cc -std=gnu11 -O3 -fno-math-errno (.*?) -c (\w+)\.c", source)
    assert found
    return found[1].split()


@pytest.mark.slow
def test_strict_c11_compiles_it_by_itself_and_with_its_header(tmp_path: Path) -> None:
    """One compiler compiles each file by itself, and another with its header."""
    alone, *others = available_compilers()
    with_header = [*others, alone][0]
    for path in GOLDEN.glob("*.c"):
        if path.stem.endswith("_neon"):  # for a compiler of another architecture
            continue
        source, name = path.read_text(encoding="utf-8"), path.stem
        (tmp_path / "alone.c").write_text(source)
        (tmp_path / "with_header.c").write_text(
            re.sub(rf"^void {name}\(.*\);$", f'#include "{name}.h"', source, flags=re.M)
        )
        options = ("-std=c11", *STRICT, *flags(source), f"-I{GOLDEN}", "-fsyntax-only")
        assert errors(alone, tmp_path, *options, "alone.c") == ""
        assert errors(with_header, tmp_path, *options, "with_header.c") == ""


@pytest.mark.parametrize(
    ("equations", "operands"),
    [
        ("o = Move(p), p = Less(x, x)", "x: (1, i32, L1), o: (1, f32, L1)"),
        ("o = CausalMask(y, r, r), y = Relu(x)", "x: (1×1×1, L1), r: (1×1×1, i32, L1), o: (1×1×1, L1)"),
    ],
    ids=["Less", "CausalMask"],
)
def test_values_compared_with_themselves_compile_without_warnings(
    equations: str, operands: str, tmp_path: Path
) -> None:
    text = f"Compose([{equations}], [{operands}], serial)"
    source = morello.compile(morello.goal(text, target="x86_avx2")).program.source
    (tmp_path / "kernel.c").write_text(source)
    command = ("-std=gnu11", *STRICT, "-mavx2", "-mfma", "-fsyntax-only", "kernel.c")
    assert errors(available_compilers()[0], tmp_path, *command) == ""


@pytest.mark.parametrize("cxx", CXX)
def test_headers_are_cpp_and_leave_its_names_alone(cxx: str, tmp_path: Path) -> None:
    includes = "".join(f'#include "{path.name}"\n' for path in sorted(GOLDEN.glob("*.h")))
    (tmp_path / "all.cpp").write_text(f"{includes}int restrict = 1;\nauto *function = &threads_avx2;\n")
    assert errors(cxx, tmp_path, "-std=c++17", *STRICT, "-pedantic", f"-I{GOLDEN}", "-fsyntax-only", "all.cpp") == ""


def test_the_source_includes_its_header_in_place_of_its_declaration(tmp_path: Path) -> None:
    made = program("threads_avx2")
    assert made.source.count(f"{made.prototype};\n") == 1
    text = made.including("other.h")
    assert text.count('#include "other.h"\n') == 1
    assert f"{made.prototype};\n" not in text


@each_compiler
def test_a_header_that_is_not_its_own_is_found_out(compiler: Compiler, tmp_path: Path) -> None:
    made = program("dot")
    (tmp_path / "dot.c").write_text(made.including("dot.h"))
    (tmp_path / "dot.h").write_text(made.header.replace("*__restrict rhs, ", ""))
    assert "conflicting types" in errors(compiler, tmp_path, *made.flags, "-fsyntax-only", "dot.c")


@each_compiler
@pytest.mark.parametrize(("name", "missing"), [("dot", "-mavx2"), ("bf16_avx512", "-mavx512bf16")])
def test_a_compiler_without_the_features_reports_them(
    compiler: Compiler, name: str, missing: str, tmp_path: Path
) -> None:
    made = program(name)
    (tmp_path / f"{name}.c").write_text(made.source)
    given = [flag for flag in made.flags if flag not in (missing, "-mfma")]  # which implies AVX
    if compiler.name == "zig cc":
        given = ["-mcpu=x86_64", *given]  # by default this machine's CPU
    said = errors(compiler, tmp_path, "-fsyntax-only", *given, f"{name}.c")
    assert re.search(rf'error: (#error )?"{name} needs \w.*: compile it with {" ".join(made.flags)}"', said), said
