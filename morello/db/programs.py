"""Programs from what is stored of their Specs, and what to store of a program."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias
from weakref import WeakKeyDictionary

import attrs
import numpy as np

from morello.db.block import AnswerBlock, AnswerKind, Entry
from morello.db.file import Damaged, damaged
from morello.errors import MorelloError, SpecError
from morello.frontend.parser import parse_schedule
from morello.ir.impl import CostAndPeak, Impl, Leaf, Node, combine
from morello.ir.spec import LogicalSpec, Spec
from morello.kernels.target import Target
from morello.rewrites.base import Rewrite
from morello.schedule import rewrite_leaf

#: Programs of Specs and what they take; None where a part is not there.
Programs: TypeAlias = dict[Spec, tuple[Impl, CostAndPeak] | None]

_parsed: WeakKeyDictionary[Target, dict[str, Rewrite]] = WeakKeyDictionary()


def step_of(text: str, target: Target) -> Rewrite:
    """Return the step that is written so. Raises MorelloError if the target has no such step."""
    steps = _parsed.setdefault(target, {})
    if text not in steps:
        found = parse_schedule(text, target)
        if len(found) != 1 or not isinstance(step := found[0], Rewrite):
            raise MorelloError(
                f"`{text}` is no step of a single Spec", "write one rewrite, as schedules have them, such as to_accum"
            )
        steps[text] = step
    return steps[text]


def program(
    spec: Spec,
    target: Target,
    find: Callable[[Spec], Entry | None],
    path: Path,
    done: Programs | None = None,
) -> Impl | None:
    """Return the program made of the stored steps of a Spec and of those below it; None if one of them is not EXACT.

    Raises Damaged for steps that do not make a program of the stored cost and peak. `done` is what is known of this,
    and gets what is found out.
    """
    done = {} if done is None else done
    # Specs whose programs are being built: no program contains itself.
    open_: set[Spec] = set()

    def build(spec: Spec) -> tuple[Impl, CostAndPeak] | None:
        if spec not in done:
            open_.add(spec)
            done[spec] = expanded(spec)
            open_.remove(spec)
        return done[spec]

    def expanded(spec: Spec) -> tuple[Impl, CostAndPeak] | None:
        entry = find(spec)
        if entry is None or entry.kind != AnswerKind.EXACT or entry.step is None:
            return None
        node = _node(spec, entry.step, target, path)
        parts: list[tuple[Impl, CostAndPeak]] = []
        for leaf in node.children:
            if leaf.spec in open_:
                raise _wrong(path, entry.step, "its program contains itself")
            child = build(leaf.spec)
            if child is None:
                _expect_unknown(find(leaf.spec), entry.step, path)
                return None
            parts.append(child)
        found = combine(node.expansion, [cost_and_peak for _, cost_and_peak in parts], node.grids)
        if (found.cost, tuple(found.peak)) != (entry.cost, entry.peak):
            raise _wrong(path, entry.step, f"cost {found.cost} and peak {found.peak}, not {entry.cost}, {entry.peak}")
        return attrs.evolve(node, children=tuple(child for child, _ in parts)), found

    try:
        root = build(spec)
    except RecursionError as error:
        raise damaged(path, "a program in it is too deep to be one") from error
    return root and root[0]


def _expect_unknown(entry: Entry | None, step: str, path: Path) -> None:
    """Raise Damaged if a part of a program is said to have no program."""
    if entry is not None and entry.kind == AnswerKind.NONE:
        raise _wrong(path, step, "a part of its program has none")


def _node(spec: Spec, step: str, target: Target, path: Path) -> Node:
    """Return the node that a stored step makes of a Spec. Raises Damaged if it cannot be taken, whatever the reason."""
    try:
        return rewrite_leaf(spec, step_of(step, target), target)
    except MorelloError as error:
        raise _wrong(path, step, error.message) from error
    except (ArithmeticError, LookupError, TypeError, ValueError, AssertionError) as error:
        raise _wrong(path, step, f"it cannot be taken ({error!r})") from error


def _wrong(path: Path, step: str, why: str) -> Damaged:
    return damaged(path, f"the stored step `{step}` does not give what is stored of it: {why}")


def solved_blocks(impl: Impl) -> list[AnswerBlock]:
    """Return an EXACT answer for every Spec of an optimal program. Raises SpecError if it has Spec leaves left."""
    solved: dict[Spec, tuple[CostAndPeak, str]] = {}

    def visit(node: Impl) -> CostAndPeak:
        if isinstance(node, Leaf):
            raise SpecError("an unfinished program is no answer", "finish it: `synthesize`, or select kernels")
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
