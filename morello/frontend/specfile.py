"""A `.spec` file as data, and its text, which parses to an equal file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import attrs

from morello.errors import Inapplicable, MorelloError
from morello.frontend.diagnostics import Source, Span, advising
from morello.frontend.sizes import Sizes
from morello.ir.signature import Signature
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.schedule import Schedule, lines

_INDENT = "    "


@attrs.frozen
class Declaration:
    """A named Spec in normal form and its schedule, which may be empty.

    Without a signature, operands have the operation's names and order.
    """

    name: str
    spec: Spec
    schedule: Schedule = ()
    signature: Signature | None = None
    #: The places of the schedule's statements, by identity.
    places: Mapping[int, Span] = attrs.field(factory=dict, eq=False, repr=False)
    source: Source | None = attrs.field(default=None, eq=False, repr=False)
    #: Added to the hint of an error in the schedule.
    advice: str = attrs.field(default="", eq=False, repr=False)
    #: The sizes of one dimension that are known at run time; the Spec has the largest.
    sizes: Sizes | None = None

    @contextmanager
    def located(self) -> Iterator[None]:
        """Turn an Inapplicable raised inside into a SourceError at its statement."""
        try:
            yield
        except Inapplicable as error:
            place = self.places.get(id(error.statement))
            if self.source is None or place is None:
                raise
            with advising(self.advice):
                raise self.source.error(place, error.message, error.hint) from error


@attrs.frozen
class SpecFile:
    """A file for one target: its Specs in order of declaration, with schedules for that target."""

    target: Target
    goals: tuple[Declaration, ...]


def show_spec(spec: Spec, target: Target, signature: Signature | None = None, sizes: Sizes | None = None) -> str:
    """Return a Spec over several lines, with the signature's names; limits are omitted if they are the whole memory."""
    called, tail = signature or Signature.of(spec.logical), f" {sizes}" if sizes else ""
    logical = called.text(sizes.named(spec.logical) if sizes else spec.logical, f",\n{_INDENT}", f",\n{_INDENT} ")
    if tuple(spec.limits) == target.full_limits():
        return f"{logical}{tail}"
    return f"({logical},\n{_INDENT}[{', '.join(map(str, spec.limits))}]){tail}"


def show_file(file: SpecFile, *others: SpecFile) -> str:
    """Return a whole file: target, Specs, and each Spec's schedule after it.

    `others` are the same file for other targets: the text gives each target its own schedules. Raises MorelloError
    if their Specs differ.
    """
    parts = [f"target {file.target.full_name}\n"]
    for goals in zip(*(each.goals for each in (file, *others)), strict=True):
        texts = [
            f"spec {goal.name} = {show_spec(goal.spec, each.target, goal.signature, goal.sizes)}\n"
            for each, goal in zip((file, *others), goals, strict=True)
        ]
        if len({*texts}) > 1:
            hint = "write a file for each target"
            raise MorelloError(f"{goals[0].name} is not the same Spec on all targets, so no file has it", hint)
        parts.append(texts[0])
        for each, goal in zip((file, *others), goals, strict=True):
            if goal.schedule:
                head = f"schedule {goal.name} for {each.target.full_name} {{" if others else f"schedule {goal.name} {{"
                parts.append("\n".join([head, *lines(goal.schedule, 1), "}\n"]))
    return "\n".join(parts)
