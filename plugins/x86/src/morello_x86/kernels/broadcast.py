"""Repeating values along a dimension, and OnePrefix: copies of every type."""

from __future__ import annotations

from morello.ir.layout import PhysicalDim
from morello.ir.numbers import Mask
from morello.ir.ops.broadcast import Broadcast
from morello.ir.ops.move import OnePrefix
from morello.ir.spec import LogicalSpec
from morello.kernels.site import KernelSite
from morello.plugins import Microkernel, per_vector, touching
from morello_x86.kernels.common import HALF_CYCLE, touching_kernel
from morello_x86.kernels.lanes import repeat
from morello_x86.kernels.move import cast


def _value_to_registers(site: KernelSite) -> None:
    source, out = site.operand(0), site.operand(1)
    state = out.tensor.state
    kind, name = site.vector_type(state.dtype, state.vector or 1), site.fresh("all")
    site.line("{")
    site.line(f"    const {kind} {name} = {repeat(site, state.dtype, state.vector or 1)}({source.scalar()});")
    for register in out.vectors():
        site.line(f"    {register} = {name};")
    site.line("}")


def _registers(site: KernelSite) -> None:
    """The source's registers, or vectors in L1, over and over."""
    source, out = site.operand(0), site.operand(1)
    state = out.tensor.state
    size = state.vector or 1
    volume = int(source.tensor.volume)
    for position, register in zip(range(0, int(out.tensor.volume), size), out.vectors(), strict=True):
        if source.in_registers:
            site.line(f"{register} = {source.register(position % volume)};")
        else:
            site.line(f"{register} = {site.load(state.dtype, size)}({source.pointer(position % volume)});")


def _memory(site: KernelSite) -> None:
    """The source's run of values, over and over."""
    source, out = site.operand(0), site.operand(1)
    dtype = out.tensor.state.dtype
    index, place, value = site.fresh("i"), site.fresh("at"), site.fresh("value")
    length, total = int(source.tensor.volume), int(out.tensor.volume)
    setting = f"{place}[{index}] = {value};"
    site.line("{")
    site.line(f"    {dtype.c_name} *const {place} = {out.pointer()};")
    if length == 1:
        site.line(f"    const {dtype.c_name} {value} = {source.scalar()};")
    else:
        setting = f"memcpy({place} + {index}, {source.pointer()}, {length * dtype.bytes});"
    site.line(f"    for (ptrdiff_t {index} = 0; {index} < {total}; {index} += {length}) {{")
    site.line(f"        {setting}")
    site.line("    }")
    site.line("}")


def _outermost(spec: LogicalSpec) -> bool:
    """Return True if the output is the source over and over: its slowest dimension is the one that the source lacks."""
    source, out = (state.layout for state in spec.states)
    op = spec.op
    assert isinstance(op, Broadcast)
    if source is None or out is None or not out.dims:
        return False
    return out.dims[0].dim == op.axis(len(spec.shape)) and out.dims[1:] == source.dims


def _whole_vectors(spec: LogicalSpec) -> Mask:
    """Return True if every vector of the output lies within one copy of the source."""
    source, out = spec.states
    if source.vector not in (None, out.vector) or not _outermost(spec):
        return False
    return spec.operand(0).volume % (out.vector or 1) == 0


def _single(spec: LogicalSpec) -> Mask:
    return spec.operand(0).volume == 1


def _prefixed(spec: LogicalSpec) -> bool:
    """Return True if both tensors have their values in the same order."""
    source, out = (state.layout for state in spec.states)
    if source is None or out is None:
        return False
    shifted = tuple(PhysicalDim(one.dim + 1, one.size, one.odd_even) for one in source.dims)
    return shifted == out.dims


def _copy(site: KernelSite) -> None:
    source, out = site.operand(0), site.operand(1)
    site.line(f"memcpy({out.pointer()}, {source.pointer()}, {out.tensor.bytes});")


KERNELS = (
    touching_kernel(name="ValueBroadcast", op=Broadcast, takes="1, RF/L1, RF/L1", template=cast),
    Microkernel(
        name="VecScalarAssign",
        op=Broadcast,
        takes="n, RF/L1, VRF",
        same=("dtype",),
        when=_single,
        cost=lambda spec, machine: HALF_CYCLE * (spec.operand(1).vectors + 1) + touching()(spec, machine),
        emit=_value_to_registers,
    ),
    Microkernel(
        name="VectorBroadcast",
        op=Broadcast,
        takes="n, VRF/L1, VRF",
        same=("dtype",),
        when=_whole_vectors,
        cost=lambda spec, machine: HALF_CYCLE * spec.operand(1).vectors,
        emit=_registers,
    ),
    touching_kernel(
        name="BroadcastLoop",
        op=Broadcast,
        takes="n, RF/L1/L2/GL, L1/L2/GL",
        same=("dtype",),
        # One value fills a tensor of any layout; more of them are copied as they lie.
        when=lambda spec: _single(spec) if not _outermost(spec) else True,
        emit=_memory,
    ),
    touching_kernel(name="ValueOnePrefix", op=OnePrefix, takes="1, RF/L1, RF/L1", template=cast),
    touching_kernel(
        name="OnePrefixCopy",
        op=OnePrefix,
        takes="n, L1/L2/GL, L1/L2/GL",
        same=("dtype",),
        when=_prefixed,
        emit=_copy,
    ),
    Microkernel(
        name="VectorOnePrefix",
        op=OnePrefix,
        takes="n, VRF, VRF",
        same=("dtype", "vector"),
        when=_prefixed,
        cost=per_vector(HALF_CYCLE),
        template="{out} = {src};",
    ),
)
