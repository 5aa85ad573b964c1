"""From Specs and schedules back to text, such that parsing it gives the same again."""

from __future__ import annotations

from morello.frontend.specfile import SpecFile
from morello.ir.signature import Signature
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.schedule import lines

_INDENT = "    "


def show_spec(spec: Spec, target: Target, signature: Signature | None = None) -> str:
    """Return a Spec over several lines, with names for its operands if they are given.

    Its limits are left out where they are all the memory of the target.
    """
    names, order = (signature.names, signature.operands) if signature else ((), ())
    logical = spec.logical.text(f",\n{_INDENT}", f",\n{_INDENT} ", names, order)
    if tuple(spec.limits) == target.full_limits():
        return logical
    return f"({logical},\n{_INDENT}[{', '.join(map(str, spec.limits))}])"


def show_file(file: SpecFile) -> str:
    """Return a whole file: target, Specs, and each Spec's schedule after it."""
    parts = [f"target {file.target.name}\n"]
    for goal in file.goals:
        parts.append(f"spec {goal.name} = {show_spec(goal.spec, file.target, goal.signature)}\n")
        if goal.schedule:
            parts.append("\n".join([f"schedule {goal.name} {{", *lines(goal.schedule, 1), "}\n"]))
    return "\n".join(parts)
