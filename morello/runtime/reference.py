"""Runs a logical Spec through the target `reference_c`: C that was printed without any optimising code."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from morello.errors import Inapplicable, MorelloError, VerificationError
from morello.ir.dtypes import DType
from morello.ir.impl import Node
from morello.ir.layout import Layout, row_major
from morello.ir.ops import BY_NAME
from morello.ir.ops.base import Operation
from morello.ir.ops.compose import Compose
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import OperandState
from morello.kernels.target import Target
from morello.plugins.registry import installed
from morello.rewrites.select import Select
from morello.runtime.arrays import pack, unpack
from morello.runtime.kernel import Kernel
from morello.runtime.toolchain import Compiler
from morello.schedule import rewrite_leaf

#: The target that kernels are checked against.
NAME = "reference_c"

Shape: TypeAlias = tuple[int, ...]
#: Data type and layout of each operand.
OperandForms: TypeAlias = tuple[tuple[DType, Layout], ...]


def reference_target() -> Target:
    """Return the installed reference target. Raises VerificationError if there is none, PluginError if it is faulty."""
    registry = installed()
    if NAME not in registry.names and not registry.reason(NAME):
        raise VerificationError(
            f"the target {NAME}, which kernels are checked against, is not installed",
            "install it: pip install morello-reference-c",
        )
    return registry.target(NAME)


def implement(logical: LogicalSpec, target: Target) -> Node:
    """Return the implementation that is a single microkernel. Raises Inapplicable if there is none."""
    spec = target.spec(logical)
    for step in Select.steps(spec.logical, target):
        # A kernel for all operations of a class may not take this one.
        with contextlib.suppress(Inapplicable):
            return rewrite_leaf(spec, step, target)
    raise Inapplicable(
        f"{target.name} has no microkernel for {logical.op}", "check against a reference target that has one"
    )


class Reference:
    """The reference's function for a logical Spec, on logical arrays; `name` is its name in C."""

    def __init__(self, logical: LogicalSpec, compiler: Compiler, target: Target | None = None, name: str = "reference"):
        self._logical = logical
        self._name = name
        self._target = target or reference_target()
        self._compiler = compiler
        self._kernels: dict[tuple[Operation, Shape, OperandForms], Kernel] = {}

    @property
    def unknown(self) -> Operation | None:
        """Return an operation of a plugin that the reference has no kernel for; None if it knows them all."""
        op, kernels = self._logical.op, self._target.kernels
        for inner in [stage.op for stage in op.stages] if isinstance(op, Compose) else [op]:
            kind = type(inner)
            # A kernel for a class that it is derived from may mean something else.
            if type(BY_NAME.get(inner.name)) is not kind and not any(each.op in (kind, inner) for each in kernels):
                return inner
        return None

    def __call__(self, inputs: Sequence[np.ndarray], logical: LogicalSpec | None = None) -> list[np.ndarray]:
        """Return the written operands, from the read ones, in operand order; of another logical Spec if given.

        Raises VerificationError for an operation that the reference does not have.
        """
        logical = logical or self._logical
        op, shape = logical.op, tuple(map(int, logical.shape))
        if isinstance(op, Compose):
            return [self._stages(op, shape, [state.dtype for state in logical.states], inputs)]
        return self._run(op, shape, _kinds(logical), inputs)

    def kernel(self) -> Kernel | None:
        """Return the kernel that it calls, None for a Compose, which takes several, and for what it does not know.

        Raises VerificationError.
        """
        op, shape = self._logical.op, tuple(map(int, self._logical.shape))
        return None if isinstance(op, Compose) or self.unknown else self._kernel(op, shape, _kinds(self._logical))

    def _stages(self, op: Compose, shape: Shape, dtypes: Sequence[DType], inputs: Sequence[np.ndarray]) -> np.ndarray:
        """Return the operations of a Compose one after another, all tensors row-major."""

        def one(number: int, given: list[np.ndarray]) -> np.ndarray:
            stage = op.stages[number]
            types = zip(op.stage_dtypes(number, dtypes), stage.op.operands(stage.rank), strict=True)
            kinds = tuple((dtype, row_major(len(each.dims))) for dtype, each in types)
            return self._run(stage.op, op.stage_shape(number, shape), kinds, given)[0]

        return op.run(inputs, one)[0]

    def _run(self, op: Operation, shape: Shape, kinds: OperandForms, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
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

    def _kernel(self, op: Operation, shape: Shape, kinds: OperandForms) -> Kernel:
        """Return the reference's kernel: operands contiguous and aligned in its own memory."""
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


def _kinds(logical: LogicalSpec) -> OperandForms:
    operands = logical.operands
    return tuple((tensor.state.dtype, tensor.state.layout or row_major(len(tensor.shape))) for tensor in operands)
