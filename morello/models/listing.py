"""The distinct Specs of a model, for people: a Spec file to schedule and tune, and the rows of a table."""

from __future__ import annotations

import re

from morello.api.goals import Goal
from morello.frontend.specfile import show_spec
from morello.kernels.target import Target
from morello.models.model import PlannedModel

#: The most layers that a comment lists.
_MOST = 8


def rows_of(model: PlannedModel, target: Target) -> list[tuple[str, str, str, int, float]]:
    """Return name, first layer, Spec in short, calls, and share of the floating-point operations of each kernel."""
    layers = _layers(model)
    goals = model.goals[target].items()
    work = {text: len(layers[text]) * one.spec.logical.flops for text, one in goals}
    total = sum(work.values()) or 1
    return [
        (one.name, layers[text][0], one.spec.logical.short(), len(layers[text]), work[text] / total)
        for text, one in goals
    ]


def spec_file_of(model: PlannedModel, target: Target) -> str:
    """Return the Spec file of a model, with the layers that use each Spec; `morello build --schedules` reads it."""
    layers = _layers(model)
    parts = [f"target {target.full_name}\n"]
    for (text, one), (*_, count, share) in zip(model.goals[target].items(), rows_of(model, target), strict=True):
        parts.append(
            f"# {_listed(layers[text])}\n# calls: {count}, {share:.1%} of the work\n{_declared(one, target)}\n"
        )
    return "\n".join(parts)


def _declared(goal: Goal, target: Target) -> str:
    return f"spec {goal.name} = {show_spec(goal.spec, target, goal.signature)}"


def _layers(model: PlannedModel) -> dict[str, list[str]]:
    """Return the names of the steps that use each Spec, by its text."""
    found: dict[str, list[str]] = {}
    for call in model.plan.calls:
        found.setdefault(call.written.text, []).append(call.step.name)
    return found


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return re.sub(r"[^ -~]", "?", ", ".join(names[:_MOST])) + more
