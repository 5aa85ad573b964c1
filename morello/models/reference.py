"""The reference semantics of graphs: the plan, evaluated in numpy with the operations' reference semantics."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import numpy as np
from numpy.lib.stride_tricks import as_strided

from morello.frontend.parser import parse_signed
from morello.ir.ops.common import as_type
from morello.ir.signature import Signature
from morello.models.graph import Graph, Node, Step
from morello.models.places import Buffer, Place
from morello.models.plan import plan_of
from morello.verify.reference import reference_target


def evaluated(graph: Graph, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the tensors of a graph by name, before or after passes: floats as float64, so rounding is negligible.

    They are the inputs, the constants, and the outputs of nodes, or of steps if it has steps.
    """
    steps = (_step(part) if isinstance(part, Node) else part for part in graph.parts)
    graph = attrs.evolve(graph, parts=tuple(steps))
    plan, target = plan_of(graph), reference_target()
    memory: dict[Buffer, np.ndarray] = {}
    found: dict[str, np.ndarray] = {}

    def array_of(place: Place) -> np.ndarray:
        buffer = place.buffer
        if buffer not in memory:
            value = inputs.get(buffer.name) if buffer.kind == "input" else None
            value = graph.tensors[buffer.name].value if buffer.kind == "constant" else value
            given = np.zeros(buffer.size) if value is None else np.ascontiguousarray(value).reshape(-1)
            memory[buffer] = as_type(given, buffer.dtype)
        flat = memory[buffer]
        return as_strided(flat[place.start :], place.shape, [flat.itemsize * one for one in place.strides])

    for call in plan.calls:
        spec, signature = parse_signed(call.written.text, target)
        logical = spec.logical
        order = signature or Signature.of(logical)
        arrays = order.in_spec_order([array_of(place) for place in call.written.places])
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
        one.name: flat.reshape(graph.tensors[one.name].shape) for one, flat in memory.items() if one.kind == "output"
    }
    return found | outputs


def _step(node: Node) -> Step:
    return Step((node,), tuple(dict.fromkeys(node.inputs)), node.outputs)
