"""Parallel loops: results are the same bits on any number of threads, of any runtime."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from multiprocessing.connection import Connection
from pathlib import Path

import attrs
import numpy as np
import pytest

import morello
from morello.api.kernel import Kernel
from morello.build.library import build
from morello.build.toolchain import Compiler, find_compiler, thread_flags
from morello.codegen.threads import KEEPS_SHARES, MAX_THREADS, RUNTIME
from morello.errors import ArgumentError, MorelloError, ToolchainError, VerificationError
from morello.run.arrays import empty
from morello.testing.sanitize import run_sanitized
from tools.children import forked

#: Each tile is packed into a buffer of its thread's own, of more than the stack is to hold.
SCHEDULE = """\
    tile [0, 30] parallel
    subschedule [0] { move 1 to L1 as col_major
                      subschedule [0] { tile [1, 1]
                                        move 0 to L1
                                        select Assign }
                      subschedule [1] { tile [1, 1]
                                        move 1 to L1
                                        select Assign } }
    subschedule [1] { tile [1, 1]
                      move 0 to L1
                      move 1 to L1
                      select Assign }"""
TEXT = f"target x86_avx2\nspec packs = Move(40×200, (f32, GL), (f32, GL))\nschedule packs {{\n{SCHEDULE}\n}}"
THREADS = (1, 2, 3, 7, 64)
#: Where the threads of loops come from: the team of the process, the program's own team, OpenMP, or nowhere.
WAYS = ("shared", "own", "openmp", "none")


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return request.param


packs = cache(partial(morello.compile, TEXT))


def kernel(
    compiler: Compiler | str | None = None, way: str = "shared", old: str = "", new: str = "", before: str = ""
) -> Kernel:
    made, compiler = packs(), compiler if isinstance(compiler, Compiler) else find_compiler(compiler)
    assert old in made.source
    source, flags = before + made.source.replace(old, new), made.program.flags
    if way == "openmp":
        try:
            flags = (*flags, *thread_flags(compiler, openmp=True))
        except ToolchainError as error:
            pytest.skip(error.message)
    if way == "none":
        source = f"#include <pthread.h>\n#define pthread_create(...) 11\n{source}"
    changed = Kernel.of(made.impl, made.target, attrs.evolve(made.program, source=source, flags=flags), compiler)
    if way != "shared":
        changed(*operands(changed), threads=1)
        ctypes.CDLL(str(changed.library)).packs_set_parallel(None)
    return changed


def operands(made: Kernel) -> list[np.ndarray]:
    source, out = (empty(tensor) for tensor in made.spec.operands)
    source[...] = np.arange(source.size, dtype=np.float32).reshape(source.shape)
    out[...] = np.nan
    return [source, out]


def test_results_do_not_depend_on_threads(way: str, compiler: Compiler) -> None:
    made = kernel(compiler, way)
    for threads in THREADS:
        source, out = operands(made)
        made(source, out, threads=threads)
        assert (out == source).all()


@pytest.mark.slow
def test_no_thread_stores_outside_its_tiles(compiler: Compiler) -> None:
    """A tile is a column. gcc 12 stores old values to its neighbours, which belong to another thread."""
    made = morello.compile(
        "target x86_avx2\nspec columns = Move(1000×2×2, (f32, GL, row_major, c0), (f32, GL))\n"
        "schedule columns {\ntile [1, 0, 0]\ntile [0, 0, 1] parallel\ntile [0, 1, 0]\n"
        "move 0 to L1\nmove 1 to L1\nselect Assign\n}"
    )
    copies = Kernel.of(made.impl, made.target, made.program, compiler)
    values = np.arange(8000, dtype=np.float32).reshape(1000, 2, 4)[:, :, ::2]
    for _ in range(20):
        assert np.array_equal(copies(values, threads=2), values)


def test_the_requested_number_of_threads_runs(compiler: Compiler) -> None:
    """Each thread has its buffer in a separate workspace; there are six tiles. A late one finds no tile left."""
    made = kernel(compiler)
    source, _ = operands(made)
    own = made.program.thread_workspace
    assert (made.program.workspace, own) == (0, 4800 + (32 << 10))
    for threads in (7, 2):
        scratch = made.function.workspace(7)
        scratch[:] = 0
        made(source, threads=threads)
        assert scratch.any()
        assert not scratch[min(threads, 6) * own :].any()


def test_quick_calls_use_their_threads_and_the_latest_workspace() -> None:
    made = kernel()
    source, out = operands(made)
    own = made.program.thread_workspace
    for threads in (2, 5, 2, 5, 2):
        for _ in range(3):
            scratch = made.function.workspace(threads)
            scratch[:], out[...] = 0, np.nan
            made(source, out, threads=threads)
            assert (out == source).all()
            assert scratch.any()
            assert not scratch[threads * own :].any()


def test_shares_are_equal_to_within_a_tile() -> None:
    counting = f"""#include <stddef.h>
{RUNTIME}
static ptrdiff_t ran[64];
static void count(const void *loop, ptrdiff_t thread, ptrdiff_t from, ptrdiff_t to) {{
    (void)loop;
    __atomic_fetch_add(&ran[thread], to - from, __ATOMIC_SEQ_CST);
}}
ptrdiff_t *shares(ptrdiff_t tiles, int threads) {{
    for (int thread = 0; thread < 64; ++thread) {{ ran[thread] = 0; }}
    morello_parallel(count, NULL, tiles, threads);
    return ran;
}}
"""
    flags = [f"-D{KEEPS_SHARES}=1", "-pthread", "-Wno-unused-function"]
    shares = ctypes.CDLL(str(build({"shares.c": counting}, flags, find_compiler()))).shares
    shares.argtypes, shares.restype = (ctypes.c_ssize_t, ctypes.c_int), ctypes.POINTER(ctypes.c_ssize_t)
    for tiles in (1, 2, 7, 9, 256, 1000):
        for threads in range(1, 9):
            ran = shares(tiles, threads)[: min(tiles, threads)]
            assert sum(ran) == tiles
            assert max(ran) - min(ran) <= 1, (tiles, threads)


@pytest.mark.parametrize("way", ["shared", "own"])
def test_a_thread_that_the_system_stops_holds_up_one_chunk(way: str) -> None:
    """The second of two threads sleeps in its first tile; the caller runs all others of the six."""
    before = (
        "#include <time.h>\nint packs_ran[2];\nstatic void count(int thread) {\n"
        "    __atomic_fetch_add(&packs_ran[thread], 1, __ATOMIC_SEQ_CST);\n"
        "    if (thread) { nanosleep(&(struct timespec){0, 200000000}, NULL); }\n}\n"
    )
    line = "const struct packs_part1 *const loop = given;"
    slow = kernel(None, way, line, f"count((int)thread);\n    {line}", before)
    source, _ = operands(slow)
    ran = (ctypes.c_int * 2).in_dll(ctypes.CDLL(str(slow.library)), "packs_ran")
    ran[:] = 0, 0
    assert (slow(source, threads=2) == source).all()
    assert sum(ran) == 6
    assert ran[1] <= 1


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted in /proc")
def test_a_program_keeps_its_threads() -> None:
    """The second call starts none, and a third that wants more starts the rest."""
    made = kernel(way="own")
    source, _ = operands(made)

    def count(says: Connection) -> None:
        counts = []
        for threads in (3, 3, 2, 5):
            made(source, threads=threads)
            counts.append(len(os.listdir("/proc/self/task")) - 1)
        says.send(counts)

    # In a separate process, as programs of other tests may start and end threads.
    process, hears = forked(count)
    assert hears.poll(60)
    assert hears.recv() == [2, 2, 2, 4]
    process.join(60)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="CPUs are listed in /proc")
def test_threads_may_run_where_they_could_before() -> None:
    """A caller moves threads that sleep, wake or come late from its own CPU, for a moment."""
    made = kernel(way="own")
    source, _ = operands(made)

    def cpus(says: Connection) -> None:
        before = os.sched_getaffinity(0)
        for call in range(40):
            assert (made(source, threads=3) == source).all()
            time.sleep(0.005 * (call % 2))
        says.send([os.sched_getaffinity(int(task)) == before for task in os.listdir("/proc/self/task")])

    process, hears = forked(cpus)
    assert hears.poll(60)
    assert hears.recv() == [True] * 3
    process.join(60)


@pytest.mark.slow
def test_a_forked_process_computes_as_its_parent_does(way: str) -> None:
    made = kernel("gcc", way)
    source, _ = operands(made)
    made(source, threads=3)
    process, answer = forked(lambda to: to.send((made(source, threads=3) == source).all()))
    assert answer.poll(60)
    assert answer.recv()
    process.join(60)
    assert process.exitcode == 0


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted in /proc")
@pytest.mark.parametrize("way", ["shared", "own"])
def test_a_process_forked_during_a_call_has_threads(way: str) -> None:
    made = kernel(way=way)
    source, _ = operands(made)
    made(source, threads=3)
    stop = threading.Event()

    def call() -> None:
        while not stop.is_set():
            made(source, threads=3)

    def count(to: Connection) -> None:
        before = len(os.listdir("/proc/self/task"))
        correct = bool((made(source, threads=3) == source).all())
        to.send((correct, len(os.listdir("/proc/self/task")) - before))

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(call)
        try:
            for _ in range(10):
                process, answer = forked(count)
                assert answer.poll(60)
                assert answer.recv() == (True, 2)
                process.join(60)
        finally:
            stop.set()
        done.result(60)


SPAWNED = """\
import multiprocessing

