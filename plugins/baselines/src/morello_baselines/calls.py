"""CallChain of a library that compute a logical Spec, made ready so that calling them is all that is left to do."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import attrs
import numpy as np

from morello.ir.ops import Compose, Operation
from morello.ir.ops.fill import Fill
from morello.ir.ops.reduce import Reduction
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import OperandState
from morello.run.arrays import empty, form_of, pack, random_values

#: Arrays of the library's own type.
Arrays: TypeAlias = Sequence[Any]
#: Computes an operation from its inputs and an output array; returns that array or another one with the result.
Function: TypeAlias = Callable[..., Any]


class NotOffered(Exception):
    """The library has no equivalent call, or short chain of calls; the message says why."""


@attrs.frozen
class GraphNode:
    """An operation in a graph: the arrays of its inputs and of its output.

    `known` is True for each input that exists before timing starts; of the others only shape and type are final.
    """

    op: Operation
    arrays: Arrays
    known: Sequence[bool]


#: Makes the function for an operation of a class. Raises NotOffered.
Maker: TypeAlias = Callable[[GraphNode], Function]


class CallLibrary(ABC):
    """A library: its calls by class of operation, and its arrays. `module` has functions named as numpy's."""

    calls: Mapping[type[Operation], Maker]

    def __init__(self, module: Any):
        self.module = module

    def check(self, logical: LogicalSpec) -> None:
        """Raise NotOffered for operands that it has no calls for, or would convert."""
        if len({state.dtype for state in logical.states}) > 1:
            raise NotOffered("no operands of several types")

    def whole(self, op: Compose, arrays: Arrays) -> Function | None:
        """Return one call for the whole graph, or None."""
        return None

    @abstractmethod
    def given(self, array: np.ndarray) -> Any:
        """Return an array of the library, on the same memory if possible."""

    @abstractmethod
    def plain(self, array: Any) -> np.ndarray:
        """Return the values of one of its arrays."""

    def same(self, name: str) -> Maker:
        """Return the maker of a function that takes inputs and output as they are."""
        function = getattr(self.module, name)
        # Some functions of numpy deprecate an output that is not named.
        return lambda place: lambda *arrays: function(*arrays[:-1], out=arrays[-1])

    def constant(self, name: str, number: Callable[[Any], float]) -> Maker:
        """Return the maker of a function of values and a number that the operation has."""
        function = getattr(self.module, name)

        def maker(place: GraphNode) -> Function:
            value = number(place.op)
            return lambda x, out: function(x, value, out=out)

        return maker

    def reduction(self, name: str, add: str) -> Maker:
        """Return the maker of a reduction; `add` joins its result and a sum that goes on."""
        reduce, both = getattr(self.module, name), getattr(self.module, add)

        def maker(place: GraphNode) -> Function:
            op, out = place.op, place.arrays[-1]
            assert isinstance(op, Reduction)
            axis = op.axes(out.ndim)
            if len(place.known) == 1:
                return lambda x, out: reduce(x, axis=axis, keepdims=True, out=out)
            made = self.module.empty_like(out)
            return lambda x, total, out: both(total, reduce(x, axis=axis, keepdims=True, out=made), out=out)

        return maker

    def divided(self, place: GraphNode) -> Function:
        """Return the quotient by a vector or scalar, which is the first input."""
        divide = self.module.divide
        return lambda by, x, out: divide(x, by, out=out)

    def value(self, place: GraphNode) -> float:
        """Return the value of a fill, in the type of its output."""
        op, kind = place.op, place.arrays[-1].dtype
        assert isinstance(op, Fill)
        floating = "float" in str(kind)
        limits = (self.module.finfo if floating else self.module.iinfo)(kind)
        return {"Zero": 0, "NegInf": -math.inf if floating else limits.min, "Min": limits.min}[op.value]


@attrs.frozen
class _Step:
    """A function, the indices of its input values, and that of its result."""

    function: Function
    inputs: tuple[int, ...]
    output: int


