"""The C runtime that divides the tiles of a parallel loop among threads: `threads.c`, part of programs with such loops.

A program uses its caller's threads if it is given any, OpenMP if it is compiled for it, and else a team of its own
threads, started at the first loop and kept until the program is unloaded: starting one takes as long as a product of
100³. Programs called from Python share one team, as waiting threads of one program take CPUs from the next. A thread
runs its share of the tiles in eight chunks, and then chunks of other shares that no thread has begun: on a busy
machine, the caller waits for one chunk of each thread at most. Results are the same bits for any number of threads.

In the C, a mask of Linux has at most 8192 CPUs. A thread polls 200,000 times, some 0.1 ms, before it sleeps, as waking
one takes 20 µs and more on virtual machines; it does not yield meanwhile, or two threads may share a CPU for long. Work
below 100,000 ns gains nothing from waking threads, and calls further apart than that do not follow each other.
"""

from __future__ import annotations

from pathlib import Path

#: The most threads of one loop, also in `threads.c`.
MAX_THREADS = 1024

#: If defined as 1, each thread keeps its share, so that ThreadSanitizer sees the memory accesses of two threads.
KEEPS_SHARES = "MORELLO_KEEPS_SHARES"

#: Stops gcc from writing back values that it has read next to a tile, where another thread may have written meanwhile:
#: gcc 12 does so to save stores that a later iteration repeats. It is first in a C file.
OWN_STORES = """\
#if defined(__GNUC__) && !defined(__clang__)
/* gcc would store back values next to a tile, where another thread may have stored meanwhile. */
#pragma GCC optimize("no-predictive-commoning")
#endif
"""

#: The statement that sets the caller's threads, `run`.
SET_RUNNER = "__atomic_store_n(&morello_run, run, __ATOMIC_RELEASE);"

#: The runtime. Names that start with `morello_` are reserved for it.
RUNTIME = Path(__file__).with_name("threads.c").read_text("utf-8")


def shared_team(storage: str = "static ") -> str:
    """Return the C of a runner, after the runtime, by which loops of several programs run on one team."""
    return f"""
typedef struct {{ void (*body)(void *, int); void *data; }} shares;

static void run_shares(const void *loop, ptrdiff_t thread, ptrdiff_t from, ptrdiff_t to) {{
    const shares *const all = loop;
    (void)thread;
    for (; from < to; ++from) {{
        all->body(all->data, (int)from);
    }}
}}

{storage}void morello_share_team(void (*body)(void *, int), void *data, int count) {{
    const shares all = {{body, data}};
    morello_parallel(run_shares, &all, count, count);
}}
"""
