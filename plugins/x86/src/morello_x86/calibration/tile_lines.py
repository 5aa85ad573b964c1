"""Measure what lines of each level cost register tiles of f32: streaming under their sums, and what sums do not hide.

Tiles walk through one operand after another, as programs do, while all else stays in L1. Each case is timed for tiles
of one row, which wait for their lines, and for tall ones, which wait for their sums; some read a line of each row of
the right-hand side, and some more.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
from morello_vectors.core import LINE
from morello_vectors.tile_code import Matrix, TilePrinter
from morello_vectors.tile_cost import PAGE_BYTES, Lines, smooth_maximum

from morello.ir.index import as_index
from morello.plugins import Meter
from morello_x86.calibration.tile_times import lanes_of
from morello_x86.kernels.multiply_adds import F32_FMA

#: Rows and vectors of tiles, by bytes of a vector.
_TILES = {32: ((1, 2), (6, 2)), 64: ((1, 1), (14, 1), (1, 3), (8, 3))}
#: Steps of k.
_STEPS = 128
#: Bytes of a walk, by level. A walk through L1 is one tile, again and again.
_WALKED = {"L1": 0, "L2": 384 << 10, "L3": 6 << 20, "GL": 96 << 20}
#: Bytes before them that stay in L1.
_NEAR = 40 << 10
#: Bytes between rows, by the field of `Lines` that they measure: no power of two, half a page, and a page.
_PITCHES = {"apart": 33 * LINE, "half_page": PAGE_BYTES // 2, "page": PAGE_BYTES}
#: Calls on the same tile.
_AGAIN = 64
#: Tenths of a cycle that are tried.
_STREAMS, _RUNS, _SPACED = np.arange(0, 151), np.arange(0, 41), np.arange(0, 801)


#: A cost, or those that are tried.
_Tried: TypeAlias = int | npt.NDArray[np.int64]
_Costs: TypeAlias = npt.NDArray[np.float64]


@attrs.frozen
class Case:
    """A tile that walks through one operand: a row of the left-hand side, columns of the right-hand one, or its sums.

    `walks` names the operand. Its rows lie `pitch` bytes apart, or are adjacent if that is 0. A walk covers `walked`
    bytes.
    """

    name: str
    rows: int
    vectors: int
    walks: str
    pitch: int = 0
    walked: int = 0


@attrs.frozen
class Taken:
    """Tenths of a cycle of a call, measured and with all operands in L1, and the runs of lines that it read."""

    case: Case
    time: float
    near: float
    runs: int
    lines: int


class Walks:
    """The C of all cases in vectors of `size` bytes."""

    def __init__(self, size: int):
        self.lanes = lanes_of(F32_FMA, size)

    def columns(self, case: Case) -> int:
        return case.vectors * self.lanes.values

    def shape(self, case: Case) -> tuple[int, int]:
        """Return the runs of lines that a call walks over, and the lines of each."""
        across, along = self.columns(case) * 4, _STEPS * 4
        rows, width = {"rhs": (_STEPS, across), "lhs": (case.rows, along), "out": (case.rows, across)}[case.walks]
        return (rows, -(-width // LINE)) if case.pitch or case.walks != "rhs" else (1, rows * width // LINE)

    def calls(self, case: Case) -> int:
        """Return how many tiles a walk has."""
        if not case.walked:
            return _AGAIN
        runs, lines = self.shape(case)
        return max(1, case.walked // (runs * max(case.pitch, lines * LINE))) * self._across(case)

    def _across(self, case: Case) -> int:
        """Return how many tiles lie side by side before the next rows come."""
        return max(1, case.pitch // (self.shape(case)[1] * LINE))

    def function(self, case: Case) -> str:
        """Return a C function that walks through memory."""
        numbers = itertools.count()
        tile = TilePrinter(
            rows=case.rows,
            columns=self.columns(case),
            steps=_STEPS,
            lanes=self.lanes,
            accumulate=True,
            fresh=lambda like: f"{like}_{next(numbers)}",
        )
        runs, lines = self.shape(case)
        values, across = lines * LINE // 4, self._across(case)
        pitch = case.pitch // 4 or values
        names = {name: f"near + {place}" for name, place in (("lhs", 0), ("rhs", 2048), ("out", 8192))}
        strides = {"lhs": _STEPS, "rhs": self.columns(case), "out": self.columns(case)}
        if case.walked or case.pitch:
            place = f"tile / {across} * {runs * pitch} + tile % {across} * {values}" if case.walked else "0"
            names[case.walks] = f"far + {place}"
            strides[case.walks] = pitch if case.pitch or case.walks != "rhs" else self.columns(case)
        a, b, c = (Matrix(names[name], as_index(strides[name])) for name in ("lhs", "rhs", "out"))
        body = "\n".join(f"        {line}" for line in tile.lines(a, b, c))
        return f"""\
