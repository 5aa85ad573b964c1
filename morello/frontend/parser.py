"""From text to Specs and schedules: files, single Specs, single schedules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import attrs
from lark import Token

from morello.codegen.reserved import fault
from morello.errors import MorelloError, suggestion
from morello.frontend import syntax
from morello.frontend.diagnostics import Source, Span, advising, quoted
from morello.frontend.sizes import Sizes, read_sized
from morello.frontend.specfile import Declaration, SpecFile
from morello.frontend.specs import read_signed, read_spec
from morello.frontend.steps import places, read_schedule
from morello.frontend.syntax import (
    DeclarationNode,
    FileNode,
    LetNode,
    ScheduleNode,
    SpecNode,
    TargetNode,
    number_of,
    span,
)
from morello.ir.signature import Signature
from morello.ir.spec import Spec
from morello.kernels.target import BASE, Target
from morello.plugins.cpu import known_features
from morello.plugins.profile_choice import ProfileLike
from morello.plugins.registry import Registry, installed
from morello.schedule import Schedule

_START = (0, 1)
#: A schedule, the places of its statements by identity, and advice for a schedule that does not apply.
Located: TypeAlias = tuple[Schedule, dict[int, Span], str]


def parse(
    text: str,
    *,
    filename: str = "<text>",
    target: str | None = None,
    registry: Registry | None = None,
    profile: ProfileLike | None = None,
    cpu: str | None = None,
) -> SpecFile:
    """Read a `.spec` file. `target` overrides that of the file; `registry` defaults to the installed plugins.

    `profile` and `cpu` are those of `Registry.target`. Raises SourceError for any error in the text, MorelloError if
    `target`, `profile` or `cpu` is unknown.
    """
    source, nodes = _read(text, filename)
    declarations = [node for node in nodes if isinstance(node, DeclarationNode)]
    if not declarations:
        raise source.error(_START, "no specs", "declare one: spec NAME = Matmul(1×64×64×64, GL, GL, GL)")
    names: dict[str, Token] = {}
    for node in declarations:
        if refused := fault(str(node.name)):
            reason, remedy = refused
            raise source.error(span(node.name), f"{quoted(node.name)} cannot name a C function: it {reason}", remedy)
        first = names.setdefault(str(node.name), node.name)
        if first is not node.name:
            hint = f"the first is on line {first.line}: rename one of them"
            raise source.error(span(node.name), f"a second spec {quoted(node.name)}", hint)
    registry = registry or installed()
    written = _target(source, nodes)
    if target is None:
        target = _installed(source, written, registry) if written else None
    if target is None:
        known = f"installed targets are {', '.join(registry.names) or 'none'}"
        raise source.error(_START, "no target", f"start the file with `target NAME`; {known}")
    chosen = registry.target(target, profile, cpu)
    schedules = _schedules(source, nodes, list(names), chosen, registry)
    goals: list[Declaration] = []
    for node in declarations:
        spec, signature, sizes = read_sized(source, chosen, node.spec)
        schedule, where, advice = schedules.get(str(node.name), ((), {}, ""))
        if sizes and schedule:
            raise source.error(span(node.name), f"a schedule for {quoted(node.name)} {sizes}", "leave it to search")
        goals.append(Declaration(str(node.name), spec, schedule, signature, where, source, advice, sizes))
    return SpecFile(chosen, tuple(goals))


def parse_spec(text: str, target: Target, filename: str = "<text>") -> Spec:
    """Read a single Spec, such as `Matmul(1×64×64×64, GL, GL, GL)`. Raises SourceError."""
    return parse_signed(text, target, filename)[0]


def parse_signed(text: str, target: Target, filename: str = "<text>") -> tuple[Spec, Signature | None]:
    """Read a single Spec and its signature, see `read_signed`. Raises SourceError."""
    source = Source(filename, text)
    return read_signed(source, target, syntax.parse_spec(source))


def parse_sized(text: str, target: Target) -> tuple[Spec, Signature | None, Sizes | None]:
    """Read a single Spec that may have a size of run time, see `read_sized`. Raises SourceError."""
    source = Source("<text>", text)
    return read_sized(source, target, syntax.parse_spec(source))


def parse_schedule(text: str, target: Target, filename: str = "<text>") -> Schedule:
    """Read the statements of a schedule, without the braces around them. Raises SourceError."""
    source = Source(filename, text)
    return read_schedule(source, target, syntax.parse_statements(source))


def _read(text: str, filename: str) -> tuple[Source, FileNode]:
    """Return a file, with the sizes that it names. Raises SourceError for one that is named twice."""
    source = Source(filename, text)
    nodes = syntax.parse_file(source)
    sizes = dict[str, int]()
    for node in nodes:
        if isinstance(node, LetNode):
            if str(node.name) in sizes:
                raise source.error(span(node.name), f"a second size {quoted(node.name)}", "give it another name")
            sizes[str(node.name)] = number_of(source, node.size)
    return attrs.evolve(source, sizes=sizes), nodes


def _target(source: Source, nodes: FileNode) -> TargetNode | None:
    """Return the target that a file names. Raises SourceError for a second one."""
    named = [node for node in nodes if isinstance(node, TargetNode)]
    if len(named) > 1:
        raise source.error(span(named[1].name), "a second target", "a file is for one target")
    return named[0] if named else None


def _installed(source: Source, node: TargetNode, registry: Registry) -> str:
    """Return the full name of a target in the text. Raises SourceError if it is not installed, or disabled."""
    name = node.name
    if reason := registry.reason(str(name)):
        raise source.error(span(name), reason.message, reason.hint)
    if name not in registry.names:
        known = f"installed targets are {', '.join(registry.names) or 'none'}"
        raise source.error(span(name), f"unknown target {quoted(name)}", suggestion(name, registry.names, known))
    base = registry.target(str(name), BASE)
    for feature in node.features:
        try:
            known_features([str(feature)], base)
        except MorelloError as error:
            raise source.error(span(feature), error.message, error.hint) from error
    return registry.target(" + ".join((str(name), *node.features)), BASE).full_name


def _schedules(
    source: Source, nodes: FileNode, names: list[str], target: Target, registry: Registry
) -> dict[str, Located]:
    """Return the schedules by Spec name: those for this target and the most of its features, else those for any."""
    chosen: dict[str, ScheduleNode] = {}
    seen = set[tuple[str, str]]()
    most: dict[str, int] = {}
    for node in nodes:
        if not isinstance(node, ScheduleNode):
            continue
        name = str(node.name)
        if name not in names:
            hint = suggestion(name, names, f"specs are {', '.join(names)}")
            raise source.error(
                span(node.name), f"a schedule for {quoted(name)}, which is not a spec of this file", hint
            )
        for place in node.targets or (None,):
            wanted = _installed(source, place, registry) if place else ""
            if (name, wanted) in seen:
                words = f"a second schedule for {quoted(name)}{wanted and f' on {wanted}'}"
                where = span(place.name if place else node.name)
                raise source.error(where, words, "a spec has one schedule a target, and one for the others")
            seen.add((name, wanted))
            parts = wanted.split(" + ") if wanted else []
            if {*parts} <= {target.name, *target.features} and len(parts) > most.get(name, -1):
                chosen[name], most[name] = node, len(parts)
    return {name: _located(source, nodes, node, target) for name, node in chosen.items()}


def _located(source: Source, nodes: FileNode, node: ScheduleNode, target: Target) -> Located:
    """Read a schedule, with advice if it was written for another target, namely the file's."""
    own = next((str(one.name) for one in nodes if isinstance(one, TargetNode)), target.name)
    line = f"schedule {node.name} for {target.name} {{ ... }}"
    advice = "" if node.targets or own == target.name else f"or give {target.name} its own, which may be empty: {line}"
    with advising(advice):
        schedule = read_schedule(source, target, node.block)
    return schedule, dict(places(schedule, node.block)), advice


