"""Functions of each value and copies from memory to memory whose outputs are stored past the caches."""

from __future__ import annotations

import attrs

from morello.ir.numbers import Mask, Num, choose
from morello.ir.ops.move import Move
from morello.ir.spec import LogicalSpec
from morello.plugins import Machine, Microkernel, OperandPattern
from morello_vectors.common import DTYPES_OF, HALF_CYCLE
from morello_vectors.core import LINE
from morello_vectors.lanes import VectorTemplate, in_lanes, lanewise, vectors, whole, width

#: Bytes from which on an output evicts nearly everything from caches, itself included.
LARGE = 16 << 20
#: Tenths of a cycle for a line of such an output, measured on a core of Zen 5, and for one that caches would have kept.
_LARGE_LINE, _SMALL_LINE = 30, 400


def by_traffic(spec: LogicalSpec, computing: Num, machine: Machine) -> Num:
    """Return the cost of streaming from memory to memory. The output comes last.

    Computing overlaps with the lines of large outputs; for others, lines cost too much to be chosen.
    """
    *inputs, out = spec.operands
    reading = sum(machine.move_cost(tensor) for tensor in inputs)
    lines, is_large = out.lines(LINE), out.bytes >= LARGE
    traffic = reading + lines * _LARGE_LINE
    slower = choose(traffic > computing, traffic, computing)
    return choose(is_large, slower, computing + reading + lines * _SMALL_LINE)


def streamed(kernel: Microkernel, template: VectorTemplate, widest: int, dtypes: tuple[str, ...]) -> Microkernel:
    """Return a kernel on memory like `kernel`, which prints `template` for every vector, but past the caches."""

    def fits(spec: LogicalSpec) -> Mask:
        valid = kernel.when(spec) if kernel.when else True
        return valid & (whole(spec).volume >= width(spec, widest))

    def cost(spec: LogicalSpec, machine: Machine) -> Num:
        return by_traffic(spec, kernel.call_cost(spec, machine), machine)

    return attrs.evolve(
        kernel,
        name=f"{kernel.name}Streamed",
        operands=(OperandPattern(levels=("GL",), dtypes=dtypes),) * len(kernel.operands),
        when=fits,
        cost=cost,
        emit=lanewise(template, widest, past_caches=True),
        in_place=False,  # vectors at the ends are computed twice
    )


def kernels(widest: int) -> tuple[Microkernel, ...]:
    """Return copies of 4-byte values in vectors of `widest` bytes."""
    copy = Microkernel(
        name="Move",
        op=Move(),
        operands=(OperandPattern(),) * 2,
        same=("dtype", "lanes"),
        when=lambda spec: in_lanes(spec, widest),
        cost=lambda spec, machine: 2 * HALF_CYCLE * vectors(spec, widest),
        registers={"VRF": 1},
    )
    return (streamed(copy, "{out} = {src};", widest, DTYPES_OF[4]),)
