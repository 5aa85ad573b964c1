"""What translates a node of a framework to nodes and views of a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

import attrs
import numpy as np

from morello.errors import MorelloError
from morello.ir.dtypes import ALL, DType
from morello.ir.ops.base import Value
from morello.models.graph import Graph, Node, Part, Tensor, View

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
        """Return the name of a new tensor."""
        return self._new(Tensor(self._fresh("part"), tuple(map(int, shape)), dtype))

    def node(
        self,
        op: str,
        *inputs: str,
        to: str = "",
        shape: Sequence[int] = (),
        given: Mapping[str, Value] = MappingProxyType({}),
        groups: int = 1,
    ) -> str:
        """Add a node with the parameters `given`; return the name of its output.

        The output is `to`, or a new tensor of this `shape` and of the first input's type.
        """
        output = to or self.tensor(shape, self.tensors[inputs[0]].dtype)
        self.parts.append(Node(self.source, op, inputs, (output,), given, groups))
        return output

    def view(self, kind: str, source: str, given: Sequence[Any], to: str = "") -> str:
        """Add a view; return its name. Those of constants are constants."""
        found = View(self.source, kind, source, to, tuple(given))
        value = self.tensors[source].value
        if value is not None:
            made = np.ascontiguousarray(found.of(np.ascontiguousarray(value)))
            if not to:
                return self.constant(made)
            self.tensors[to] = attrs.evolve(self.tensors[to], value=made)
            return to
        if not to:
            shape = found.of(np.broadcast_to(np.int8(0), self.shape(source)).copy()).shape
            to = self.tensor(shape, self.tensors[source].dtype)
        self.parts.append(attrs.evolve(found, output=to))
        return to

    def reshape(self, source: str, shape: Sequence[int], to: str = "") -> str:
        return self.view("reshape", source, tuple(map(int, shape)), to)

    def graph(self, name: str, inputs: Sequence[str], outputs: Sequence[str]) -> Graph:
        made = Graph(name, tuple(inputs), tuple(outputs), self.tensors, tuple(self.parts))
        return made.with_parts(made.parts)

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
