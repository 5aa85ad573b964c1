"""Names that C does not allow a program to define; all others compile."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import morello
from morello.build.toolchain import Compiler
from morello.codegen.reserved import KEYWORDS, LIBRARY, LONGEST, MACROS, fault
from morello.codegen.writer import Names
from morello.errors import EmitError
from morello.frontend.diagnostics import SourceError

HEADERS = "immintrin.h math.h pthread.h stddef.h stdint.h stdio.h stdlib.h string.h sys/types.h time.h".split()
INCLUDES = "".join(f"#include <{name}>\n" for name in HEADERS)
REFUSED = {
    "words": "linux unix i386 INT32_MAX UINT8_C NULL M_PI offsetof stdin".split(),
    "keywords": "int restrict typeof asm bool constexpr nullptr typeof_unqual thread_local class new this".split(),
    "library": "main printf memcpy exp expf select read index gamma y1 free malloc".split(),
    "types": "size_t int32_t my_t uint ulong".split(),
    "reserved": "_x __x _Bool morello_x pthread_x".split(),
    "length": ["a" * 101, "x" * 300],
    "letters": ["größe", "名"],
}


@pytest.mark.parametrize("kind", REFUSED)
def test_refused_at_once_with_place_and_remedy(kind: str) -> None:
    for name in REFUSED[kind]:
        text = f"target reference_c\nspec {name} = FillZero(4, (f32, GL), serial)"
        with pytest.raises(SourceError, match="cannot name a C function") as caught:
            morello.parse(text)
        assert (caught.value.line, caught.value.column) == (2, 6), name
        assert caught.value.hint, name


@pytest.mark.parametrize("name", ["linux", "exp", "a b", "", "x" * 300])
def test_refused_by_the_emitter(name: str) -> None:
    goal = morello.goal("FillZero(4, (f32, GL), serial)", target="reference_c")
    impl = goal.synthesize().impl
    with pytest.raises(EmitError, match="cannot name a C function") as caught:
        goal.target.emitter.emit(impl, goal.target, name)
    assert caught.value.hint


def test_the_lists_do_not_overlap() -> None:
    assert not KEYWORDS & MACROS
    assert not (KEYWORDS | MACROS) & LIBRARY
    assert len(LIBRARY) > 900


def test_every_remedy_helps() -> None:
    for name in [*KEYWORDS, *MACROS, *LIBRARY, "_x", "__", "x_t", "pthread_create"]:
        refused = fault(name)
        assert refused
        assert fault(refused[1].split()[-1]) is None, name


@pytest.mark.slow
def test_all_that_is_not_refused_compiles(compiler: Compiler, tmp_path: Path) -> None:
    """All accepted words of the headers and of the compiler's macros can be defined."""

    def preprocessed(*flags: str) -> str:
        command = [*compiler.command, "-std=gnu11", "-mavx2", "-mfma", *flags, "-E", "headers.c"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    (tmp_path / "headers.c").write_text(INCLUDES)
    words = {*re.findall(r"[A-Za-z_]\w*", preprocessed("-P")), *re.findall(r"#define (\w+)", preprocessed("-dM"))}
    # Words of the lists with a letter more or less are not refused for being alike.
    words |= {f"{name}x" for name in KEYWORDS | MACROS | LIBRARY} | {"a" * LONGEST, "A", "Linux", "INT32", "exp_", "t"}
    accepted = sorted(name for name in words if fault(name) is None)
    assert len(accepted) > 1000
    functions = "".join(f"void {name}(const float *restrict a, float *restrict b);\n" for name in accepted)
    functions += "".join(
        f"void {name}(const float *restrict a, float *restrict b) {{ *b = *a; }}\n" for name in accepted
    )
    (tmp_path / "names.c").write_text(INCLUDES + functions)
    flags = ["-std=gnu11", "-mavx2", "-mfma", "-Wall", "-Wextra", "-Werror", "-c", "-o", "names.o", "names.c"]
    done = subprocess.run([*compiler.command, *flags], cwd=tmp_path, capture_output=True, text=True)
    assert not done.stderr


def test_variables_are_renamed() -> None:
    names = Names()
    assert [names.fresh(name) for name in ("linux", "int", "INT32_MAX", "memcpy", "new", "lhs", "lhs", "x_t")] == [
        "linux2",
        "int2",
        "INT32_MAX2",
        "memcpy2",
        "new2",
        "lhs",
        "lhs2",
        "x_t2",
    ]


@pytest.mark.slow
def test_accepted_names_run() -> None:
    for name in ("a" * LONGEST, "Linux", "my_exp", "sum"):
        kernel = morello.compile(f"target reference_c\nspec {name} = FillZero(4, (f32, GL), serial)")
        assert kernel().tolist() == [0, 0, 0, 0]
