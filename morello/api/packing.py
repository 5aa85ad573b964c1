"""Constants of kernels: packed at the first call with an array, and kept as long as the array lives."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import attrs

from morello.errors import ArgumentError
from morello.ir.tensor import TensorSpec


@attrs.frozen(eq=False)
class Packed:
    """A packed constant, which calls take in place of the array it was made of."""

    array: Any
    tensor: TensorSpec


class PackedConstants:
    """The packed forms of one constant operand, by the identity of arrays. `make` packs an array into another one."""

    def __init__(self, name: str, tensor: TensorSpec, make: Callable[[Any], Any]):
        self.name, self._tensor, self._make = name, tensor, make
        self._known: dict[int, tuple[weakref.ref[Any], Packed]] = {}

    def pack(self, array: Any) -> Packed:
        """Return the packed form of an array, which is not kept. Raises ArgumentError for one that does not fit."""
        try:
            return Packed(self._make(array), self._tensor)
        except ArgumentError as error:
            if not error.message.startswith("operand 0 "):
                raise
            # Other hints name operands of the kernel that packs.
            hint = "pass one: numpy.ascontiguousarray(...)" if "kernel." in (error.hint or "") else error.hint
            raise ArgumentError(f"the constant {self.name}: {error.message.partition(': ')[2]}", hint) from error

    def of(self, array: Any) -> Any:
        """Return the array that a call takes for this one, or for a packed constant. Raises ArgumentError."""
        if isinstance(array, Packed):
            if array.tensor != self._tensor:
                wanted = f"a constant packed as {self._tensor}"
                raise ArgumentError(f"{self.name}: expected {wanted}, got {array.tensor}", "pack it with this kernel")
            return array.array
        key = id(array)
        known = self._known.get(key)
        if known is None or known[0]() is not array:
            packed = self.pack(array)
            try:
                known = weakref.ref(array, lambda _: self._known.pop(key, None)), packed
            except TypeError:
                kind = type(array).__name__
                message = f"{self.name}: no weak references to {kind}, so that its packed form cannot be kept"
                raise ArgumentError(message, "pass kernel.pack(array)") from None
            self._known[key] = known
        return known[1].array

    def forget(self, array: Any) -> None:
        """Release the packed form of an array: the next call with it packs it again."""
        self._known.pop(id(array), None)
