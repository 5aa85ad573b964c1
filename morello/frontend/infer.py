"""Infers the iteration shape of a Compose from the shapes of its operands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs
from lark import Token

from morello.frontend.diagnostics import Source, SourceError, Span
from morello.frontend.syntax import Numbers, span
from morello.ir.ops import Compose, Operation
from morello.ir.ops.base import Operand
from morello.ir.ops.binary import Binary
from morello.ir.ops.compare import Where
from morello.ir.ops.named_graphs import NamedGraph
from morello.ir.ops.wiring import Extent, extents, merged

_Terms = tuple[tuple[int, int], ...]


@attrs.frozen
class _SizeEquation:
    """Σ c·(n − 1) = `total` over iteration sizes n; `operand` and `axis` are its origin, if it has one."""

    terms: _Terms
    total: int
    operand: int | None = None
    axis: int = 0


class _Contradiction(Exception):
    def __init__(self, equation: _SizeEquation):
        super().__init__()
        self.equation = equation


@attrs.define
class _Unknowns:
    """Iteration sizes, less 1, as far as they are known, and the operands that determined them."""

    values: dict[int, int] = attrs.field(factory=dict)
    origins: dict[int, str] = attrs.field(factory=dict)
    waiting: list[_SizeEquation] = attrs.field(factory=list)

    def add(self, equation: _SizeEquation, origin: str) -> None:
        """Add an equation, and solve all equations that it completes."""
        self.waiting.append(equation)
        progress = True
        while progress:
            before, self.waiting = self.waiting, []
            for one in before:
                if not self._solve(one, origin):
                    self.waiting.append(one)
            progress = len(self.waiting) < len(before)

    def _solve(self, equation: _SizeEquation, origin: str) -> bool:
        """Solve an equation with at most one unknown. Raises _Contradiction if it cannot hold."""
        unknown = [(dim, c) for dim, c in equation.terms if dim not in self.values]
        if len(unknown) > 1:
            return False
        left = equation.total - sum(c * self.values[dim] for dim, c in equation.terms if dim in self.values)
        if not unknown:
            if left:
                raise _Contradiction(equation)
            return True
        dim, c = unknown[0]
        if left % c or left // c < 0:
            raise _Contradiction(equation)
        self.values[dim] = left // c
        self.origins[dim] = origin
        return True


def result_shape(op: Operation | NamedGraph, shapes: Sequence[Sequence[int]]) -> tuple[int, ...] | None:
    """Return the shape of the output for inputs of these shapes, None if they do not determine it."""
    rank = op.rank or max(map(len, shapes), default=0)
    *inputs, out = op.operands(rank)
    unknowns = _Unknowns()
    for operand, shape in zip(inputs, shapes, strict=False):
        missing = len(operand.dims) - len(shape)
        if missing < 0:
            return None
        for extent, size in zip(extents(operand), (1,) * missing + tuple(shape), strict=True):
            try:
                unknowns.add(_SizeEquation(extent.terms, size - 1 + extent.less), operand.name)
            except _Contradiction:
                # The shape of the whole has the same one, with its place.
                return None
    if any(dim not in unknowns.values for extent in extents(out) for dim, _ in extent.terms):
        return None
    return out.shape([unknowns.values.get(dim, 0) + 1 for dim in range(rank)])


def iteration_shape(op: Operation, rank: int, shapes: Sequence[Sequence[int]]) -> tuple[int, ...] | None:
    """Return the iteration shape, of `rank` dimensions, at which operands have these shapes.

    Return None if they do not determine it, or contradict each other.
    """
    unknowns = _Unknowns(waiting=_agreements(op) if isinstance(op, Compose) else [])
    try:
        for operand, shape in zip(op.operands(rank), shapes, strict=True):
            for extent, size in zip(extents(operand), shape, strict=True):
                unknowns.add(_SizeEquation(extent.terms, size - 1 + extent.less), operand.name)
    except (_Contradiction, ValueError):
        return None
    values = unknowns.values
    return tuple(values[dim] + 1 for dim in range(rank)) if len(values) == rank else None


def with_leading(compose: Compose, shapes: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return the operands' shapes, with leading sizes of 1 for those that are only values of elementwise operations."""
    readers = [[stage.op for stage in compose.stages if entry in stage.inputs] for entry in range(len(shapes))]
    ranks = [len(one.dims) for one in compose.operands(compose.rank)]
    return [
        (1,) * (rank - len(shape)) + shape if ops and all(isinstance(op, (Binary, Where)) for op in ops) else shape
        for shape, rank, ops in zip(shapes, ranks, readers, strict=True)
    ]


