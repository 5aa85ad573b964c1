"""Measure register tiles on this machine: cycles for a step of k, and to start.

The C is printed by the code that programs get it from. Operands are in L1, and calls follow one another on different
outputs, as in programs. The least of many times is divided by the time of a cycle, measured by a chain of integer
multiplications: their latency is 3 cycles on every x86-64 core of the last fifteen years.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import attrs
import numpy as np
from morello_vectors.multiply_add import Lanes, MultiplyAdd
from morello_vectors.tile_code import Matrix, TilePrinter
from morello_vectors.tile_cost import TileCycles, TileTimes

from morello.host import missing_features
from morello.ir.dtypes import by_name as dtype_named
from morello.ir.index import as_index
from morello_x86.calibration.peak import MULTIPLY_ADDS_OF_LIMIT, flags_of, limit
from morello_x86.kernels.tile_tables import shipped_cycles

#: Builds a shared object from C with these flags.
Build: TypeAlias = Callable[[str, Sequence[str]], Path]
#: Bytes of both factors at most, so that they stay in L1, and steps of k.
_NEAR, _STEPS = 24 << 10, 256
#: Outputs that calls take turns with.
_OUTPUTS = 4
#: Ticks that one timing takes, about, and multiplications in the chain that measures the cycle.
_LONG, _CHAIN = 40_000, 8_000

_SOURCE = """
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <x86intrin.h>

typedef void tile(const void *a, const void *b, char *c);

{functions}

static tile *const tiles[] = {{{names}}};

/* Ticks of the time stamp counter that `calls` calls of tile number `which` take. */
uint64_t ticks(int which, int64_t calls, const void *a, const void *b, char *c, int64_t apart) {{
    tile *volatile const function = tiles[which];
    tile *const called = function;
    const uint64_t start = __rdtsc();
    for (int64_t call = 0; call < calls; ++call) {{
        called(a, b, c + call % {outputs} * apart);
    }}
    return __rdtsc() - start;
}}