@attrs.frozen
class CallChain:
    """All calls for a logical Spec: `run()` makes them, `values[output]` is the latest result."""

    steps: tuple[_Step, ...]
    values: list[Any]
    output: int

    def run(self) -> None:
        """Make the calls."""
        values = self.values
        for step in self.steps:
            values[step.output] = step.function(*[values[each] for each in step.inputs], values[step.output])


def calls_for(logical: LogicalSpec, library: CallLibrary, seed: int) -> CallChain:
    """Return the calls that compute a Spec on random data. Raises NotOffered."""
    library.check(logical)
    rng = np.random.default_rng(seed)
    operands = logical.op.operands(len(logical.shape))
    arrays = []
    for one, tensor in zip(operands, logical.operands, strict=True):
        form = form_of(tensor)
        values = random_values(rng, tuple(map(int, tensor.shape)), form.dtype)
        # Strips are Morello's own; a library gets such values row by row.
        arrays.append(pack(values, tensor) if form.plain else values)
        if one.writes and not one.reads and form.plain:
            arrays[-1] = empty(tensor)
    return arranged(logical, [library.given(each) for each in arrays], library)


def arranged(logical: LogicalSpec, arrays: list[Any], library: CallLibrary) -> CallChain:
    """Return the calls that compute a Spec on arrays of the library, one for each operand. Raises NotOffered."""
    op, output = logical.op, len(arrays) - 1
    if not isinstance(op, Compose):
        inputs = tuple(at for at, one in enumerate(op.operands(len(logical.shape))) if one.reads)
        place = GraphNode(op, [*(arrays[at] for at in inputs), arrays[output]], [True] * len(inputs))
        return CallChain((_Step(_maker(op, library)(place), inputs, output),), arrays, output)
    if op.outputs:
        raise NotOffered("no call for a Compose with several outputs")
    whole = library.whole(op, arrays)
    if whole is not None:
        return CallChain((_Step(whole, tuple(range(op.inputs)), output),), arrays, output)
    return _chained(op, logical, arrays, library)


def _chained(op: Compose, logical: LogicalSpec, arrays: list[Any], library: CallLibrary) -> CallChain:
    """Return a call for each stage of a graph, with arrays for the intermediates."""
    shape, dtypes = tuple(map(int, logical.shape)), [state.dtype for state in logical.states]
    values, output, steps = list(arrays), len(arrays) - 1, list[_Step]()

    def one(number: int, inputs: list[int]) -> int:
        target = output
        if number:
            made = np.empty(op.intermediate_shape(number, shape), op.intermediate_dtype(number, dtypes).numpy)
            target = len(values)
            values.append(library.given(made))
        stage = op.stages[number].op
        place = GraphNode(stage, [*(values[at] for at in inputs), values[target]], [at < output for at in inputs])
        steps.append(_Step(_maker(stage, library)(place), tuple(inputs), target))
        return target

    read = [at for at, each in enumerate(op.operands(len(shape))) if each.reads]
    op.run(read, one)
    return CallChain(tuple(steps), values, output)


def _maker(op: Operation, library: CallLibrary) -> Maker:
    # The exact class: a base class may have other semantics.
    maker = library.calls.get(type(op))
    if maker is None:
        raise NotOffered(f"no call for {op.name}")
    return maker


def least(logical: LogicalSpec) -> LogicalSpec:
    """Return the Spec with the smallest valid sizes: its calls measure the call overhead."""
    shape, dtypes = tuple(map(int, logical.shape)), [state.dtype for state in logical.states]
    for dim in range(len(shape)):
        smaller = (*shape[:dim], 1, *shape[dim + 1 :])
        sizes = (size for each in logical.op.operands(len(shape)) for size in each.shape(smaller))
        if min(sizes, default=1) > 0 and logical.op.refusal(smaller, dtypes) is None:
            shape = smaller
    states = tuple(OperandState(state.dtype, state.level, None) for state in logical.states)
    return LogicalSpec(logical.op, shape, states)