import numpy as np

import morello

def call(number):
    made = morello.compile({text!r})
    source = np.full((40, 200), number, np.float32)
    return bool((made(source, threads=3) == source).all())

if __name__ == "__main__":
    call(0)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        print(pool.map(call, [1, 2]))
"""


@pytest.mark.slow
def test_spawned_processes_have_threads(tmp_path: Path) -> None:
    script = tmp_path / "spawned.py"
    script.write_text(SPAWNED.format(text=TEXT))
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300)
    assert (run.stdout, run.returncode) == ("[True, True]\n", 0), run.stderr


@pytest.mark.slow
def test_a_call_inside_a_parallel_loop(way: str) -> None:
    """The caller's threads run a loop whose shares call a kernel with parallel loops."""
    inner = kernel("gcc", way)
    source, _ = operands(inner)
    correct: list[bool] = []

    @ctypes.CFUNCTYPE(None, ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int), ctypes.c_void_p, ctypes.c_int)
    def run(body, data, count) -> None:
        def share(number: int) -> None:
            correct.append(bool((inner(source, threads=3) == source).all()))
            body(data, number)

        with ThreadPoolExecutor(count) as pool:
            list(pool.map(share, range(count)))

    outer = kernel(before="/* loaded for this test alone */\n")
    outer(source, threads=1)
    ctypes.CDLL(str(outer.library)).packs_set_parallel(run)
    assert (outer(source, threads=4) == source).all()
    assert correct == [True] * 4


