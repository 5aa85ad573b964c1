"""Zeros around the last two dimensions of tensors in memory, row by row."""

from __future__ import annotations

from morello.ir.numbers import Num, product
from morello.ir.ops.pad import Pad
from morello.ir.spec import LogicalSpec
from morello.kernels.site import KernelSite
from morello.plugins import Machine, Microkernel, OperandPattern, touching
from morello_x86.kernels.common import HALF_CYCLE, MEMORIES


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


def _cost(spec: LogicalSpec, machine: Machine) -> Num:
    """Return the cost: every line is touched, and each row costs a call of memcpy."""
    return touching()(spec, machine) + HALF_CYCLE * product(spec.operand(0).shape[:-1])


KERNELS = (
    Microkernel(
        name="PadRows",
        op=Pad,
        operands=(OperandPattern(levels=MEMORIES, layout="row_major"),) * 2,
        same=("dtype",),
        cost=_cost,
        emit=_pad,
    ),
)
