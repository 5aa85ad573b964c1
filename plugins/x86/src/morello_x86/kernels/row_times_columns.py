"""A row times columns that lie one behind the other in memory: each is read to its end before the next.

Dot products side by side read as many columns at once, which takes a quarter to a half longer where these come from
memory: prefetchers follow one stream best.
"""

from __future__ import annotations

from functools import partial

import attrs
import numpy as np

from morello.ir.numbers import Num
from morello.ir.spec import LogicalSpec
from morello.kernels.site import KernelSite
from morello.plugins import Machine, Microkernel, Multiple
from morello_x86.kernels.dot_code import SIDE_BY_SIDE, Computing, DotProduct, JammedProducts, accumulators
from morello_x86.kernels.tile_cost import smooth_maximum

_COLUMN = 2
#: Columns whose sums are added up together.
_FOUR = 4
#: Sums of the column that is read, one of each of the others, and what a step needs besides.
_REGISTERS = SIDE_BY_SIDE + _FOUR
#: Tenths of a cycle to start a column.
_TURN = 20


def _emit(product: DotProduct, site: KernelSite) -> None:
    """Print a loop over four columns at a time."""
    _, _, length, columns = map(int, site.spec.shape)
    lhs, rhs, out = (site.operand(index) for index in range(3))
    names = [site.fresh(name) for name in ("lhs_at", "columns", "sums_at")]
    n = site.fresh("n")
    site.line(f"for (ptrdiff_t {n} = 0; {n} < {columns}; {n} += {_FOUR}) {{")
    places = (lhs.pointer(), f"{rhs.pointer()} + {n} * {rhs.stride(_COLUMN)}", f"{out.pointer()} + {n}")
    for name, place, state, const in zip(names, places, site.spec.states, ("const ", "const ", ""), strict=True):
        site.line(f"    {const}{state.dtype.c_name} *const {name} = {place};")
    sums = product.zeros(site, _FOUR, accumulators(length // product.count(site)))
    for column, own in enumerate(sums):
        place = rhs.stride(_COLUMN) * column
        pointers = (names[0], f"{names[1]} + {place}" if column else names[1])
        # Otherwise clang unrolls all loops and mixes them, which is three times as slow.
        site.line('    __asm__ volatile("" ::: "memory");')
        product.loop(JammedProducts([site], [pointers], [own]), length)
    product.add_four(site, names[2], sums)
    site.line("}")


def in_columns(kernel: Microkernel, product: DotProduct, computing: Computing) -> Microkernel:
    """Return the kernel that computes four or more dot products of `kernel` on columns in L2 or memory.

    `computing` are the tenths of a cycle of one of them, which overlap with reading.
    """
    lhs, rhs, out = kernel.operands
    assert isinstance(kernel.shape, tuple)

    def cost(spec: LogicalSpec, machine: Machine) -> Num:
        computed = spec.shape[3] * (computing(spec) + _TURN)
        total = np.rint(smooth_maximum(computed, machine.move_cost(spec.operand(1)))).astype(np.int64)
        total = total + machine.move_cost(spec.operand(2))
        return total if total.ndim else int(total)

    return attrs.evolve(
        kernel,
        name=kernel.name.replace("DotProductLoop", "RowTimesColumns"),
        operands=(lhs, attrs.evolve(rhs, levels=("L2", "GL")), attrs.evolve(out, levels=("L1",))),
        shape=(*kernel.shape[:3], Multiple(of=_FOUR)),
        cost=cost,
        registers={"VRF": _REGISTERS},
        emit=partial(_emit, product),
        jam=None,
    )
