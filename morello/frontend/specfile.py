"""A `.spec` file as it was read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import attrs

from morello.errors import Inapplicable
from morello.frontend.diagnostics import Source, Span, advising
from morello.ir.signature import Signature
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.schedule import Schedule


@attrs.frozen
class Declaration:
    """A named Spec, in normal form, and the schedule it comes with; empty if it has none.

    Without a signature, its operands are those of the operation.
    """

    name: str
    spec: Spec
    schedule: Schedule = ()
    signature: Signature | None = None
    #: Where the statements of the schedule stand, by identity.
    places: Mapping[int, Span] = attrs.field(factory=dict, eq=False, repr=False)
    source: Source | None = attrs.field(default=None, eq=False, repr=False)
    #: Besides its own hint, what may help where the schedule cannot be carried out.
    advice: str = attrs.field(default="", eq=False, repr=False)

    @contextmanager
    def located(self) -> Iterator[None]:
        """Turn an Inapplicable raised inside into a SourceError at the statement that could not be carried out."""
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
    """A file as one target sees it: its Specs in the order of their declarations, with schedules for that target."""

    target: Target
    goals: tuple[Declaration, ...]
