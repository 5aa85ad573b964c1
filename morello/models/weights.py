"""The constants of a model as bytes, packed at build time as kernels take them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import attrs
import numpy as np

from morello.api.kernel import Kernel
from morello.ir.program import Parameter
from morello.models.arena import rounded
from morello.models.places import Place
from morello.models.plan import Plan
from morello.run.arrays import pack

#: The constant, and if it is packed, its place and form.
_Key = tuple[object, ...]


@attrs.frozen(eq=False)
class Weights:
    """The bytes of all constants. Equal ones, of several targets too, are there once."""

    data: bytes
    starts: Mapping[_Key, int]

    def start(self, place: Place, one: Parameter, kernel: Kernel) -> int:
        """Return the byte from which a kernel reads the constant at a place."""
        moved = 0 if _is_packed(one, kernel) else place.start * place.buffer.dtype.bytes
        return self.starts[_key(place, one, kernel)] + moved


def weights_of(plan: Plan, variants: Sequence[Sequence[Kernel]]) -> Weights:
    """Return the constants of a plan for kernels of its calls, those of one target after those of another."""
    starts: dict[_Key, int] = {}
    by_content: dict[bytes, int] = {}
    parts: list[bytes] = []
    size = 0
    for kernels in variants:
        for call, kernel in zip(plan.calls, kernels, strict=True):
            for place, one in zip(call.written.places, kernel.program.parameters, strict=True):
                key = _key(place, one, kernel)
                if place.buffer.kind != "constant" or key in starts:
                    continue
                data = _bytes(plan, place, one, kernel)
                content = hashlib.sha256(data).digest()
                if content not in by_content:
                    by_content[content] = size
                    parts += [data, bytes(rounded(len(data)) - len(data))]
                    size += rounded(len(data))
                starts[key] = by_content[content]
    return Weights(b"".join(parts), starts)


def _bytes(plan: Plan, place: Place, one: Parameter, kernel: Kernel) -> bytes:
    value = plan.graph.tensors[place.buffer.name].value
    assert value is not None
    flat = np.ascontiguousarray(value).reshape(-1)
    if _is_packed(one, kernel):
        flat = pack(np.ascontiguousarray(place.values(flat)), one.tensor)
    # An array in another order of dimensions has the logical shape: its values are taken as they are in memory.
    return flat.ravel(order="K").tobytes()


def _is_packed(one: Parameter, kernel: Kernel) -> bool:
    return one.operand in kernel.goal.spec.logical.op.constants


def _key(place: Place, one: Parameter, kernel: Kernel) -> _Key:
    """Return what determines the bytes of a constant."""
    packed = (place.start, place.shape, place.strides, one.tensor) if _is_packed(one, kernel) else ()
    return (place.buffer.name, *packed)
