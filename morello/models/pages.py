"""Models as the goals of commands, and their steps on pages."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence

import attrs

from morello.api.goals import Goal
from morello.api.kernel import Kernel
from morello.models.naming import c_name
from morello.models.onnx import from_onnx
from morello.models.passes import simplified
from morello.models.places import Buffer
from morello.models.plan import Plan, plan_of
from morello.models.solve import goals_of
from morello.plugins.profile_choice import ProfileLike
from morello.plugins.registry import installed
from morello.report.steps import PageStep


@attrs.frozen
class ModelGoals:
    """The plan of a model, and the goals of its distinct Specs, by text."""

    plan: Plan
    goals: Mapping[str, Goal]

    @classmethod
    def read(
        cls,
        path: str | os.PathLike[str],
        dims: Mapping[str, int] | None = None,
        target: str | None = None,
        profile: ProfileLike | None = None,
        cpu: str | None = None,
    ) -> ModelGoals:
        """Return those of an ONNX file; `dims` are the sizes of its named dimensions."""
        graph = simplified(from_onnx(path, dims))
        plan = plan_of(graph)
        chosen = installed().target(target or "x86_avx2", profile, cpu)
        return cls(plan, goals_of(plan, c_name(graph.name), chosen))

    def steps(self, kernels: Sequence[Kernel]) -> tuple[PageStep, ...]:
        """Return the calls of the plan, where these are the kernels on the page."""
        numbers = {one.goal.name: number for number, one in enumerate(kernels, 1)}
        writers = defaultdict[Buffer, list[int]](list)
        found: list[PageStep] = []
        for number, call in enumerate(self.plan.calls):
            step, places = call.step, call.written.places
            count, kernel = len(step.inputs), numbers[self.goals[call.written.text].name]
            reads = sorted({one for place in places[:count] for one in writers[place.buffer]})
            found.append(PageStep(step.name, str(step), kernel, kernels[kernel - 1].cost, tuple(reads)))
            for place in places[count:]:
                writers[place.buffer].append(number)
        return tuple(found)