/* Ticks of a chain of `count` multiplications of integers. */
uint64_t chain(int64_t count) {{
    uint64_t x = 3;
    const uint64_t start = __rdtsc();
    for (int64_t i = 0; i < count; i += 8) {{
        __asm__ volatile("imul %0, %0\\nimul %0, %0\\nimul %0, %0\\nimul %0, %0\\n"
                         "imul %0, %0\\nimul %0, %0\\nimul %0, %0\\nimul %0, %0" : "+r"(x));
    }}
    return __rdtsc() - start;
}}
"""


@attrs.frozen
class _Program:
    """One tile for two numbers of steps, reading its sums and not: its numbers in the library are from `first` on."""

    rows: int
    vectors: int
    first: int
    steps: tuple[int, int]


def lanes_of(adds: MultiplyAdd, size: int) -> Lanes:
    """Return vectors of `size` bytes for the first types that it takes of the least width, as conversions cost."""
    named = [sorted(map(dtype_named, types), key=lambda dtype: dtype.bytes) for types in (adds.lhs, adds.rhs)]
    lhs, rhs = next(pair for pair in itertools.product(*named) if adds.pairs(*pair))
    return adds.in_lanes(size, (lhs, rhs, dtype_named(adds.out[0])))


class _Library:
    """The compiled tiles of one multiply-add in one vector width."""

    def __init__(self, lanes: Lanes, tiles: Sequence[tuple[int, int]], build: Build):
        self.programs: list[_Program] = []
        functions, names = [limit(lanes)], ["limit"]
        for rows, vectors in tiles:
            across = 4 * (rows + lanes.size // 4 * vectors)
            longest = min(_STEPS, _NEAR // across // 16 * 16)
            steps = (longest // 4, longest)
            self.programs.append(_Program(rows, vectors, len(names), steps))
            for count, accumulate in itertools.product(steps, (True, False)):
                names.append(f"tile_{len(names)}")
                functions.append(_function(names[-1], lanes, rows, vectors, count, accumulate))
        source = _SOURCE.format(functions="\n".join(functions), names=", ".join(names), outputs=_OUTPUTS)
        self._library: Any = ctypes.CDLL(str(build(source, flags_of(lanes))))
        self._library.ticks.restype = self._library.chain.restype = ctypes.c_uint64
        self._memory = [_aligned(size) for size in (_NEAR, _NEAR, _OUTPUTS * 64 * lanes.size)]

    def ticks(self, number: int, calls: int) -> int:
        a, b, c = (ctypes.c_void_p(each.ctypes.data) for each in self._memory)
        apart = self._memory[2].size // _OUTPUTS
        return self._library.ticks(number, ctypes.c_int64(calls), a, b, c, ctypes.c_int64(apart))

    def chain(self, count: int) -> int:
        return self._library.chain(ctypes.c_int64(count))


def _function(name: str, lanes: Lanes, rows: int, vectors: int, steps: int, accumulate: bool) -> str:
    """Return a C function that computes a tile; its left-hand side's rows are adjacent, and so are the others'."""
    numbers = itertools.count()
    code = TilePrinter(
        rows=rows,
        columns=vectors * lanes.values,
        steps=steps,
        lanes=lanes,
        accumulate=accumulate,
        fresh=lambda like: f"{like}_{next(numbers)}",
    )
    across, taken = vectors * lanes.values, lanes.adds.taken
    a = Matrix("a", as_index(steps * taken), as_index(taken))
    b = Matrix("b", as_index(across * taken), as_index(taken))
    lines = code.lines(a, b, Matrix("(void *)c", as_index(across)))
    body = "\n".join(f"    {line}" for line in lines)
    return f"static void {name}(const void *a, const void *b, char *c) {{\n{body}\n}}"


def _aligned(size: int) -> np.ndarray:
    """Return this number of zero bytes, which start at a page."""
    page = 4096
    memory = np.zeros(size + page, np.uint8)
    start = -memory.ctypes.data % page
    return memory[start : start + size]


def least_ticks(library: _Library, numbers: Sequence[int], repeats: int) -> tuple[dict[int, float], float]:
    """Return the least ticks a call of each function took, by its number, and those of a cycle.

    All take turns, so that one that other work disturbs is timed again later. It goes on, at most five times as long,
    until a third of the rounds brings nothing that is better by half a percent.
    """
    least = dict.fromkeys(numbers, float("inf"))
    cycle, better, round_ = float("inf"), 0, 0
    calls = dict.fromkeys(numbers, 1)
    for number in numbers:
        while library.ticks(number, calls[number]) < _LONG:
            calls[number] *= 2
    while round_ < repeats or (round_ - better < repeats // 3 and round_ < 5 * repeats):
        round_ += 1
        for number in numbers:
            cycle = min(cycle, library.chain(_CHAIN) / (3 * _CHAIN))
            taken = library.ticks(number, calls[number]) / calls[number]
            if taken < 0.995 * least[number]:
                better = round_
            least[number] = min(taken, least[number])
    return least, cycle


def measure(adds: MultiplyAdd, size: int, build: Build, repeats: int, tiles: Sequence[tuple[int, int]]) -> TileCycles:
    """Return the measured costs of tiles in vectors of `size` bytes on this machine.

    `tiles` are rows and vectors of the tiles to measure. The CPU must have vectors of this width; if it lacks the
    instruction, the shipped costs are returned. A call takes seconds, mostly to compile. Costs of lines are not
    measured.
    """
    shipped = shipped_cycles(adds, size)
    if missing_features(adds.cpu_features):
        return shipped
    library = _Library(lanes_of(adds, size), tiles, build)
    least, cycle = least_ticks(library, range(1 + 4 * len(library.programs)), repeats)
    measured: list[TileTimes] = []
    for program in library.programs:
        few, many = program.steps
        reads, zeroes = ([least[program.first + turn + which] / cycle for turn in (0, 2)] for which in (0, 1))
        step = (reads[1] - reads[0] + zeroes[1] - zeroes[0]) / (2 * (many - few))
        starts = (round(10 * (sum(times) - step * (few + many)) / 2) for times in (reads, zeroes))
        measured.append(TileTimes(program.rows, program.vectors, round(100 * step), *starts))
    add = least[0] / cycle / MULTIPLY_ADDS_OF_LIMIT
    return attrs.evolve(shipped, tiles=tuple(measured), add=round(100 * add))
