"""Translate the nodes of a framework to nodes and views of a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from types import MappingProxyType
from typing import Any, TypeAlias

import attrs
import numpy as np

from morello.errors import MorelloError
from morello.ir.dtypes import ALL, DType
from morello.ir.ops import BY_NAME
from morello.ir.ops.base import Value
from morello.ir.ops.binary import Binary
from morello.ir.ops.move import Move
from morello.ir.ops.quantize import ToBytes
from morello.ir.ops.unary import Unary
from morello.models.graph import Graph, Node, Part, Step, Tensor, View

#: The most values of a tensor, and of a constant that is a view of another one.
MOST_VALUES, _MOST_SEEN = 1 << 32, 1 << 28
#: The most nodes of a step: searches of more take long.
_MOST_NODES = 10
_BY_NUMPY = {one.numpy: one for one in ALL}


class Unsupported(Exception):
    """A node that has no translation, with the reason."""


def dtype_of(numpy: np.dtype | type) -> DType:
    """Return the data type of values of a type of numpy. Raises Unsupported."""
    try:
        return _BY_NUMPY[np.dtype(numpy)]
    except KeyError:
        raise Unsupported(f"values of type {np.dtype(numpy)}") from None


@attrs.frozen
class Source:
    """A node of the framework: `inputs` that it leaves out are empty names."""

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    #: The version of the operator set.
    version: int

    def get(self, name: str, default: Any = None) -> Any:
        """Return an attribute, words as text."""
        found = self.attributes.get(name, default)
        return found.decode() if isinstance(found, bytes) else found

    def input(self, number: int) -> str:
        """Return the name of an input; empty if it is left out."""
        return self.inputs[number] if number < len(self.inputs) else ""


@attrs.define
class Builder:
    """A graph in the making. Shapes and types of all tensors of the source are known before."""

    tensors: dict[str, Tensor] = attrs.field(factory=dict[str, Tensor])
    parts: list[Part] = attrs.field(factory=list[Part])
    #: The node that is translated now.
    source: str = ""
    #: The tensors that no node of the source has.
    made: set[str] = attrs.field(factory=set[str])
    #: The number of the last new tensor.
    fresh: int = 0

    def shape(self, name: str) -> tuple[int, ...]:
        return self.tensors[name].shape

    def rank(self, name: str) -> int:
        return len(self.shape(name))

    def value(self, name: str, what: str) -> np.ndarray:
        """Return the value of a constant. Raises Unsupported if it is none."""
        found = self.tensors[name].value
        if found is None:
            raise Unsupported(f"{what} that is not constant")
        return found

    def constant(self, value: np.ndarray) -> str:
        """Return the name of a new constant."""
        return self._new(Tensor(self._fresh("constant"), value.shape, dtype_of(value.dtype), value))

    def tensor(self, shape: Sequence[int], dtype: DType) -> str:
        """Return the name of a new tensor. Raises Unsupported for more values than one may have."""
        if prod(shape) > MOST_VALUES:
            raise Unsupported(f"values of the shape {tuple(shape)}")
        name = self._new(Tensor(self._fresh("part"), tuple(map(int, shape)), dtype))
        self.made.add(name)
        return name

    def node(
        self,
        op: str,
        *inputs: str,
        to: str = "",
        shape: Sequence[int] | None = None,
        dtype: DType | None = None,
        given: Mapping[str, Value] = MappingProxyType({}),
        groups: int = 1,
    ) -> str:
        """Add a node with the parameters `given`; return the name of its output.

        The output is `to`, or a new tensor of this `shape` and `dtype`, by default the shape to which the inputs are
        repeated, and the first one's type. Raises Unsupported for types that a function of each value does not take.
        """
        if "" in inputs:
            raise Unsupported("a left out input")
        if not to:
            shape = np.broadcast_shapes(*map(self.shape, inputs)) if shape is None else shape
            to = self.tensor(shape, dtype or self.tensors[inputs[0]].dtype)
        found = BY_NAME.get(op)
        if isinstance(found, (Unary, Binary, Move, ToBytes)):
            types = [self.tensors[name].dtype for name in (*inputs, to)]
            self._check(to, np.broadcast_shapes(*map(self.shape, inputs)))
            fault = found.configured(given).refusal(self.shape(to) or (1,), types)
            if fault:
                raise Unsupported(f"{op}: {fault.message}")
        self.parts.append(Node(self.source, op, inputs, (to,), given, groups))
        return to

    def nodes(self, op: str, inputs: Sequence[str], outputs: Sequence[str], given: Mapping[str, Value]) -> None:
        """Add a node of several outputs."""
        self.parts.append(Node(self.source, op, tuple(inputs), tuple(outputs), given))

    @contextmanager
    def step(self) -> Iterator[list[str]]:
        """Make the nodes of the block one step, of the outputs that it lists; the last node makes the first of them.

        Where they are too many for one kernel, they stay apart.
        """
        first, outputs = len(self.parts), list[str]()
        yield outputs
        nodes = [one for one in self.parts[first:] if isinstance(one, Node)]
        if len(nodes) <= _MOST_NODES:
            self.parts[first:] = [Step.of(*nodes, outputs=outputs)]

    def scaled(self, source: str, by: float, to: str = "") -> str:
        """Add the product of a tensor and a number; return its name."""
        return self.node("Scale", source, to=to, given={"by": float(by)})

    def converted(self, source: str, dtype: DType) -> str:
        """Return a tensor in another type, constants as constants."""
        one = self.tensors[source]
        if one.dtype == dtype:
            return source
        if one.value is not None:
            return self.constant(one.value.astype(dtype.numpy))
        return self.node("Move", source, dtype=dtype)

    def number(self, value: float, like: str) -> str:
        """Return the name of a new constant of one value, of the type of a tensor."""
        return self.constant(np.array(value, self.tensors[like].dtype.numpy))

    def slice(self, source: str, dim: int, start: int, stop: int, to: str = "") -> str:
        """Add the view of a part along a dimension; return its name."""
        given = [slice(0, size, 1) for size in self.shape(source)]
        given[dim] = slice(start, stop, 1)
        return self.view("slice", source, given, to)

    def gathered(self, source: str, dim: int, indices: np.ndarray | str, to: str = "") -> str:
        """Add the values at a list of indices of a dimension; return its name."""
        if not isinstance(indices, str):
            indices = self.constant(np.asarray(indices, np.int64))
        shape = self.shape(source)
        made = (*shape[:dim], *self.shape(indices), *shape[dim + 1 :])
        return self.node("Gather", source, indices, to=to, shape=made, given={"dim": dim})

    def dims(self, node: Source, default: Sequence[int] = ()) -> tuple[int, ...]:
        """Return the dimensions that the attribute or second input `axes` of a node gives, ascending."""
        axes = node.get("axes")
        if axes is None and node.input(1):
            axes = self.value(node.inputs[1], "a list of dimensions").tolist()
        return tuple(sorted(axis % self.rank(node.inputs[0]) for axis in axes)) if axes else tuple(default)

    def view(self, kind: str, source: str, given: Sequence[Any], to: str = "") -> str:
        """Add a view; return its name. Those of constants are constants."""
        found = View(self.source, kind, source, to, tuple(given))
        value = self.tensors[source].value
        shape = found.of(np.empty(self.shape(source), np.int8)).shape
        if value is not None and prod(shape) > max(value.size, _MOST_SEEN):
            raise Unsupported(f"a constant of the shape {shape}")
        if value is not None and not to:
            return self.constant(np.ascontiguousarray(found.of(np.ascontiguousarray(value))))
        self._check(to, shape)
        if value is not None:
            made = np.ascontiguousarray(found.of(np.ascontiguousarray(value)))
            self.tensors[to] = attrs.evolve(self.tensors[to], value=made)
            return to
        to = to or self.tensor(shape, self.tensors[source].dtype)
        self.parts.append(attrs.evolve(found, output=to))
        return to

    def reshape(self, source: str, shape: Sequence[int], to: str = "") -> str:
        """Add a view of another shape; return its name."""
        last = self.parts[-1] if self.parts else None
        if to and source in self.made and isinstance(last, Node) and last.outputs == (source,):
            one, other = self.tensors[source], self.tensors[to]
            if (one.shape, one.dtype) == (other.shape, other.dtype):
                # Nothing else reads it: the node computes this tensor itself.
                self.parts[-1] = attrs.evolve(last, outputs=(to,))
                return to
        return self.view("reshape", source, tuple(map(int, shape)), to)

    def graph(self, name: str, inputs: Sequence[str], outputs: Sequence[str]) -> Graph:
        made = Graph(name, tuple(inputs), tuple(outputs), self.tensors, tuple(self.parts))
        return made.with_parts(made.parts)

    def _check(self, to: str, shape: tuple[int, ...]) -> None:
        """Raise Unsupported for a tensor that the model gives another shape."""
        if to and self.shape(to) != shape:
            raise Unsupported(f"its result has the shape {shape}, and {to} has {self.shape(to)}")

    def _new(self, one: Tensor) -> str:
        self.tensors[one.name] = one
        return one.name

    def _fresh(self, stem: str) -> str:
        self.fresh += 1
        name = f"{self.source}.{stem}{self.fresh}"
        return name if name not in self.tensors else self._fresh(stem)


Translation: TypeAlias = Callable[[Builder, Source], None]
#: The function that translates each operator.
OPERATORS: dict[str, Translation] = {}


def translates(*operators: str) -> Callable[[Translation], Translation]:
    """Register the function that translates these operators."""

    def register(function: Translation) -> Translation:
        for one in operators:
            if one in OPERATORS:
                raise MorelloError(f"two functions translate {one}", "remove one of them")
            OPERATORS[one] = function
        return function

    return register
