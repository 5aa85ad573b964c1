"""Measure the tables of register tiles on this machine, and print them as `morello_x86.kernels.tile_rows` has them.

python -m tools.tile_cycles [--bytes 32 64] [--family Vpdpbusd] [--compiler gcc] [--repeats 40]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from morello_vectors.multiply_add import Lanes
from morello_vectors.tile_cost import TileTimes
from morello_x86.calibration.peak import FEATURES
from morello_x86.calibration.tile_times import lanes_of, measure
from morello_x86.kernels.multiply_adds import MULTIPLY_ADDS

from morello.build.library import build
from morello.build.toolchain import Compiler, available_compilers
from morello.host import missing_features

REGISTERS = {32: 16, 64: 32}
#: Steps of k, to compare compilers by.
_STEPS = 256


def shapes(lanes: Lanes) -> list[tuple[int, int]]:
    """Return the tiles to measure, as rows and vectors; of tall ones, which differ little, a few."""
    found: list[tuple[int, int]] = []
    for vectors in range(1, 9):
        most = (REGISTERS[lanes.size] - 1 - lanes.adds.temporaries) // vectors - 1
        found += [(rows, vectors) for rows in range(1, most + 1) if rows <= 14 or rows % 4 == 0 or rows == most]
    return found


def _long(tile: TileTimes) -> float:
    """Return the cycles of a tile of many steps."""
    return tile.step * _STEPS / 100 + (tile.start + tile.zero) / 20


def _build(compiler: Compiler, source: str, flags: Sequence[str]) -> Path:
    return build({"tiles.c": source}, flags, compiler)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", nargs="+", type=int, choices=MULTIPLY_ADDS, default=list(MULTIPLY_ADDS))
    parser.add_argument("--family", nargs="+", help="as kernels' names end, f32 for the plain ones; all by default")
    parser.add_argument("--compiler", choices=[one.name for one in available_compilers()])
    parser.add_argument("--repeats", type=int, default=30)
    arguments = parser.parse_args()
    compilers = [one for one in available_compilers() if arguments.compiler in (None, one.name)]
    families = [(size, adds) for size in arguments.bytes for adds in MULTIPLY_ADDS[size] if adds.lanes]
    for size, adds in families:
        name = adds.name or "f32"
        if arguments.family and name not in arguments.family:
            continue
        if missing := missing_features((*FEATURES[size], *adds.cpu_features)):
            print(f"{name} in {size} bytes: left out, this CPU lacks {', '.join(missing)}")
            continue
        lanes = lanes_of(adds, size)
        tables = [measure(adds, size, partial(_build, one), arguments.repeats, shapes(lanes)) for one in compilers]
        add = min(table.add for table in tables)
        print(f"{name} in {size} bytes: a multiply-add without loads takes {add / 100} cycles")
        for same in zip(*(table.tiles for table in tables), strict=True):
            one = min(same, key=_long)
            share = 100 * one.rows * one.vectors * add / one.step
            shown = f"{one.rows}x{one.vectors * lanes.values}: {share:.0f} % of the limit"
            print(f"    ({one.rows}, {one.vectors}, {one.step}, {one.start}, {one.zero}),  # {shown}")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
