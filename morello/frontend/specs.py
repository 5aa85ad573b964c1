"""Reads Specs: operation, shape, operands, limits, each checked where it stands."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
from lark import Token

from morello.errors import MorelloError, suggestion
from morello.frontend.diagnostics import Source, Span, quoted
from morello.frontend.graphs import COMPOSE, Graph, configured, named, operation, read_graph
from morello.frontend.infer import infer_shape, with_leading
from morello.frontend.operands import CONSTANT, OVERWRITTEN, read_state, says
from morello.frontend.syntax import (
    CallNode,
    EquationNode,
    LimitNode,
    LimitsNode,
    Numbers,
    OperandNode,
    SpecNode,
    number_of,
    span,
)
from morello.ir.in_place import output_over
from morello.ir.ops import Operation
from morello.ir.ops.constants import Constants
from morello.ir.ops.fill import FillZero
from morello.ir.ops.named_graphs import NAMED_GRAPHS
from morello.ir.signature import Signature
from morello.ir.spec import LogicalSpec, Spec
from morello.kernels.target import Target

#: As many as numpy arrays can have.
_MAX_RANK = 32


def read_spec(source: Source, target: Target, node: SpecNode, sizes: tuple[int, ...] | None = None) -> Spec:
    """Return the Spec in normal form; `sizes` replace those of the text. Raises SourceError at the faulty part."""
    return read_signed(source, target, node, sizes)[0]


def read_signed(
    source: Source, target: Target, node: SpecNode, sizes: tuple[int, ...] | None = None
) -> tuple[Spec, Signature | None]:
    """Return the Spec, as `read_spec` does, and the signature; None for the operation's own names and order."""
    call = node.call
    if node.sizes:
        hint = "give a number here: only commands that compile, and morello.compile, take a size of run time"
        raise source.error(node.sizes.span, f"{quoted(node.sizes.name)} is known at run time alone", hint)
    if call.shape is None:
        logical, nodes, signature = _compose(source, target, call, sizes)
    else:
        logical, nodes, signature = _primitive(source, target, call, call.shape, sizes)
    if call.names:
        if len(call.names) != len(logical.states):
            raise source.error(
                span(call.names[0], call.names[-1]),
                f"{len(call.names)} names for {len(logical.states)} operands",
                "name every operand, or leave the names out",
            )
        signature = attrs.evolve(signature, names=tuple(map(str, call.names)))
    limits = None if node.limits is None else _limits(source, target, node.limits)
    logical = _with_constants(source, logical, nodes)
    try:
        spec = target.spec(logical, limits)
    except MorelloError as error:
        raise source.error(_blame(target, call, nodes, logical), error.message, error.hint) from error
    signature = attrs.evolve(signature, overwritten=_overwritten(source, spec.logical, nodes))
    return spec, None if signature == Signature.of(logical) else signature


def _with_constants(source: Source, logical: LogicalSpec, nodes: Sequence[Token | OperandNode]) -> LogicalSpec:
    """Return the Spec with the operands constant that the text says are. Raises SourceError for one that is written."""
    constant = tuple(number for number, node in enumerate(nodes) if says(CONSTANT, node))
    for number in constant:
        one = logical.declared[number]
        if one.writes:
            raise source.error(
                span(nodes[number]), f"{one.name} is written, so that it is not constant", "leave out `constant`"
            )
    return attrs.evolve(logical, op=Constants(logical.op, constant)) if constant else logical


def _overwritten(source: Source, logical: LogicalSpec, nodes: Sequence[Token | OperandNode]) -> int | None:
    """Return the input over which the text stores the output; None if it has memory of its own. Raises SourceError."""
    found = [number for number, node in enumerate(nodes) if says(OVERWRITTEN, node)]
    for number in found:
        with source.at(span(nodes[number])):
            output_over(logical, number)
    if len(found) > 1:
        raise source.error(span(nodes[found[1]]), "a second operand that is overwritten", "leave one of them out")
    return found[0] if found else None


#: A Spec, the text of each operand in the Spec's order, and the signature.
_Read = tuple[LogicalSpec, Sequence[Token | OperandNode], Signature]


def _primitive(source: Source, target: Target, call: CallNode, text: Numbers, sizes: tuple[int, ...] | None) -> _Read:
    if call.name == COMPOSE:
        raise source.error(
            text.span,
            "Compose starts with its operations, not with a shape",
            "write Compose([Matmul, Matmul], [(1×64×128, f32, GL), ...])",
        )
    written = _shape(source, text)
    if call.name in NAMED_GRAPHS:
        return _named_graph(source, target, call, written, sizes)
    op = named(source, target.operations, call.operation, COMPOSE, *NAMED_GRAPHS)
    implicit_dims = int(op.optional_batch and len(written) + 1 == op.rank)
    written = (1,) * implicit_dims + written
    shape = sizes or written
    _check_rank(source, text.span, op, shape, implicit_dims)
    # Other sizes are for the same operation.
    op = configured(source, op, call.operation, written)
    nodes, serial = _operands(source, call)
    declared = op.operands(len(shape))
    _check_count(source, op, call, nodes, [one.name for one in declared])
    shapes = _operand_shapes(source, text.span, op, shape)
    states = [
        read_state(source, target, node, own[implicit_dims:]).shifted(implicit_dims)
        for node, own in zip(nodes, shapes, strict=True)
    ]
    logical = LogicalSpec(op, shape, tuple(states), serial)
    return logical, nodes, Signature.of(logical, implicit_dims)


