"""Measure what register tiles take on this machine: cycles for a step of k, and to start.

    python -m morello_x86_testing.tile_cycles [--values 8 16] [--compiler gcc] [--repeats 40]

The C is printed by the code that programs get it from. Operands are in L1, and calls follow one another on different
outputs, as in programs. Times are the least of many: divided by the time of a cycle, which a chain of multiplications
of integers tells, whose latency is 3 cycles on every x86-64 core of the last fifteen years.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import sys
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
from morello_x86.kernels.common import PREFIX
from morello_x86.kernels.tile_code import VECTOR_TYPES, Matrix, TileCode
from morello_x86.kernels.tile_cost import Tile, TileCycles
from morello_x86.kernels.tile_cycles import TILE_CYCLES

from morello.ir.index import as_index
from morello.runtime import Compiler, available_compilers
from morello.runtime.build import build
from morello.runtime.machine import missing_features

FLAGS = {8: ("-mavx2", "-mfma"), 16: ("-mavx512f", "-mavx512vl", "-mavx512bw", "-mfma")}
FEATURES = {8: ("avx2", "fma"), 16: ("avx512f", "avx512vl", "avx512bw")}
REGISTERS = {8: 16, 16: 32}
#: Bytes of both factors at most, so that they stay in L1, and steps of k.
_NEAR, _STEPS = 24 << 10, 256
#: Outputs that calls take turns with.
_OUTPUTS = 4
#: Ticks that one timing takes, about, and multiplications in the chain that tells the cycle.
_LONG, _CHAIN = 40_000, 8_000

_SOURCE = """
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <x86intrin.h>

typedef void tile(const float *a, const float *b, float *c);

{functions}

static tile *const tiles[] = {{{names}}};

