"""Specs with a size that is known at run time: `Matmul(m×512×512, GL, GL, GL) for m in 1..4096`."""

from __future__ import annotations

import attrs
from lark import Token

from morello.frontend.diagnostics import Source, quoted
from morello.frontend.specs import read_signed
from morello.frontend.syntax import Numbers, OperandNode, SpecNode, number_of, span
from morello.ir.signature import Signature
from morello.ir.spec import LogicalSpec, Spec
from morello.kernels.target import Target

#: The largest size.
MOST = 1 << 24


class NamedSize(int):
    """A size that is printed as its name."""

    name: str

    def __new__(cls, size: int, name: str) -> NamedSize:
        made = super().__new__(cls, size)
        made.name = name
        return made

    def __str__(self) -> str:
        return self.name


@attrs.frozen
class Sizes:
    """The sizes from `low` to `high` of iteration dimension `dim`, which is called `name`."""

    name: str
    low: int
    high: int
    dim: int

    def __str__(self) -> str:
        return f"for {self.name} in {self.low}..{self.high}"

    def named(self, logical: LogicalSpec) -> LogicalSpec:
        """Return a Spec whose text has the name in place of the size; for printing only."""
        shape = (NamedSize(int(size), self.name) if dim == self.dim else size for dim, size in enumerate(logical.shape))
        return attrs.evolve(logical, shape=tuple(shape))


def read_sized(source: Source, target: Target, node: SpecNode) -> tuple[Spec, Signature | None, Sizes | None]:
    """Return a Spec, its signature, and the sizes for which it stands; the Spec has the largest.

    Raises SourceError for sizes of a dimension that programs cannot cut into parts.
    """
    if node.sizes is None:
        return *read_signed(source, target, node), None
    name, low, high = node.sizes.name, number_of(source, node.sizes.low), number_of(source, node.sizes.high)
    if low < 1 or high > MOST:
        place = node.sizes.low if low < 1 else node.sizes.high
        raise source.error(span(place), f"{name} is {place}", f"give sizes from 1 to {MOST:,}; calls also take 0")
    if high < low:
        raise source.error(node.sizes.span, f"no {name} is in {low}..{high}", "write the smaller size first")
    spec, signature = read_signed(source, target, _at(node, high))
    # Sizes larger than 1: layouts leave out dimensions of size 1.
    one, other = (read_signed(source, target, _at(node, high + more))[0].logical for more in (1, 2))
    dim = _dimension(source, name, one, other)
    if refused := fault(name, dim, one, other):
        message, hint = refused
        raise source.error(span(name), message, hint)
    return spec, signature, Sizes(str(name), low, high, dim)


def _at(node: SpecNode, size: int) -> SpecNode:
    """Return the text of a Spec with a number in place of the name of its size."""
    assert node.sizes
    name = node.sizes.name

    def numbers(shape: Numbers) -> Numbers:
        tokens = (each.update("INT", str(size)) if each == name else each for each in shape.numbers)
        return attrs.evolve(shape, numbers=tuple(tokens))

    def operand(one: Token | OperandNode) -> Token | OperandNode:
        return attrs.evolve(one, shape=numbers(one.shape)) if isinstance(one, OperandNode) and one.shape else one

    call = node.call
    shape = call.shape and numbers(call.shape)
    call = attrs.evolve(call, shape=shape, operands=tuple(map(operand, call.operands)))
    return attrs.evolve(node, call=call, sizes=None)


def _dimension(source: Source, name: Token, logical: LogicalSpec, other: LogicalSpec) -> int:
    """Return the only iteration dimension whose sizes in two Specs differ."""
    if logical.op != other.op:
        raise source.error(span(name), f"parameters of {logical.op} depend on {quoted(name)}", "give them as numbers")
    pairs = zip(logical.shape, other.shape, strict=True)
    dims = [dim for dim, (size, more) in enumerate(pairs) if size != more]
    if not dims:
        raise source.error(span(name), f"the Spec has no size {quoted(name)}", f"write {name} in place of a size")
    if len(dims) > 1:
        names = " and ".join(logical.dims[dim] for dim in dims)
        raise source.error(span(name), f"{quoted(name)} is the size of {names}", "name the size of one dimension")
    return dims[0]


def fault(name: str, dim: int, logical: LogicalSpec, other: LogicalSpec) -> tuple[str, str] | None:
    """Return why a dimension called `name` cannot have a size of run time, and a remedy; None if it can.

    Its parts are independent, and no address depends on its size, which differs in the two Specs.
    """
    op, rank, called = logical.op, len(logical.shape), logical.dims[dim]
    if op.constants:
        hint = "leave out `constant`: each part's program would pack it in a layout of its own"
        return f"a constant operand of {op}, and a size {quoted(name)} of run time", hint
    if not op.writes_apart(rank, dim) or dim in op.untiled(rank) or op.tile_multiple(dim) > 1:
        hint = "name a dimension of every output, in which each value is computed alone"
        return f"{op} cannot be cut along {called}, of size {quoted(name)}", hint
    for one, tensor, more in zip(logical.declared, logical.operands, other.operands, strict=True):
        layout = tensor.state.layout
        if not one.uses(dim):
            continue
        if any(terms != ((dim, 1),) for terms in one.dims if any(dim == other for other, _ in terms)):
            return f"parts of {one.name} of {op} along {called} overlap", "name a dimension whose parts do not overlap"
        if layout is None or tensor.state.vector:
            return f"{one.name} is in registers, of number {quoted(name)}", "move it to memory"
        dense = len(layout.dims) - tensor.state.contig
        if layout.strides(tensor.shape)[dense:] != layout.strides(more.shape)[dense:]:
            hint = f"give it a layout with {called} first, or cN so that distances are parameters"
            return f"the layout of {one.name}, {layout}, depends on {quoted(name)}", hint
    return None
