"""The unit of what x86-64 costs, and how its tables are measured."""

from __future__ import annotations

from morello.plugins import Clock

_ROUNDS, _UNROLLED, _LATENCY = 1_000, 8, 3

#: A chain of multiplications of integers, each of which takes three cycles on every core since 2008. One of additions
#: tells nothing: some cores leave them out.
CLOCK = Clock(
    unit="tenths of a cycle",
    source=f"""\
static void morello_clock(void *memory) {{
    uint64_t x = 3;
    (void)memory;
    for (int i = 0; i < {_ROUNDS}; ++i) {{
        __asm__ volatile("{"imul %0, %0; " * _UNROLLED}" : "+r"(x));
    }}
}}
""",
    units=10 * _LATENCY * _UNROLLED * _ROUNDS,
)