/* Ticks of the time stamp counter that `calls` calls of tile number `which` take. */
uint64_t ticks(int which, int64_t calls, const float *a, const float *b, float *c, int64_t apart) {{
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
#: Multiply-adds without loads, enough of them to hide their latency: no product is faster.
_LIMIT = """
static void limit(const float *a, const float *b, float *c) {{
    const {kind} x = {prefix}_loadu_ps(a), y = {prefix}_loadu_ps(b);
    {kind} {sums};
    for (int k = 0; k < {steps}; ++k) {{
        {added}
    }}
    {stored}
}}
"""
_SUMS, _LIMIT_STEPS = 12, 500


@attrs.frozen
class _Program:
    """One tile for two numbers of steps, reading its sums and not: its numbers in the library are from `first` on."""

    rows: int
    vectors: int
    first: int
    steps: tuple[int, int]


def shapes(values: int) -> list[tuple[int, int]]:
    """Return the tiles to measure, as rows and vectors; of tall ones, which differ little, a few."""
    found: list[tuple[int, int]] = []
    for vectors in range(1, 9):
        most = (REGISTERS[values] - 1) // vectors - 1
        found += [(rows, vectors) for rows in range(1, most + 1) if rows <= 14 or rows % 4 == 0 or rows == most]
    return found


class _Library:
    """The compiled tiles of one vector width."""

    def __init__(self, values: int, tiles: Sequence[tuple[int, int]], compiler: Compiler):
        self.programs: list[_Program] = []
        functions, names = [_limit(values)], ["limit"]
        for rows, vectors in tiles:
            longest = min(_STEPS, _NEAR // (4 * (rows + values * vectors)) // 16 * 16)
            steps = (longest // 4, longest)
            self.programs.append(_Program(rows, vectors, len(names), steps))
            for count, accumulate in itertools.product(steps, (True, False)):
                names.append(f"tile_{len(names)}")
                functions.append(_function(names[-1], values, rows, vectors, count, accumulate))
        source = _SOURCE.format(functions="\n".join(functions), names=", ".join(names), outputs=_OUTPUTS)
        self._library: Any = ctypes.CDLL(str(build({"tiles.c": source}, FLAGS[values], compiler)))
        self._library.ticks.restype = self._library.chain.restype = ctypes.c_uint64
        self._memory = [_aligned(size) for size in (_NEAR // 4, _NEAR // 4, _OUTPUTS * 64 * values)]

    def ticks(self, number: int, calls: int) -> int:
        a, b, c = (ctypes.c_void_p(each.ctypes.data) for each in self._memory)
        apart = self._memory[2].size // _OUTPUTS
        return self._library.ticks(number, ctypes.c_int64(calls), a, b, c, ctypes.c_int64(apart))

    def chain(self, count: int) -> int:
        return self._library.chain(ctypes.c_int64(count))


def _function(name: str, values: int, rows: int, vectors: int, steps: int, accumulate: bool) -> str:
    """Return a C function that computes a tile; its left-hand side's rows are adjacent, and so are the others'."""
    numbers = itertools.count()
    code = TileCode(
        rows=rows,
        columns=vectors * values,
        steps=steps,
        values=values,
        accumulate=accumulate,
        fresh=lambda like: f"{like}_{next(numbers)}",
    )
    across = as_index(vectors * values)
    lines = code.lines(Matrix("a", as_index(steps)), Matrix("b", across), Matrix("c", across))
    body = "\n".join(f"    {line}" for line in lines)
    return f"static void {name}(const float *a, const float *b, float *c) {{\n{body}\n}}"


def _limit(values: int) -> str:
    """Return the C function whose multiply-adds are limited by nothing else."""
    prefix = PREFIX[4 * values]
    sums = [f"sum_{index}" for index in range(_SUMS)]
    return _LIMIT.format(
        kind=VECTOR_TYPES[values],
        prefix=prefix,
        sums=", ".join(f"{one} = {prefix}_loadu_ps(c + {values} * {index})" for index, one in enumerate(sums)),
        steps=_LIMIT_STEPS,
        added=" ".join(f"{one} = {prefix}_fmadd_ps(x, y, {one});" for one in sums),
        stored=" ".join(f"{prefix}_storeu_ps(c + {values} * {index}, {one});" for index, one in enumerate(sums)),
    )


def _aligned(size: int) -> np.ndarray:
    """Return so many zeros of f32 that start at a page."""
    page = 4096
    memory = np.zeros(4 * size + page, np.uint8)
    start = -memory.ctypes.data % page
    return memory[start : start + 4 * size].view(np.float32)


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


def measure(
    values: int,
    compilers: Sequence[Compiler] | None = None,
    repeats: int = 30,
    tiles: Sequence[tuple[int, int]] | None = None,
) -> TileCycles:
    """Return what tiles of f32 in vectors of `values` take on this machine, compiled by the best of `compilers`.

    By default these are all that there are. `tiles` are rows and vectors of those to measure; else all that matter. The
    CPU has to have the extension. It takes seconds, most of them for compiling. What lines take is not measured.
    """
    tables = [
        _measured(_Library(values, tiles or shapes(values), compiler), repeats)
        for compiler in compilers or available_compilers()
    ]
    best = tuple(min(same, key=_long) for same in zip(*(table for table, _ in tables), strict=True))
    add = min(limit for _, limit in tables)
    return attrs.evolve(TILE_CYCLES[values], tiles=best, add=round(100 * add))


def _long(tile: Tile) -> float:
    """Return the cycles of a tile of many steps, to compare compilers by."""
    return tile.step * _STEPS / 100 + (tile.start + tile.zero) / 20


def _measured(library: _Library, repeats: int) -> tuple[list[Tile], float]:
    """Return the tiles' table, and the cycles that a multiply-add without loads takes."""
    least, cycle = least_ticks(library, range(1 + 4 * len(library.programs)), repeats)
    found: list[Tile] = []
    for program in library.programs:
        few, many = program.steps
        reads, zeroes = ([least[program.first + turn + which] / cycle for turn in (0, 2)] for which in (0, 1))
        step = (reads[1] - reads[0] + zeroes[1] - zeroes[0]) / (2 * (many - few))
        starts = [(sum(times) - step * (few + many)) / 2 for times in (reads, zeroes)]
        found.append(Tile(program.rows, program.vectors, round(100 * step), *(round(10 * one) for one in starts)))
    return found, least[0] / cycle / (_SUMS * _LIMIT_STEPS)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--values", nargs="+", type=int, choices=FLAGS, default=list(FLAGS))
    parser.add_argument("--compiler", choices=[one.name for one in available_compilers()])
    parser.add_argument("--repeats", type=int, default=30)
    arguments = parser.parse_args()
    compilers = [one for one in available_compilers() if arguments.compiler in (None, one.name)]
    for values in arguments.values:
        if missing := missing_features(FEATURES[values]):
            print(f"{values} values: left out, this CPU lacks {', '.join(missing)}")
            continue
        table = measure(values, compilers, arguments.repeats)
        print(f"{values} values: a multiply-add without loads takes {table.add / 100} cycles")
        for one in table.tiles:
            share = 100 * one.rows * one.vectors * table.add / one.step
            shown = f"{one.rows}x{one.vectors * values}: {share:.0f} % of the limit"
            print(f"    ({one.rows}, {one.vectors}, {one.step}, {one.start}, {one.zero}),  # {shown}")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
