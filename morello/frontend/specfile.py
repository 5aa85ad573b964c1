"""What a `.spec` file says, once read."""

from __future__ import annotations

import attrs

from morello.ir.spec import Spec
from morello.plugins.target import Target
from morello.schedule import Schedule


@attrs.frozen
class Declaration:
    """A named Spec, in normal form, and the schedule it comes with; empty if it has none."""

    name: str
    spec: Spec
    schedule: Schedule = ()


@attrs.frozen
class SpecFile:
    """The target of a file and its Specs, in the order in which they are declared."""

    target: Target
    goals: tuple[Declaration, ...]
