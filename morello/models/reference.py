"""The reference semantics of graphs: the plan, evaluated in numpy with the operations' reference semantics."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs
import numpy as np

from morello.frontend.parser import parse_signed
from morello.ir.dtypes import DType
from morello.ir.ops.common import as_type
from morello.ir.signature import Signature
from morello.models.graph import Graph, Node, Step
from morello.models.places import Buffer, Place
from morello.models.plan import plan_of
from morello.verify.reference import reference_target


@attrs.define
class Memory:
    """The buffers of a graph's plan for these inputs, with values as `stored` returns them, at first zeros."""

    graph: Graph
    inputs: Mapping[str, np.ndarray]
    stored: Callable[[np.ndarray, DType], np.ndarray]
    buffers: dict[Buffer, np.ndarray] = attrs.field(factory=dict[Buffer, np.ndarray])

    def at(self, place: Place) -> np.ndarray:
        """Return the values at a place, on the memory of its buffer."""
        buffer = place.buffer
        if buffer not in self.buffers:
            value = self.inputs.get(buffer.name) if buffer.kind == "input" else None
            value = self.graph.tensors[buffer.name].value if buffer.kind == "constant" else value
            given = np.zeros(buffer.size) if value is None else np.ascontiguousarray(value).reshape(-1)
            self.buffers[buffer] = self.stored(given, buffer.dtype)
        return place.values(self.buffers[buffer])


def evaluated(graph: Graph, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the tensors of a graph by name, before or after passes: floats as float64, so rounding is negligible.

    They are the inputs, the constants, and the outputs of nodes, or of steps if it has steps.
    """
    steps = (Step.of(part) if isinstance(part, Node) else part for part in graph.parts)
    graph = attrs.evolve(graph, parts=tuple(steps))
    plan, target = plan_of(graph), reference_target()
    memory, found = Memory(graph, inputs, as_type), dict[str, np.ndarray]()
    for call in plan.calls:
        spec, signature = parse_signed(call.written.text, target)
        logical = spec.logical
        order = signature or Signature.of(logical)
        arrays = order.in_spec_order([memory.at(place) for place in call.written.places])
        names = order.in_spec_order(call.written.tensors)
        operands = logical.op.operands(len(logical.shape))
        read = [
            array.reshape(tensor.shape)
            for array, tensor, one in zip(arrays, logical.operands, operands, strict=True)
            if one.reads
        ]
        dtypes = [state.dtype for state in logical.states]
        made = iter(logical.op.evaluate(tuple(map(int, logical.shape)), read, dtypes))
        for name, array, one, dtype in zip(names, arrays, operands, dtypes, strict=True):
            if one.writes:
                array[...] = as_type(next(made), dtype).reshape(array.shape)
                if name in graph.tensors:
                    found[name] = array.reshape(graph.tensors[name].shape).copy()
    outputs = {
        one.name: flat.reshape(graph.tensors[one.name].shape)
        for one, flat in memory.buffers.items()
        if one.kind == "output"
    }
    return found | outputs
