"""Says by which rule a microkernel does not take a Spec."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
import numpy as np

from morello.ir.spec import LogicalSpec
from morello.ir.tensor import OperandState
from morello.kernels.microkernel import Microkernel, Multiple, OperandPattern, agree

#: The rules of a microkernel, in the order in which they are asked.
OPERATION, PATTERN, TYPES, SAME, SIZE, WHEN = "operation", "pattern", "types", "same", "size", "when"


@attrs.frozen
class Refusal:
    """The first rule that a Spec does not fulfil, and in words what the kernel wants and what there is."""

    rule: str
    detail: str


def refusal(kernel: Microkernel, logical: LogicalSpec) -> Refusal | None:
    """Return why a kernel does not take a Spec; None if it does, which is just when `kernel.accepts` it."""
    return next(_refusals(kernel, logical), None)


def _refusals(kernel: Microkernel, logical: LogicalSpec) -> Iterator[Refusal]:
    """Yield each rule that is broken. All after a broken one may make no sense."""
    if not kernel.implements(logical.op) or len(logical.states) != len(kernel.operands):
        yield Refusal(OPERATION, f"it is for {kernel.op_name}")
        return
    for pattern, state, one in zip(kernel.operands, logical.states, logical.declared, strict=True):
        for detail in _unfulfilled(pattern, state, len(one.dims)):
            yield Refusal(PATTERN, f"{one.name}: {detail}")
    types = tuple(state.dtype.name for state in logical.states)
    if kernel.types and types not in kernel.types:
        known = " or ".join(", ".join(one) for one in kernel.types)
        yield Refusal(TYPES, f"types are {known}, not {', '.join(types)}")
    for field in kernel.same:
        if not agree(field, logical.states):
            yield Refusal(SAME, f"all operands have the same {field}")
    yield from _sizes(kernel, logical)
    if kernel.when is not None and not np.all(kernel.when(logical)):
        yield Refusal(WHEN, "its own condition does not hold")


def _unfulfilled(pattern: OperandPattern, state: OperandState, rank: int) -> Iterator[str]:
    """Yield in words what a pattern wants of an operand that it is not."""
    if pattern.levels and state.level not in pattern.levels:
        yield f"in {_either(pattern.levels)}, not {state.level}"
    if pattern.dtypes and state.dtype.name not in pattern.dtypes:
        yield f"of {_either(pattern.dtypes)}, not {state.dtype}"
    if not pattern.orders(state, rank):
        yield f"{pattern.layout}, not {state.layout}"
    if pattern.contiguous and not state.contiguous:
        yield "contiguous"
    if pattern.aligned and not state.aligned:
        yield "aligned"
    if pattern.vectors and state.vector not in pattern.vectors:
        vectors = [f"v{size}" for size in pattern.vectors]
        yield f"in vectors of {_either(vectors)}, not {f'v{state.vector}' if state.vector else 'none'}"
    if pattern.layouts and state.layout not in pattern.layouts:
        yield f"laid out as {_either(list(map(str, pattern.layouts)))}, not {state.layout}"
    if pattern.when is not None and not pattern.when(state):
        yield "the pattern's own condition does not hold"


def _sizes(kernel: Microkernel, logical: LogicalSpec) -> Iterator[Refusal]:
    if kernel.shape is None:
        return
    if len(kernel.shape) != len(logical.shape):
        yield Refusal(SIZE, f"there are {len(kernel.shape)} dimensions, not {len(logical.shape)}")
        return
    for name, size, rule in zip(logical.dims, logical.shape, kernel.shape, strict=True):
        if isinstance(rule, Multiple) and size % rule.of:
            yield Refusal(SIZE, f"{name} is a multiple of {rule.of}, not {size}")
        if isinstance(rule, int) and size != rule:
            yield Refusal(SIZE, f"{name} is {rule}, not {size}")


def _either(words: Sequence[str]) -> str:
    return " or ".join(words)
