"""The peak of a core: multiply-adds in vectors, limited by its throughput alone."""

from __future__ import annotations

from morello_vectors.multiply_add import Lanes

from morello.host import missing_features
from morello.ir.dtypes import by_name as dtype_named
from morello.plugins import Peak
from morello_x86.emitter import X86Emitter
from morello_x86.kernels.multiply_adds import families

FEATURES = {32: ("avx2", "fma"), 64: ("avx512f", "avx512vl", "avx512bw")}
#: Multiply-adds without loads, enough of them to hide their latency: no product is faster. None is computed just once,
#: and each before the next, as compilers run out of registers otherwise.
_LIMIT = """
static void limit(const void *a_, const void *b_, char *c_) {{
    const {lhs} *const a = a_;
    const {rhs} *const b = b_;
    {out} *const c = (void *)c_;
    {factors} x = {x}, y = {y};
    {kind} {sums};
    for (int k = 0; k < {steps}; ++k) {{
        {added}
    }}
    {stored}
}}
"""
_SUMS, _STEPS = 12, 500
MULTIPLY_ADDS_OF_LIMIT = _SUMS * _STEPS
_SEEN = '__asm__ volatile("" : "+x"(x), "+x"({}));'
#: The three arrays of a call are in these parts of the memory, in bytes.
_APART = 4096
_PEAK = """
#include <immintrin.h>
#include <stdint.h>
#include <string.h>
{limit}
static void morello_peak(void *memory) {{
    limit(memory, (char *)memory + {apart}, (char *)memory + 2 * {apart});
}}
"""


def peak(widest: int, types: tuple[str, ...]) -> Peak | None:
    """Return the peak of this CPU for factors and sums of these types, in vectors of up to `widest` bytes.

    Returns None if no multiply-add of this CPU takes the types.
    """
    for adds, size in families(widest):
        # What is printed in GNU C, at a site of a program, has no C of its own here.
        if adds.lanes and types in adds.types and not missing_features((*FEATURES[size], *adds.cpu_features)):
            lanes = adds.in_lanes(size, [*map(dtype_named, types)])
            flops = 2 * MULTIPLY_ADDS_OF_LIMIT * lanes.values * adds.taken
            return Peak(source=_PEAK.format(limit=limit(lanes), apart=_APART), flops=flops, flags=flags_of(lanes))
    return None


def flags_of(lanes: Lanes) -> tuple[str, ...]:
    """Return the compiler's flags for the instructions of a multiply-add."""
    emitter, extensions = X86Emitter(), (*FEATURES[lanes.size], "fma", *lanes.adds.cpu_features)
    return tuple(flag for one in extensions for flag in emitter.feature_flags(one))


def limit(lanes: Lanes) -> str:
    """Return a C function of multiply-adds without loads."""
    sums = [f"sum_{index}" for index in range(_SUMS)]
    places = [(one, f"c + {lanes.values} * {index}") for index, one in enumerate(sums)]
    none = ("", "")
    factor = lanes.load_factors("b", 0, none)
    lhs, rhs, out = (dtype.c_name for dtype in lanes.types)
    return _LIMIT.format(
        kind=lanes.sums,
        factors=lanes.factors,
        x=factor,
        y=factor,
        lhs=lhs,
        rhs=rhs,
        out=out,
        sums=", ".join(f"{one} = {lanes.load_sums(place, 0, none)}" for one, place in places),
        steps=_STEPS,
        added=" ".join(f"{one} = {lanes.added(one, 'x', 'y')}; {_SEEN.format(one)}" for one in sums),
        stored=" ".join(lanes.store_sums(place, 0, one) for one, place in places),
    )
