"""Setting values of every type to zero, negative infinity, or the smallest value, and zeros around rows."""

from __future__ import annotations

from morello.ir.dtypes import DType
from morello.ir.numbers import Num, product
from morello.ir.ops.fill import Fill, FillZero
from morello.ir.ops.pad import Pad
from morello.ir.spec import LogicalSpec
from morello.kernels.site import KernelSite
from morello.plugins import Machine, Microkernel, per_vector, touching
from morello_x86.kernels.common import HALF_CYCLE, touching_kernel
from morello_x86.kernels.lanes import repeat
from morello_x86.kernels.values import literal


def _zero_memory(site: KernelSite) -> None:
    out = site.operand(0)
    # For a whole array, compilers warn if the number of bytes is its number of elements.
    site.line(f"memset(&{out.scalar()}, 0, {out.tensor.bytes});")


def _constant(site: KernelSite) -> tuple[DType, str]:
    """Return the data type that is filled, and the constant in C."""
    op, dtype = site.spec.op, site.spec.states[0].dtype
    assert isinstance(op, Fill)
    return dtype, literal(op.constant(dtype), dtype)


def _fill_value(site: KernelSite) -> str:
    return f"{{out}} = {_constant(site)[1]};"


def _fill_vector(site: KernelSite) -> str:
    dtype, constant = _constant(site)
    return f"{{out}} = {repeat(site, dtype, site.spec.states[0].vector or 1)}({constant});"


def _fill_memory(site: KernelSite) -> None:
    out, index = site.operand(0), site.fresh("i")
    dtype, constant = _constant(site)
    at = site.fresh("at")
    site.line("{")
    site.line(f"    {dtype.c_name} *const {at} = {out.pointer()};")
    site.line(f"    for (ptrdiff_t {index} = 0; {index} < {out.tensor.volume}; ++{index}) {{")
    site.line(f"        {at}[{index}] = {constant};")
    site.line("    }")
    site.line("}")


_ZEROING = (
    touching_kernel(name="ValueZero", op=FillZero(), takes="1, RF/L1", template="{out} = 0;"),
    Microkernel(
        name="VectorZero",
        op=FillZero(),
        takes="n, VRF",
        when=lambda spec: spec.operand(0).vectors == 1,
        cost=per_vector(HALF_CYCLE),
        template="{out} = ({out_type}){{0}};",
    ),
    touching_kernel(
        name="MemsetZero",
        op=FillZero(),
        takes="n, L1/L2/GL",
        # Unlike in [Kaufman2025], every line is touched; a call takes half a cycle.
        emit=_zero_memory,
    ),
)


def _filling(op: Fill) -> tuple[Microkernel, ...]:
    """Return the kernels of FillNegInf and FillMin: for a value, vector registers, or memory."""
    return (
        touching_kernel(name=f"Value{op.value}", op=op, takes="1, RF/L1", template=_fill_value),
        Microkernel(
            name=f"Vector{op.value}",
            op=op,
            takes="n, VRF",
            cost=per_vector(HALF_CYCLE),
            template=_fill_vector,
        ),
        touching_kernel(name=f"{op.value}Loop", op=op, takes="n, L1/L2/GL", emit=_fill_memory),
    )


KERNELS = (*_ZEROING, *_filling(Fill("NegInf")), *_filling(Fill("Min")))


# Padding.


def _pad(site: KernelSite) -> None:
    op, source, out = site.spec.op, site.operand(0), site.operand(1)
    assert isinstance(op, Pad)
    top, left, _, _ = op.padding
    *outer, height, width = (int(size) for size in source.tensor.shape)
    *_, padded_height, padded_width = (int(size) for size in out.tensor.shape)
    dtype = out.tensor.state.dtype
    from_, to, image, row = (site.fresh(name) for name in ("from", "to", "image", "row"))
    start = f"({image} * {padded_height} + {row} + {top}) * {padded_width} + {left}"
    site.line("{")
    site.line(f"    const {dtype.c_name} *const {from_} = {source.pointer()};")
    site.line(f"    {dtype.c_name} *const {to} = {out.pointer()};")
    site.line(f"    memset({to}, 0, {out.tensor.bytes});")
    site.line(f"    for (ptrdiff_t {image} = 0; {image} < {product(outer)}; ++{image}) {{")
    site.line(f"        for (ptrdiff_t {row} = 0; {row} < {height}; ++{row}) {{")
    begin = f"({image} * {height} + {row}) * {width}"
    site.line(f"            memcpy({to} + {start}, {from_} + {begin}, {width * dtype.bytes});")
    site.line("        }")
    site.line("    }")
    site.line("}")


def _pad_cost(spec: LogicalSpec, machine: Machine) -> Num:
    """Return the cost: touching every line, and a call of memcpy for each row."""
    return touching()(spec, machine) + HALF_CYCLE * product(spec.operand(0).shape[:-1])


PADDING = (
    Microkernel(
        name="PadRows",
        op=Pad,
        takes="n, L1/L2/GL row_major, L1/L2/GL row_major",
        same=("dtype",),
        cost=_pad_cost,
        emit=_pad,
    ),
)
