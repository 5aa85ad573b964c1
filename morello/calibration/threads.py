"""Measures what it costs to share a loop among threads, by the code that emitted programs share loops with."""

from __future__ import annotations

from morello.build.toolchain import thread_flags
from morello.calibration.meter import UnitMeter
from morello.codegen.threads import RUNTIME

_SOURCE = """
static void empty_tiles(const void *loop, ptrdiff_t thread, ptrdiff_t from, ptrdiff_t to) {{
    (void)loop, (void)thread, (void)from, (void)to;
}}

static void share_tiles(void *memory) {{
    morello_parallel(empty_tiles, memory, {threads}, {threads});
}}
"""


def start_up(meter: UnitMeter, threads: int) -> float:
    """Return what a parallel loop costs in which threads do nothing, on the wall."""
    source = RUNTIME + _SOURCE.format(threads=threads)
    return meter.units(source, ["share_tiles"], thread_flags(meter.timer.compiler), wall=True)[0]
