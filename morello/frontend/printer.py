"""From Specs and schedules back to text, such that parsing it gives the same again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from morello.errors import MorelloError
from morello.frontend.graphs import COMPOSE
from morello.frontend.specfile import SpecFile
from morello.ir.layout import Layout, name_of
from morello.ir.ops import Compose
from morello.ir.signature import Signature
from morello.ir.spec import LogicalSpec, Spec
from morello.ir.tensor import TensorSpec
from morello.kernels.target import Target
from morello.schedule import Schedule, lines

_INDENT = "    "


def show_spec(spec: Spec, target: Target, signature: Signature | None = None) -> str:
    """Return a Spec over several lines, with names for its operands if they are given.

    Its limits are left out where they are all the memory of the target.
    """
    logical = _logical(spec.logical, f",\n{_INDENT}", f",\n{_INDENT} ", signature)
    if tuple(spec.limits) == target.full_limits():
        return logical
    return f"({logical},\n{_INDENT}[{', '.join(map(str, spec.limits))}])"


def show_logical(logical: LogicalSpec) -> str:
    """Return a logical Spec on a single line."""
    return _logical(logical, ", ", ", ")


def show_tensor(tensor: TensorSpec) -> str:
    """Return a tensor with its shape, as operands of a Compose are written: `(1×64×128, f32, GL, row_major)`."""
    return f"({_times(tensor.shape)}, {_state(tensor)})"


def show_schedule(schedule: Schedule) -> str:
    """Return a schedule, a statement a line."""
    return "\n".join(lines(schedule))


def show_file(file: SpecFile, *others: SpecFile) -> str:
    """Return a whole file: target, Specs, and each Spec's schedule after it.

    `others` are how other targets see the file; parsed for any of the targets, the text gives what that one sees.
    Raises MorelloError where they see different Specs.
    """
    parts = [f"target {file.target.name}\n"]
    for goals in zip(*(each.goals for each in (file, *others)), strict=True):
        texts = [
            f"spec {goal.name} = {show_spec(goal.spec, each.target, goal.signature)}\n"
            for each, goal in zip((file, *others), goals, strict=True)
        ]
        if len({*texts}) > 1:
            hint = "write a file for each target"
            raise MorelloError(f"{goals[0].name} is not the same Spec on all targets, so no file has it", hint)
        parts.append(texts[0])
        for each, goal in zip((file, *others), goals, strict=True):
            if goal.schedule:
                head = f"schedule {goal.name} for {each.target.name} {{" if others else f"schedule {goal.name} {{"
                parts.append("\n".join([head, *lines(goal.schedule, 1), "}\n"]))
    return "\n".join(parts)


def _logical(logical: LogicalSpec, separator: str, inner: str, signature: Signature | None = None) -> str:
    """Return a logical Spec; `separator` comes between its parts and `inner` between the operands of a Compose."""
    serial = ", serial" if logical.serial else ""
    plain = Signature.of(logical)
    called = signature or plain
    labels = tuple(plain.names[each] for each in called.operands)
    names = "" if called.names == labels else f"({', '.join(called.names)})"
    if isinstance(logical.op, Compose):
        # Only equations can be given their operands in another order.
        is_chain = logical.op.is_chain and called.operands == plain.operands
        operands = inner.join(
            ("" if is_chain else f"{label}: ") + show_tensor(logical.operand(each))
            for label, each in zip(labels, called.operands, strict=True)
        )
        head = str(logical.op)[:-1] if is_chain else f"{COMPOSE}([{', '.join(logical.op.equations())}]"
        return f"{head}{separator}[{operands}]{serial}){names}"
    states = [f"({_state(tensor)})" for tensor in logical.operands]
    return f"{logical.op}({separator.join([_times(logical.shape), *states])}{serial}){names}"


def _state(tensor: TensorSpec) -> str:
    state = tensor.state
    words = [str(state.dtype), state.level]
    if state.layout is not None:
        words.append(_layout(state.layout, tensor.shape))
    if not state.aligned:
        words.append("ua")
    if not state.contiguous:
        words.append(f"c{state.contig}")
    if state.spacing:
        words.append(f"s{state.spacing}")
    if state.vector is not None:
        words.append(f"v{state.vector}")
    return ", ".join(words)


def _layout(layout: Layout, shape: Sequence[Any]) -> str:
    return name_of(layout, shape) or str(layout)


def _times(shape: Sequence[Any]) -> str:
    return "×".join(map(str, shape))
