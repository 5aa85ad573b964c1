"""Microkernels for 32-bit floats, and moves and zeroing for every type, in vectors of any width.

Costs are reciprocal throughputs in cycles, from the paper's implementation unless a comment says otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from morello.codegen.site import KernelSite
from morello.ir.ops.fill import FillZero
from morello.ir.ops.matmul import Matmul
from morello.ir.ops.move import Move
from morello.ir.spec import LogicalSpec
from morello.plugins import LayoutRule, Microkernel, Multiple, OperandPattern, Target

NEAR = ("RF", "L1")
SCALAR = OperandPattern(levels=NEAR)
F32_SCALAR = OperandPattern(levels=NEAR, dtypes=("f32",))
VECTOR = OperandPattern(levels=("VRF",))
F32_VECTOR = OperandPattern(levels=("VRF",), dtypes=("f32",))

#: How Intel's intrinsics for packed floats begin, by bytes per vector.
PREFIX = {16: "_mm", 32: "_mm256", 64: "_mm512"}


def _move_costs(spec: LogicalSpec, target: Target) -> Any:
    return sum(target.move_cost(tensor) for tensor in spec.operands)


def _scalars_cost(spec: LogicalSpec, target: Target) -> Any:
    return _move_costs(spec, target) + 1


def _one_value(spec: LogicalSpec) -> Any:
    return spec.op.volume(spec.shape) == 1


def _assign(site: KernelSite) -> None:
    site.line(f"{site.operand(1).scalar()} = {site.operand(0).scalar()};")


def _cast_bf16(site: KernelSite) -> None:
    """A bfloat16 is the upper half of the 32-bit float of the same value."""
    name = site.helper("f32_of_bf16", _F32_OF_BF16)
    site.line(f"{site.operand(1).scalar()} = {name}({site.operand(0).scalar()});")


_F32_OF_BF16 = """static inline float f32_of_bf16(uint16_t bits) {
    const uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}"""


def _vector_move(site: KernelSite) -> None:
    """A load, a store, or copies between registers, whichever the operands ask for."""
    source, out = site.operand(0), site.operand(1)
    state = source.tensor.state if source.view.buffer.in_registers else out.tensor.state
    size = state.vector or 1
    for position in range(0, int(source.tensor.volume), size):
        if not source.view.buffer.in_registers:
            load = site.load(state.dtype, size)
            site.line(f"{out.view.variable(position)} = {load}({source.pointer(position)});")
        elif not out.view.buffer.in_registers:
            store = site.store(state.dtype, size)
            site.line(f"{store}({out.pointer(position)}, {source.view.variable(position)});")
        else:
            site.line(f"{out.view.variable(position)} = {source.view.variable(position)};")


def _vectors(spec: LogicalSpec, target: Target) -> Any:
    """One instruction per vector register."""
    return spec.operand(0).volume // max(state.vector or 0 for state in spec.states)


def _same_vectors(spec: LogicalSpec) -> bool:
    """At least one operand is in vector registers; where several are, they hold equally many values."""
    return len({state.vector for state in spec.states if state.vector}) == 1


def _zero_value(site: KernelSite) -> None:
    site.line(f"{site.operand(0).scalar()} = 0;")


def _zero_vector(site: KernelSite) -> None:
    out = site.operand(0)
    kind = site.vector_type(out.tensor.state.dtype, out.tensor.state.vector or 1)
    site.line(f"{out.view.variable()} = ({kind}){{0}};")


def _zero_memory(site: KernelSite) -> None:
    out = site.operand(0)
    site.line(f"memset({out.pointer()}, 0, {out.tensor.bytes});")


def _zero_memory_cost(spec: LogicalSpec, target: Target) -> Any:
    """Every line is touched: unlike the paper's, the cost grows with the size. Even one line takes a cycle."""
    cost = _move_costs(spec, target)
    return cost + (cost == 0) * 1


def _mult_add(site: KernelSite) -> None:
    lhs, rhs, out = (site.operand(i).scalar() for i in range(3))
    site.line(f"{out} += {lhs} * {rhs};")


def _broadcast_mult_add(scalar: int, vector: int):
    """Adds scalar times vector to the output, vector by vector; the operands' numbers vary."""

    def emit(site: KernelSite) -> None:
        out = site.operand(2)
        state = out.tensor.state
        prefix = PREFIX[state.dtype.bytes * (state.vector or 1)]
        splat = f"{prefix}_set1_ps({site.operand(scalar).scalar()})"
        for total, factor in zip(out.vectors(), site.operand(vector).vectors(), strict=True):
            site.line(f"{total} = {prefix}_fmadd_ps({splat}, {factor}, {total});")

    return emit


def _same_registers(spec: LogicalSpec, vector: int) -> bool:
    """The registers of the vector operand and of the output hold values of the same places, in the same order."""
    factor, total = spec.states[vector], spec.states[2]
    return (factor.layout, factor.vector) == (total.layout, total.vector)


def _broadcast_cost(spec: LogicalSpec, target: Target) -> Any:
    return 2 * spec.operand(2).vectors + 1


