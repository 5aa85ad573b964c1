"""What a microkernel prints through: its operands as C expressions, and the lines it adds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from morello.ir.dtypes import DType
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import TensorSpec
from morello.kernels.buffers import View

if TYPE_CHECKING:
    from morello.codegen.emitter import Emission


@attrs.frozen
class OperandSite:
    """One operand where a kernel is called. Positions count its values in the order of its layout."""

    view: View

    @property
    def tensor(self) -> TensorSpec:
        return self.view.tensor

    def scalar(self, position: int = 0) -> str:
        """The C lvalue of one value, in a scalar register or in memory."""
        if self.view.buffer.in_registers:
            return self.view.variable(position)
        return f"{self.view.buffer.name}[{self.view.offset(position)}]"

    def pointer(self, position: int = 0) -> str:
        """A C pointer to one value in memory."""
        offset = self.view.offset(position)
        name = self.view.buffer.name
        if offset.constant is None:
            return f"&{name}[{offset}]"
        return name if offset.constant == 0 else f"{name} + {offset}"

    def vectors(self) -> list[str]:
        """The vector registers that hold the operand, in the order of its layout."""
        size = self.tensor.state.vector or 1
        return [self.view.variable(position) for position in range(0, int(self.tensor.volume), size)]


class KernelSite:
    """One call of a microkernel: `spec` is what it implements."""

    def __init__(self, spec: LogicalSpec, views: list[View], emission: Emission):
        self.spec = spec
        self._views = views
        self._emission = emission

    def operand(self, index: int) -> OperandSite:
        return OperandSite(self._views[index])

    def line(self, text: str) -> None:
        """Add one line of C."""
        self._emission.writer.line(text)

    def vector_type(self, dtype: DType, values: int) -> str:
        """The C type of a vector register."""
        return self._emission.vector(dtype, values)

    def load(self, dtype: DType, values: int) -> str:
        """The name of a function that loads a vector from any address."""
        return self._emission.load(dtype, values)

    def store(self, dtype: DType, values: int) -> str:
        """The name of a function that stores a vector to any address."""
        return self._emission.store(dtype, values)

    def fresh(self, name: str) -> str:
        """A new C variable's name, like `name`."""
        return self._emission.names.fresh(name)

    def helper(self, name: str, text: str) -> str:
        """Make sure that the file defines the static function `name` as `text`; returns its name."""
        return self._emission.helper(name, text)
