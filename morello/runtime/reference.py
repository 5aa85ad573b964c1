"""Runs a logical Spec through the target `reference_c`: C that was printed without any optimising code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from morello.errors import Inapplicable, MorelloError, VerificationError
from morello.ir import dtypes
from morello.ir.dtypes import F32, DType
from morello.ir.impl import Node
from morello.ir.layout import Layout, row_major
from morello.ir.ops.base import Operation
from morello.ir.ops.compose import Compose
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import OperandState
from morello.plugins.registry import installed
from morello.plugins.target import Target
from morello.rewrites.select import Select
from morello.runtime.arrays import pack, unpack
from morello.runtime.chain import chain
from morello.runtime.kernel import Kernel
from morello.runtime.toolchain import Compiler
from morello.schedule import rewrite_leaf

#: The target that kernels are checked against.
NAME = "reference_c"

Shape: TypeAlias = tuple[int, ...]
#: Data type and layout of each operand.
Kinds: TypeAlias = tuple[tuple[DType, Layout], ...]

_BY_NUMPY = {dtype.numpy: dtype for dtype in dtypes.ALL}


def reference_target() -> Target:
    """The installed reference target. Raises VerificationError if there is none."""
    if NAME not in installed().names:
        raise VerificationError(
            f"the target {NAME}, which kernels are checked against, is not installed",
            "install it: pip install morello-reference-c",
        )
    return installed().target(NAME)


def implement(logical: LogicalSpec, target: Target) -> Node:
    """The implementation that is a single microkernel. Raises Inapplicable if there is none."""
    spec = target.spec(logical)
    for step in Select.steps(spec.logical, target):
        return rewrite_leaf(spec, step, target)
    raise Inapplicable(f"{target.name} has no microkernel for {logical.op}")


class Reference:
    """The reference's function for a logical Spec, on logical arrays; `name` is its name in C."""

    def __init__(self, logical: LogicalSpec, compiler: Compiler, target: Target | None = None, name: str = "reference"):
        self._logical = logical
        self._name = name
        self._target = target or reference_target()
        self._compiler = compiler
        self._kernels: dict[tuple[Operation, Shape, Kinds], Kernel] = {}

    def __call__(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The written operands, from the read ones, in operand order.

        Raises VerificationError for an operation that the reference does not have.
        """
        op, shape = self._logical.op, tuple(map(int, self._logical.shape))
        if isinstance(op, Compose):
            return [chain(op, shape, inputs, self._component)[-1]]
        return self._run(op, shape, self._kinds(), inputs)

    def kernel(self) -> Kernel | None:
        """The kernel that it calls, None for a chain, which takes several. Raises VerificationError."""
        op, shape = self._logical.op, tuple(map(int, self._logical.shape))
        return None if isinstance(op, Compose) else self._kernel(op, shape, self._kinds())

    def _kinds(self) -> Kinds:
        operands = self._logical.operands
        return tuple((tensor.state.dtype, tensor.state.layout or row_major(len(tensor.shape))) for tensor in operands)

    def _component(self, op: Operation, shape: Shape, inputs: Sequence[np.ndarray]) -> np.ndarray:
        """One operation of a chain: row-major, intermediates in f32 or the output's integer type."""
        whole, output = self._logical.op, self._logical.states[-1].dtype
        last = isinstance(whole, Compose) and op is whole.components[0]
        operands = op.operands(len(shape))
        types = [_BY_NUMPY[value.dtype] for value in inputs][: len(operands) - 1]
        types.append(F32 if output.is_float and not last else output)
        kinds = tuple((dtype, row_major(len(one.dims))) for dtype, one in zip(types, operands, strict=True))
        return self._run(op, shape, kinds, inputs)[0]

    def _run(self, op: Operation, shape: Shape, kinds: Kinds, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        kernel = self._kernel(op, shape, kinds)
        operands = list(zip(kernel.arguments, kernel.spec.operands, strict=True))
        waiting = iter(inputs)
        given = [pack(next(waiting), tensor) for argument, tensor in operands if argument.reads]
        fresh = kernel(*given)
        made, read = iter(fresh if isinstance(fresh, tuple) else (fresh,)), iter(given)
        arrays = [next(read) if argument.reads else next(made) for argument, _ in operands]
        return [
            unpack(array, tensor) for (argument, tensor), array in zip(operands, arrays, strict=True) if argument.writes
        ]

    def _kernel(self, op: Operation, shape: Shape, kinds: Kinds) -> Kernel:
        """The reference's kernel: operands contiguous and aligned in its own memory."""
        key = (op, shape, kinds)
        if key not in self._kernels:
            level = self._target.levels[-1].name
            states = tuple(OperandState(dtype, level, layout, len(layout.dims)) for dtype, layout in kinds)
            try:
                impl = implement(LogicalSpec(op, shape, states), self._target)
                program = self._target.emitter.emit(impl, self._target, self._name)
            except MorelloError as error:
                raise VerificationError(
                    f"{NAME} cannot compute {op}, so there is nothing to check against: {error.message}",
                    f"install a version of {NAME} that has it",
                ) from error
            self._kernels[key] = Kernel(impl, self._target, program, self._compiler)
        return self._kernels[key]
