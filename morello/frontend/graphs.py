"""Reads operations with their parameters, and the graphs of Composes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Protocol, Self, TypeAlias, TypeVar

import attrs
from lark import Token

from morello.errors import MorelloError, closest, suggestion
from morello.frontend import syntax
from morello.frontend.diagnostics import Source, Span, quoted
from morello.frontend.infer import result_shape
from morello.frontend.syntax import (
    EquationNode,
    FormulaNode,
    Numbers,
    OperationNode,
    ParameterNode,
    float_of,
    number_of,
    span,
)
from morello.ir.ops import Arranged, Operation, arranged
from morello.ir.ops.base import KnownShapes, Parameters, Value
from morello.ir.ops.constants import Constants
from morello.ir.ops.named_graphs import NAMED_GRAPHS, NamedGraph, expanded
from morello.ir.ops.wiring import chained, names_of, ranks_of

COMPOSE = "Compose"
CONSTANTS = Constants.__name__
#: Larger than any rank.
_RANKS = 33


#: The operations of a target or a registry, by name.
Operations: TypeAlias = Mapping[str, Operation]


def operation(source: Source, operations: Operations, node: OperationNode, *others: str) -> Operation:
    """Return the operation of the text with its parameters; `others` might have stood here too."""
    return configured(source, named(source, operations, node, *others), node)


def named(source: Source, operations: Operations, node: OperationNode, *others: str) -> Operation:
    """Return the operation that the text names, without its parameters; `others` might have stood here too."""
    if node.name not in operations:
        names = sorted([*operations, *others])
        # Frameworks write Conv2d for Conv.
        word, listing = node.name.removesuffix("2d"), f"operations are {', '.join(names)}"
        raise source.error(span(node.name), f"unknown operation {quoted(node.name)}", suggestion(word, names, listing))
    return operations[node.name]


class Configurable(Protocol):
    """Anything that takes parameters."""

    @property
    def name(self) -> str: ...
    @property
    def parameters(self) -> tuple[str, ...]: ...
    def configured(
        self, given: Parameters, shape: Sequence[int] | None = None, operands: KnownShapes = (), /
    ) -> Self: ...


C = TypeVar("C", bound=Configurable)


def configured(
    source: Source, op: C, node: OperationNode, shape: Sequence[int] | None = None, operands: KnownShapes = ()
) -> C:
    """Return the operation with the parameters of the text, if it has any.

    `shape` and `operands` are the iteration shape and the operands' shapes, as far as the text gives them.
    """
    given: dict[str, Value] = {}
    for parameter in node.parameters:
        if parameter.name not in op.parameters:
            takes = f"{op.name} takes {', '.join(op.parameters) or 'no parameters'}"
            hint = suggestion(parameter.name, op.parameters, takes)
            raise source.error(span(parameter.name), f"{op.name} has no parameter {quoted(parameter.name)}", hint)
        if parameter.name in given:
            raise source.error(span(parameter.name), f"a second {parameter.name}", "leave one of them out")
        given[str(parameter.name)] = _value(source, parameter)
    with source.at(node.span):
        return op.configured(given, shape, operands)


def _value(source: Source, node: ParameterNode) -> Value:
    value = node.value
    if value is None:
        return True
    if isinstance(value, Numbers):
        return tuple(number_of(source, one) for one in value.numbers)
    if value.type == "FLOAT":
        return float_of(source, value)
    return str(value) if value.type == "WORD" and str(value) not in source.sizes else number_of(source, value)


@attrs.frozen
class Graph:
    """The operations of a Compose and their inputs: entry e ≥ 0 is external input e, ~j the output of operation j.

    `ops` have no parameters yet; these are in `nodes`. The outputs of the operations `outputs` are also those of the
    Compose. `names` are those of the external inputs, then of these outputs and that of the first operation; `tokens`
    their places in equations, None for a chain.
    """

    place: Span
    ops: tuple[Operation | NamedGraph, ...]
    nodes: tuple[OperationNode, ...]
    wires: tuple[tuple[int, ...], ...]
    names: tuple[str, ...]
    tokens: tuple[Token, ...] | None = None
    outputs: tuple[int, ...] = ()

    def arranged(
        self, source: Source, ranks: Mapping[int, int], shapes: Mapping[int, Sequence[int]] | None = None
    ) -> Arranged:
        """Return the Compose for outputs of operations with these `ranks` and external inputs of these `shapes`."""
        known = self._shapes(source, shapes or {})
        ops = [
            configured(source, op, node, None, [known.get(entry) for entry in wire])
            for op, node, wire in zip(self.ops, self.nodes, self.wires, strict=True)
        ]
        for op, node, wire in zip(ops, self.nodes, self.wires, strict=True):
            inputs, _ = names_of(op)
            if len(wire) != len(inputs):
                count = f"{len(inputs)} input{'s' if len(inputs) > 1 else ''} ({', '.join(inputs)})"
                raise source.error(node.span, f"{op.name} has {count}, not {len(wire)}", "give it one tensor for each")
        with source.at(self.place):
            return arranged(*expanded(ops, ranks_of(ops, self.wires, ranks), self.wires, self.outputs))

    def _shapes(self, source: Source, external: Mapping[int, Sequence[int]]) -> dict[int, Sequence[int]]:
        """Return the shapes of inputs and of the results that these determine, by entry."""
        known, left = dict(external), [*range(len(self.ops))]
        while ready := [number for number in left if all(entry in known for entry in self.wires[number])]:
            for number in ready:
                left.remove(number)
                given = [known[entry] for entry in self.wires[number]]
                op = configured(source, self.ops[number], self.nodes[number], None, given)
                with source.at(self.nodes[number].span):
                    shape = result_shape(op, given)
                if shape is not None:
                    known[~number] = shape
        return known


def read_graph(
    source: Source,
    operations: Operations,
    components: Sequence[OperationNode | EquationNode],
    operands: Collection[str] = (),
) -> Graph:
    """Return the graph in the brackets of a Compose: a chain, or equations. Those named like `operands` are outputs."""
    place = span(components[0], components[-1])
    equations = [one for one in components if isinstance(one, EquationNode)]
    if equations and len(equations) < len(components):
        plain = next(one for one in components if isinstance(one, OperationNode))
        raise source.error(plain.span, "an operation among equations", f"write it as one: NAME = {plain.name}(...)")
    if equations:
        return _equations(source, operations, equations, place, operands)
    nodes = tuple(one for one in components if isinstance(one, OperationNode))
    ops = tuple(_part(source, operations, node) for node in nodes)
    # Parameters decide the number of inputs of some operations.
    ops = tuple(
        configured(source, op, node) if isinstance(op, Operation) and op.variadic else op
        for op, node in zip(ops, nodes, strict=True)
    )
    wires = chained(ops)
    reads = (zip(wire, names_of(op)[0], strict=True) for op, wire in zip(ops, wires, strict=True))
    names = [f"{name}{at}" for at, pairs in enumerate(reads) for entry, name in pairs if entry >= 0]
    return Graph(place, ops, nodes, wires, (*names, names_of(ops[0])[1]))


def _part(source: Source, operations: Operations, node: OperationNode) -> Operation | NamedGraph:
    """Return the operation or the graph that the text names, without its parameters."""
    return NAMED_GRAPHS.get(str(node.name)) or named(source, operations, node, *NAMED_GRAPHS)


def _equations(
    source: Source, operations: Operations, equations: list[EquationNode], place: Span, operands: Collection[str]
) -> Graph:
    numbers: dict[str, int] = {}
    for number, equation in enumerate(equations):
        if str(equation.name) in numbers:
            raise source.error(
                span(equation.name), f"a second equation for {quoted(equation.name)}", "define each name once"
            )
        numbers[str(equation.name)] = number
    _check_use(source, equations, operands)
    external: dict[str, Token] = {}
    for equation in equations:
        for name in equation.inputs:
            if str(name) not in numbers:
                external.setdefault(str(name), name)
    entries = {name: number for number, name in enumerate(external)} | {
        name: ~number for name, number in numbers.items()
    }
    nodes = tuple(one.operation for one in equations)
    ops = tuple(_part(source, operations, node) for node in nodes)
    wires = tuple(tuple(entries[str(name)] for name in one.inputs) for one in equations)
    outputs = tuple(number for number, one in enumerate(equations) if number and str(one.name) in operands)
    tokens = (*external.values(), *(equations[number].name for number in (*outputs, 0)))
    return Graph(place, ops, nodes, wires, tuple(map(str, tokens)), tokens, outputs)


def _check_use(source: Source, equations: list[EquationNode], outputs: Collection[str]) -> None:
    """Raise SourceError for equations with unused results, and for circular ones."""
    used = {str(name) for one in equations for name in one.inputs} | {*outputs}
    by_name = {str(one.name): one for one in equations}
    try:
        TopologicalSorter({name: [*map(str, one.inputs)] for name, one in by_name.items()}).prepare()
    except CycleError as error:
        circle = error.args[1]
        raise source.error(
            span(by_name[circle[0]].name),
            f"{quoted(circle[0])} depends on itself: {' → '.join(reversed(circle))}",
            "let one of these equations use an operand instead",
        ) from None
    for equation in equations[1:]:
        if str(equation.name) not in used:
            known = {str(name) for each in equations for name in each.inputs} - by_name.keys()
            hint = "the first equation makes the output; list others among the operands, or leave them out"
            meant = closest(equation.name, sorted(known))
            hint = f"did you mean it where {meant!r} is used? {hint}" if meant else hint
            raise source.error(span(equation.name), f"nothing uses {quoted(equation.name)}", hint)


def _constants(source: Source, text: str, node: FormulaNode, rank: int, operations: Operations) -> Operation:
    """Return the operation of the text `Constants[operands=[1]]([Matmul])`."""
    inner = text[text.index("(") + 1 : -1]
    of = inner[1:-1] if len(node.components) == 1 else f"{COMPOSE}({inner})"
    numbers = _value(source, node.operation.parameters[0]) if node.operation.parameters else ()
    if not (isinstance(numbers, tuple) and numbers):
        raise MorelloError(
            f"{text!r} names no constant operands", f"they look like: {CONSTANTS}[operands=[1]]([Matmul])"
        )
    return Constants(parse_operation(of, rank, operations), numbers)


def parse_operation(text: str, rank: int, operations: Operations) -> Operation:
    """Return the operation with `rank` iteration dimensions from its `str`. Raises MorelloError for other text."""
    source = Source("<operation>", text)
    node = syntax.parse_formula(source)
    if node.operation.name == CONSTANTS:
        return _constants(source, text, node, rank, operations)
    if not node.components:
        return operation(source, operations, node.operation)
    graph = read_graph(source, operations, node.components, [*map(str, node.outputs)])
    for output in range(_RANKS):
        try:
            op = graph.arranged(source, dict.fromkeys((0, *graph.outputs), output)).compose
        except MorelloError:
            continue
        if op.rank == rank:
            return op
    raise MorelloError(
        f"{text!r} has no variant of {rank} dimensions", "give the number of dimensions that it was printed with"
    )
