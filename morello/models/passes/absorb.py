"""Multiplies constants of each channel into the weights before them, and adds them to the bias."""

from __future__ import annotations

import attrs
import numpy as np

from morello.models.graph import Graph, Node, Part, Tensor
from morello.models.passes.rewriting import with_constant

#: The dimension of the channels in the output, and in the weights, of each operation.
_CHANNELS = {"Conv": (1, 0), "Conv1d": (1, 0), "Conv3d": (1, 0), "Matmul": (-1, -1)}


@attrs.define
class _Chain:
    """A product at a place among the parts, and the bias that is added to it."""

    product: int
    add: int | None = None


def absorb(graph: Graph) -> Graph:
    """Return the graph with multiplications and additions of constants of each channel in the products before them."""
    parts, tensors = list[Part](), dict(graph.tensors)
    chains: dict[str, _Chain] = {}
    for part in graph.parts:
        found = _of_channels(graph, part, chains, parts)
        if not isinstance(part, Node) or not found:
            parts.append(part)
            if isinstance(part, Node) and part.op in _CHANNELS and graph.is_constant(part.inputs[1]):
                chains[part.outputs[0]] = _Chain(len(parts) - 1)
            continue
        source, constant = found
        chain, value = chains.pop(source), graph.tensors[constant].value
        assert value is not None
        if part.op == "Mul":
            _scale(parts, tensors, chain, value)
        add = parts[chain.add] if chain.add is not None else None
        if part.op == "Add" and add:
            bias = tensors[add.inputs[1]]
            assert bias.value is not None
            total = (bias.value.astype(np.float64) + value).astype(bias.dtype.numpy)
            parts[chain.add or 0] = attrs.evolve(
                add, inputs=(add.inputs[0], _new(tensors, bias, total)), outputs=part.outputs
            )
        elif part.op == "Add":
            parts.append(attrs.evolve(part, inputs=(source, constant)))
            chain.add = len(parts) - 1
        else:
            last = chain.product if chain.add is None else chain.add
            parts[last] = attrs.evolve(parts[last], outputs=part.outputs)
        chains[part.outputs[0]] = chain
    return attrs.evolve(graph, tensors=tensors).with_parts(tuple(parts))


def _of_channels(graph: Graph, part: Part, chains: dict[str, _Chain], parts: list[Part]) -> tuple[str, str] | None:
    """Return the output of a product and the constant of each channel that a node takes; None for another node."""
    if not isinstance(part, Node) or part.op not in ("Mul", "Add"):
        return None
    if not (found := with_constant(graph, part)) or found[0] not in chains or not graph.is_only_read(found[0]):
        return None
    source, constant = found
    shape, dims = graph.tensors[constant].shape, graph.tensors[source].shape
    product = parts[chains[source].product]
    assert isinstance(product, Node)
    channel = _CHANNELS[product.op][0] % len(dims)
    padded = (1,) * (len(dims) - len(shape)) + shape
    fits = len(padded) == len(dims) and all(size == 1 for dim, size in enumerate(padded) if dim != channel)
    return found if fits else None


def _scale(parts: list[Part], tensors: dict[str, Tensor], chain: _Chain, by: np.ndarray) -> None:
    """Multiply the weights of a product, and its bias, by values of each channel, or by one value."""
    product = parts[chain.product]
    assert isinstance(product, Node)
    weights = tensors[product.inputs[1]]
    assert weights.value is not None
    shape = [1] * weights.value.ndim
    shape[_CHANNELS[product.op][1]] = -1
    scaled = (weights.value * by.astype(np.float64).reshape(shape)).astype(weights.dtype.numpy)
    parts[chain.product] = attrs.evolve(product, inputs=(product.inputs[0], _new(tensors, weights, scaled)))
    if chain.add is not None:
        add = parts[chain.add]
        bias = tensors[add.inputs[1]]
        assert bias.value is not None
        value = (bias.value * by.astype(np.float64)).astype(bias.dtype.numpy)
        parts[chain.add] = attrs.evolve(add, inputs=(add.inputs[0], _new(tensors, bias, value)))


def _new(tensors: dict[str, Tensor], like: Tensor, value: np.ndarray) -> str:
    """Add a constant, named after the one that it replaces; return its name."""
    name = next(found for number in range(len(tensors) + 1) if (found := f"{like.name}.{number}") not in tensors)
    tensors[name] = attrs.evolve(like, name=name, shape=value.shape, value=value)
    return name
