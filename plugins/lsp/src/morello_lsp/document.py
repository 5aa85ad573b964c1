"""Answers to an editor about the text of a Spec file: errors, words, definitions, and descriptions."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Mapping

from morello import api
from morello.errors import MorelloError
from morello.frontend import SourceError
from morello.ir.dtypes import BY_NAME as TYPES
from morello.ir.impl import cost_and_peak
from morello.ir.layout import NAMED
from morello.ir.ops.named_graphs import NAMED_GRAPHS
from morello.kernels.target import Target
from morello.plugins.registry import installed

KEYWORDS = ("target", "let", "spec", "schedule", "for", "in", "serial", "constant", "overwritten", "layout", "Compose")
#: Words of schedules besides steps.
STATEMENTS = ("subschedule", "synthesize", "using", "without")
#: Where a name is declared: `spec NAME`, `let NAME`.
_DECLARED = r"^[ \t]*(?:spec|let)[ \t]+({name})\b"


def find_error(text: str, filename: str) -> MorelloError | None:
    """Return the first error of a file; None if it has no error."""
    found = _parsed(text, filename)
    return found if isinstance(found, MorelloError) else None


def _parsed(text: str, filename: str) -> Mapping[str, api.Goal] | MorelloError:
    """Return the goals of a file, or its first error."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return api.parse(text, filename=filename)
    except MorelloError as error:
        return error


def error_place(error: MorelloError) -> tuple[int, int, int]:
    """Return the line, first column and last column of an error, from 0; the start of the file if it has no place."""
    if not isinstance(error, SourceError):
        return 0, 0, 1
    return error.line - 1, error.column - 1, error.column - 1 + max(1, len(error.caret.strip()))


def target_of(text: str) -> Target | None:
    """Return the target that a file names; None if it names no installed one."""
    found = re.search(r"^[ \t]*target[ \t]+(\w+)", text, re.MULTILINE)
    if not found or found[1] not in installed().names:
        return None
    return installed().target(found[1])


def definition(text: str, name: str) -> int | None:
    """Return the offset at which a file declares a name; None if it does not, and for an empty one."""
    if not name:
        return None
    found = re.search(_DECLARED.format(name=re.escape(name)), text, re.MULTILINE)
    return found and found.start(1)


def describe(text: str, word: str) -> str:
    """Return the Markdown description of a word of a file: a Spec, an operation, a level, a kernel; empty for others.

    The description of a Spec has its operands' shapes and types, and the cost of its program if it is scheduled in full
    or solved in the default database.
    """
    target = target_of(text)
    if definition(text, word) is not None:
        goals = _parsed(text, "")
        if not isinstance(goals, MorelloError) and word in goals:
            return _goal(goals[word])
    if target is None:
        return ""
    if operation := target.operations.get(word):
        return f"**{word}**\n\n{inspect.getdoc(type(operation)) or ''}"
    if graph := NAMED_GRAPHS.get(word):
        takes = f"; parameters: {', '.join(graph.parameters)}" if graph.parameters else ""
        return f"**{word}**: a graph of operations on {', '.join(graph.names)}{takes}"
    for level in target.levels:
        if level.name == word:
            return f"**{word}**: {level.kind} of {target.name}, {level.capacity:,} units of {level.unit} bytes"
    if kernel := target.kernels_by_name.get(word):
        return f"**{word}**: a kernel for {kernel.op_name}"
    return ""


def _goal(goal: api.Goal) -> str:
    store = api.database(None)
    solved = store and store.program(goal.target, goal.spec)
    cost = goal.facts["cost"] or (f"{cost_and_peak(solved).cost:,}" if solved else "not solved yet")
    operands = [
        f"| `{name}` | {'×'.join(map(str, tensor.shape))} | {tensor.state.dtype} | {tensor.state.level} |"
        for name, tensor in zip(goal.plain.names, goal.spec.logical.operands, strict=True)
    ]
    head = f"**{goal.name}** for {goal.target.full_name}: {goal.spec.logical.op}\n\n"
    return (
        head + "\n".join(["| operand | shape | type | level |", "|---|---|---|---|", *operands]) + f"\n\ncost: {cost}"
    )


def words(text: str, offset: int) -> list[str]:
    """Return the words that may stand at an offset: those of schedules within braces, else those of Specs."""
    target = target_of(text)
    if re.search(r"\btarget[ \t]+\w*$", text[:offset]):
        return list(installed().names)
    if target is None:
        return [*KEYWORDS]
    declared = re.findall(_DECLARED.format(name=r"\w+"), text, re.MULTILINE)
    common = [*(level.name for level in target.levels), *NAMED, "layout", *declared]
    if text.count("{", 0, offset) > text.count("}", 0, offset):
        return [*target.rewrites_by_name, *STATEMENTS, *target.kernels_by_name, *common]
    return [*KEYWORDS, *target.operations, *NAMED_GRAPHS, *TYPES, *common]
