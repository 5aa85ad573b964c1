"""Schedules: steps that turn a Spec into an implementation, and back ([Kaufman2025] §2.3, [RaganKelley2013])."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeAlias

import attrs

from morello.errors import Inapplicable, MorelloError
from morello.ir.impl import ANY_STEPS, AllowedSteps, Expansion, Impl, Leaf, Node, expand
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.rewrites.base import Rewrite

#: Returns an implementation of a Spec leaf, made of the allowed steps.
Synthesizer: TypeAlias = Callable[[Spec, AllowedSteps], Impl]


@attrs.frozen
class Subschedule:
    """Steps for one child: `path` are child numbers, starting at the node of the last step."""

    path: tuple[int, ...]
    body: tuple[Statement, ...]

    def __str__(self) -> str:
        return f"subschedule [{', '.join(map(str, self.path))}]"


@attrs.frozen
class Synthesize:
    """Search implements every remaining Spec by the allowed steps."""

    allowed: AllowedSteps = ANY_STEPS

    def __str__(self) -> str:
        return f"synthesize {self.allowed}".rstrip()


Statement: TypeAlias = Rewrite | Subschedule | Synthesize
Schedule: TypeAlias = tuple[Statement, ...]


def lines(schedule: Sequence[Statement], indent: int = 0) -> list[str]:
    """Return the schedule as lines of a Spec file, one for each statement."""
    margin = "    " * indent
    text: list[str] = []
    for statement in schedule:
        if isinstance(statement, Subschedule):
            text += [f"{margin}{statement} {{", *lines(statement.body, indent + 1), f"{margin}}}"]
        else:
            text.append(f"{margin}{statement}")
    return text


def schedule_text(schedule: Sequence[Statement]) -> str:
    """Return the statements as text that parses to equal ones, a line each."""
    return "\n".join(lines(schedule))


def default_child(node: Node) -> int | None:
    """Return the child at which the next step applies, None if it is ambiguous.

    It is the only child that is not a Move ([Kaufman2025] §2.3), else the only one that neither moves nor initializes;
    if all are Moves, the body rather than loads and stores.
    """
    parts = node.expansion.parts
    for fits in (
        [i for i, part in enumerate(parts) if not part.logical.op.moves_data],
        [i for i, part in enumerate(parts) if not (part.logical.op.moves_data or part.logical.op.initializes)],
        [i for i, part in enumerate(parts) if part.role == "body" and all(one.logical.op.moves_data for one in parts)],
    ):
        if len(fits) == 1:
            return fits[0]
    return None


@attrs.frozen
class Position:
    """A partial implementation, and the path to the node of the last step, below which the next one applies."""

    impl: Impl
    path: tuple[int, ...] = ()


def apply(position: Position, schedule: Sequence[Statement], target: Target, synthesize: Synthesizer) -> Position:
    """Apply a schedule. Raises Inapplicable, with the statement, for a step that does not apply."""
    for before, statement in pairwise(schedule):
        if isinstance(before, Synthesize):
            error = Inapplicable(
                f"`{statement}` comes after `synthesize`, which leaves nothing to do", "write `synthesize` last"
            )
            error.statement = statement
            raise error
    for statement in schedule:
        try:
            position = _carry_out(position, statement, target, synthesize)
        except Inapplicable as error:
            error.statement = error.statement or statement
            raise
    return position


def _carry_out(position: Position, statement: Statement, target: Target, synthesize: Synthesizer) -> Position:
    if isinstance(statement, Synthesize):
        return Position(finish(position.impl, synthesize, statement.allowed), position.path)
    if isinstance(statement, Subschedule):
        path = (*position.path, *statement.path)
        child = apply(Position(child_at(position.impl, path)), statement.body, target, synthesize)
        return Position(with_child(position.impl, path, child.impl), position.path)
    path = _default_leaf(position, statement)
    leaf = child_at(position.impl, path)
    assert isinstance(leaf, Leaf)
    node = finish(rewrite_leaf(leaf.spec, statement, target), Leaf, leaf.allowed)
    return Position(with_child(position.impl, path, node), path)


def _default_leaf(position: Position, step: Rewrite) -> tuple[int, ...]:
    """Return the path to the Spec at the end of the default children."""
    path = position.path
    impl = child_at(position.impl, path)
    while isinstance(impl, Node):
        if not impl.children:
            raise Inapplicable(
                f"`{step}` finds no Spec left: `{impl.expansion.step}` finished this part",
                "leave it out, or write it before that step",
            )
        index = default_child(impl)
        if index is None:
            raise Inapplicable(f"`{step}` could go on with several children of `{impl.expansion.step}`", _choices(impl))
        path, impl = (*path, index), impl.children[index]
    return path


def child_at(impl: Impl, path: Sequence[int]) -> Impl:
    """Return the descendant at `path`. Raises Inapplicable for a path without a node."""
    for index in path:
        if isinstance(impl, Leaf):
            raise Inapplicable(f"child {index} of a Spec that has no children yet", "rewrite it before its children")
        if not 0 <= index < len(impl.children):
            raise Inapplicable(f"`{impl.expansion.step}` has no child {index}", _choices(impl))
        impl = impl.children[index]
    return impl


def with_child(impl: Impl, path: Sequence[int], child: Impl) -> Impl:
    """Return the program with `child` at `path`."""
    if not path:
        return child
    assert isinstance(impl, Node)
    children = list(impl.children)
    children[path[0]] = with_child(children[path[0]], path[1:], child)
    return attrs.evolve(impl, children=tuple(children))


def rewrite_leaf(spec: Spec, step: Rewrite, target: Target) -> Node:
    """Return the node of a step on a Spec. Raises Inapplicable if the step or its memory does not fit."""
    if spec.op.constants and step.blocks_until(spec.op) is None:
        hint = f"write `pack {spec.op.constants[0]} as LAYOUT` before it"
        raise Inapplicable(f"`{step}` comes after constants are packed", hint)
    expansion = step.expansion(spec.logical, target)
    node = expand(spec, expansion, target.grids)
    if node is None:
        short = _shortage(spec, expansion, target)
        raise Inapplicable(
            f"`{step}` does not fit into the memory limits: {short}",
            "tile before it, so that it holds less, or raise the limits of the Spec",
        )
    return node


def _shortage(spec: Spec, expansion: Expansion, target: Target) -> str:
    """Return a message with the level that lacks memory for a node."""
    for index, level in enumerate(target.levels):
        held = [part.live[index] for part in expansion.parts]
        needed = max([expansion.needs[index], *held])
        if needed > spec.limits[index]:
            return f"it takes {needed} bytes of {level.name}, {spec.limits[index]} are left"
    raise AssertionError("the node fits")


def _choices(node: Node) -> str:
    parts = ", ".join(f"{i} is {part.logical.op} ({part.role})" for i, part in enumerate(node.expansion.parts))
    return f"choose one with subschedule [N] {{ ... }}: {parts}"


def finish(impl: Impl, synthesize: Synthesizer, allowed: AllowedSteps = ANY_STEPS) -> Impl:
    """Return the implementation with every Spec leaf replaced by a synthesized one, of steps that `allowed` restricts
    further."""
    if isinstance(impl, Leaf):
        return synthesize(impl.spec, impl.allowed + allowed)
    children = tuple(finish(child, synthesize, allowed) for child in impl.children)
    return attrs.evolve(impl, children=children)


def schedule_of(impl: Impl) -> Schedule:
    """Return the schedule that turns the Spec into `impl`; search may complete parts with allowed steps only."""
    if isinstance(impl, Leaf):
        return (Synthesize(impl.allowed),) if impl.allowed else ()
    step = impl.expansion.step
    if not isinstance(step, Rewrite):
        raise MorelloError(f"`{step}` is not a schedule step", "only programs made of rewrites have a schedule")
    main = default_child(impl)
    found: list[Statement] = [step]
    for index, child in enumerate(impl.children):
        if index != main and (body := schedule_of(child)):
            found.append(Subschedule((index,), body))
    return (*found, *(schedule_of(impl.children[main]) if main is not None else ()))
