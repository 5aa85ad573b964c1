"""Places in memories that software manages, such as scratchpads: each tensor has its own while it lives."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager

from morello.errors import EmitError
from morello.ir.tensor import TensorSpec
from morello.kernels.machine import Machine


class Memories:
    """Hands out places, one behind the other; `bases` are C expressions for the memories' starts, by level."""

    def __init__(self, bases: Mapping[str, str]):
        self._bases = bases
        self._held = dict.fromkeys(bases, 0)

    def __contains__(self, level: str) -> bool:
        return level in self._bases

    @contextmanager
    def place(self, tensor: TensorSpec, name: str, machine: Machine) -> Generator[str]:
        """Yield the C that declares `name` as a pointer to a place for `tensor`, which is its own in the context.

        Raises EmitError where no place is left.
        """
        level, kind = machine.level(tensor.state.level), tensor.state.dtype.c_name
        held, step = self._held[level.name], max(level.unit, level.alignment)
        self._held[level.name] += -(-int(tensor.bytes) // step) * step
        if self._held[level.name] > level.capacity:
            what = f"{name} is {int(tensor.bytes)} bytes, and {level.capacity - held} are left"
            raise EmitError(f"{level.name} of {machine.name} is full: {what}", "move less to it at a time")
        yield f"{kind} *const {name} = ({kind} *)((char *){self._bases[level.name]} + {held});"
        self._held[level.name] = held
