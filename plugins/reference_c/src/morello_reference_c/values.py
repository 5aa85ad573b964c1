"""Tensors in C: where a value is in its buffer, and how it is read and written."""

from __future__ import annotations

import attrs

from morello.ir.dtypes import DType
from morello.ir.layout import Layout, row_major
from morello.ir.tensor import TensorSpec


@attrs.frozen
class Value:
    """An operand in C; `strides` of its physical dimensions are known only to the caller, slowest first."""

    name: str
    tensor: TensorSpec
    strides: int

    @property
    def dtype(self) -> DType:
        return self.tensor.state.dtype

    @property
    def layout(self) -> Layout:
        return self.tensor.state.layout or row_major(len(self.tensor.shape))

    @property
    def type_of_sums(self) -> str:
        """Return the C type in which values for this operand are computed."""
        return self.dtype.c_sums

    @property
    def stride_names(self) -> list[str]:
        return [f"{self.name}_stride{position}" for position in range(self.strides)]

    def element(self, *point: str) -> str:
        """Return the stored element at a point."""
        return f"{self.name}[{self.name}_at({', '.join([*point, *self.stride_names])})]"

    def read(self, kind: str, *point: str) -> str:
        """Return the value at a point, as the C type `kind`."""
        if self.dtype.is_bits:
            return f"{'(double)' * (kind == 'double')}{self.dtype}_to_float({self.element(*point)})"
        return self.element(*point) if kind == self.dtype.c_name else f"({kind}){self.element(*point)}"

    def write(self, value: str, *point: str) -> str:
        """Return the statement that stores a value of type `type_of_sums`."""
        if self.dtype.is_bits:
            value = f"float_to_{self.dtype}({value})"
        elif not self.dtype.is_float and self.dtype.c_name != self.type_of_sums:
            value = f"({self.dtype.c_name}){value}"
        return f"{self.element(*point)} = {value};"

    def index_function(self) -> str:
        """Return the C function from logical coordinates to the offset in the buffer, in values."""
        layout, shape = self.layout, self.tensor.shape
        rank = len(shape)
        variables = [f"i{dim}" for dim in range(rank)]
        strides = [f"s{position}" for position in range(self.strides)]
        terms = self._terms(variables, strides)
        unused = [name for dim, name in enumerate(variables) if all(each.dim != dim for each in layout.dims)]
        parameters = ", ".join(f"ptrdiff_t {name}" for name in (*variables, *strides))
        lines = [
            f"/* {self.name}: {self.dtype} {'×'.join(map(str, shape))}, {layout} */",
            f"static inline ptrdiff_t {self.name}_at({parameters}) {{",
            *(f"    (void){name};" for name in unused),
            f"    return {' + '.join(terms) or '0'};",
            "}",
        ]
        return "\n".join(lines) + "\n"

    def _terms(self, variables: list[str], strides: list[str]) -> list[str]:
        """Index times stride of each physical dimension, slowest first."""
        left = list(variables)
        sizes = [int(size) for size in self.tensor.shape]
        step = 1
        terms: list[str] = []
        for position in reversed(range(len(self.layout.dims))):
            physical = self.layout.dims[position]
            index, size = left[physical.dim], sizes[physical.dim]
            if physical.size is not None:
                size = physical.size
                left[physical.dim] = f"{index} / {size}"
                sizes[physical.dim] //= size
                index = f"{index} % {size}"
                if physical.odd_even:
                    index = f"({index} / 2 + {index} % 2 * {size // 2})"
            stride = strides[position] if position < len(strides) else str(step)
            terms.insert(0, index if stride == "1" else f"{index} * {stride}")
            step *= size
        return terms
