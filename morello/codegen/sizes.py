"""Prints a program for a size that is known at run time: a loop over parts, with a program for each size of parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import attrs

from morello.codegen.emission import Emission
from morello.codegen.interface import Interface
from morello.codegen.loops import Outer
from morello.codegen.reserved import spelled
from morello.codegen.style import CStyle
from morello.codegen.writer import CWriter
from morello.errors import EmitError
from morello.ir.impl import Impl, Leaf
from morello.ir.index import Symbol, as_index
from morello.ir.program import Parameter, Program
from morello.ir.signature import Signature
from morello.ir.spec import LogicalSpec, Spec
from morello.ir.tensor import TensorSpec
from morello.kernels.buffers import View
from morello.kernels.target import Target

#: Numbers in a line of the table.
_PER_LINE = 32


@attrs.frozen
class Parts:
    """The programs of parts along dimension `dim` by size, and the rule that chooses the next part.

    With r values left, at most the length of `table`, it is the part of size `table[r - 1]`, else that of size `long`.
    """

    dim: int
    programs: Mapping[int, Impl]
    table: tuple[int, ...]
    long: int


@attrs.frozen
class SizeRange:
    """The sizes from `low` to `high` of a program, the size's name, and the Spec with that name, for comments."""

    name: str
    low: int
    high: int
    named: LogicalSpec
    about: tuple[str, ...]


def emit_parts(
    parts: Parts, spec: Spec, sizes: SizeRange, target: Target, name: str, signature: Signature | None
) -> Program:
    """Return the C function `name` for all sizes of a Spec, which has the largest. Raises EmitError."""
    emitter = target.emitter
    if not isinstance(emitter, CStyle):
        raise EmitError(f"{target.name} has an emitter of its own, without sizes of run time", "compile for one size")
    called = signature or Signature.of(spec.logical)
    first = PartsEmission(parts, sizes, emitter, Leaf(spec), target, name, called)
    _ = first.program
    # Parameters must not hide functions and types, whose names are known from the first emission.
    return PartsEmission(parts, sizes, emitter, Leaf(spec), target, name, called, first.names_of_others).program


class PartsEmission(Emission):
    """Prints the hole that is the whole Spec as a loop over parts."""

    def __init__(
        self,
        parts: Parts,
        sizes: SizeRange,
        emitter: CStyle,
        impl: Leaf,
        target: Target,
        name: str,
        signature: Signature,
        taken: Iterable[str] = (),
    ):
        super().__init__(emitter, impl, target, name, signature, taken)
        self._parts, self._sizes = parts, sizes
        self._size_name = ""

    @property
    def implementations(self) -> Sequence[Impl]:
        return tuple(self._parts.programs.values())

    @cached_property
    def program(self) -> Program:
        return attrs.evolve(super().program, size=self._sizes.high)

    def _parameters(self) -> tuple[tuple[Parameter, ...], list[View]]:
        found = super()._parameters()
        self._size_name = self.names.fresh(spelled(self._sizes.name))
        return found

    def _interface(self, parameters: tuple[Parameter, ...]) -> Interface:
        name, sizes, named = self._size_name, self._sizes, self._sizes.named
        shown = tuple(
            attrs.evolve(one, tensor=TensorSpec(named.operand(one.operand).shape, one.tensor.state))
            for one in parameters
        )
        return attrs.evolve(
            super()._interface(shown),
            summary=f"{named.short(self.signature.implicit_dims)} for {self.target.name}",
            size_name=name,
            about_size=(
                f"/* {name}: from {sizes.low} to {sizes.high}, or 0: then nothing is read or written. */",
                f"/* Returns 0; for another {name} it returns 1 and does nothing else. */",
            ),
        )

    def _about(self) -> Sequence[str]:
        return self._sizes.about

    def _text(self, interface: Interface) -> CWriter:
        function, size = CWriter(), self._size_name
        with function.block(interface.prototype):
            with function.block(f"if ({size} < {self._sizes.low} || {size} > {self._sizes.high})"):
                function.line(f"return {size} != 0;")
            with function.around(self._function.around):
                function.add(self.writer)
            function.line("return 0;")
        return function

    def _node(self, impl: Impl, views: list[View], outer: Outer | None = None) -> None:
        if isinstance(impl, Leaf):
            self._loop_over_parts(impl.spec.logical, views)
        else:
            super()._node(impl, views, outer)

    def _loop_over_parts(self, logical: LogicalSpec, views: list[View]) -> None:
        parts, count = self._parts, len(self._parts.table)
        table, start, left, part = (self.names.fresh(one) for one in ("parts", "start", "left", "part"))
        numbers = {size: number for number, size in enumerate(parts.programs)}
        self.writer.line(f"/* The program of the next part, if 1 to {count} values are left. */")
        self.writer.line(f"static const uint8_t {table}[{count}] = {{")
        for place in range(0, count, _PER_LINE):
            row = ", ".join(str(numbers[size]) for size in parts.table[place : place + _PER_LINE])
            self.writer.line(f"    {row},")
        self.writer.line("};")
        head = f"for (ptrdiff_t {start} = 0, {part} = 0; {start} < {self._size_name}; {start} += {part})"
        with self.writer.block(head):
            self.writer.line(f"const ptrdiff_t {left} = (ptrdiff_t){self._size_name} - {start};")
            with self.writer.block(f"switch ({left} > {count} ? {numbers[parts.long]} : {table}[{left} - 1])"):
                for size, impl in parts.programs.items():
                    starts = [as_index(Symbol(start) if dim == parts.dim else 0) for dim in range(len(logical.shape))]
                    pairs = zip(views, logical.declared, impl.spec.operands, strict=True)
                    inside = [view.tile(tensor, one.start(starts)) for view, one, tensor in pairs]
                    with self.writer.block(f"case {numbers[size]}:"), self.names.scope():
                        self.writer.line(f"{part} = {size};")
                        self._node(impl, inside)
                        self.writer.line("break;")
