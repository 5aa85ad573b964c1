"""Programs, built from stored steps or schedules by replay, and the answers that a program gives."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TypeAlias
from weakref import WeakKeyDictionary

import attrs
import numpy as np

from morello.db.answers import AnswerBlock, AnswerKind, SpecAnswer
from morello.db.file import Damaged, DatabaseFile
from morello.errors import MorelloError, SpecError
from morello.frontend.parser import parse_schedule
from morello.ir.impl import AllowedSteps, CostAndPeak, Impl, Leaf, Node, combine, cost_and_peak, leaves
from morello.ir.limits import fits
from morello.ir.spec import LogicalSpec, Spec
from morello.kernels.target import Target
from morello.rewrites.base import Rewrite
from morello.schedule import Position, apply, rewrite_leaf

#: Programs of Specs, with cost and peak; None if a part is not solved.
Programs: TypeAlias = dict[Spec, tuple[Impl, CostAndPeak] | None]


class WrongAnswer(Damaged):
    """A stored answer whose step does not give the program that it claims."""


#: The most characters of a stored schedule; parsing them takes seconds.
LONGEST_SCHEDULE = 1 << 18
#: Errors of rewrites that cannot be applied.
_FAULTS = (ArithmeticError, LookupError, TypeError, ValueError, AssertionError)
_parsed: WeakKeyDictionary[Target, dict[str, Rewrite]] = WeakKeyDictionary()


def parse_step(text: str, target: Target) -> Rewrite:
    """Return the rewrite that a text denotes. Raises MorelloError if the target has no such rewrite."""
    steps = _parsed.setdefault(target, {})
    if text not in steps:
        found = parse_schedule(text, target)
        if len(found) != 1 or not isinstance(step := found[0], Rewrite):
            raise MorelloError(f"`{text}` is not one rewrite of a Spec", "write one as in a schedule, such as to_accum")
        steps[text] = step
    return steps[text]


def program(
    spec: Spec, target: Target, find: Callable[[Spec], SpecAnswer | None], file: DatabaseFile, done: Programs
) -> Impl | None:
    """Return the program made of the stored steps of a Spec and of the Specs below, None if one is not EXACT.

    Raises Damaged for steps that do not make a program of the stored cost and peak. `done` holds the programs that
    were built before, and gets those that are built.
    """
    # No program contains itself.
    unfinished: set[Spec] = set()

    def build(spec: Spec) -> tuple[Impl, CostAndPeak] | None:
        if spec not in done:
            unfinished.add(spec)
            done[spec] = expanded(spec)
            unfinished.remove(spec)
        return done[spec]

    def expanded(spec: Spec) -> tuple[Impl, CostAndPeak] | None:
        answer = find(spec)
        if answer is None or answer.kind != AnswerKind.EXACT or answer.step is None:
            return None
        node = _node(spec, answer.step, target, file)
        parts: list[tuple[Impl, CostAndPeak]] = []
        for leaf in node.children:
            if leaf.spec in unfinished:
                raise _wrong(file, answer.step, "its program contains itself")
            child = build(leaf.spec)
            if child is None:
                part = find(leaf.spec)
                if part and part.kind == AnswerKind.NONE:
                    raise _wrong(file, answer.step, "a part of its program has no program")
                return None
            parts.append(child)
        found = combine(node.expansion, [one for _, one in parts], node.grids)
        if (found.cost, tuple(found.peak)) != (answer.cost, answer.peak):
            raise _wrong(
                file, answer.step, f"it gives cost {found.cost} and peak {list(found.peak)}, stored is {answer}"
            )
        return attrs.evolve(node, children=tuple(child for child, _ in parts)), found

    try:
        root = build(spec)
    except RecursionError as error:
        raise file.damaged("a program is nested too deeply") from error
    return root and root[0]


def _node(spec: Spec, step: str, target: Target, file: DatabaseFile) -> Node:
    """Return the node that a stored step makes of a Spec. Raises Damaged if it does not apply."""
    try:
        return rewrite_leaf(spec, parse_step(step, target), target)
    except MorelloError as error:
        raise _wrong(file, step, error.message) from error
    except _FAULTS as error:
        raise _wrong(file, step, f"it does not apply ({error!r})") from error


def parts(spec: Spec, step: str, target: Target, file: DatabaseFile) -> list[Spec]:
    """Return the Specs that a stored step leaves. Raises WrongAnswer if it does not apply."""
    return [leaf.spec for leaf in _node(spec, step, target, file).children]


def _wrong(file: DatabaseFile, step: str, why: str) -> WrongAnswer:
    damaged = file.damaged(f"the stored step `{step}` is wrong: {why}")
    return WrongAnswer(damaged.message, damaged.hint)


def replayed(spec: Spec, schedule: str, target: Target) -> tuple[Impl, CostAndPeak]:
    """Return the program that a whole schedule gives, with cost and peak. Raises MorelloError if it gives none."""

    def nothing(left: Spec, _allowed: AllowedSteps) -> Impl:
        raise MorelloError(f"{left.op} is left without a program", "delete the file")

    if len(schedule) > LONGEST_SCHEDULE:
        raise MorelloError(f"its schedule has more than {LONGEST_SCHEDULE >> 10} KiB", "delete the file")
    try:
        impl = apply(Position(Leaf(spec)), parse_schedule(schedule, target), target, nothing).impl
    except (*_FAULTS, RecursionError) as error:
        raise MorelloError(f"its schedule does not apply ({error!r})", "delete the file") from error
    if next(leaves(impl), None) is not None:
        raise MorelloError("its schedule leaves Specs without a program", "delete the file")
    found = cost_and_peak(impl)
    if not fits(found.peak, spec.limits):
        raise MorelloError("its program does not fit the limits", "delete the file")
    return impl, found


def solved_blocks(impl: Impl) -> list[AnswerBlock]:
    """Return an EXACT answer for every Spec of an optimal program. Raises SpecError if it has Spec leaves left."""
    solved: dict[Spec, tuple[CostAndPeak, str]] = {}

    def visit(node: Impl) -> CostAndPeak:
        if isinstance(node, Leaf):
            raise SpecError("an unfinished program is not an answer", "finish it: `synthesize`, or select kernels")
        if node.spec not in solved:
            cost_and_peak = combine(node.expansion, [visit(child) for child in node.children], node.grids)
            solved[node.spec] = cost_and_peak, str(node.expansion.step)
        return solved[node.spec][0]

    visit(impl)
    tables: dict[LogicalSpec, list[Spec]] = defaultdict(list)
    for spec in solved:
        tables[attrs.evolve(spec.logical, shape=(1,) * len(spec.shape))].append(spec)
    return [_block(labels, specs, solved) for labels, specs in tables.items()]


def _block(labels: LogicalSpec, specs: list[Spec], solved: dict[Spec, tuple[CostAndPeak, str]]) -> AnswerBlock:
    steps = list(dict.fromkeys(solved[spec][1] for spec in specs))
    return AnswerBlock(
        labels,
        np.array([spec.shape for spec in specs], dtype=np.int64),
        np.array([spec.limits for spec in specs], dtype=np.int64),
        np.array([solved[spec][0].peak for spec in specs], dtype=np.int64),
        np.array([int(solved[spec][0].cost) for spec in specs], dtype=np.int64),
        np.full(len(specs), AnswerKind.EXACT, dtype=np.int8),
        tuple(steps),
        np.array([steps.index(solved[spec][1]) for spec in specs], dtype=np.int32),
    )
