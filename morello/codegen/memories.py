"""Software-managed memories, such as scratchpads, and transfers of operands to and from where a Spec has them."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager

from morello.errors import EmitError
from morello.ir.numbers import product
from morello.ir.tensor import TensorSpec
from morello.kernels.buffers import View
from morello.kernels.machine import Machine
from morello.kernels.site import Printer


class Memories:
    """Allocates tensors in stack order; `bases` are C expressions for the start of each memory, by level."""

    def __init__(self, bases: Mapping[str, str]):
        self._bases = bases
        self._held = dict.fromkeys(bases, 0)

    def __contains__(self, level: str) -> bool:
        return level in self._bases

    @contextmanager
    def place(self, tensor: TensorSpec, name: str, machine: Machine) -> Generator[str]:
        """Yield the C that declares `name` as a pointer to memory reserved for `tensor` within the context.

        Raises EmitError if the memory is full.
        """
        level, kind = machine.level(tensor.state.level), tensor.state.dtype.c_name
        held, step = self._held[level.name], max(level.unit, level.alignment)
        self._held[level.name] += -(-int(tensor.bytes) // step) * step
        if self._held[level.name] > level.capacity:
            what = f"{name} is {int(tensor.bytes)} bytes, and {level.capacity - held} are left"
            raise EmitError(f"{level.name} of {machine.name} is full: {what}", "move less to it at a time")
        yield f"{kind} *const {name} = ({kind} *)((char *){self._bases[level.name]} + {held});"
        self._held[level.name] = held


def transfers(inside: View, outside: View, printer: Printer, *, store: bool) -> Iterator[str]:
    """Yield the C that loads or stores an operand: registers one by one, memory in contiguous runs."""
    if inside.buffer.in_registers:
        yield from _registers(inside, outside, printer, store=store)
        return
    state, shape = inside.tensor.state, tuple(int(size) for size in inside.tensor.shape)
    assert state.layout is not None, "tensors without a layout are in registers"
    sizes = state.layout.physical_shape(shape)
    together = product(sizes[len(sizes) - state.contig :])
    for position in range(0, int(inside.tensor.volume), together):
        views = (outside, inside) if store else (inside, outside)
        places = ", ".join(f"{view.buffer.name} + {view.offset(position)}" for view in views)
        yield f"memcpy({places}, {together * state.dtype.bytes});"


def _registers(inside: View, outside: View, printer: Printer, *, store: bool) -> Iterator[str]:
    state = inside.tensor.state
    for position in range(0, int(inside.tensor.volume), state.vector or 1):
        variable, offset = inside.variable(position), outside.offset(position)
        place = f"{outside.buffer.name}[{offset}]"
        if state.vector is None:
            yield f"{place} = {variable};" if store else f"{variable} = {place};"
        else:
            function = (printer.store if store else printer.load)(state.dtype, state.vector)
            yield f"{function}(&{place}, {variable});" if store else f"{variable} = {function}(&{place});"
