"""What each operation means, in C: a new operation is one more function here and its line in `MEANINGS`.

Floats are computed as float and rounded to the output's type once, at the end. Integers are computed as uint32_t,
which wraps around without undefined behaviour; every integer type there is takes its value modulo its own size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from morello.ir.ops import Operation, by_name
from morello.ir.ops.matmul import Matmul
from morello_reference_c.values import Value

#: C statements inside the loops over the output's points, from the operands and the names of the loop variables.
Meaning: TypeAlias = Callable[[Sequence[Value], Sequence[str], Sequence[int]], list[str]]


def _matmul(values: Sequence[Value], dims: Sequence[str], shape: Sequence[int]) -> list[str]:
    return _product(values, dims, shape, "0")


def _matmul_accum(values: Sequence[Value], dims: Sequence[str], shape: Sequence[int]) -> list[str]:
    b, m, _, n = dims
    out = values[2]
    return _product(values, dims, shape, out.read(out.type_of_sums, b, m, n))


def _product(values: Sequence[Value], dims: Sequence[str], shape: Sequence[int], start: str) -> list[str]:
    lhs, rhs, out = values
    b, m, k, n = dims
    kind = out.type_of_sums
    return [
        f"{kind} sum = {start};",
        f"for (ptrdiff_t {k} = 0; {k} < {shape[2]}; {k}++) {{",
        f"    sum += {lhs.read(kind, b, m, k)} * {rhs.read(kind, b, k, n)};",
        "}",
        out.write("sum", b, m, n),
    ]


def _saturating(values: Sequence[Value], dims: Sequence[str], shape: Sequence[int]) -> list[str]:
    return _pairs(values, dims, shape, "0")


def _saturating_accum(values: Sequence[Value], dims: Sequence[str], shape: Sequence[int]) -> list[str]:
    b, m, _, n = dims
    out = values[2]
    return _pairs(values, dims, shape, out.read(out.type_of_sums, b, m, n))


def _pairs(values: Sequence[Value], dims: Sequence[str], shape: Sequence[int], start: str) -> list[str]:
    """Products of bytes fit an int32_t, and so do sums of two of them."""
    lhs, rhs, out = values
    b, m, k, n = dims
    products = [
        f"{lhs.read('int32_t', b, m, place)} * {rhs.read('int32_t', b, place, n)}" for place in (k, f"({k} + 1)")
    ]
    return [
        f"uint32_t sum = {start};",
        f"for (ptrdiff_t {k} = 0; {k} < {shape[2]}; {k} += 2) {{",
        f"    const int32_t pair = {' + '.join(products)};",
        "    sum += (uint32_t)(pair < -32768 ? -32768 : pair > 32767 ? 32767 : pair);",
        "}",
        out.write("sum", b, m, n),
    ]


def _move(values: Sequence[Value], dims: Sequence[str], shape: Sequence[int]) -> list[str]:
    source, out = values
    if source.dtype == out.dtype:
        return [f"{out.element(*dims)} = {source.element(*dims)};"]
    return [out.write(source.read(out.type_of_sums, *dims), *dims)]


def _fill_zero(values: Sequence[Value], dims: Sequence[str], shape: Sequence[int]) -> list[str]:
    return [f"{values[0].element(*dims)} = 0;"]


MEANINGS: dict[Operation, Meaning] = {
    by_name("Matmul"): _matmul,
    by_name("MatmulAccum"): _matmul_accum,
    Matmul(saturating=True): _saturating,
    Matmul(accumulate=True, saturating=True): _saturating_accum,
    by_name("Move"): _move,
    by_name("FillZero"): _fill_zero,
}
