"""Reads Specs: operation, shape, operands, limits, each checked where it stands."""

from __future__ import annotations

from lark import Token

from morello.errors import MorelloError
from morello.frontend import numbers
from morello.frontend.diagnostics import Source, Span, quoted, suggestion
from morello.frontend.infer import infer_shape
from morello.frontend.operands import read_state
from morello.frontend.syntax import Call, Group, Numbers, SpecNode, span
from morello.ir.ops import BY_NAME, Compose, Operation
from morello.ir.ops.fill import FillZero
from morello.ir.spec import LogicalSpec, Spec
from morello.plugins.target import Target

#: As many as numpy arrays can have.
_MAX_RANK = 32
_COMPOSE = "Compose"


def read_spec(source: Source, target: Target, node: SpecNode) -> Spec:
    """The Spec in normal form. Raises SourceError at the part that is wrong."""
    call = node.call
    logical = _compose(source, target, call) if call.shape is None else _primitive(source, target, call, call.shape)
    if call.names and len(call.names) != len(logical.states):
        raise source.error(
            span(call.names[0], call.names[-1]), f"{len(call.names)} names for {len(logical.states)} operands"
        )
    limits = None if node.limits is None else _limits(source, target, node.limits)
    try:
        return target.spec(logical, limits)
    except MorelloError as error:
        raise source.error(_blame(target, call, logical), error.message, error.hint) from error


def _primitive(source: Source, target: Target, call: Call, text: Numbers) -> LogicalSpec:
    if call.name == _COMPOSE:
        raise source.error(
            text.span,
            "Compose starts with its operations, not with a shape",
            "write Compose([Matmul, Matmul], [(1×64×128, f32, GL), ...])",
        )
    op = _operation(source, call.name, _COMPOSE)
    shape = _shape(source, text)
    if op.rank not in (None, len(shape)):
        names = "×".join(op.dims(op.rank or 0))
        raise source.error(text.span, f"{op} has the {op.rank} dimensions {names}, not {len(shape)}")
    nodes, serial = _operands(source, call)
    declared = op.operands(len(shape))
    _check_count(source, op, call, nodes, [one.name for one in declared])
    states = [read_state(source, target, node, one.shape(shape)) for node, one in zip(nodes, declared, strict=True)]
    return LogicalSpec(op, shape, tuple(states), serial)


def _compose(source: Source, target: Target, call: Call) -> LogicalSpec:
    if call.name != _COMPOSE:
        _operation(source, call.name, _COMPOSE)
        raise source.error(
            span(call.components[0], call.components[-1]),
            f"{call.name} takes a shape such as 1×64×64×64, not a list of operations",
            "only Compose takes operations",
        )
    place = span(call.components[0], call.components[-1])
    components = tuple(_operation(source, name) for name in call.components)
    with source.at(place):
        compose = Compose(components)
    nodes, serial = _operands(source, call)
    _check_count(source, compose, call, nodes, [one.name for one in compose.operands(compose.rank)])
    texts = [node.shape for node in nodes if isinstance(node, Group) and node.shape is not None]
    shapes = [_shape(source, text) for text in texts]
    shape = infer_shape(source, compose, shapes, texts, place)
    states = [read_state(source, target, node, own) for node, own in zip(nodes, shapes, strict=True)]
    return LogicalSpec(compose, shape, tuple(states), serial)


def _operation(source: Source, name: Token, *others: str) -> Operation:
    """The operation of this name; `others` might have stood here too."""
    if name not in BY_NAME:
        known = sorted([*BY_NAME, *others])
        listing = f"operations are {', '.join(known)}"
        raise source.error(span(name), f"unknown operation {quoted(name)}", suggestion(name, known, listing))
    return BY_NAME[name]


def _shape(source: Source, text: Numbers) -> tuple[int, ...]:
    if len(text.numbers) > _MAX_RANK:
        raise source.error(text.span, f"{len(text.numbers)} dimensions are more than the {_MAX_RANK} a tensor can have")
    sizes = tuple(numbers.read(source, token) for token in text.numbers)
    for token, size in zip(text.numbers, sizes, strict=True):
        if size < 1:
            raise source.error(span(token), f"size {size} is not positive", "sizes are at least 1")
    return sizes


def _operands(source: Source, call: Call) -> tuple[tuple[Token | Group, ...], bool]:
    """The operands, and whether `serial` comes after them."""
    words = [one for one in call.operands if isinstance(one, Token)]
    for word in words:
        if word == "serial" and word is not call.operands[-1]:
            raise source.error(span(word), "serial comes last", "write it once, after all operands")
    serial = bool(words) and call.operands[-1] == "serial"
    if call.components and words and not serial:
        hint = suggestion(words[0], ["serial"], "only `serial` may follow the operands")
        raise source.error(span(words[0]), f"unexpected {quoted(words[0])}", hint)
    return (call.operands[:-1] if serial else call.operands), serial


def _check_count(source: Source, op: Operation, call: Call, nodes: tuple[Token | Group, ...], names: list[str]) -> None:
    if len(nodes) == len(names):
        return
    place: Span = span(nodes[len(names)]) if len(nodes) > len(names) else span(call.close)
    count = f"{len(names)} operand{'s' if len(names) > 1 else ''}"
    raise source.error(place, f"{op} has {count} ({', '.join(names)}), not {len(nodes)}")


def _limits(source: Source, target: Target, text: Numbers) -> tuple[int, ...] | None:
    """Memory limits, or None for `...`."""
    if not text.numbers:
        return None
    limits = tuple(numbers.read(source, token) for token in text.numbers)
    negative = [token for token, limit in zip(text.numbers, limits, strict=True) if limit < 0]
    right_count = len(limits) == len(target.levels)
    with source.at(span(negative[0]) if negative and right_count else text.span):
        target.limits(limits)
    return limits


def _blame(target: Target, call: Call, logical: LogicalSpec) -> Span:
    """The operand that is at fault by itself: even a Fill of it is no Spec. Else the operation."""
    for node, tensor in zip(call.operands, logical.operands, strict=False):
        try:
            target.spec(LogicalSpec(FillZero(), tensor.shape, (tensor.state,)))
        except MorelloError:
            return span(node)
    return span(call.name)