@pytest.mark.slow
def test_calls_at_the_same_time(way: str) -> None:
    """One has the team, the others do all the work themselves."""
    made = kernel("gcc", way)
    source, _ = operands(made)

    def calls(_: int) -> bool:
        return all((made(source, threads=3) == source).all() for _ in range(200))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(calls, range(4)))


def test_threads_sleep_between_calls() -> None:
    made = kernel(way="own")
    source, _ = operands(made)
    made(source, threads=3)
    time.sleep(0.2)
    before = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - before < 0.1
    assert (made(source, threads=3) == source).all()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted in /proc")
@pytest.mark.parametrize("disturbed", [0, 2])
def test_brief_rare_calls_wake_no_thread(disturbed: int) -> None:
    """To wake a thread takes longer than all the work. Calls one upon another do wake them.

    One call that another process disturbs does not wake them from then on.
    """
    share = "    ptrdiff_t done = morello_share(&all, 0);"
    late = f"static int calls; const int64_t began = morello_nanoseconds(); const int late = ++calls == {disturbed};"
    wait = "while (late && morello_nanoseconds() - began < 1000000);"
    made = kernel(None, "own", share, f"    {late}\n    {wait}\n{share}")
    source, _ = operands(made)

    def sleeps() -> int:
        """Count how often the other threads have gone to sleep so far."""
        tasks = [task for task in Path("/proc/self/task").iterdir() if task.name != str(os.getpid())]
        counts = [re.search(r"\nvoluntary_ctxt_switches:\s+(\d+)", (task / "status").read_text()) for task in tasks]
        return sum(int(count[1]) for count in counts if count)

    def calls(says: Connection) -> None:
        made(source, threads=3)
        counts = []
        for upon in (1, 500):
            time.sleep(0.1)
            before = sleeps()
            for _ in range(10):
                time.sleep(0.01)
                for _ in range(upon):
                    made(source, threads=3)
            time.sleep(0.1)
            counts.append(sleeps() - before)
        says.send(counts)

    def measured() -> tuple[int, int]:
        process, hears = forked(calls)
        assert hears.poll(60)
        now_and_then, upon = hears.recv()
        process.join(60)
        return now_and_then, upon

    now_and_then, upon = measured()
    for _ in range(9):
        # On a busy machine, measurements may be slow besides the disturbed one.
        if now_and_then > 4:
            now_and_then, upon = measured()
    assert now_and_then <= (8 if disturbed else 4)
    assert upon >= 10


