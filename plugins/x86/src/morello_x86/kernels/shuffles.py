"""Transposes of vectors r0, r1, … in registers into an array c: squares, and two rows into pairs."""

from __future__ import annotations

from morello.ir.dtypes import F32, DType
from morello_x86.kernels.spelling import INTEGER_VECTOR, PREFIX

#: How unpacking instructions call values of that many bytes.
_UNITS = {1: "epi8", 2: "epi16", 4: "epi32"}


def square(dtype: DType, size: int) -> str:
    """Return C that transposes a square of `size` rows."""
    floats = {4: _transpose_4, 8: _transpose_8}
    return floats[size]() if dtype == F32 and size in floats else _transpose(size * dtype.bytes, dtype.bytes)


def _transpose_4() -> str:
    """Interleave pairs of rows, then join halves."""
    rows = ["    const __m128 t0 = _mm_unpacklo_ps(r0, r1), t1 = _mm_unpackhi_ps(r0, r1);"]
    rows.append("    const __m128 t2 = _mm_unpacklo_ps(r2, r3), t3 = _mm_unpackhi_ps(r2, r3);")
    joins = ["_mm_movelh_ps(t0, t2)", "_mm_movehl_ps(t2, t0)", "_mm_movelh_ps(t1, t3)", "_mm_movehl_ps(t3, t1)"]
    return "\n".join([*rows, *(f"    c[{i}] = {join};" for i, join in enumerate(joins))])


def _transpose_8() -> str:
    """Transpose 2×2, then 4×4 in each half, then swap halves: 8 shuffles a stage."""
    rows: list[str] = []
    for i in range(0, 8, 2):
        for j, half in enumerate(("lo", "hi")):
            rows.append(f"    const __m256 t{i + j} = _mm256_unpack{half}_ps(r{i}, r{i + 1});")
    for i in range(0, 8, 4):
        for j in range(2):
            for k, mask in enumerate(("0x44", "0xEE")):
                rows.append(f"    const __m256 u{i + 2 * j + k} = _mm256_shuffle_ps(t{i + j}, t{i + j + 2}, {mask});")
    for i in range(8):
        rows.append(f"    c[{i}] = _mm256_permute2f128_ps(u{i % 4}, u{i % 4 + 4}, {'0x20' if i < 4 else '0x31'});")
    return "\n".join(rows)


def _transpose(size: int, width: int) -> str:
    """Return C that transposes a square of vectors of `size` bytes whose values have `width`.

    First, halves of vectors change places with rows further down, until each lane of 16 bytes is transposed for
    itself: interleaving row i with row i + n/2, log2(n) times, transposes the n×n values of a lane.
    """
    names = [f"({INTEGER_VECTOR[size]})r{i}" for i in range(size // width)]
    lines: list[str] = []
    groups = _by_lanes(names, size, lines)
    columns = [name for group in groups for name in _interleave_lanes(group, size, width, lines)]
    return "\n".join([*lines, *(f"    c[{i}] = ({{kind}}){name};" for i, name in enumerate(columns))])


def _by_lanes(rows: list[str], size: int, lines: list[str]) -> list[list[str]]:
    """Return rows that hold lane 0 of row i, of row i + n, ..., then those with lane 1, and so on; n rows per group."""
    count = len(rows) * 16 // size

    def joined(first: str, second: str, which: str, call: str) -> str:
        name = f"h{len(lines)}"
        lines.append(f"    const {INTEGER_VECTOR[size]} {name} = {call}({first}, {second}, {which});")
        return name

    if size == 16:
        return [rows]
    if size == 32:
        call = "_mm256_permute2x128_si256"
        return [[joined(rows[i], rows[i + count], which, call) for i in range(count)] for which in ("0x20", "0x31")]
    groups: list[list[str]] = []
    halves: dict[tuple[int, int, str], str] = {}
    call = "_mm512_shuffle_i64x2"
    for lane in range(4):
        group: list[str] = []
        for i in range(count):
            which = "0x44" if lane < 2 else "0xee"
            for low in (0, 2):
                key = (i, low, which)
                if key not in halves:
                    halves[key] = joined(rows[i + low * count], rows[i + (low + 1) * count], which, call)
            low, high = (halves[i, first, which] for first in (0, 2))
            group.append(joined(low, high, "0xdd" if lane % 2 else "0x88", call))
        groups.append(group)
    return groups


def _interleave_lanes(rows: list[str], size: int, width: int, lines: list[str]) -> list[str]:
    """Return the square in each lane, transposed."""
    count = len(rows)
    for _ in range(count.bit_length() - 1):
        interleaved: list[str] = []
        for i in range(count // 2):
            for half in ("lo", "hi"):
                name = f"t{len(lines)}"
                call = f"{PREFIX[size]}_unpack{half}_{_UNITS[width]}({rows[i]}, {rows[i + count // 2]})"
                lines.append(f"    const {INTEGER_VECTOR[size]} {name} = {call};")
                interleaved.append(name)
        rows = interleaved
    return rows


def pairs(size: int, width: int) -> str:
    """Return pairs of the values of two rows: unpacking makes them in each lane of 16 bytes."""
    kind, prefix = INTEGER_VECTOR[size], PREFIX[size]
    lines = [
        f"    const {kind} {half} = {prefix}_unpack{half}_{_UNITS[width]}(({kind})r0, ({kind})r1);"
        for half in ("lo", "hi")
    ]
    if size == 16:
        joined = ["lo", "hi"]
    elif size == 32:
        joined = [f"_mm256_permute2x128_si256(lo, hi, {which})" for which in ("0x20", "0x31")]
    else:
        orders = ("11, 10, 3, 2, 9, 8, 1, 0", "15, 14, 7, 6, 13, 12, 5, 4")
        joined = [f"_mm512_permutex2var_epi64(lo, _mm512_set_epi64({order}), hi)" for order in orders]
    return "\n".join([*lines, *(f"    c[{i}] = ({{kind}}){name};" for i, name in enumerate(joined))])
