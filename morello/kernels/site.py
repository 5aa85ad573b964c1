"""The site that a microkernel prints through: its operands as C expressions, and the lines it adds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Protocol

import attrs

from morello.ir.dtypes import DType
from morello.ir.index import IndexExpr
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import TensorSpec
from morello.kernels.buffers import View


class Printer(Protocol):
    """The emitter's side of a site."""

    @property
    def instructions(self) -> object:
        """Return the emitter's table of primitives, None without one."""
        ...

    def line(self, text: str) -> None:
        """Add one line of C."""

    def vector(self, dtype: DType, values: int) -> str:
        """Return the C type of a vector register."""
        ...

    def load(self, dtype: DType, values: int) -> str:
        """Return the name of a function that loads a vector from any address."""
        ...

    def store(self, dtype: DType, values: int) -> str:
        """Return the name of a function that stores a vector to any address."""
        ...

    def fresh(self, name: str) -> str:
        """Return a new C variable's name, like `name`."""
        ...

    def helper(self, name: str, text: str) -> str:
        """Define the static function `name` as `text` in the file; return its name."""
        ...

    def enclose(self, first: str, last: str) -> None:
        """Begin the function that code is printed in with one statement, and end it with another."""

    def uses(self, names: Iterable[str]) -> None:
        """Note the buffers and variables that an operand's address names."""


@attrs.frozen
class OperandSite:
    """One operand where a kernel is called. Positions count its values in the order of its layout."""

    _view: View
    _printer: Printer

    @property
    def tensor(self) -> TensorSpec:
        return self._view.tensor

    @property
    def name(self) -> str:
        """Return the name that its storage has in C, to call variables after."""
        return self._view.buffer.name

    @property
    def in_registers(self) -> bool:
        """Return True if registers hold it, and not memory."""
        return self._view.buffer.in_registers

    @property
    def storage_level(self) -> str:
        """Return the level of its storage, which a view of it in a cache does not change."""
        return self._view.buffer.tensor.state.level

    def scalar(self, position: int = 0) -> str:
        """Return the C lvalue of one value, in a scalar register or in memory."""
        return self.register(position) if self.in_registers else f"{self.name}[{self._offset(position)}]"

    def pointer(self, position: int = 0) -> str:
        """Return a C pointer to one value in memory."""
        offset = self._offset(position)
        if offset.constant is None:
            return f"&{self.name}[{offset}]"
        return self.name if offset.constant == 0 else f"{self.name} + {offset}"

    @property
    def mask(self) -> SiteMask | None:
        """Return the positions by which values count for nothing; None if all may count."""
        mask = None if self.in_registers else self._view.mask()
        return mask and SiteMask(
            OperandSite(mask.rows, self._printer), OperandSite(mask.columns, self._printer), mask.window
        )

    def register(self, position: int = 0) -> str:
        """Return the register that holds one value, alone or in a vector."""
        return self._view.variable(position)

    def vectors(self) -> list[str]:
        """Return the vector registers that hold the operand, in the order of its layout."""
        size = self.tensor.state.vector or 1
        return [self.register(position) for position in range(0, int(self.tensor.volume), size)]

    def distance(self, other: OperandSite) -> int | None:
        """Return how many values behind this operand another one of the same storage starts; None if that varies."""
        return (other._view.offset() + self._view.offset() * -1).constant

    def stride(self, dim: int, strip: int = 1) -> IndexExpr:
        """Return how many values lie between neighbours along a dimension, or between neighbouring strips of it.

        It is 0 where there is one of them. Else it is a number, or one known only at run time for an operand of the
        program whose rows may lie anywhere.
        Raises ValueError where neighbours are not always as far apart, as in strips.
        """
        stride = self._view.stride(dim, strip)
        self._printer.uses(symbol.name for symbol in stride.symbols())
        return stride

    def _offset(self, position: int) -> IndexExpr:
        """Return where the buffer holds a value, for code that is about to name it."""
        offset = self._view.offset(position)
        self._printer.uses((self.name, *(symbol.name for symbol in offset.symbols())))
        return offset


@attrs.frozen
class SiteMask:
    """The positions of an operand's rows and columns, as of CausalMask: others than a row uses count for nothing."""

    rows: OperandSite
    columns: OperandSite
    window: int


class KernelSite:
    """One call of a microkernel: `spec` is the Spec that it implements."""

    def __init__(self, spec: LogicalSpec, views: Sequence[View], printer: Printer):
        self.spec = spec
        self._views = tuple(views)
        self._printer = printer

    def operand(self, index: int) -> OperandSite:
        return OperandSite(self._views[index], self._printer)

    @cached_property
    def operands(self) -> dict[str, OperandSite]:
        """Return the operands by the names that the operation has for them."""
        return {one.name: self.operand(index) for index, one in enumerate(self.spec.declared)}

    @property
    def instructions(self) -> object:
        """Return the emitter's table of primitives, None without one."""
        return self._printer.instructions

    def line(self, text: str) -> None:
        """Add one line of C."""
        self._printer.line(text)

    def vector_type(self, dtype: DType, values: int) -> str:
        """Return the C type of a vector register."""
        return self._printer.vector(dtype, values)

    def load(self, dtype: DType, values: int) -> str:
        """Return the name of a function that loads a vector from any address."""
        return self._printer.load(dtype, values)

    def store(self, dtype: DType, values: int) -> str:
        """Return the name of a function that stores a vector to any address."""
        return self._printer.store(dtype, values)

    def fresh(self, name: str) -> str:
        """Return a new C variable's name, like `name`."""
        return self._printer.fresh(name)

    def helper(self, name: str, text: str) -> str:
        """Define the static function `name` as `text` in the file; return its name."""
        return self._printer.helper(name, text)

    def enclose(self, first: str, last: str) -> None:
        """Begin the function, or a thread's share of a parallel loop, with one statement and end it with another."""
        self._printer.enclose(first, last)
