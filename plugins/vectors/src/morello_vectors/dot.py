"""Dot products: a row of values in L1 times a column of them, added to one value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from morello.ir.dtypes import BF16, F32
from morello.ir.layout import Dynamic, OddEven
from morello.ir.numbers import Mask, Num
from morello.ir.ops.matmul import Matmul
from morello.ir.spec import LogicalSpec
from morello.kernels.site import KernelSite
from morello.plugins import Microkernel
from morello_vectors.common import HALF_CYCLE, INTEGERS
from morello_vectors.convert import even_and_odd, unsigned, vector_as
from morello_vectors.dot_code import Computing, DotProduct, Step, Values, in_columns
from morello_vectors.instructions import instructions


def f32_step(site: KernelSite, size: int, total: str, values: Values) -> str:
    return _added(site, size, total, *(values(index, 0, size // 4) for index in range(2)))


def _added(site: KernelSite, size: int, total: str, lhs: str, rhs: str) -> str:
    return instructions(site).call(site, "fma", size // 4, lhs, rhs, total)


def _f32_bf16_step(site: KernelSite, size: int, total: str, values: Values) -> str:
    count = size // 4
    return _added(site, size, total, values(0, 0, count), vector_as(site, values(1, 0, count), BF16, F32, count))


def _bf16_step(site: KernelSite, size: int, total: str, values: Values) -> str:
    """Return the products of the even values, then those of the odd ones."""
    count = size // 4
    (even, odd), (other_even, other_odd) = (even_and_odd(site, values(i, 0, 2 * count), count) for i in range(2))
    return _added(site, size, _added(site, size, total, even, other_even), odd, other_odd)


def _odd_even_bf16_step(site: KernelSite, size: int, total: str, values: Values) -> str:
    """Return the products for a left-hand side whose even values come first in memory, then its odd ones."""
    count = size // 4
    even, odd = even_and_odd(site, values(1, 0, 2 * count), count)
    return _added(site, size, _added(site, size, total, values(0, 0, count), even), values(0, count, count), odd)


def _wrapping_step(site: KernelSite, size: int, total: str, values: Values) -> str:
    """Factors are converted to the output's type, multiplied and added, modulo a power of two."""
    out = unsigned(site.spec.states[2].dtype)
    count = size // out.bytes
    lhs, rhs = (vector_as(site, values(i, 0, count), site.spec.states[i].dtype, out, count) for i in range(2))
    return f"{total} + {lhs} * {rhs}"


def row_times_column(length: str, lhs: str, rhs: str, out: str, order: str = "row_major") -> str:
    """Return the pattern of a dot product of this length, of operands of these data types."""
    return f"1×1×{length}×1, {lhs} L1 {order}, {rhs} L1 col_major, {out} RF/L1"


def _wraps(widest: int) -> Callable[[LogicalSpec], Mask]:
    """Return the condition that no factor is wider than the sums, and that k is a multiple of a vector of sums."""

    def holds(spec: LogicalSpec) -> Mask:
        lhs, rhs, out = (state.dtype.bytes for state in spec.states)
        return (max(lhs, rhs) <= out) & (spec.shape[2] % (widest // out) == 0)

    return holds


def _odd_even(values: int) -> Callable[[LogicalSpec], bool]:
    """Return the condition that the left-hand side is in odd-even strips of two vectors of `values`."""

    def holds(spec: LogicalSpec) -> bool:
        layout, strip = spec.states[0].layout, OddEven(2, 2 * values)
        return layout is not None and layout.dims in ((strip,), (Dynamic(2), strip))

    return holds


#: Tenths of a cycle that it takes to add up the sums of a dot product, and the lanes of one.
SUMMING = 50


def per_values(cost: int, values: int) -> Computing:
    """Return costs: `cost` half cycles for each `values` along k, rounded up, and adding up the lanes."""
    return lambda spec: -(-cost * HALF_CYCLE * spec.shape[2] // values) + SUMMING


def _wrapping_cost(widest: int) -> Computing:
    """Return the cost: two cycles per vector of sums, by measurement of i32, whose multiplication is the slowest."""

    def cost(spec: LogicalSpec) -> Num:
        return per_values(2, widest // spec.states[2].dtype.bytes)(spec)

    return cost


def dot_products(
    widest: int,
    name: str,
    takes: str,
    step: Step,
    computing: Computing,
    taken: int = 1,
    when: Callable[[LogicalSpec], Mask] | None = None,
    saturating: bool = False,
    columns: bool = False,
) -> tuple[Microkernel, ...]:
    """Return a dot product with vectors of `widest` bytes.

    With `columns`, also return the kernel that reads several columns one after the other.
    """
    product = DotProduct(widest, step, taken)
    kernel = Microkernel(
        name=name,
        op=Matmul(accumulate=True, saturating=saturating),
        takes=takes,
        when=when,
        cost=lambda spec, machine: computing(spec) + machine.move_cost(spec.operand(2)),
        registers={"VRF": 4 if step is f32_step else 6},
        emit=product.emit,
        jam=product.jam,
    )
    return (kernel, in_columns(kernel, product, computing)) if columns else (kernel,)


def kernels(vectors: Sequence[int]) -> tuple[Microkernel, ...]:
    """Return the dot products of a core with vectors of these sizes in bytes."""
    widest = max(vectors)
    one, two, integers = f"{widest // 4}i", f"{widest // 2}i", "/".join(INTEGERS)
    kernel, takes = partial(dot_products, widest), row_times_column

    # Costs of floats are [Kaufman2025]'s, whatever the size of vectors.
    return (
        *kernel("DotProductLoop", takes(one, "f32", "f32", "f32"), f32_step, per_values(8, 32), columns=True),
        *kernel(
            "DotProductLoopBf16Bf16F32",
            takes(two, "bf16", "bf16", "f32"),
            _bf16_step,
            per_values(12, 64),
            taken=2,
            columns=True,
        ),
        *kernel(
            "DotProductLoopF32Bf16F32",
            takes(one, "f32", "bf16", "f32"),
            _f32_bf16_step,
            per_values(32, 64),
            columns=True,
        ),
        *kernel(
            "DotProductLoopF32InterleavedBf16F32",
            takes(two, "f32", "bf16", "f32", order=""),
            _odd_even_bf16_step,
            per_values(16, 64),
            taken=2,
            when=_odd_even(widest // 4),
        ),
        *kernel(
            "DotProductLoopInt",
            takes("k", *[integers] * 3),
            _wrapping_step,
            _wrapping_cost(widest),
            when=_wraps(widest),
        ),
    )
