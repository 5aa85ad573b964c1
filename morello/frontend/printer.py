"""From Specs and schedules back to text, such that parsing it gives the same again."""

from __future__ import annotations

from morello.errors import MorelloError
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
    called = signature or Signature.of(spec.logical)
    logical = called.text(spec.logical, f",\n{_INDENT}", f",\n{_INDENT} ")
    if tuple(spec.limits) == target.full_limits():
        return logical
    return f"({logical},\n{_INDENT}[{', '.join(map(str, spec.limits))}])"


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
