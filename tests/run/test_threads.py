"""Parallel loops: results are the same bits on any number of threads, of any runtime."""

from __future__ import annotations

import os
import re
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
from morello.build.toolchain import Compiler, find_compiler, thread_flags
from morello.codegen.threads import MAX_THREADS
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
#: The first lines of the source, for each runtime of threads, and for none.
WAYS = {
    "as built": "",
    "pthreads": "#undef _OPENMP\n",
    "no threads": "#undef _OPENMP\n#include <pthread.h>\n#define pthread_create(...) 11\n",
}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return WAYS[request.param]


packs = cache(partial(morello.compile, TEXT))


def kernel(compiler: Compiler | str | None = None, before: str = "", old: str = "", new: str = "") -> Kernel:
    made = packs()
    assert old in made.source
    program = attrs.evolve(made.program, source=before + made.source.replace(old, new))
    return Kernel.of(made.impl, made.target, program, compiler)


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
    """Each share has its buffer in a separate workspace; there are six tiles."""
    made = kernel(compiler)
    source, _ = operands(made)
    own = made.program.thread_workspace
    assert (made.program.workspace, own) == (0, 4800)
    for threads in (7, 2):
        scratch = made.function.workspace(7)
        scratch[:] = 0
        made(source, threads=threads)
        used = scratch[: 7 * own].reshape(7, own).any(axis=1)
        assert used.tolist() == [share < min(threads, 6) for share in range(7)]


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
            shares = scratch.size // own
            used = scratch[: shares * own].reshape(shares, own).any(axis=1)
            assert used.tolist() == [share < threads for share in range(shares)]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted in /proc")
def test_a_program_keeps_its_threads() -> None:
    """The second call starts none, and a third that wants more starts the rest."""
    made = kernel(before=WAYS["pthreads"])
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
    made = kernel(before=WAYS["pthreads"])
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


def test_a_forked_process_has_threads_of_its_own() -> None:
    made = kernel(before=WAYS["pthreads"])
    source, _ = operands(made)
    made(source, threads=3)
    process, hears = forked(lambda says: says.send((made(source, threads=3) == source).all()))
    assert hears.poll(60)
    assert hears.recv()
    process.join(60)
    assert process.exitcode == 0


def test_calls_at_the_same_time() -> None:
    """One has the team, the others do all the work themselves."""
    made = kernel(before=WAYS["pthreads"])
    source, _ = operands(made)

    def calls(_: int) -> bool:
        return all((made(source, threads=3) == source).all() for _ in range(200))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(calls, range(4)))


def test_threads_sleep_between_calls() -> None:
    made = kernel(before=WAYS["pthreads"])
    source, _ = operands(made)
    made(source, threads=3)
    time.sleep(0.2)
    before = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - before < 0.1
    assert (made(source, threads=3) == source).all()


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted in /proc")
@pytest.mark.parametrize("disturbed", [0, 2])
def test_brief_rare_calls_wake_no_thread(disturbed: int) -> None:
    """To wake a thread takes longer than all the work. Calls one upon another do wake them.

    One call that another process disturbs does not wake them from then on.
    """
    share = "    body(loop, 0, 0, tiles / shares);"
    late = f"static int calls; const int64_t began = morello_nanoseconds(); const int late = ++calls == {disturbed};"
    wait = "while (late && morello_nanoseconds() - began < 1000000);"
    made = kernel(None, WAYS["pthreads"], share, f"    {late}\n    {wait}\n{share}")
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

    process, hears = forked(calls)
    assert hears.poll(60)
    now_and_then, upon = hears.recv()
    process.join(60)
    # On a busy machine, one measurement may be slow, besides the disturbed one.
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


def test_verification_notices_threads_that_meet() -> None:
    """All threads are given the workspace of the first one."""
    made = kernel(old="loop->workspace + thread * 4800", new="loop->workspace + 0 * thread")
    source, out = operands(made)
    with pytest.raises(VerificationError, match="data race"):
        run_sanitized(made.program, made.spec, [source, out], made.compiler, sanitizers="thread")
    made = kernel(old="packs_part1, &given, 6, threads", new="packs_part1, &given, 6 - (threads > 2), threads")
    with pytest.raises(VerificationError, match="5 threads give other values than 1 does"):
        made.check()


def test_openmp_comes_before_pthreads(script: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    real = " ".join(find_compiler().command)
    log = Path(script("")).with_name("log")
    everything = f'echo "$@" >> {log}; set -- $(echo "$@" | sed s/-fopenmp/-pthread/); exec {real} "$@"; :'
    assert thread_flags(find_compiler(script(everything))) == ("-fopenmp",)
    assert "-fopenmp" in log.read_text()


@pytest.mark.parametrize(("refused", "flags"), [("-fopenmp", ("-pthread",)), ("-fopenmp|-pthread", None)])
def test_compilers_without(refused: str, flags: tuple[str, ...] | None, script: Callable[[str], str]) -> None:
    real = " ".join(find_compiler().command)
    found = find_compiler(script(f'for word; do case $word in {refused}) exit 1;; esac; done; exec {real} "$@"; :'))
    if flags:
        assert thread_flags(found) == flags
        assert (kernel(found)(operands(kernel())[0]) == operands(kernel())[0]).all()
    else:
        with pytest.raises(ToolchainError, match="neither OpenMP nor pthreads"):
            thread_flags(found)


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
