"""Prompts for language models: a plan by the menu, an edit by the plan, and one repair of what does not apply."""

from __future__ import annotations

import re
from collections.abc import Sequence

from morello.frontend.specfile import show_spec
from morello.kernels.target import Target
from morello.report.tables import table_text
from morello.report.tree import program_tree, tree_table
from morello.report.words import cost_words, memory
from morello.rewrites.base import rewrites_of
from morello_tune.interface import Feedback, MenuItem, PlanRequest, TuningCandidate, TuningTask

SYSTEM = (
    "You make tensor programs faster by editing their schedules. A schedule is a list of steps that rewrite a "
    "specification into a program; steps cannot change its results, but those that do not apply are refused."
)
# None of these takes more than linear time, whatever an answer has.
_FENCED = re.compile(r"```[^\n`]*\n(.*?)```", re.DOTALL)
_ITEM = re.compile(r"^[^\w\n]*item\W{1,20}([\w-]+)", re.IGNORECASE | re.MULTILINE)
_HEAD = re.compile(r"schedule\s++\w++[^{}]{0,200}\{")


def plan_prompt(task: TuningTask, request: PlanRequest) -> str:
    """Return the prompt for a plan: exactly one item of the menu, and how to apply it."""
    menu = "\n".join(f"- {item.name}: {item.text}" for item in request.menu)
    return "\n\n".join(
        [
            *_facts(task, request),
            f"Menu of optimizations:\n{menu}",
            _rules(task),
            f"This is iteration {request.iteration} of {request.iterations}. Select exactly one optimization from the "
            "menu. Answer with a line `item: NAME`, then with a short plan: which steps to change, and to what.",
        ]
    )


def edit_prompt(task: TuningTask, request: PlanRequest, item: MenuItem, plan: str) -> str:
    """Return the prompt for the edited schedule, with the item's example if the plan has a trigger of it."""
    triggered = any(word.lower() in plan.lower() for word in item.triggers or (item.name,))
    example = [f"Example of {item.name}:\n{item.example}"] if item.example and triggered else []
    return "\n\n".join(
        [
            *_facts(task, request),
            f"Steps of schedules:\n{grammar(task.start.target)}",
            *example,
            _rules(task),
            f"Plan:\n{plan}",
            "Apply the plan. Answer with the whole new schedule in one fenced block, a step a line. End it, or a "
            "subschedule of it, with `synthesize` where search is to find the rest.",
        ]
    )


def repair_prompt(error: str) -> str:
    """Return the prompt with the error of an answer."""
    return f"That schedule is refused:\n{error}\n\nAnswer with the corrected schedule in one fenced block."


def grammar(target: Target) -> str:
    """Return the syntax of each step of a target, with a description."""
    lines = [f"- {one.usage()}: {(one.__doc__ or '').strip().splitlines()[0]}" for one in rewrites_of(target)]
    lines.append("- subschedule [N] { ... }: steps for child N of the step before")
    lines.append("- synthesize: search completes the program; the last step")
    return "\n".join(lines)


def chosen_item(answer: str, menu: Sequence[MenuItem]) -> MenuItem | None:
    """Return the single item of the menu that a plan names, None otherwise."""
    by_name = {item.name: item for item in menu}
    named = [name for name in _ITEM.findall(answer) if name in by_name]
    if not named:
        named = [name for name in by_name if re.search(rf"\b{re.escape(name)}\b", answer)]
    return by_name[named[0]] if len({*named}) == 1 else None


def schedule_in(answer: str) -> str:
    """Return the text of a schedule in an answer: its last fenced block, or all of it."""
    blocks = _FENCED.findall(answer)
    text = blocks[-1] if blocks else answer
    head, whole = _HEAD.search(text), text.rstrip()
    return whole[head.end() : -1] if head and whole.endswith("}") else text


def _facts(task: TuningTask, request: PlanRequest) -> list[str]:
    candidate, target = request.candidate, request.candidate.target
    shown = task.options.get("feedback", True) and candidate.feedback
    tree = table_text(*tree_table(program_tree(candidate.impl, target), compact=True)).rstrip("\n")
    parts = [
        f"Target {target.name}: {task.info.description or target.info.description}",
        f"Memory levels, fastest first: {', '.join(f'{one.name} {one.capacity} bytes' for one in target.levels)}",
        f"Specification:\n{show_spec(candidate.spec, target)}",
        f"Schedule:\n{candidate.text}",
        f"Program that it makes, with costs of the model:\n{tree}",
    ]
    return [*parts, f"Measured:\n{feedback_text(shown, candidate)}"] if shown else parts


def feedback_text(feedback: Feedback, candidate: TuningCandidate) -> str:
    """Return the measurements of a program, and the shares of its cost."""
    target, percent = candidate.target, feedback.percent
    peak = "" if percent is None else f", {percent:.0f} % of the peak"
    capacities = {level.name: level for level in target.levels}
    held = ", ".join(
        f"{name} {used} of {capacities[name].capacity} bytes"
        + (f" ({used // capacities[name].unit} registers)" if capacities[name].is_register else "")
        for name, used in feedback.holds.items()
        if used
    )
    shares = ", ".join(f"{name} {share:.0f} %" for name, share in feedback.shares.items())
    metric = next(iter(target.metrics), None)
    value = (
        f"{metric.name} {feedback.value:,.6g} {metric.unit}" if metric else f"{1e9 * feedback.value:,.0f} ns per call"
    )
    return (
        f"{value}{peak}\nheld at most: {held or memory(dict(feedback.holds))}\n"
        f"cost {cost_words(feedback.cost, target)}; shares: {shares}"
    )


def _rules(task: TuningTask) -> str:
    rules = [
        "Only steps listed for the target may be used, with sizes that fit the specification.",
        "A step continues with the child that is not a move; other children need `subschedule [N] { ... }`.",
        "Sizes of tiles are positive and smaller than the dimension; 0 leaves a dimension whole.",
        "Sums are tiled after `to_accum`.",
        *task.info.rules,
    ]
    return "Rules:\n" + "\n".join(f"{number}. {rule}" for number, rule in enumerate(rules, 1))