@attrs.frozen
class Family:
    """A Spec with replaceable sizes; `spec` has those of the text, which omits the first `implicit_dims` dimensions."""

    name: str
    target: Target
    spec: Spec
    _source: Source
    _node: SpecNode
    implicit_dims: int = 0

    def at(self, shape: Sequence[int]) -> Spec:
        """Return the Spec with these sizes. Raises SourceError if it is invalid."""
        return read_spec(self._source, self.target, self._node, tuple(shape))


def families(
    text: str,
    *,
    filename: str = "<text>",
    target: str | None = None,
    profile: ProfileLike | None = None,
    cpu: str | None = None,
) -> list[Family]:
    """Return the Specs of a file, in order. Raises what `parse` raises."""
    file = parse(text, filename=filename, target=target, profile=profile, cpu=cpu)
    source, nodes = _read(text, filename)
    nodes = [node for node in nodes if isinstance(node, DeclarationNode)]
    return [_family(str(node.name), file.target, source, node.spec) for node in nodes]


def family(text: str, target: Target, filename: str = "<text>") -> Family:
    """Return a single Spec, such as `Matmul(1×64×64×64, GL, GL, GL)`. Raises SourceError."""
    source = Source(filename, text)
    return _family("kernel", target, source, syntax.parse_spec(source))


def _family(name: str, target: Target, source: Source, node: SpecNode) -> Family:
    spec, signature = read_signed(source, target, node)
    return Family(name, target, spec, source, node, signature.implicit_dims if signature else 0)
