"""Parallel loops on threads of the caller: its pool runs them, and no other thread is started."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import morello
from morello.api.kernel import Kernel
from morello.build.toolchain import Compiler, find_compiler, thread_flags
from morello.errors import ToolchainError
from morello.host import missing_features
from morello.testing.batch import translation_unit

STRICT = ("-Wall", "-Wextra", "-Werror")

#: Each of 16 tiles goes through a buffer of its thread's.
SPEC = """
target x86_avx2
spec fill = Move(16×64×64, GL, (f32, GL, layout[0, 2, 1]))
schedule fill {
    tile [1, 64, 64] parallel
    move 1 to L1 as row_major
    synthesize
}
"""

#: Ways to run a loop: forwards, backwards, and on threads of a pool; all count their runs.
MAIN = """\
#define _GNU_SOURCE
#include "fill.h"
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 16 * 64 * 64, THREADS = 5 };
static int calls, shares;

static int threads_of_this_process(void) {
    DIR *const tasks = opendir("/proc/self/task");
    int count = -2; /* but . and .. */
    while (tasks && readdir(tasks)) {
        ++count;
    }
    return tasks ? closedir(tasks), count : 1;
}

static void backwards(void (*body)(void *, int), void *data, int count) {
    ++calls;
    for (int number = count; number-- > 0; ++shares) {
        body(data, number);
    }
}

struct work { void (*body)(void *, int); void *data; int number; };

static void *worker(void *given) {
    struct work *const work = given;
    work->body(work->data, work->number);
    return NULL;
}

static void pool(void (*body)(void *, int), void *data, int count) {
    pthread_t threads[THREADS];
    struct work works[THREADS];
    ++calls;
    shares += count;
    for (int number = 0; number < count; ++number) {
        works[number] = (struct work){body, data, number};
        if (pthread_create(&threads[number], NULL, worker, &works[number])) {
            abort();
        }
    }
    for (int number = 0; number < count; ++number) {
        pthread_join(threads[number], NULL);
    }
}

int main(void) {
    float *const src = malloc(SIZE * sizeof *src), *const plain = malloc(SIZE * sizeof *src);
    float *const out = malloc(SIZE * sizeof *out);
    void *const workspace = aligned_alloc(64, FILL_WORKSPACE(THREADS));
    for (int i = 0; i < SIZE; ++i) {
        src[i] = (float)(i % 1000);
    }
    fill(src, plain, workspace, 1);
    void (*const ways[])(void (*)(void *, int), void *, int) = {backwards, pool};
    for (int way = 0; way < 2; ++way) {
        memset(out, 0, SIZE * sizeof *out);
        fill_set_parallel(ways[way]);
        fill(src, out, workspace, THREADS);
        if (memcmp(out, plain, SIZE * sizeof *out) || calls != way + 1 || shares != (way + 1) * THREADS) {
            return 1 + way;
        }
    }
    /* One thread needs no other. */
    fill(src, out, workspace, 1);
    if (calls != 2 || threads_of_this_process() != 1) {
        return 3;
    }
    fill_set_parallel(NULL);
    memset(out, 0, SIZE * sizeof *out);
    fill(src, out, workspace, THREADS);
    return memcmp(out, plain, SIZE * sizeof *out) || calls != 2 ? 4 : 0;
}
"""


@pytest.fixture(scope="module")
def fill() -> Kernel:
    return morello.compile(SPEC)


@pytest.mark.parametrize("openmp", [False, True])
def test_loops_run_on_threads_of_the_caller(fill: Kernel, compiler: Compiler, openmp: bool, tmp_path: Path) -> None:
    if missing := missing_features((*fill.target.info.cpu_features, *fill.program.cpu_features)):
        pytest.skip(f"this machine lacks {', '.join(missing)}")
    if openmp:
        try:
            thread_flags(compiler, openmp=True)
        except ToolchainError as error:
            pytest.skip(error.message)
    assert fill.program.thread_workspace > 0
    for name, text in {**fill.files, "main.c": MAIN}.items():
        (tmp_path / name).write_text(text)
    threads = ["-fopenmp", "-pthread"] if openmp else ["-pthread"]
    flags = ["-std=c11", *STRICT, "-O1", *threads, *fill.program.flags]
    subprocess.run([*compiler.command, *flags, "main.c", "fill.c", "-o", "main"], cwd=tmp_path, check=True)
    assert subprocess.run(["./main"], cwd=tmp_path, timeout=60).returncode == 0


def test_the_header_declares_it(fill: Kernel) -> None:
    assert "void fill_set_parallel(void (*run)(void (*body)(void *, int), void *data, int count));\n" in fill.header
    assert re.search(r"/\* fill_set_parallel: .*\bcount is at most threads\b", fill.header, re.DOTALL)
    serial = morello.compile("target reference_c\nspec fill = FillZero(4, GL)")
    assert "set_parallel" not in serial.header + serial.source


def test_programs_in_one_file_have_threads_of_their_own(tmp_path: Path) -> None:
    """Programs have separate settings of threads, also in one translation unit."""
    kernels = [morello.compile(SPEC.replace("fill", name)).program for name in ("one", "two")]
    (tmp_path / "both.c").write_text(translation_unit(kernels))
    command = [*find_compiler().command, "-std=gnu11", *STRICT, *kernels[0].flags, "-fsyntax-only", "both.c"]
    subprocess.run(command, cwd=tmp_path, check=True)


@pytest.mark.parametrize("name", ["set_parallel", "run", "morello_run", "fill_set_parallel"])
def test_operands_of_any_name(name: str, tmp_path: Path) -> None:
    text = SPEC.replace("[0, 2, 1]))", f"[0, 2, 1]))({name}, data)")
    program = morello.compile(text).program
    (tmp_path / "fill.c").write_text(program.source)
    command = [*find_compiler().command, "-std=gnu11", "-Wshadow", *STRICT, *program.flags, "-fsyntax-only", "fill.c"]
    subprocess.run(command, cwd=tmp_path, check=True)