def _dot_product(values: int):
    """A loop over vectors of both operands into as many accumulators as divide their number, at most four."""

    def emit(site: KernelSite) -> None:
        length = int(site.spec.shape[2])
        lanes = next(count for count in (4, 3, 2, 1) if length // values % count == 0)
        dtype = site.spec.states[2].dtype
        kind, load = site.vector_type(dtype, values), site.load(dtype, values)
        prefix = PREFIX[dtype.bytes * values]
        sums = [site.fresh("sum") for _ in range(lanes)]
        lhs, rhs, i = site.fresh("lhs_at"), site.fresh("rhs_at"), site.fresh("i")
        site.line("{")
        site.line(f"    const {dtype.c_name} *const {lhs} = {site.operand(0).pointer()};")
        site.line(f"    const {dtype.c_name} *const {rhs} = {site.operand(1).pointer()};")
        site.line(f"    {kind} {', '.join(f'{name} = {{0}}' for name in sums)};")
        site.line(f"    for (ptrdiff_t {i} = 0; {i} < {length}; {i} += {lanes * values}) {{")
        for lane, name in enumerate(sums):
            at = f"{i} + {lane * values}" if lane else i
            site.line(f"        {name} = {prefix}_fmadd_ps({load}({lhs} + {at}), {load}({rhs} + {at}), {name});")
        site.line("    }")
        total = " + ".join(sums)
        add = site.helper(f"add_up_{kind}", _ADD_UP.format(kind=kind, values=values, c_type=dtype.c_name))
        site.line(f"    {site.operand(2).scalar()} += {add}({total});")
        site.line("}")

    return emit


_ADD_UP = """static inline {c_type} add_up_{kind}({kind} v) {{
    {c_type} sum = v[0];
    for (int i = 1; i < {values}; ++i) {{
        sum += v[i];
    }}
    return sum;
}}"""


def _dot_cost(spec: LogicalSpec, target: Target) -> Any:
    return 8 * spec.shape[2] // 32 + target.move_cost(spec.operand(2))


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
        cost=lambda spec, target: size * (size.bit_length() - 1) + 0 * spec.shape[0],
        emit=_transpose(size),
    )


def kernels(vectors: Sequence[int]) -> tuple[Microkernel, ...]:
    """All microkernels of a core whose vectors have these sizes in bytes."""
    widest = max(vectors) // 4
    return (
        Microkernel(
            name="MultAdd",
            op=Matmul(accumulate=True),
            operands=(F32_SCALAR,) * 3,
            shape=(1, 1, 1, 1),
            cost=_scalars_cost,
            emit=_mult_add,
        ),
        Microkernel(
            name="BroadcastVecMultAdd",
            op=Matmul(accumulate=True),
            operands=(F32_SCALAR, F32_VECTOR, F32_VECTOR),
            shape=(1, 1, 1, None),
            when=lambda spec: _same_registers(spec, 1),
            cost=_broadcast_cost,
            registers={"VRF": 1},
            emit=_broadcast_mult_add(scalar=0, vector=1),
        ),
        Microkernel(
            name="VecBroadcastMultAdd",
            op=Matmul(accumulate=True),
            operands=(F32_VECTOR, F32_SCALAR, F32_VECTOR),
            shape=(1, None, 1, 1),
            when=lambda spec: _same_registers(spec, 0),
            cost=_broadcast_cost,
            registers={"VRF": 1},
            emit=_broadcast_mult_add(scalar=1, vector=0),
        ),
        Microkernel(
            name="DotProductLoop",
            op=Matmul(accumulate=True),
            operands=(
                OperandPattern(levels=("L1",), dtypes=("f32",), layout="row_major"),
                OperandPattern(levels=("L1",), dtypes=("f32",), layout="col_major"),
                F32_SCALAR,
            ),
            shape=(1, 1, Multiple(of=widest), 1),
            cost=_dot_cost,
            registers={"VRF": 4},
            emit=_dot_product(widest),
        ),
        Microkernel(
            name="Assign",
            op=Move(),
            operands=(SCALAR, SCALAR),
            same=("dtype",),
            when=_one_value,
            cost=_scalars_cost,
            emit=_assign,
        ),
        Microkernel(
            name="CastBf16F32",
            op=Move(),
            operands=(OperandPattern(levels=NEAR, dtypes=("bf16",)), F32_SCALAR),
            when=_one_value,
            cost=lambda spec, target: _move_costs(spec, target) + 4,
            emit=_cast_bf16,
        ),
        Microkernel(
            name="VectorMove",
            op=Move(),
            operands=(OperandPattern(levels=("L1", "VRF")),) * 2,
            same=("dtype", "layout"),
            when=_same_vectors,
            cost=_vectors,
            emit=_vector_move,
        ),
        *(
            _transpose_kernel(size, source, out)
            for size in (4, 8)
            if size * 4 in vectors
            for source, out in _TRANSPOSITIONS
        ),
        Microkernel(
            name="ValueZero",
            op=FillZero(),
            operands=(SCALAR,),
            when=_one_value,
            cost=_scalars_cost,
            emit=_zero_value,
        ),
        Microkernel(
            name="VectorZero",
            op=FillZero(),
            operands=(VECTOR,),
            when=lambda spec: spec.operand(0).vectors == 1,
            cost=lambda spec, target: 1 + 0 * spec.shape[0],
            emit=_zero_vector,
        ),
        Microkernel(
            name="MemsetZero",
            op=FillZero(),
            operands=(OperandPattern(levels=("L1", "GL")),),
            cost=_zero_memory_cost,
            emit=_zero_memory,
        ),
    )
