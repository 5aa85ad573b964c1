"""The graph of a model: named tensors, nodes that compute, and views of tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from math import prod
from typing import Any, TypeAlias

import attrs
import numpy as np

from morello.ir.dtypes import DType
from morello.ir.ops.base import Value
from morello.run.arrays import convert, random_values


@attrs.frozen
class Tensor:
    """A tensor; `value` is that of a constant, of the same shape."""

    name: str
    shape: tuple[int, ...]
    dtype: DType
    value: np.ndarray | None = attrs.field(default=None, eq=False, repr=False)

    @property
    def size(self) -> int:
        """Return the number of values."""
        return prod(self.shape)

    def random(self, rng: np.random.Generator) -> np.ndarray:
        """Return ordinary values; those of integers are small, as they may be indices."""
        if self.dtype.is_float:
            return random_values(rng, self.shape, self.dtype)
        return convert(rng.integers(0, 2, self.shape), self.dtype)


@attrs.frozen
class Node:
    """An operation or named graph of the Spec language, with its parameters, on tensors as frameworks have them.

    Binary operations repeat operands as numpy does. `Matmul` has numpy's batches and vectors; `Conv`, `ConvTranspose`
    and their forms of one and three dimensions have groups, of which `groups` is the number. `name` is that of the node
    in the source.
    """

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    parameters: Mapping[str, Value] = attrs.field(factory=dict[str, Value], converter=dict[str, Value])
    groups: int = 1

    def __str__(self) -> str:
        return f"{self.name} ({self.op})"


@attrs.frozen
class View:
    """The tensor `output` on the memory of `source`: `given` are sizes, dimensions or slices, by its `kind`."""

    name: str
    kind: str
    source: str
    output: str
    given: tuple[Any, ...]

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.source,)

    @property
    def outputs(self) -> tuple[str, ...]:
        return (self.output,)

    def of(self, array: np.ndarray) -> np.ndarray:
        """Return the view of an array. Raises ValueError where it needs a copy."""
        if self.kind == "slice":
            return array[self.given]
        if self.kind == "transpose":
            return array.transpose(self.given)
        if self.kind == "expand":
            return np.broadcast_to(array, self.given)
        return array.reshape(self.given, copy=False)


@attrs.frozen
class Step:
    """Nodes that one kernel computes, in the order in which they run."""

    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @classmethod
    def of(cls, *nodes: Node, outputs: Sequence[str] = ()) -> Step:
        """Return the step of nodes; its outputs are by default those of the last one."""
        made = {name for node in nodes for name in node.outputs}
        inputs = dict.fromkeys(name for node in nodes for name in node.inputs if name not in made)
        return cls(nodes, tuple(inputs), tuple(outputs) or nodes[-1].outputs)

    @property
    def name(self) -> str:
        return self.nodes[0].name

    def __str__(self) -> str:
        return " + ".join(node.op for node in self.nodes)


Part: TypeAlias = Node | View | Step


@attrs.frozen
class Graph:
    """A model. `parts` run in this order; each tensor that is no input and no constant is the output of one."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    tensors: Mapping[str, Tensor]
    parts: tuple[Part, ...]

    @cached_property
    def makers(self) -> Mapping[str, Part]:
        """Return the part that makes each tensor, by name."""
        return {name: part for part in self.parts for name in part.outputs}

    @cached_property
    def readers(self) -> Mapping[str, tuple[Part, ...]]:
        """Return the parts that read each tensor, by name."""
        found: dict[str, list[Part]] = {name: [] for name in self.tensors}
        for part in self.parts:
            for name in dict.fromkeys(part.inputs):
                found[name].append(part)
        return {name: tuple(parts) for name, parts in found.items()}

    @property
    def nodes(self) -> Iterator[Node]:
        """Yield the nodes, also those in steps."""
        for part in self.parts:
            if isinstance(part, Node):
                yield part
            elif isinstance(part, Step):
                yield from part.nodes

    def is_constant(self, name: str) -> bool:
        return self.tensors[name].value is not None

    def is_only_read(self, name: str) -> bool:
        """Return whether one part, and nothing else, reads a tensor."""
        return len(self.readers[name]) == 1 and name not in self.outputs

    def with_parts(self, parts: Iterator[Part] | tuple[Part, ...]) -> Graph:
        """Return the graph with other parts, without the tensors that nothing uses any more."""
        parts = tuple(parts)
        used = {*self.inputs, *self.outputs}
        for part in parts:
            for one in part.nodes if isinstance(part, Step) else (part,):
                used.update(one.inputs, one.outputs)
        kept = {name: one for name, one in self.tensors.items() if name in used}
        return attrs.evolve(self, parts=parts, tensors=kept)