def _check_rank(source: Source, place: Span, op: Operation, shape: tuple[int, ...], implicit_dims: int) -> None:
    """Raise SourceError for a wrong number of sizes, or for a batch that the text omits."""
    names = op.dims(op.rank or len(shape))
    if op.rank not in (None, len(shape)):
        raise source.error(
            place,
            f"{op} has the {op.rank} dimensions {'×'.join(names)}, not {len(shape)}",
            "write a size for each of them; 1 where there is only one"
            + (f", or without {names[0]}" if op.optional_batch else ""),
        )
    if any(size != 1 for size in shape[:implicit_dims]):
        raise source.error(place, f"{op} without {names[0]}, which is {shape[0]}", f"write a size for {names[0]}, too")


def _operand_shapes(source: Source, place: Span, op: Operation, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the operands' shapes. Raises SourceError if padding leaves one empty."""
    declared = op.operands(len(shape))
    shapes = [tuple(one.shape(shape)) for one in declared]
    for one, sizes in zip(declared, shapes, strict=True):
        if min(sizes, default=1) < 1:
            left = "×".join(map(str, sizes))
            hint = "make the output larger, or the padding smaller"
            raise source.error(place, f"{op}: with this padding, {one.name} would be {left}", hint)
    return shapes


def _named_graph(
    source: Source, target: Target, call: CallNode, written: tuple[int, ...], sizes: tuple[int, ...] | None
) -> _Read:
    """Read a graph such as LayerNorm, which abbreviates a Compose with sizes as `written`, or others."""
    named = NAMED_GRAPHS[call.name]
    if named.rank not in (None, len(written)):
        message = f"{named.name} has the {named.rank} dimensions {'×'.join(named.dim_names)}, not {len(written)}"
        raise source.error(call.shape.span if call.shape else call.span, message, "write a size for each of them")
    named = configured(source, named, call.operation, written)
    with source.at(call.operation.span):
        graph = named.arranged(len(written))
        shape = sizes or named.shape(written)
    nodes, serial = _operands(source, call)
    _check_count(source, named.name, call, nodes, named.names)
    listed = graph.operands
    nodes = [nodes[place] for place in listed]
    declared = graph.compose.operands(len(shape))
    states = [read_state(source, target, node, one.shape(shape)) for node, one in zip(nodes, declared, strict=True)]
    signature = Signature(named.names, tuple(map(listed.index, range(len(listed)))))
    return LogicalSpec(graph.compose, shape, tuple(states), serial), nodes, signature


def _compose(source: Source, target: Target, call: CallNode, sizes: tuple[int, ...] | None) -> _Read:
    place = span(call.components[0], call.components[-1])
    if call.name != COMPOSE:
        operation(source, target.operations, call.operation, COMPOSE, *NAMED_GRAPHS)
        raise source.error(
            place,
            f"{call.name} takes a shape such as 1×64×64×64, not a list of operations",
            "only Compose takes operations",
        )
    if call.operation.parameters:
        raise source.error(call.operation.parameters[0].span, "Compose takes no parameters", "its operations do")
    operands, serial = _operands(source, call)
    listed = [one for one in operands if isinstance(one, OperandNode)]
    graph = read_graph(source, target.operations, call.components, [str(one.label) for one in listed if one.label])
    groups = _labelled(source, call, graph, listed)
    # The grammar has a shape for each operand of a Compose.
    written = [_shape(source, group.shape) for group in groups if group.shape is not None]
    count = len(groups) - 1 - len(graph.outputs)
    ranks = dict(zip((0, *graph.outputs), map(len, (written[-1], *written[count:])), strict=False))
    composed = graph.arranged(source, ranks, dict(enumerate(written[:count])))
    compose = composed.compose
    _check_count(source, compose if compose.is_chain else COMPOSE, call, groups, graph.names)
    names = [graph.names[entry] for entry in composed.operands]
    groups = [groups[entry] for entry in composed.operands]
    texts = [group.shape for group in groups if group.shape is not None]
    shapes = with_leading(compose, [_shape(source, text) for text in texts])
    shape = infer_shape(source, compose, names, shapes, texts, place)
    if sizes is not None:
        shape, shapes = sizes, _operand_shapes(source, place, compose, sizes)
    states = [read_state(source, target, node, own) for node, own in zip(groups, shapes, strict=True)]
    logical = LogicalSpec(compose, shape, tuple(states), serial)
    labels = graph.names if graph.tokens is None else tuple(str(one.label) for one in listed)
    signature = Signature(labels, tuple(map(groups.index, listed)))
    return logical, groups, signature


def _labelled(source: Source, call: CallNode, graph: Graph, groups: list[OperandNode]) -> list[OperandNode]:
    """Return the operands in the order of the graph's names, or as listed for a chain."""
    if graph.tokens is None:
        for group in groups:
            if group.label is not None:
                raise source.error(
                    span(group.label), "the operands of a chain have no names", "names are those of equations"
                )
        return groups
    names = graph.names
    labelled: dict[str, OperandNode] = {}
    for group in groups:
        if group.label is None:
            raise source.error(
                group.span, "this operand has no name", f"write NAME: (...); names are {', '.join(names)}"
            )
        if group.label in labelled:
            raise source.error(span(group.label), f"a second operand {quoted(group.label)}", "leave one of them out")
        if group.label not in names:
            hint = suggestion(group.label, names, f"the operands are {', '.join(names)}")
            raise source.error(span(group.label), f"{quoted(group.label)} is not an operand of this Compose", hint)
        labelled[str(group.label)] = group
    for name in graph.tokens:
        if name not in labelled:
            known = [one for one in (*labelled, *_made(call)) if one != name]
            listing = f"list it: {name}: (1×64×128, f32, GL)"
            if name is graph.tokens[-1]:
                raise source.error(span(name), f"the output {quoted(name)} is not an operand", listing)
            hint = suggestion(name, known, listing)
            raise source.error(span(name), f"{quoted(name)} is neither the result of an equation nor an operand", hint)
    return [labelled[name] for name in names]


def _made(call: CallNode) -> list[str]:
    return [str(one.name) for one in call.components if isinstance(one, EquationNode)]


def _shape(source: Source, text: Numbers) -> tuple[int, ...]:
    if len(text.numbers) > _MAX_RANK:
        raise source.error(
            text.span,
            f"{len(text.numbers)} dimensions are more than the {_MAX_RANK} a tensor can have",
            "join adjacent dimensions into one",
        )
    sizes = tuple(number_of(source, token) for token in text.numbers)
    for token, size in zip(text.numbers, sizes, strict=True):
        if size < 1:
            raise source.error(span(token), f"size {size} is not positive", "sizes are at least 1")
    return sizes


def _operands(source: Source, call: CallNode) -> tuple[tuple[Token | OperandNode, ...], bool]:
    """Return the operands, and whether `serial` comes after them."""
    words = [one for one in call.operands if isinstance(one, Token)]
    for word in words:
        if word == "serial" and word is not call.operands[-1]:
            raise source.error(span(word), "serial comes last", "write it once, after all operands")
    serial = bool(words) and call.operands[-1] == "serial"
    if call.components and words and not serial:
        hint = suggestion(words[0], ["serial"], "only `serial` may follow the operands")
        raise source.error(span(words[0]), f"unexpected {quoted(words[0])}", hint)
    return (call.operands[:-1] if serial else call.operands), serial


def _check_count(
    source: Source, op: Operation | str, call: CallNode, nodes: Sequence[Token | OperandNode], names: Sequence[str]
) -> None:
    if len(nodes) == len(names):
        return
    place: Span = span(nodes[len(names)]) if len(nodes) > len(names) else span(call.close)
    count = f"{len(names)} operand{'s' if len(names) > 1 else ''}"
    raise source.error(
        place,
        f"{op} has {count} ({', '.join(names)}), not {len(nodes)}",
        "write each as LEVEL or (TYPE, LEVEL, ...), with commas between them",
    )


def _limits(source: Source, target: Target, node: LimitsNode) -> tuple[int, ...]:
    """Return a limit for each memory level; levels without one have their capacity."""
    limits = {level.name: level.capacity for level in target.levels}
    levels, seen = [*limits], set[str]()
    known = f"{target.name} has the levels {', '.join(levels)}"
    for place, given in enumerate(node.given):
        if isinstance(given, LimitNode):
            level, token, where = str(given.level), given.number, span(given.level)
        elif place < len(levels):
            level, token, where = levels[place], given, span(given)
        else:
            message = f"{len(node.given)} memory limits for the {len(levels)} levels of {target.name}"
            raise source.error(node.span, message, f"{known}, in this order")
        if level not in limits:
            raise source.error(where, f"unknown memory level {quoted(level)}", suggestion(level, levels, known))
        if level in seen:
            raise source.error(where, f"a second limit of {level}", "leave one of them out")
        seen.add(level)
        limits[level] = number_of(source, token)
        if limits[level] < 0:
            raise source.error(span(token), "memory limits are not negative", "give bytes, or 0 for none")
    return tuple(limits.values())


def _blame(target: Target, call: CallNode, nodes: Sequence[Token | OperandNode], logical: LogicalSpec) -> Span:
    """Return the place of the first operand that is invalid even for a Fill, else of the operation."""
    for node, tensor in zip(nodes, logical.operands, strict=False):
        try:
            target.spec(LogicalSpec(FillZero(), tensor.shape, (tensor.state,)))
        except MorelloError:
            return span(node)
    return span(call.name)