def infer_shape(
    source: Source,
    compose: Compose,
    names: Sequence[str],
    shapes: Sequence[tuple[int, ...]],
    texts: Sequence[Numbers],
    place: Span,
) -> tuple[int, ...]:
    """Return the iteration shape for which the operands, called `names`, have these shapes.

    Raises SourceError at the first size that contradicts earlier ones, or if a size remains unknown.
    """
    rank = compose.rank
    unknowns = _Unknowns(waiting=_agreements(compose))
    for index, (operand, shape) in enumerate(zip(compose.operands(rank), shapes, strict=True)):
        if len(shape) != len(operand.dims):
            sizes = "×".join(_dimension(each, compose) for each in extents(operand))
            message = (
                f"operand {index} ({names[index]}) has the {len(operand.dims)} dimensions {sizes}, not {len(shape)}"
            )
            raise source.error(texts[index].span, message, "write a size for each of these dimensions")
        for axis, (extent, size) in enumerate(zip(extents(operand), shape, strict=True)):
            try:
                unknowns.add(_SizeEquation(extent.terms, size - 1 + extent.less, index, axis), names[index])
            except _Contradiction as error:
                culprit = error.equation.operand
                at = index if culprit is None else culprit
                place_of = axis if culprit is None else error.equation.axis
                number = texts[at].numbers[max(0, place_of - len(shapes[at]) + len(texts[at].numbers))]
                raise _mismatch(source, compose, unknowns, at, names[at], shapes[at], number) from None
    missing = [compose.dims(rank)[dim] for dim in range(rank) if dim not in unknowns.values]
    if missing:
        raise source.error(
            place,
            f"the operands' shapes do not determine the size of {', '.join(missing)}",
            "write Specs of single operations, whose shapes give every size",
        )
    return tuple(unknowns.values[dim] + 1 for dim in range(rank))


def _agreements(compose: Compose) -> list[_SizeEquation]:
    """Return equations between the sizes of tensors that are used in several ways."""
    return [
        _SizeEquation(
            merged((*each.one.terms, *((dim, -c) for dim, c in each.other.terms))), each.one.less - each.other.less
        )
        for each in compose.wiring.agreements
    ]


def _mismatch(
    source: Source,
    compose: Compose,
    unknowns: _Unknowns,
    index: int,
    name: str,
    shape: tuple[int, ...],
    number: Token,
) -> SourceError:
    """Return the error for an operand that contradicts earlier ones, with the expected shape."""
    operand = compose.operands(compose.rank)[index]
    expected = [_expected(each, unknowns, size) for each, size in zip(extents(operand), shape, strict=True)]
    differs = f"but {_times(expected)} was expected"
    if expected == list(shape):
        differs = "which does not fit the other operands"
    message = f"operand {index} ({name}) is {_times(shape)}, {differs}"
    return source.error(span(number), message, _reason(compose, operand, unknowns))


def _expected(extent: Extent, unknowns: _Unknowns, size: int) -> int:
    if any(dim not in unknowns.values for dim, _ in extent.terms):
        return size
    return 1 - extent.less + sum(c * unknowns.values[dim] for dim, c in extent.terms)


def _reason(compose: Compose, operand: Operand, unknowns: _Unknowns) -> str:
    """Return a hint with the operands that determined the sizes of this one."""
    names = compose.dims(compose.rank)
    dims = [dim for terms in operand.dims for dim, _ in terms if dim in unknowns.values]
    known = [f"{names[dim]} = {unknowns.values[dim] + 1} by {unknowns.origins[dim]}" for dim in dims]
    return f"its dimensions are {'×'.join(_dimension(each, compose) for each in extents(operand))}: {', '.join(known)}"


def _dimension(extent: Extent, compose: Compose) -> str:
    names = compose.dims(compose.rank)
    less = f"−{extent.less}" if extent.less else ""
    return ("+".join(names[dim] if c == 1 else f"{c}·{names[dim]}" for dim, c in extent.terms) or "1") + less


def _times(sizes: Iterable[int]) -> str:
    return "×".join(map(str, sizes))
