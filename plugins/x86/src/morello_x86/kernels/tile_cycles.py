"""Cycles of register tiles on the machine that the shipped costs are for: a core of Zen 5 with AVX-512.

`python -m morello_x86_testing.tile_cycles` measures such tables. Each row is the better one of gcc 12 and clang 14.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import starmap

from morello_x86.kernels.multiply_add import MULTIPLY_ADDS, NARROW, MultiplyAdd, families
from morello_x86.kernels.tile_cost import Lines, TileCycles, TileTimes
from morello_x86.kernels.tile_families import LIMITS, ROWS

#: By bytes of a vector and memory level, where GL is L3. Rows at other distances than multiples of a page take next to
#: nothing. Wide tiles read two lines of a row and more, and fetch those ahead that are a page apart: 8×48 and 4×64 take
#: 0 to 6 tenths of a cycle longer a step from L2 than from L1, and 2 to 9 from L3.
LEVEL_LINES = {
    size: {
        "L1": Lines(stream=0, run=0, apart=2, out=0, half_page=0, page=0),
        "L2": Lines(stream=14, run=1, apart=near, out=10, half_page=10, page=80),
        "GL": Lines(stream=25, run=2, apart=far, out=60, half_page=half, page=page),
    }
    for size, near, far, half, page in ((32, 10, 20, 60, 110), (64, 1, 3, 20, 50))
}

# fmt: off
#: Rows, vectors, hundredths of a cycle for a step of k, and tenths to start: reading sums, and with sums of 0.
_AVX2 = (
    (1, 1, 102, 11, -4), (2, 1, 152, 33, 31), (3, 1, 215, -7, -69), (4, 1, 254, 49, 29), (5, 1, 304, 58, 39),
    (6, 1, 411, -157, -188), (7, 1, 465, -166, -117), (8, 1, 460, 81, 50), (9, 1, 515, 55, 30),
    (10, 1, 622, -109, -86), (11, 1, 663, 119, 25), (12, 1, 741, 106, 56), (13, 1, 771, 123, -15),
    (14, 1, 799, 103, -16), (1, 2, 152, 22, 11), (2, 2, 231, -7, -18), (3, 2, 304, 6, 1), (4, 2, 468, -93, -65),
    (5, 2, 528, -15, -29), (6, 2, 610, -10, 16), (1, 3, 207, 4, -15), (2, 3, 405, 47, 21), (3, 3, 495, -16, -9),
    (4, 3, 610, 3, 10), (1, 4, 254, 34, 13), (2, 4, 459, 15, -29), (1, 5, 304, 47, 19), (2, 5, 530, -45, -6),
    (1, 6, 355, 51, 20), (1, 7, 435, -11, -32),
)
_AVX512 = (
    (1, 1, 102, 33, 30), (2, 1, 153, 39, 31), (3, 1, 211, 4, -7), (4, 1, 254, 73, 50), (5, 1, 304, 78, 58),
    (6, 1, 354, 66, 57), (7, 1, 446, -89, -52), (8, 1, 460, 70, 56), (9, 1, 512, 81, 47), (10, 1, 568, 80, 1),
    (11, 1, 617, 87, 52), (12, 1, 667, 120, 64), (13, 1, 725, 115, -53), (14, 1, 772, 88, 82), (16, 1, 879, 154, 20),
    (20, 1, 1094, 190, 103), (24, 1, 1294, 286, 55), (28, 1, 1527, 14, 122), (30, 1, 1623, 199, 58),
    (1, 2, 158, -9, 48), (2, 2, 228, -11, 3), (3, 2, 304, 2, 5), (4, 2, 461, -26, -27), (5, 2, 540, -34, -12),
    (6, 2, 622, 6, -4), (7, 2, 724, 29, 18), (8, 2, 822, 76, 19), (9, 2, 925, 147, 8), (10, 2, 1028, 163, 19),
    (11, 2, 1135, 233, -3), (12, 2, 1230, 292, 95), (13, 2, 1319, 427, 151), (14, 2, 1429, 473, 251),
    (1, 3, 203, 67, 48), (2, 3, 305, 14, 6), (3, 3, 506, -16, -33), (4, 3, 613, 26, 5), (5, 3, 764, 35, 14),
    (6, 3, 919, 166, 2), (7, 3, 1072, 223, 33), (8, 3, 1226, 362, 72), (9, 3, 1398, 283, 124), (1, 4, 253, 76, 55),
    (2, 4, 454, -32, 0), (3, 4, 616, 27, 10), (4, 4, 820, 54, 3), (5, 4, 1024, 288, 36), (6, 4, 1226, 289, 69),
    (1, 5, 305, 73, 51), (2, 5, 526, 15, 2), (3, 5, 765, 101, 45), (4, 5, 1030, 259, 28), (5, 5, 1267, 371, 75),
    (1, 6, 352, 89, 65), (2, 6, 617, 19, 8), (3, 6, 928, 210, 29), (4, 6, 1230, 297, 62), (1, 7, 427, 32, 14),
    (2, 7, 720, 67, 15), (3, 7, 1091, 258, 29), (1, 8, 463, 64, 31), (2, 8, 809, 129, 60),
)
# fmt: on

_ROWS = {
    **ROWS,
    ("", 32): _AVX2,
    ("", 64): _AVX512,
    (NARROW.name, 32): tuple(row for row in _AVX2 if row[1] == 1),
}


def _cycles(adds: MultiplyAdd, size: int) -> TileCycles:
    latency, add, load = LIMITS.get((adds.name, size), (400, 51, 50))
    return TileCycles(
        values=size // adds.sum_bytes,
        taken=adds.taken,
        tiles=tuple(starmap(TileTimes, _ROWS[adds.name, size])),
        latency=latency,
        add=add,
        load=load,
        mask=50 if size == 32 else 0,
        levels=LEVEL_LINES[size],
        in_parts=adds.in_parts,
    )


#: By multiply-add and bytes of a vector.
TILE_CYCLES: Mapping[tuple[str, int], TileCycles] = {
    (adds.name, size): _cycles(adds, size) for widest in MULTIPLY_ADDS for adds, size in families(widest)
}
