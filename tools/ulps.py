"""Measure how far the vector functions of the x86 targets are off, on every 32-bit float there is.

    python -m tools.ulps [--functions exp tanh] [--values 4 8 16] [--step 1]

Results are compared with those of the C library in double precision, and errors are given in units in the last place
of the exact result (2^-149 for subnormal ones), or of the argument, or of 1, where that is stated. `--step 1009` takes
every 1009th float instead of all 2^32. The error that is documented is in `morello_vectors.vector_math`; the exit code
is 1 if a larger one is found.
"""

from __future__ import annotations

import argparse
import ctypes
import sys

import attrs
from morello_vectors.vector_math import FUNCTIONS, c_name, definitions
from morello_x86.instructions import X86Instructions

from morello.build.library import build
from morello.build.toolchain import Compiler, available_compilers
from morello.host import missing_features

#: The exact function of a double `x`, in C; one minus something small is written so that it does not cancel. Where a
#: function goes to 0 as x goes to -infinity, that is its value there.
EXACT = {
    "exp": "exp(x)",
    "sigmoid": "x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x))",
    "tanh": "tanh(x)",
    "silu": "x == -INFINITY ? 0 : x < 0 ? x * (exp(x) / (1 + exp(x))) : x / (1 + exp(-x))",
    "gelu": "x == -INFINITY ? 0 : x * (erfc(x * -M_SQRT1_2) / 2)",
    "gelu_tanh": "x == -INFINITY ? 0 : gelu_tanh(x)",
    "rsqrt": "1 / sqrt(x)",
    "log": "log(x)",
    "sin": "sin(x)",
    "cos": "cos(x)",
    "erf": "erf(x)",
    "softplus": "(x > 0 ? x : 0) + log1p(exp(-fabs(x)))",
    "mish": "x == -INFINITY ? 0 : x * tanh((x > 0 ? x : 0) + log1p(exp(-fabs(x))))",
    "sqrt": "sqrt(x)",
    "reciprocal": "1 / x",
    "round": "rint(x)",
    "floor": "floor(x)",
    "ceil": "ceil(x)",
    "elu": "x < 0 ? (double)0.3f * expm1(x) : x",
    "selu": "1.0507009873554805 * (x < 0 ? 1.6732632423543772 * expm1(x) : x)",
    "leakyrelu": "x < 0 ? (double)0.3f * x : x",
    "hardswish": "x < -3 ? 0 : x > 3 ? x : x * (x + 3) / 6",
    "hardsigmoid": "isnan(x) ? x : fmin(1, fmax(0, (double)0.3f * x + (double)0.7f))",
}
#: Values of the constants that functions take.
CONSTANTS = {"elu": (0.3,), "leakyrelu": (0.3,), "hardsigmoid": (0.3, 0.7)}
FLAGS = {4: ("-mavx2", "-mfma"), 8: ("-mavx2", "-mfma"), 16: ("-mavx512f", "-mavx512vl", "-mfma")}
FEATURES = {4: ("avx2", "fma"), 8: ("avx2", "fma"), 16: ("avx512f", "avx512vl")}

_SOURCE = """
#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

typedef float f32x{values} __attribute__((vector_size({bytes})));
typedef int32_t i32x{values} __attribute__((vector_size({bytes})));
typedef uint32_t u32x{values} __attribute__((vector_size({bytes})));

{functions}

static inline double gelu_tanh(double x) {{
    const double v = 2 * sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
    return v < 0 ? x * (exp(v) / (1 + exp(v))) : x / (1 + exp(-v));
}}

static double exact(double x) {{
    (void)gelu_tanh;
    return {exact};
}}

/* The error of a result, in units in the last place of `scale`; infinite where one is NaN and the other is not. */
static double error(double want, float got, double scale) {{
    if (isnan(want) || isnan(got)) {{
        return isnan(want) && isnan(got) ? 0 : INFINITY;
    }}
    if (want == got) {{
        return 0;
    }}
    const double limit = 0x1p128;
    const double w = fmax(fmin(want, limit), -limit), g = fmax(fmin(got, limit), -limit);
    int exponent;
    frexp(scale, &exponent);
    exponent = isinf(scale) || exponent > 128 ? 128 : exponent;
    return fabs(w - g) / ldexp(1, exponent - 24 < -149 ? -149 : exponent - 24);
}}

/* The largest error of the floats with bits first, first + step, ...; `count` of them. `at` is where. */
double worst(uint64_t first, uint64_t step, uint64_t count, uint32_t *at) {{
    double most = 0;
    for (uint64_t done = 0; done < count; done += {values}) {{
        float x[{values}], y[{values}];
        for (int lane = 0; lane < {values}; ++lane) {{
            const uint32_t bits = (uint32_t)(first + step * (done + lane));
            memcpy(x + lane, &bits, sizeof bits);
        }}
        f32x{values} v;
        memcpy(&v, x, sizeof v);
        v = {name}(v{constants});
        memcpy(y, &v, sizeof v);
        for (int lane = 0; lane < {values}; ++lane) {{
            const double want = exact(x[lane]), off = error(want, y[lane], {scale});
            if (off > most) {{
                most = off;
                memcpy(at, x + lane, sizeof *at);
            }}
        }}
    }}
    return most;
}}
"""


@attrs.frozen
class Worst:
    """The largest error found, and the argument that has it."""

    ulps: float
    argument: float


def measure(function: str, values: int, compiler: Compiler, step: int = 1, first: int = 0) -> Worst:
    """Return the largest error of a vector function on every `step`-th float from the one with bits `first` on."""
    source = _SOURCE.format(
        values=values,
        bytes=4 * values,
        functions="\n".join(definitions(X86Instructions(), function, values).values()),
        exact=EXACT[function],
        scale={"result": "want", "argument": "x[lane]", "1": "1"}[FUNCTIONS[function].of],
        constants="".join(f", {value}f - (f32x{values}){{0}}" for value in CONSTANTS.get(function, ())),
        name=c_name(function, values),
    )
    library = ctypes.CDLL(str(build({"ulps.c": source}, FLAGS[values], compiler)))
    library.worst.restype = ctypes.c_double
    at = ctypes.c_uint32()
    sizes = (ctypes.c_uint64(first), ctypes.c_uint64(step), ctypes.c_uint64(-(-(2**32 - first) // step)))
    ulps = library.worst(*sizes, ctypes.byref(at))
    return Worst(ulps, ctypes.c_float.from_buffer(at).value)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--functions", nargs="+", choices=EXACT, default=list(EXACT))
    parser.add_argument("--values", nargs="+", type=int, choices=FLAGS, default=list(FLAGS))
    parser.add_argument("--step", type=int, default=1)
    arguments = parser.parse_args()
    bad = 0
    for function in arguments.functions:
        for values in arguments.values:
            if missing := missing_features(FEATURES[values]):
                print(f"{function:<10} {values:>2} floats: left out, this CPU lacks {', '.join(missing)}")
                continue
            found = measure(function, values, available_compilers()[0], arguments.step)
            documented = FUNCTIONS[function].ulps
            assert documented is not None
            bad += not found.ulps <= documented
            print(
                f"{function:<10} {values:>2} floats: {found.ulps:.3f} ulps at {found.argument!r}, stated {documented}"
            )
            sys.stdout.flush()
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
