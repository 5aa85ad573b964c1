"""Costs of register tiles in tenths of a cycle, from what their steps and the lines they read take on a machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import NamedTuple

import attrs
import numpy as np
import numpy.typing as npt

from morello.ir.numbers import Num, ceil_div, choose
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import TensorSpec
from morello.kernels.microkernel import Cost
from morello.plugins import Combined, Machine
from morello_vectors.common import HALF_CYCLE
from morello_vectors.core import LINE
from morello_vectors.tile_code import MANY_STEPS, parts_of

#: Rows and vectors past which tables do not go.
_MOST = 32
#: Lines of a page.
_PAGE = 64
PAGE_BYTES = _PAGE * LINE
#: Lines that L1 keeps in one set, and what a line of the left-hand side takes that it does not keep. Measured on a core
#: of Zen 5: 16 rows 8 KiB apart take 7 cycles a line longer than 8, or than rows at other distances.
_ROWS, _EVICTED = 8, 50
#: The dimension of columns.
_COLUMN = 2
#: Steps of k that two calls overlap in at least: what starts a tile is never hidden altogether.
_CALL = 60
#: What reading sums that the call before stored takes, and steps of k that come behind it at most in the least cost.
_FORWARDED, _FEW = 80, 4


#: What an operand takes: what overlaps with computing, and what does not.
Taken = tuple[Num, Num]


class TileTimes(NamedTuple):
    """Cost of a tile of `rows`×`vectors`: hundredths of a cycle for a step of k, and tenths of a cycle to start.

    `start` is for tiles that read their sums, `zero` for those whose sums start at 0. It is negative where steps wait
    for the sums of the step before and the next tile's fill the time.
    """

    rows: int
    vectors: int
    step: int
    start: int
    zero: int


class Lines(NamedTuple):
    """Cost of a cache line from one level, in tenths of a cycle.

    `stream` overlaps with the sums, and so does `half_page` or `page` for each run of lines where runs lie a multiple
    of that apart: they go to few sets of the caches. Not hidden are `run` for each line, `apart` for each run after the
    first, and `out` for lines of the output, once for reading and once for writing. Runs of a page or
    more are as good as one, as prefetchers stop at the end of a page.
    """

    stream: int
    run: int
    apart: int
    out: int
    half_page: int
    page: int

    def spaced(self, spacing: int) -> int:
        """Return what a run takes for the distance of runs alone, in bytes."""
        return self.page if spacing == PAGE_BYTES else self.half_page if spacing else 0


@attrs.frozen(kw_only=True)
class TileCycles:
    """Costs of register tiles on one machine in vectors of `values` sums; a step takes `taken` values along k.

    `tiles` are those that were measured. For the others there are `latency` and `add`, of a multiply-add that waits
    for the one before and of one that does not, and `load`, all in hundredths of a cycle. `mask` is what loading a
    vector that is not full adds to a step. Few sums are kept `in_parts`. `levels` say what lines take, and `start` what
    each operand takes besides: the start cost of its level.
    """

    values: int
    tiles: tuple[TileTimes, ...]
    latency: int
    add: int
    load: int
    mask: int
    levels: Mapping[str, Lines]
    start: Mapping[str, int]
    taken: int = 1
    in_parts: bool = False

    def add_in(self, *, whole: bool) -> int:
        """Return the hundredths of a cycle of a multiply-add in a whole vector, or in half of one: a half cycle."""
        return self.add if whole else min(self.add, 10 * HALF_CYCLE)

    @cached_property
    def _steps(self) -> npt.NDArray[np.int64]:
        """Hundredths of a cycle by rows and vectors: those measured, else the smooth maximum of what limits a step."""
        rows, vectors = np.meshgrid(*[np.arange(_MOST)] * 2, indexing="ij")
        limits = self.add * rows * vectors, self.load * (rows + vectors)
        parts = parts_of(rows * vectors, MANY_STEPS) if self.in_parts else 1
        steps = smooth_maximum(np.full_like(rows, self.latency) // parts, *limits).astype(np.int64)
        for one in self.tiles:
            steps[one.rows, one.vectors] = one.step
        return steps

    @cached_property
    def _starts(self) -> npt.NDArray[np.int64]:
        """Tenths of a cycle by whether sums start at 0, rows and vectors; those of tiles not measured are 0."""
        starts = np.zeros((2, _MOST, _MOST), np.int64)
        for one in self.tiles:
            starts[:, one.rows, one.vectors] = one.start, one.zero
        return starts

    def step_of(self, rows: int, vectors: int) -> int:
        """Return the hundredths of a cycle of a step of a tile."""
        return int(self._steps[min(rows, _MOST - 1), min(vectors, _MOST - 1)])

    def start_of(self, zero: bool, rows: int, vectors: int) -> int:
        """Return the tenths of a cycle that a tile takes to start, at sums of 0 or those of the output."""
        return max(_CALL, int(self._starts[int(zero), min(rows, _MOST - 1), min(vectors, _MOST - 1)]))

    def writing(self, spec: LogicalSpec, index: int = 2) -> Taken:
        """Return what the lines of the output take: they are read as well, unless sums start at 0."""
        in_memory = self.levels.get(spec.states[index].level)
        if in_memory is None or not in_memory.out:
            return 0, 0
        return 0, spec.operand(index).lines(LINE) * in_memory.out * (1 if _starts_at_zero(spec) else 2)

    def sums(self, spec: LogicalSpec, m: Num, k: Num, n: Num) -> npt.NDArray[np.int64]:
        """Return the cost of a tile of m rows, k steps and n columns whose operands are in L1."""
        zero = _starts_at_zero(spec)
        steps = ceil_div(k, self.taken)
        vectors = ceil_div(n, self.values)
        entry = np.minimum(m, _MOST - 1), np.minimum(vectors, _MOST - 1)
        step = self._steps[entry] + choose(n % self.values != 0, self.mask, 0)
        floor = _CALL + steps * m * vectors * self.add // 10
        if not zero:
            # Calls that split k further add to the same sums, one after the other.
            floor = np.maximum(floor, _FORWARDED + np.minimum(steps, _FEW) * self.latency // 10)
        return np.maximum(steps * step // 10 + self._starts[(zero, *entry)], floor)

    def reading(self, spec: LogicalSpec, index: int) -> Taken:
        """Return the tenths of a cycle that reading an operand takes: what overlaps with sums, and what does not."""
        operand, state = spec.operand(index), spec.states[index]
        read = self._reading(operand, state.level)
        if state.spacing == PAGE_BYTES and state.level == "L1":
            # Of rows so far apart a set keeps few: where there are more, all come from L2 each time.
            evicted = operand.runs > _ROWS
            again = self._reading(operand, "L2")
            read = choose(evicted, again[0], read[0]), choose(evicted, again[1], read[1])
        return read

    def reading_rows(self, spec: LogicalSpec, index: int = 0) -> Taken:
        """Return the same of the left-hand side of matrices, whose rows may evict one another.

        They do where many are read side by side whose distance is a multiple of a page's size: also those of a
        contiguous matrix as long as that.
        """
        stream, friction = self.reading(spec, index)
        lhs, state = spec.operand(index), spec.states[index]
        by_rows = state.layout is not None and [one.dim for one in state.layout.dims[-1:]] == [_COLUMN]
        if state.level == "L1" or not by_rows or not (state.contiguous or state.spacing == PAGE_BYTES):
            return stream, friction
        _, m, k = lhs.shape
        apart = k * state.dtype.bytes % PAGE_BYTES == 0 if state.contiguous else True
        return stream, friction + choose((m > _ROWS) & apart, lhs.lines(LINE) * _EVICTED, 0)

    def _reading(self, operand: TensorSpec, level: str) -> Taken:
        """Return what the runs of an operand take from a level: what overlaps with sums, and what does not."""
        lines = self.levels[level]
        spaced = lines.spaced(operand.state.spacing)
        if not (lines.stream or lines.run or lines.apart or spaced or self.start[level]):
            return 0, 0
        runs, long = operand.runs, operand.lines_of_run(LINE)
        short = np.maximum(_PAGE - long, 0)
        stream = runs * long * lines.stream + runs * spaced * short // _PAGE
        return stream, self.start[level] + runs * long * lines.run + (runs - 1) * lines.apart * short // _PAGE


def cost_of_tiles(cycles: Callable[[Machine], TileCycles]) -> Combined:
    """Return the cost of a tile of a product of matrices."""
    return overlapping(
        lambda spec, machine: cycles(machine).sums(spec, *spec.shape[1:]),
        lambda spec, machine: cycles(machine).reading_rows(spec),
        lambda spec, machine: cycles(machine).reading(spec, 1),
        lambda spec, machine: cycles(machine).writing(spec),
    )


def overlapping(computing: Cost, *operands: Callable[[LogicalSpec, Machine], Taken]) -> Combined:
    """Return a cost: computing takes its time while operands are read and written, save for some friction."""
    return Combined(_overlapped, (computing, *operands))


def _overlapped(computing: Num, *taken: Taken) -> Num:
    overlapping = sum(stream for stream, _ in taken)
    total = np.rint(smooth_maximum(computing, overlapping)).astype(np.int64) + sum(friction for _, friction in taken)
    return total if total.ndim else int(total)


def _starts_at_zero(spec: LogicalSpec) -> int:
    """Return 1 where sums start at 0: those in registers are not read either."""
    return int(spec.states[2].vector is not None or not getattr(spec.op, "accumulate", False))


def smooth_maximum(*terms: Num) -> npt.NDArray[np.float64]:
    """Return the root of the sum of eighth powers: roots of squares are the same on every machine, others are not."""
    total = np.zeros(())
    for term in terms:
        squared = np.square(np.asarray(term, np.float64))
        total = total + np.square(np.square(squared))
    return np.sqrt(np.sqrt(np.sqrt(total)))
