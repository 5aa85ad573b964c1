"""Measure the costs of touching lines, level by level: per line of a run, and per run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
import numpy as np
import numpy.typing as npt

from morello.calibration.meter import UnitMeter
from morello.kernels.machine import MemoryLevel

#: Lines of a run, as rows of tiles have them.
RUNS = (1, 2, 4, 8, 16, 32)
#: Lines from row to row: not a power of two, which would map to few sets of a cache.
_PITCH = RUNS[-1] + 1
#: Lines per iteration of an unrolled loop.
_UNROLLED = 16
#: Size of data read from memory, as a multiple of the largest cache.
_BEYOND = 128
#: Bytes read from a memory without caches, and at most.
_ALONE, _LARGEST = 8 << 20, 128 << 20


@attrs.frozen
class LevelFit:
    """The fitted costs of a level: `hit` for each line of a run, `miss` for each run, in units of cost.

    `points` are numbers of lines and measured costs of a run. `error` is the mean relative error of the fit.
    """

    level: str
    hit: float
    miss: float
    points: tuple[tuple[int, float], ...]

    @property
    def costs(self) -> dict[str, float]:
        """Return the costs by their keys in a profile."""
        return {"hit_cost": self.hit, "miss_cost": self.miss}

    @property
    def error(self) -> float:
        return float(np.mean([abs((self.miss + self.hit * lines) / taken - 1) for lines, taken in self.points]))


def footprint(levels: Sequence[MemoryLevel], level: MemoryLevel) -> int:
    """Return the size of data, in bytes, that is read from a level: 3/4 of a cache, or much more than all caches."""
    if level.kind == "cache":
        return level.capacity * 3 // 4
    caches = [one.capacity for one in levels if one.kind == "cache"]
    return min(_BEYOND * max(caches) if caches else _ALONE, level.capacity, _LARGEST)


def fit_levels(meter: UnitMeter, levels: Sequence[MemoryLevel]) -> list[LevelFit]:
    """Return the costs of caches and memories, fastest first."""
    fits: list[LevelFit] = []
    for level in levels:
        if level.is_register:
            continue
        points = tuple(_points(meter, footprint(levels, level), level.unit).items())
        fits.append(LevelFit(level.name, *fitted(points), points))
    return fits


def _points(meter: UnitMeter, footprint: int, unit: int) -> dict[int, float]:
    """Return the cost of a run by its number of lines, in data of `footprint` bytes."""
    rows = max(2, footprint // (unit * _PITCH))
    names = [f"touch_{lines}" for lines in RUNS]
    source = "\n".join(_touches(name, rows, lines, unit) for name, lines in zip(names, RUNS, strict=True))
    times = meter.units(source, names)
    return {lines: taken / (rows * (RUNS[-1] // lines)) for lines, taken in zip(RUNS, times, strict=True)}


def fitted(points: Sequence[tuple[int, float]], known: Sequence[float] = ()) -> tuple[float, float]:
    """Return non-negative (hit, miss) with the least squares of relative errors.

    `known` are the parts of the costs of the points that are not fitted.
    """
    lines, taken = np.array(points, dtype=float).T
    columns = np.stack([lines / taken, 1 / taken], axis=1)
    rest: npt.NDArray[np.float64] = 1 - np.array(known or [0.0] * len(points), dtype=float) / taken
    hit, miss = (float(one) for one in np.linalg.lstsq(columns, rest, rcond=None)[0])
    if miss < 0 or hit < 0:
        kept = 0 if miss < 0 else 1
        alone = max(0.0, float((columns[:, kept] * rest).sum() / (columns[:, kept] ** 2).sum()))
        hit, miss = (alone, 0.0) if kept == 0 else (0.0, alone)
    return hit, miss


def _touches(name: str, rows: int, lines: int, unit: int) -> str:
    """Return C that reads a value of every line in runs of `lines` lines, column of tiles by column."""
    body = "\n".join(_run(lines, unit))
    return f"""\
static void {name}(void *memory) {{
    for (ptrdiff_t column = 0; column < {RUNS[-1] // lines}; ++column) {{
        const unsigned char *from = (const unsigned char *)memory + column * {lines * unit};
        for (ptrdiff_t row = 0; row < {rows}; ++row, from += {_PITCH * unit}) {{
{body}
        }}
    }}
}}"""


def _run(lines: int, unit: int) -> Iterator[str]:
    """Yield volatile reads of the lines of a run, which compilers neither drop nor merge."""
    touch = "(void)*(const volatile uint64_t *)(from + {});"
    if lines <= _UNROLLED:
        yield from (f"            {touch.format(line * unit)}" for line in range(lines))
        return
    yield f"            for (ptrdiff_t line = 0; line < {lines * unit}; line += {_UNROLLED * unit}) {{"
    yield from (f"                {touch.format(f'line + {line * unit}')}" for line in range(_UNROLLED))
    yield "            }"
