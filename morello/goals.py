"""The scheduling API: a Spec of a target and the implementation made of it so far ([Kaufman2025] §2.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from morello.db.default import DatabaseLike, database
from morello.db.measured import Measured
from morello.db.searches import Searches
from morello.db.store import SpecStore
from morello.errors import Inapplicable, NoImplementation
from morello.frontend.parser import parse_schedule
from morello.frontend.specfile import show_spec
from morello.ir.impl import Impl, Leaf, cost_and_peak, leaves
from morello.ir.layout import Layout
from morello.ir.signature import Signature
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.progress import Listener, heard
from morello.rewrites.base import Rewrite
from morello.rewrites.fit import ExactFit
from morello.rewrites.move import MoveStep
from morello.rewrites.select import Select
from morello.rewrites.split import Split
from morello.rewrites.tile import Tile
from morello.rewrites.to_accum import ToAccum
from morello.schedule import (
    Position,
    Schedule,
    Synthesize,
    apply,
    child_at,
    schedule_of,
    schedule_text,
    with_child,
)
from morello.search.budget import SearchBudget
from morello.search.progress import Progress

if TYPE_CHECKING:
    from morello.search.session import SearchSession


@attrs.frozen(repr=False)
class Goal:
    """A named Spec, and the position its schedule has reached. Every method returns a new goal.

    A step goes on at the one child that is left or, of several, at the one that is not a Move. Steps that
    cannot be taken raise Inapplicable.
    """

    name: str
    spec: Spec
    target: Target
    position: Position
    searches: Searches = attrs.field(eq=False)
    #: Specs whose programs are not proven cheapest, with what is proven that they cost at least.
    bounds: Mapping[Spec, int] = attrs.field(factory=dict[Spec, int], eq=False)
    #: How its program is called; None for the operation's names in the Spec's order.
    signature: Signature | None = None
    #: The implementation that search completed, with the Spec leaves that it found; None if it did nothing.
    before_search: Impl | None = attrs.field(default=None, eq=False)
    #: What was measured of its program, which was chosen for that; None for one that was scheduled or searched for.
    measured: Measured | None = attrs.field(default=None, eq=False)

    @classmethod
    def of(
        cls,
        spec: Spec,
        target: Target,
        name: str = "kernel",
        searches: Searches | None = None,
        signature: Signature | None = None,
    ) -> Goal:
        """Return a goal with nothing scheduled yet."""
        return cls(name, spec, target, Position(Leaf(spec)), searches or Searches(target), signature=signature)

    def __reduce__(self) -> tuple[Callable[..., Goal], tuple[Target, dict[str, Any]]]:
        # The target comes first: it tells of plugins that are missing, before anything else of theirs is looked for.
        return _unpickled, (self.target, {field.name: getattr(self, field.name) for field in attrs.fields(Goal)})

    def __repr__(self) -> str:
        if isinstance(self.impl, Leaf):
            state = "not scheduled"
        else:
            state = "scheduled in part" if next(leaves(self.impl), None) else f"cost {cost_and_peak(self.impl).cost:,}"
        sizes = f" ({implied})" if (implied := self.spec.logical.implied) else ""
        return f"<Goal {self.name}: {self.plain.text(self.spec.logical)}{sizes} for {self.target.name}, {state}>"

    @property
    def plain(self) -> Signature:
        """Return the operands in the Spec's order, with the operation's names, and the dimensions of the text."""
        return Signature.of(self.spec.logical, self.signature.implicit_dims if self.signature else 0)

    def _repr_html_(self) -> str:
        # Not before: what reports are made with takes long to import.
        from morello.report.html import facts_html

        return facts_html(self.facts)

    @property
    def facts(self) -> dict[str, str]:
        """Return names and texts of what there is to tell of it, for people."""
        from morello.report.words import cost_words

        done = next(leaves(self.impl), None) is None
        return {
            "name": self.name,
            "target": self.target.label,
            "Spec": show_spec(self.spec, self.target, self.signature),
            "schedule": self.schedule or "not scheduled",
            "cost": cost_words(cost_and_peak(self.impl).cost, self.target) if done else "",
            "proof": self.proof if done else "",
        }

    @property
    def impl(self) -> Impl:
        """Return the implementation so far."""
        return self.position.impl

    @property
    def scheduled(self) -> Impl:
        """Return the implementation as far as it was scheduled by hand: search filled in the Spec leaves it has."""
        return self.impl if self.before_search is None else self.before_search

    @property
    def low(self) -> int:
        """Return what every program costs at least that has the steps taken by hand.

        Raises SpecError for an unfinished implementation.
        """
        if self.measured is not None:
            # It was chosen by its time: other programs may cost less.
            return 1

        def least(scheduled: Impl, node: Impl) -> int:
            if isinstance(scheduled, Leaf) or isinstance(node, Leaf):
                cost = cost_and_peak(node).cost
                return min(cost, self.bounds.get(node.spec, cost))
            parts = zip(node.expansion.parts, scheduled.children, node.children, strict=True)
            return int(node.expansion.cost) + sum(int(part.times) * least(*below) for part, *below in parts)

        return least(self.scheduled, self.impl)

    @property
    def proof(self) -> str:
        """Return in words how good the program is, of all that have the steps taken by hand.

        Raises SpecError for an unfinished implementation.
        """
        cost, low = cost_and_peak(self.impl).cost, self.low
        if self.measured is not None:
            return f"nothing is proven: {self.measured.words}"
        if next(leaves(self.scheduled), None) is None:
            return "as scheduled"
        if low >= cost:
            return "optimal"
        if low <= 1:
            return "not known how close to the optimum"
        return f"within {100 * (cost / low - 1):.2g} % of the optimum (proven)"

    @property
    def schedule(self) -> str:
        """Return the steps taken so far, as a Spec file has them."""
        return schedule_text(schedule_of(self.impl))

    def apply(self, schedule: Schedule | str) -> Goal:
        """Take the steps of a schedule, given as such or as text."""
        steps = parse_schedule(schedule, self.target) if isinstance(schedule, str) else schedule
        with self.searches.using(None) as search:
            position = apply(self.position, steps, self.target, search.synthesize)
        before = apply(Position(self.scheduled, self.position.path), steps, self.target, Leaf).impl
        return attrs.evolve(self, position=position, before_search=None if before == position.impl else before)

    def tile(self, *sizes: int | Sequence[int], parallel: bool = False) -> Goal:
        """Return a loop over tiles of these sizes: of the output's dimensions, or of all iteration dimensions.

        Threads share the tiles of a `parallel` loop.
        """
        return self._step(Tile(_flat(sizes), parallel))

    def fit(self, dim: int, *sizes: int | Sequence[int]) -> Goal:
        """Return a loop over tiles of these sizes that together cover one iteration dimension exactly."""
        return self._step(ExactFit(dim, _flat(sizes)))

    def split(self, size: int) -> Goal:
        """Return a loop over parts of the reduction."""
        return self._step(Split(size))

    def move_param(
        self,
        operand: int,
        level: str,
        layout: Layout | str | None = None,
        vector: int | None = None,
        dtype: str | None = None,
    ) -> Goal:
        """Let an operand live in another level; `layout` is one, or the name of one."""
        return self._step(MoveStep(operand, level, layout, vector, dtype))

    def to_accum(self) -> Goal:
        """Set the output to its initial value, then accumulate."""
        return self._step(ToAccum())

    def select(self, kernel: str) -> Goal:
        """Let a microkernel do it."""
        return self._step(Select(kernel))

    def subschedule(self, path: int | Sequence[int], body: Callable[[Goal], Goal]) -> Goal:
        """Schedule one child of the node that the last step made: `body` is given it and returns it scheduled."""
        below = (*self.position.path, *_flat([path]))
        child = child_at(self.impl, below)
        if not isinstance(child, Leaf):
            raise Inapplicable(f"child {path} is scheduled already", "schedule all of it in one `subschedule`")
        inner = body(Goal.of(child.spec, self.target, self.name, self.searches))
        position = Position(with_child(self.impl, below, inner.impl), self.position.path)
        before = with_child(self.scheduled, below, inner.scheduled)
        return attrs.evolve(
            self,
            position=position,
            bounds={**self.bounds, **inner.bounds},
            before_search=None if before == position.impl else before,
        )

    def synthesize(
        self, db: DatabaseLike = None, progress: Listener = None, budget: SearchBudget | None = None
    ) -> Goal:
        """Search implements every Spec that is left, by default with proof that it is cheapest, else within `budget`.

        `db` is a database, open or as a path, by default the user's own, or False for none; `progress` is a function
        that is told of it, by default a display on a terminal or in a notebook, or False for none. Raises
        NoImplementation if one has no program, and MorelloError where the time was too short to find one, or for a
        database that cannot be used.
        """
        store = database(db)
        with heard(progress, self.name, self.searches.solved(store), store.path if store else None) as told:
            return self._synthesized(store, told, budget)

    def _synthesized(
        self, db: SpecStore | None, progress: Callable[[Progress], None] | None, budget: SearchBudget | None
    ) -> Goal:
        bounds = dict(self.bounds)

        def search_for(search: SearchSession, spec: Spec) -> Impl:
            if budget is None:
                return search.synthesize(spec)
            found = search.search_within(spec, budget)
            if found.low < found.cost:
                bounds[spec] = found.low
            return found.impl

        def find(spec: Spec) -> Impl:
            known = db.program(self.target, spec) if db else None
            if known is not None:
                return known
            try:
                with self.searches.using(db, progress) as search:
                    return search_for(search, spec)
            except NoImplementation:
                if not self.searches.was_told(db):
                    raise
            # A database is not believed that there is nothing.
            with self.searches.using(None, progress) as search:
                return search_for(search, spec)

        position = apply(self.position, (Synthesize(),), self.target, find)
        return attrs.evolve(self, position=position, bounds=bounds, before_search=self.scheduled)

    def _step(self, step: Rewrite) -> Goal:
        if step.keyword not in self.target.rewrites_by_name:
            raise Inapplicable(
                f"{self.target.name} has no rewrite `{step.keyword}`",
                f"it has {', '.join(self.target.rewrites_by_name) or 'none'}",
            )
        return self.apply((step,))


def _unpickled(_target: Target, fields: Mapping[str, Any]) -> Goal:
    return Goal(**fields)


def _flat(sizes: Iterable[int | Sequence[int]]) -> tuple[int, ...]:
    """Return one sequence or several numbers, as a tuple."""
    return tuple(size for each in sizes for size in (each if isinstance(each, Sequence) else (each,)))
