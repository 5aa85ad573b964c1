"""Operands on their way from where callers have them to where the Spec does, and back."""

from __future__ import annotations

from collections.abc import Iterator

from morello.ir.numbers import product
from morello.kernels.buffers import View
from morello.kernels.site import Printer


def transfers(inside: View, outside: View, printer: Printer, *, store: bool) -> Iterator[str]:
    """Yield the C that loads an operand, or stores it: in registers one by one, else all that lies together."""
    if inside.buffer.in_registers:
        yield from _registers(inside, outside, printer, store=store)
        return
    state, shape = inside.tensor.state, tuple(int(size) for size in inside.tensor.shape)
    assert state.layout is not None, "what has no layout is in registers"
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
