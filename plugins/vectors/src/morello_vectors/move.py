"""Moves of every type between registers and L1, and conversions from each to every other that has a meaning."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from morello.ir.dtypes import BF16, F32, F64
from morello.ir.layout import Dynamic, OddEven
from morello.ir.numbers import Num
from morello.ir.spec import LogicalSpec
from morello.kernels.site import KernelSite
from morello.plugins import Machine, Microkernel, per_vector, touching
from morello_vectors.common import HALF_CYCLE, touching_kernel
from morello_vectors.convert import even_and_odd, scalar_as, vector_as


def cast(site: KernelSite) -> str:
    source, out = (state.dtype for state in site.spec.states)
    return f"{{out}} = {scalar_as(site, '{src}', source, out)};"


def _other_cast(spec: LogicalSpec) -> bool:
    """Return True for any conversion but the one that has a kernel of its own."""
    source, out = (state.dtype for state in spec.states)
    return source != out and (source, out) != (BF16, F32)


def _cast_cost(spec: LogicalSpec, machine: Machine) -> Num:
    """Return the cost of one instruction; rounding to bf16 takes five more, other bits twelve each way."""
    source, out = (state.dtype for state in spec.states)
    bits = 12 * (out.is_bits or (source.is_bits and source != BF16))
    return touching((6 if out == BF16 else bits or 1) * HALF_CYCLE)(spec, machine)


def _same_vectors(spec: LogicalSpec) -> bool:
    """Return True if an operand is in vector registers, and all that are hold equally many values."""
    return len({state.vector for state in spec.states if state.vector}) == 1


def _vector_cast(site: KernelSite) -> str:
    """Return a template that converts as many values at a time as a register of either operand holds."""
    source, out = site.spec.states
    return f"{{out}} = {vector_as(site, '{src}', source.dtype, out.dtype, out.vector or source.vector or 1)};"


def _casts(widest: int) -> Callable[[LogicalSpec], bool]:
    """Return the condition that types differ, and that a register of the narrower type, converted, has at most `widest`
    bytes. Conversions from and to bf16 and other bits go through f32, but not from f64, which would be rounded twice.
    """

    def holds(spec: LogicalSpec) -> bool:
        source, out = spec.states
        if source.dtype == out.dtype or not _same_vectors(spec) or (source.dtype == F64 and out.dtype.is_bits):
            return False
        bytes_ = max(source.dtype.wide.bytes, out.dtype.wide.bytes)
        return bytes_ * max(state.vector or 0 for state in spec.states) <= widest

    return holds


def _vector_cast_cost(spec: LogicalSpec, machine: Machine) -> Num:
    """Return the measured half cycles per vector: 2 to widen, 4 to narrow, 12 to round to bf16 and for other bits."""
    source, out = (state.dtype for state in spec.states)
    bits = out.is_bits or (source.is_bits and source != BF16)
    each = 12 if bits else 4 if out.bytes < source.bytes else 2
    return per_vector(each * HALF_CYCLE)(spec, machine)


def _interleave(site: KernelSite) -> None:
    """Split each vector of bf16 into a vector of its even values and one of its odd values."""
    source, out = site.operand(0), site.operand(1)
    size = out.tensor.state.vector or 1
    for position in range(0, int(source.tensor.volume), 2 * size):
        if source.in_registers:
            value = source.register(position)
        else:
            value = f"{site.load(source.tensor.state.dtype, 2 * size)}({source.pointer(position)})"
        for place, half in zip((position, position + size), even_and_odd(site, value, size), strict=True):
            site.line(f"{out.register(place)} = {half};")


def _to_odd_even(spec: LogicalSpec) -> bool:
    """Return True if the output has the order of the source, but for odd-even strips of two of its vectors."""
    source, out = spec.states
    if not source.layout or not out.layout or not out.layout.dims or source.vector not in (None, 2 * (out.vector or 1)):
        return False
    *outer, strip = out.layout.dims
    inner = Dynamic(strip.dim)
    plain = tuple(outer) if outer and outer[-1] == inner else (*outer, inner)
    return strip == OddEven(strip.dim, 2 * (out.vector or 1)) and source.layout.dims == plain


def kernels(vectors: Sequence[int]) -> tuple[Microkernel, ...]:
    """Return the moves of a core with vectors of these sizes in bytes."""
    widest = max(vectors)
    return (
        touching_kernel(
            name="Assign",
            takes="Move(1, RF/L1, RF/L1)",
            same=("dtype",),
            template="{out} = {src};",
            in_place=True,
        ),
        Microkernel(
            name="CastBf16F32",
            takes="Move(1, bf16 RF/L1, f32 RF/L1)",
            cost=touching(4 * HALF_CYCLE),
            template=cast,
        ),
        Microkernel(
            name="Cast",
            takes="Move(1, RF/L1, RF/L1)",
            when=_other_cast,
            cost=_cast_cost,
            template=cast,
        ),
        Microkernel(
            name="VectorMove",
            takes="Move(n, L1/VRF, L1/VRF)",
            same=("dtype", "layout"),
            when=_same_vectors,
            cost=per_vector(HALF_CYCLE),
            template="{out} = {src};",
            in_place=True,
        ),
        Microkernel(
            name="VectorCast",
            takes="Move(n, L1/VRF, L1/VRF)",
            same=("layout",),
            when=_casts(widest),
            cost=_vector_cast_cost,
            registers={"VRF": 2},
            template=_vector_cast,
        ),
        Microkernel(
            name="VectorInterleaveBf16F32",
            takes="Move(n, bf16 L1/VRF, f32 VRF)",
            when=_to_odd_even,
            # A shift and a mask take a cycle together: [Kaufman2025]'s cost for a vector of bf16.
            cost=lambda spec, machine: touching()(spec, machine) + HALF_CYCLE * spec.operand(1).vectors // 2,
            emit=_interleave,
        ),
    )
