"""Transposes of squares of 32-bit floats within vector registers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from morello.codegen.site import KernelSite
from morello.ir.ops.move import Move
from morello.ir.spec import LogicalSpec
from morello.plugins import LayoutRule, Microkernel, OperandPattern


def _transpose(size: int):
    """Registers hold rows of the source and columns of the output."""

    def emit(site: KernelSite) -> None:
        rows = site.operand(0).vectors()
        columns = site.operand(1).vectors()
        kind = site.vector_type(site.spec.states[0].dtype, size)
        name = f"transpose_{kind}"
        parameters = ", ".join([*(f"{kind} r{i}" for i in range(size)), f"{kind} c[{size}]"])
        helper = site.helper(name, f"static inline void {name}({parameters}) {{\n{_SHUFFLES[size]}\n}}")
        result = site.fresh("columns")
        site.line(f"{kind} {result}[{size}];")
        site.line(f"{helper}({', '.join(rows)}, {result});")
        for i, column in enumerate(columns):
            site.line(f"{column} = {result}[{i}];")

    return emit


def _transpose_4() -> str:
    """Interleave pairs of rows, then join halves."""
    rows = ["    const __m128 t0 = _mm_unpacklo_ps(r0, r1), t1 = _mm_unpackhi_ps(r0, r1);"]
    rows.append("    const __m128 t2 = _mm_unpacklo_ps(r2, r3), t3 = _mm_unpackhi_ps(r2, r3);")
    joins = ["_mm_movelh_ps(t0, t2)", "_mm_movehl_ps(t2, t0)", "_mm_movelh_ps(t1, t3)", "_mm_movehl_ps(t3, t1)"]
    return "\n".join([*rows, *(f"    c[{i}] = {join};" for i, join in enumerate(joins))])


def _transpose_8() -> str:
    """Transpose 2×2, then 4×4 in each half, then swap halves: 8 shuffles a stage."""
    rows = []
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


_SHUFFLES = {4: _transpose_4(), 8: _transpose_8()}


def _square(size: int):
    """Exactly two dimensions are larger than 1, both are `size`, and the layouts order them differently."""

    def holds(spec: LogicalSpec) -> Any:
        layout, other = (state.layout for state in spec.states)
        if layout is None or other is None or len(layout.dims) != 2 or layout.dims != other.dims[::-1]:
            return False
        first, second = (physical.dim for physical in layout.dims)
        return (spec.shape[first] == size) & (spec.shape[second] == size)

    return holds


_TRANSPOSITIONS: tuple[tuple[LayoutRule, LayoutRule], ...] = (("row_major", "col_major"), ("col_major", "row_major"))


def _transpose_kernel(size: int, source: LayoutRule, out: LayoutRule) -> Microkernel:
    return Microkernel(
        name=f"Transpose{size}x{size}{'Rows' if source == 'row_major' else 'Columns'}",
        op=Move(),
        operands=(
            OperandPattern(levels=("VRF",), dtypes=("f32",), vectors=(size,), layout=source),
            OperandPattern(levels=("VRF",), dtypes=("f32",), vectors=(size,), layout=out),
        ),
        when=_square(size),
        # One cycle a shuffle: log2(size) stages of `size` of them.
        cost=lambda spec, target: size * (size.bit_length() - 1),
        emit=_transpose(size),
    )


def kernels(vectors: Sequence[int]) -> tuple[Microkernel, ...]:
    """The transposes of squares whose rows are vectors of these sizes in bytes."""
    sizes = [size for size in _SHUFFLES if size * 4 in vectors]
    return tuple(_transpose_kernel(size, source, out) for size in sizes for source, out in _TRANSPOSITIONS)