static void {case.name}(void *memory) {{
    float *const near = memory, *const far = near + {_NEAR // 4};
    (void)far;
    for (ptrdiff_t tile = 0; tile < {self.calls(case)}; ++tile) {{
{body}
    }}
}}"""


def cases_of(size: int) -> dict[str, list[Case]]:
    """Return the cases of each level."""
    found: dict[str, list[Case]] = {}
    for level, walked in _WALKED.items():
        own = found.setdefault(level, [])
        for rows, vectors in _TILES[size]:
            name = f"{level}_{rows}x{vectors}"
            own.append(Case(name, rows, vectors, "rhs", 0, walked))
            own += [Case(f"{name}_{which}", rows, vectors, "rhs", pitch, walked) for which, pitch in _PITCHES.items()]
            if rows > 1:
                pitch = _PITCHES["apart"]
                own += [Case(f"{name}_{which}", rows, vectors, which, pitch, walked) for which in ("lhs", "out")]
    return found


def measure(size: int, meter: Meter) -> Mapping[str, Lines]:
    """Return what lines of each level cost tiles in vectors of `size` bytes on this machine."""
    walks = Walks(size)
    cases = cases_of(size)
    every = list(itertools.chain(*cases.values()))
    source = "\n".join(["#include <immintrin.h>", "#include <stddef.h>", *map(walks.function, every)])
    times = meter.units(source, [case.name for case in every])
    calls = {case: time / walks.calls(case) for case, time in zip(every, times, strict=True)}
    near = {tile: calls[Case(f"L1_{tile[0]}x{tile[1]}", *tile, "rhs")] for tile in _TILES[size]}
    taken = {one: Taken(one, calls[one], near[one.rows, one.vectors], *walks.shape(one)) for one in every}
    found = {level: _fitted([taken[one] for one in own]) for level, own in cases.items()}
    # Tables of tiles have the cost with all in L1, except for rows that evict one another.
    return {**found, "L1": found["L1"]._replace(stream=0, run=0, out=0)}


def _fitted(taken: Sequence[Taken]) -> Lines:
    """Return the costs of a level's lines that reproduce the measured times best."""

    def those(walks: str, pitch: str = "") -> list[Taken]:
        return [one for one in taken if (one.case.walks, one.case.pitch) == (walks, _PITCHES.get(pitch, 0))]

    tried = np.meshgrid(_STREAMS, _RUNS, indexing="ij")
    stream, run = _least([*those("rhs"), *those("lhs", "apart")], lambda one: reading(one, *tried, 0, 0), *tried)
    (apart,) = _least(those("rhs", "apart"), lambda one: reading(one, stream, run, _SPACED, 0), _SPACED)
    half_page, page = (
        *_least(those("rhs", "half_page"), lambda one: reading(one, stream, run, apart, _SPACED), _SPACED),
        *_least(those("rhs", "page"), lambda one: reading(one, stream, run, apart, _SPACED), _SPACED),
    )
    written = np.mean([(one.time - one.near) / (2 * one.runs * one.lines) for one in those("out", "apart")])
    out = max(0, round(float(written)))
    return Lines(stream=stream, run=run, apart=apart, out=out, half_page=half_page, page=page)


def reading(one: Taken, stream: _Tried, run: _Tried, apart: _Tried, spaced: _Tried) -> _Costs:
    """Return the tenths of a cycle of a call with such costs: see `tile_cost`."""
    lines, short = one.runs * one.lines, max(PAGE_BYTES // LINE - one.lines, 0)
    hidden = lines * stream + one.runs * spaced * short // (PAGE_BYTES // LINE)
    friction = lines * run + (one.runs - 1) * apart * short // (PAGE_BYTES // LINE)
    return smooth_maximum(np.asarray(round(one.near)), hidden) + friction


def _least(
    seen: Sequence[Taken], predicted: Callable[[Taken], _Costs], *tried: npt.NDArray[np.int64]
) -> tuple[int, ...]:
    """Return the costs, among those tried, whose relative errors have the least squares."""
    errors = np.sum([np.square(predicted(one) / one.time - 1) for one in seen], axis=0)
    best = np.unravel_index(int(np.argmin(errors)), np.shape(errors))
    return tuple(int(one[best]) for one in tried)