def test_threads_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    made = kernel()
    monkeypatch.delenv("MORELLO_THREADS", raising=False)
    assert made.threads() == len(os.sched_getaffinity(0))
    monkeypatch.setenv("MORELLO_THREADS", "5")
    assert made.threads() == 5
    assert made.threads(3) == 3
    assert made.bench(min_time=0.001, repeats=1, threads=2).threads == 2
    assert "on 2 threads" in str(made.bench(min_time=0.001, repeats=1, threads=2))
    serial = morello.compile("target x86_avx2\nspec one = FillZero(8, (f32, L1), serial)")
    assert serial.threads(4) == 1


@pytest.mark.parametrize("text", ["0", "-1", "many", "1.5", "²", str(MAX_THREADS + 1)])
def test_a_default_that_is_no_number_of_threads(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MORELLO_THREADS", text)
    with pytest.raises(MorelloError, match="MORELLO_THREADS is"):
        kernel().threads()


@pytest.mark.parametrize("threads", [0, -2, MAX_THREADS + 1, 1.0, "2", True])
def test_invalid_numbers_of_threads(threads) -> None:
    made = kernel()
    with pytest.raises(ArgumentError, match="threads"):
        made(*operands(made), threads=threads)


@pytest.mark.slow
def test_verification_notices_threads_that_meet() -> None:
    """All threads are given the workspace of the first one. On a busy machine, they may run one after the other."""
    made = kernel(old=f"loop->workspace + thread * {4800 + (32 << 10)}", new="loop->workspace + 0 * thread")
    source, out = operands(made)

    def race() -> bool:
        try:
            run_sanitized(made.program, made.spec, [source, out], made.compiler, sanitizers="thread")
        except VerificationError as error:
            return "data race" in error.message
        return False

    assert any(race() for _ in range(10))
    made = kernel(old="packs_part1, &given, 6, threads", new="packs_part1, &given, 6 - (threads > 2), threads")
    with pytest.raises(VerificationError, match="5 threads give other values than 1 does"):
        made.check()


@pytest.mark.parametrize(("openmp", "message"), [(False, "no pthreads"), (True, "no OpenMP")])
def test_compilers_without_threads(openmp: bool, message: str, script: Callable[[str], str]) -> None:
    real = " ".join(find_compiler().command)
    without = script(f'for word; do case $word in -fopenmp|-pthread) exit 1;; esac; done; exec {real} "$@"; :')
    with pytest.raises(ToolchainError, match=message):
        thread_flags(find_compiler(without), openmp)


COMPOSE = """\
target x86_avx2
spec fused = Compose([Gelu, Add[over=[0, 1]], Matmul],
    [(1×1×32, f32, GL), (1×24×16, f32, GL), (1×16×32, f32, GL), (1×24×32, f32, GL)]{serial})
schedule fused {{
    tile [0, 8, 0, 0]{parallel}
    bufferize to GL
    synthesize
}}"""


@pytest.mark.slow
def test_threads_share_the_tiles_of_a_compose() -> None:
    """Each has separate intermediates of 8×32 values; the bits are those of the serial program."""
    serial, shared = (
        morello.compile(COMPOSE.format(serial=serial, parallel=parallel))
        for serial, parallel in ((", serial", ""), ("", " parallel"))
    )
    assert (shared.program.parallel, serial.program.parallel) == (True, False)
    rng = np.random.default_rng(0)
    inputs = [empty(tensor) for tensor in shared.spec.operands[:-1]]
    for array in inputs:
        array[...] = rng.standard_normal(array.shape)
    expected = serial(*inputs)
    for threads in THREADS:
        assert (shared(*inputs, threads=threads) == expected).all()
    shared.check()
