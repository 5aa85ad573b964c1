"""The loop in C that times calls of a program's function."""

from __future__ import annotations

import re

from morello.ir.program import Program
from morello.run.fastcall import call_words

#: What the loop needs before it.
CLOCK = """\
#include <stddef.h>
#include <stdint.h>
#include <time.h>

static double morello_now(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
"""
_PROTOTYPE = (
    "void {loop}(void *kernel, int64_t calls, void *const *pointers, const ptrdiff_t *numbers, double *seconds)"
)
_SOURCE = """\

#include "{header}"

/* Declared here, as parameters below may hide the kernel's name. */
typedef __typeof__(&{name}) {loop}_kernel;

/* Has the kernel's parameters and does nothing. It is volatile so that the compiler does not inline it. */
static {nothing} {{{value}}}
static volatile {loop}_kernel {loop}_empty = {loop}_nothing;

/* Measures `calls` calls of the kernel, or of the empty function for NULL: CPU seconds of this thread, wall seconds. */
{prototype} {{
    {loop}_kernel function = kernel ? ({loop}_kernel)kernel : {loop}_empty;
    (void)pointers;
    (void)numbers;
    const double wall = morello_now(CLOCK_MONOTONIC), start = morello_now(CLOCK_THREAD_CPUTIME_ID);
    for (int64_t call = 0; call < calls; call++) {{
        function({arguments});
    }}
    seconds[0] = morello_now(CLOCK_THREAD_CPUTIME_ID) - start;
    seconds[1] = morello_now(CLOCK_MONOTONIC) - wall;
}}
"""


def loop_prototype(loop: str) -> str:
    """Return the declarator of a loop with this name."""
    return _PROTOTYPE.format(loop=loop)


def loop_source(program: Program, loop: str) -> str:
    """Return the C function `loop` for a program whose header is in a file; `CLOCK` precedes it.

    It belongs in a file without the kernel, so that the compiler cannot inline that and hoist parts of it.
    """
    name = program.name
    return _SOURCE.format(
        header=f"{name}.h",
        loop=loop,
        name=name,
        prototype=loop_prototype(loop),
        value="" if program.size is None else " return 0; ",
        nothing=re.sub(rf"\b{re.escape(name)}\b", f"{loop}_nothing", program.prototype, count=1),
        arguments=", ".join(f"({kind}){word}" for kind, word in call_words(program, "pointers", "numbers")),
    )
