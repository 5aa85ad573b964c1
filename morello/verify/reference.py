"""Run logical Specs on the target `reference_c`, whose C is not optimised."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from morello.build.toolchain import Compiler, find_compiler
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
from morello.run.arrays import ALIGNMENT, empty, pack, unpack
from morello.run.function import NativeFunction
from morello.schedule import rewrite_leaf

#: The target that programs are verified against.
REFERENCE_NAME = "reference_c"

Shape: TypeAlias = tuple[int, ...]
#: Data type and layout of each operand.
OperandForms: TypeAlias = tuple[tuple[DType, Layout], ...]


def reference_target() -> Target:
    """Return the installed reference target. Raises VerificationError if it is missing, PluginError if it is faulty."""
    registry = installed()
    if REFERENCE_NAME not in registry.names and not registry.reason(REFERENCE_NAME):
        raise VerificationError(
            f"the target {REFERENCE_NAME}, which programs are verified against, is not installed",
            "install it: pip install morello-reference-c",
        )
    return registry.target(REFERENCE_NAME)


def native_compiler(compiler: Compiler) -> Compiler:
    """Return the compiler for the reference: the program's, or this machine's if that is for another one."""
    return find_compiler() if compiler.triple else compiler


def implement(logical: LogicalSpec, target: Target) -> Node:
    """Return the implementation by a single microkernel. Raises Inapplicable without one."""
    spec = target.spec(logical)
    for step in Select.steps(spec.logical, target):
        # A kernel of a class of operations may refuse this one.
        with contextlib.suppress(Inapplicable):
            return rewrite_leaf(spec, step, target)
    raise Inapplicable(
        f"{target.name} has no microkernel for {logical.op}", "verify against a reference target that has one"
    )


class Reference:
    """The reference's functions for a logical Spec, on logical arrays; `name` is their name in C."""

    def __init__(self, logical: LogicalSpec, compiler: Compiler, target: Target | None = None, name: str = "reference"):
        self._logical = logical
        self._name = name
        self._target = target or reference_target()
        self._compiler = compiler
        self._functions: dict[tuple[Operation, Shape, OperandForms], NativeFunction] = {}

    @property
    def unknown(self) -> Operation | None:
        """Return a plugin's operation without a kernel in the reference, or None."""
        op, kernels = self._logical.op, self._target.kernels
        for inner in [stage.op for stage in op.stages] if isinstance(op, Compose) else [op]:
            kind = type(inner)
            # A kernel of a base class may compute something else.
            if type(BY_NAME.get(inner.name)) is not kind and not any(each.op in (kind, inner) for each in kernels):
                return inner
        return None

    def __call__(self, inputs: Sequence[np.ndarray], logical: LogicalSpec | None = None) -> list[np.ndarray]:
        """Return the outputs for `inputs`, in operand order, of another logical Spec if given.

        Raises VerificationError for an operation that the reference lacks.
        """
        logical = logical or self._logical
        op, shape = logical.op, tuple(map(int, logical.shape))
        if isinstance(op, Compose):
            return self._stages(op, shape, [state.dtype for state in logical.states], inputs)
        return self._run(op, shape, _kinds(logical), inputs)

    def function(self) -> NativeFunction | None:
        """Return the function that it calls; None for a Compose, which calls several, and for unknown operations.

        Raises VerificationError.
        """
        op, shape = self._logical.op, tuple(map(int, self._logical.shape))
        return None if isinstance(op, Compose) or self.unknown else self._function(op, shape, _kinds(self._logical))

    def _stages(
        self, op: Compose, shape: Shape, dtypes: Sequence[DType], inputs: Sequence[np.ndarray]
    ) -> list[np.ndarray]:
        """Return the outputs of a Compose, stage by stage, all tensors row-major."""

        def one(number: int, given: list[np.ndarray]) -> np.ndarray:
            stage = op.stages[number]
            types = zip(op.stage_dtypes(number, dtypes), stage.op.operands(stage.rank), strict=True)
            kinds = tuple((dtype, row_major(len(each.dims))) for dtype, each in types)
            return self._run(stage.op, op.stage_shape(number, shape), kinds, given)[0]

        results = op.run(inputs, one)
        return [results[number] for number in (*op.outputs, 0)]

    def _run(self, op: Operation, shape: Shape, kinds: OperandForms, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        function, values = self._function(op, shape, kinds), iter(inputs)
        arrays = [
            pack(next(values), one.tensor) if one.reads else empty(one.tensor, max(ALIGNMENT, one.alignment))
            for one in function.arguments
        ]
        function(arrays)
        return [unpack(array, one.tensor) for one, array in zip(function.arguments, arrays, strict=True) if one.writes]

    def _function(self, op: Operation, shape: Shape, kinds: OperandForms) -> NativeFunction:
        """Return the reference's function: operands are contiguous and aligned."""
        key = (op, shape, kinds)
        if key not in self._functions:
            level = self._target.levels[-1].name
            states = tuple(OperandState(dtype, level, layout, len(layout.dims)) for dtype, layout in kinds)
            try:
                impl = implement(LogicalSpec(op, shape, states), self._target)
                program = self._target.emitter.emit(impl, self._target, self._name)
            except MorelloError as error:
                raise VerificationError(
                    f"{REFERENCE_NAME} cannot compute {op}, so there is nothing to compare with: {error.message}",
                    f"install a version of {REFERENCE_NAME} that has it",
                ) from error
            self._functions[key] = NativeFunction(impl, self._target, program, self._compiler)
        return self._functions[key]


def _kinds(logical: LogicalSpec) -> OperandForms:
    operands = logical.operands
    return tuple((tensor.state.dtype, tensor.state.layout or row_major(len(tensor.shape))) for tensor in operands)
