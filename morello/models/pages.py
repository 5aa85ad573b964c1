"""The steps of a model for a page of its kernels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from morello.api.kernel import Kernel
from morello.models.model import PlannedModel
from morello.models.places import Buffer
from morello.report.steps import PageStep


def steps_of(model: PlannedModel, kernels: Sequence[Kernel]) -> tuple[PageStep, ...]:
    """Return the calls of a model for one target, where these are all kernels, in the order of the page.

    A call reads those that wrote its buffers before.
    """
    (goals,) = model.goals.values()
    numbers = {one.goal.name: number for number, one in enumerate(kernels, 1)}
    writers = defaultdict[Buffer, list[int]](list)
    found: list[PageStep] = []
    for number, call in enumerate(model.plan.calls):
        step, places = call.step, call.written.places
        inputs, kernel = len(step.inputs), numbers[goals[call.written.text].name]
        reads = sorted({one for place in places[:inputs] for one in writers[place.buffer]})
        found.append(PageStep(step.name, str(step), kernel, kernels[kernel - 1].cost, tuple(reads)))
        for place in places[inputs:]:
            writers[place.buffer].append(number)
    return tuple(found)
