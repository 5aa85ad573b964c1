"""Costs of two cores in tenths of a cycle, by LLVM's models of them: nothing here was measured.

A Cortex-A76 (and its twin for servers, Neoverse N1) starts two vector instructions and two loads a cycle, a Neoverse V1
four and three. Both pass a sum to the next multiply-add on it early: after 2 cycles for floats, 1 for dot products.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import TypeAlias

import attrs
import numpy as np
from morello_vectors import core, tile_tables
from morello_vectors.multiply_add import MultiplyAdd
from morello_vectors.tile_code import MANY_STEPS, parts_of
from morello_vectors.tile_cost import smooth_maximum

from morello.ir.dtypes import by_name
from morello.plugins import MemoryLevel, Profile, Tables
from morello.plugins.measure import Rows
from morello.plugins.profile import ALL_CPUS
from morello_aarch64_neon.matrix_tiles import MATRIX_FAMILIES, MatrixAdd, registers
from morello_aarch64_neon.multiply_adds import FAMILIES, REGISTERS, SIZE

#: By family, in hundredths of a cycle: a multiply-add that waits, one that does not, and a load, with widening.
_A76: Mapping[str, tuple[int, int, int]] = {
    "": (200, 50, 50),
    "Bf16": (200, 50, 100),
    # Conversions of four values take two cycles.
    "F16": (200, 50, 250),
    "Fp16": (200, 50, 50),
    "Dot": (100, 50, 50),
    # Neither core has them together: these are Neoverse V1's at two vector instructions a cycle.
    "Usdot": (100, 50, 50),
    "Bfdot": (200, 50, 50),
    "Mmla": (100, 50, 50),
    "Usmmla": (100, 50, 50),
    "Bfmmla": (300, 50, 50),
    # Of 16 bytes, one in two cycles.
    "Int32": (200, 200, 100),
    "Int16": (200, 200, 100),
    # Nine instructions, of which two take two cycles.
    "Pairs": (550, 550, 50),
    "F64": (200, 50, 50),
}
_V1: Mapping[str, tuple[int, int, int]] = {
    "": (200, 25, 33),
    "Bf16": (200, 25, 50),
    "F16": (200, 25, 120),
    "Fp16": (200, 25, 33),
    "Dot": (100, 25, 33),
    "Usdot": (100, 25, 33),
    "Bfdot": (200, 25, 33),
    "Mmla": (100, 25, 33),
    "Usmmla": (100, 25, 33),
    "Bfmmla": (300, 25, 33),
    "Int32": (100, 50, 50),
    "Int16": (100, 50, 50),
    "Pairs": (250, 250, 33),
    "F64": (200, 25, 33),
}
#: Rows and vectors of a tile, and in hundredths of a cycle what limits a step: latency, instructions, and loads.
_Limited: TypeAlias = tuple[tuple[int, int], tuple[int, int, int]]
#: What a vector that is not full takes more, in hundredths of a cycle: it is loaded in up to three pieces.
_TAIL = 100
#: A row of `Lines` for each of L1, L2, L3 and GL. Prefetchers hide latencies, so that a line takes its share of
#: a path of 32 bytes a cycle to L2, on the V1 of 64, and of the bandwidths of L3 and memory.
_LINES: Rows = ((0, 0, 2, 0, 0, 0), (20, 1, 10, 10, 10, 80), (40, 2, 20, 20, 60, 110), (110, 10, 100, 200, 60, 60))
_V1_LINES: Rows = ((0, 0, 2, 0, 0, 0), (10, 1, 10, 10, 10, 80), (30, 2, 20, 20, 60, 110), (60, 8, 100, 130, 60, 60))


def _tables(limits: Mapping[str, tuple[int, int, int]], lines: Rows) -> Tables:
    issue = limits[""][1]
    return tile_tables.tables(
        (*FAMILIES, *MATRIX_FAMILIES),
        lambda adds, size: (*limits[adds.name], _TAIL),
        lines,
        lambda adds, size: _tiles(adds, *limits[adds.name], issue),
    )


def _tiles(adds: MultiplyAdd, latency: int, add: int, load: int, issue: int) -> Rows:
    """Return the costs of a family's tiles. To start, they take for each vector of sums what they do on Zen 5.

    Blocks of two rows and columns take two tenths of a cycle more, for what puts them in the order of memory.
    """
    limited = _of_matrices if isinstance(adds, MatrixAdd) else _of_vectors
    tiles, limits = zip(*limited(adds, latency, add, load, issue), strict=True)
    steps = np.rint(smooth_maximum(*np.array(limits).T)).astype(np.int64).tolist()
    start, zero = (7, 3) if isinstance(adds, MatrixAdd) else (5, 1)
    return tuple((m, n, step, start * m * n, zero * m * n) for (m, n), step in zip(tiles, steps, strict=True))


def _of_matrices(adds: MultiplyAdd, latency: int, add: int, load: int, issue: int) -> Iterator[_Limited]:
    """Yield tiles of blocks of sums, and what limits their steps: a vector instruction puts two rows together."""
    for rows, vectors in product(range(2, 15, 2), range(1, 11)):
        if registers(rows, vectors) <= REGISTERS:
            yield (rows, vectors), (latency, add * rows * vectors + issue * rows // 2, load * (rows + 2 * vectors))


def _of_vectors(adds: MultiplyAdd, latency: int, add: int, load: int, issue: int) -> Iterator[_Limited]:
    """Yield tiles of vectors of sums, and what limits their steps.

    Where multiply-adds take elements of vectors of the left-hand side, one load is for several steps or rows; elsewhere
    each value takes a load that repeats it, which is a vector instruction too.
    """
    lanes = adds.in_lanes(SIZE, [by_name(one) for one in adds.types[0]])
    for rows, vectors in product(range(1, 15), range(1, 11)):
        sums = rows * vectors
        if sums + vectors + 1 + adds.temporaries > REGISTERS:
            continue
        parts = int(parts_of(sums, MANY_STEPS)) if adds.in_parts else 1
        elements = lanes.elements((parts * rows + 1) * vectors + adds.temporaries + rows)
        each, repeated = (elements, 0) if elements else (1, rows)
        limits = latency // parts, add * sums + issue * repeated, load * vectors + load * rows // each
        yield (rows, vectors), limits


TABLES = _tables(_A76, _LINES)


def levels() -> tuple[MemoryLevel, ...]:
    """Return the levels of a Cortex-A76 of 64 KiB of L1, 512 KiB of L2 and a share of an L3 of 4 MiB.

    As on x86-64, the rest of L1 and L2 is for what streams by.
    """
    changed = {
        "L1": {"capacity": 48 << 10},
        "L2": {"capacity": 256 << 10, "hit_cost": 20, "miss_cost": 10},
        "L3": {"capacity": 2 << 20, "hit_cost": 40, "miss_cost": 10, "start_cost": 300},
        "GL": {"hit_cost": 110, "miss_cost": 200},
    }
    return tuple(attrs.evolve(one, **changed.get(one.name, {})) for one in core.levels(REGISTERS, (SIZE,)))


def profiles(target: str) -> tuple[Profile, ...]:
    """Return the profiles of both cores."""
    return (
        Profile(
            name="cortex_a76",
            target=target,
            description="as declared, by LLVM's model of the Cortex-A76, with the threads of the machine",
            cpus=("neoverse_n1", "aarch64"),
            weights={"threads": ALL_CPUS},
        ),
        Profile(
            name="neoverse_v1",
            target=target,
            description="by LLVM's model of the Neoverse V1, with the threads of the machine",
            cpus=("neoverse_v1",),
            mhz=2600,
            weights={"threads": ALL_CPUS},
            levels={
                "L2": {"capacity": 512 << 10, "hit_cost": 10, "miss_cost": 5},
                "L3": {"capacity": 16 << 20, "hit_cost": 30, "miss_cost": 5},
                "GL": {"hit_cost": 60, "miss_cost": 130},
            },
            tables=_tables(_V1, _V1_LINES),
        ),
    )
