"""The scheduling API: a Spec of a target and the implementation made of it so far ([Kaufman2025] §2.3)."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cached_property, partial
from typing import Any, Literal, TypeAlias, get_args

import attrs

from morello.db.default import DatabaseLike, database
from morello.db.measured import Measured
from morello.db.searches import Searches
from morello.db.store import SpecStore
from morello.errors import Inapplicable, MemoryLimited, MorelloError, NoImplementation
from morello.frontend.parser import parse_schedule
from morello.frontend.specfile import Declaration, SpecFile, show_file, show_spec
from morello.ir.impl import ANY_STEPS, AllowedSteps, Impl, Leaf, cost_and_peak, leaves
from morello.ir.in_place import hazard
from morello.ir.layout import Layout
from morello.ir.ops.move import Move
from morello.ir.program import Program
from morello.ir.signature import Signature
from morello.ir.spec import LogicalSpec, Spec
from morello.kernels.target import Target
from morello.progress import Listener, subscribe
from morello.rewrites.allowed import check_layouts, check_names, confined
from morello.rewrites.base import Rewrite
from morello.rewrites.fit import ExactFit
from morello.rewrites.move import MoveStep
from morello.rewrites.pack import packed
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
from morello.search.budget import SearchBudget, watch_memory
from morello.search.progress import Progress

#: The time for a program that packs a constant, which is no part of calls, relative to that of the program.
_PACKING = 0.1
#: The layouts of moves: those that the target offers, or all.
Layouts: TypeAlias = Literal["offered", "all"]


@attrs.frozen(repr=False)
class Goal:
    """A named Spec, and the position that its schedule has reached. Methods return a new goal.

    The next step applies to the open child, or to the one that is not a Move. Inapplicable steps raise Inapplicable.
    """

    name: str
    spec: Spec
    target: Target
    position: Position
    searches: Searches = attrs.field(eq=False)
    #: Proven lower bounds of the costs of Specs whose programs are not proven optimal.
    bounds: Mapping[Spec, int] = attrs.field(factory=dict[Spec, int], eq=False)
    #: Whether a memory limit ended its search, or may have changed its program.
    memory_reached: bool = attrs.field(default=False, eq=False)
    #: The signature of its program; None for the operation's names in the Spec's order.
    signature: Signature | None = None
    #: The implementation before search completed it; None without a search.
    before_search: Impl | None = attrs.field(default=None, eq=False)
    #: The measurement for which its program was chosen; None if it was scheduled or found by search.
    measured: Measured | None = attrs.field(default=None, eq=False)
    #: The programs that pack its constants, by operand, if its search found them.
    packs_found: Mapping[int, Impl] = attrs.field(factory=dict[int, Impl], eq=False)

    @classmethod
    def of(
        cls,
        spec: Spec,
        target: Target,
        name: str = "kernel",
        searches: Searches | None = None,
        signature: Signature | None = None,
    ) -> Goal:
        """Return a goal without a schedule."""
        return cls(name, spec, target, Position(Leaf(spec)), searches or Searches(target), signature=signature)

    @classmethod
    def of_impl(cls, impl: Impl, target: Target, name: str = "kernel") -> Goal:
        """Return the goal of an implementation made without a search."""
        return cls(name, impl.spec, target, Position(impl), Searches(target))

    def __reduce__(self) -> tuple[Callable[..., Goal], tuple[Target, type[Goal], dict[str, Any]]]:
        # The target is first, so that missing plugins are reported before others of their objects are unpickled.
        fields = {field.name: getattr(self, field.name) for field in attrs.fields(type(self))}
        return _unpickled, (self.target, type(self), fields)

    def __repr__(self) -> str:
        if isinstance(self.impl, Leaf):
            state = "not scheduled"
        else:
            state = "scheduled in part" if next(leaves(self.impl), None) else f"cost {cost_and_peak(self.impl).cost:,}"
        sizes = f" ({implied})" if (implied := self.spec.logical.implied) else ""
        return f"<Goal {self.name}: {self.plain.text(self.spec.logical)}{sizes} for {self.target.full_name}, {state}>"

    def __str__(self) -> str:
        return self.tree

    @property
    def tree(self) -> str:
        """Return the program as text, one node per line: cost of a run, runs, share of the total cost.

        Specs not implemented yet are holes; above them, costs are lower bounds.
        """
        from morello.report.tables import table_text
        from morello.report.tree import program_tree, tree_table

        return table_text(*tree_table(program_tree(self.impl, self.target), compact=True)).rstrip("\n")

    @cached_property
    def program(self) -> Program:
        """Return the C of the program so far: holes are comments, and an `#error`. Raises EmitError."""
        # Emitters need not take programs that pack constants where there are none.
        packs = {"packs": self.packs} if self.packs else {}
        return self.target.emitter.emit(self.impl, self.target, self.name, self.signature, **packs)

    @cached_property
    def packs(self) -> Mapping[int, Impl]:
        """Return the programs that pack its constants, by operand; nothing for an unfinished implementation."""

        def search(spec: Spec, allowed: AllowedSteps) -> Impl:
            return Goal.of(spec, self.target, self.name, self.searches).synthesize(db=False, progress=False).impl

        return self.packs_found or self._packs(search)

    def _packs(self, find: Callable[[Spec, AllowedSteps], Impl]) -> dict[int, Impl]:
        """Return the programs that pack the constants of a finished implementation, by operand."""
        given, used = self.spec.logical, packed(self.impl).spec.logical
        if used.op.constants or next(leaves(self.impl), None):
            return {}
        specs = {
            operand: LogicalSpec(Move(), given.operand(operand).shape, (given.states[operand], used.states[operand]))
            for operand in given.op.constants
        }
        return {operand: find(self.target.spec(one), ANY_STEPS) for operand, one in specs.items()}

    @property
    def plain(self) -> Signature:
        """Return the signature with the operation's names in the Spec's order, and the rest as in the text."""
        plain = Signature.of(self.spec.logical)
        own = self.signature or plain
        return attrs.evolve(plain, implicit_dims=own.implicit_dims, overwritten=own.overwritten)

    def _repr_html_(self) -> str:
        # Reports are slow to import.
        from morello.report.html import facts_html

        return facts_html(self.facts)

    @property
    def facts(self) -> dict[str, str]:
        """Return its properties by name, as text for people."""
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
    def allowed_target(self) -> Target:
        """Return the target with the steps that a search for the whole Spec may take."""
        return confined(self.target, self.scheduled.allowed) if isinstance(self.scheduled, Leaf) else self.target

    @property
    def scheduled(self) -> Impl:
        """Return the implementation as scheduled by hand: search implemented its leaves."""
        return self.impl if self.before_search is None else self.before_search

    @property
    def is_scheduled(self) -> bool:
        """Return whether the steps taken by hand leave no Spec to search."""
        return next(leaves(self.scheduled), None) is None

    @property
    def spec_lines(self) -> str:
        """Return the Spec over several lines, with the operation's names."""
        return show_spec(self.spec, self.target, self.plain)

    @property
    def spec_file(self) -> str:
        """Return a Spec file of the goal with the steps taken so far."""
        return show_file(SpecFile(self.target, (self.declaration,)))

    @property
    def declaration(self) -> Declaration:
        """Return its declaration in a Spec file, with the steps taken so far."""
        return Declaration(self.name, self.spec, schedule_of(self.impl), self.signature)

    @property
    def low(self) -> int:
        """Return the proven lower bound of the costs of all programs with the steps taken by hand and those allowed.

        Raises SpecError for an unfinished implementation.
        """
        if self.measured is not None:
            return 1  # it was chosen by its time, and other programs may cost less

        def least(scheduled: Impl, node: Impl) -> int:
            if isinstance(scheduled, Leaf) or isinstance(node, Leaf):
                cost = cost_and_peak(node).cost
                return min(cost, self.bounds.get(node.spec, cost))
            parts = zip(node.expansion.parts, scheduled.children, node.children, strict=True)
            return int(node.expansion.cost) + sum(int(part.times) * least(*below) for part, *below in parts)

        return least(self.scheduled, self.impl)

    @property
    def proof(self) -> str:
        """Return the gap to the optimum in words, among programs with the steps taken by hand and those allowed.

        Raises SpecError for an unfinished implementation.
        """
        cost, low = cost_and_peak(self.impl).cost, self.low
        if self.measured is not None:
            return f"nothing is proven: {self.measured.words}"
        if self.is_scheduled:
            return "as scheduled"
        among = self.among and f" among {self.among}"
        if low >= cost:
            return f"optimal{among}"
        if low <= 1:
            return f"not known how close to the optimum{among}"
        return f"within {100 * (cost / low - 1):.2g} % of the optimum{among} (proven)"

    @property
    def among(self) -> str:
        """Return the programs that `low` and `proof` are about in words; empty for all with the steps taken by hand."""
        found = list(dict.fromkeys(leaf.allowed for leaf in leaves(self.scheduled)))
        words = " and ".join(str(one) for one in found if one)
        return words and f"programs {'' if all(found) else 'in part '}{words}"

    @property
    def schedule(self) -> str:
        """Return the steps taken so far in the Spec language."""
        return schedule_text(schedule_of(self.impl))

    def apply(self, schedule: Schedule | str) -> Goal:
        """Apply a schedule, or its text. The step `synthesize` searches as the method does by default."""
        steps = parse_schedule(schedule, self.target) if isinstance(schedule, str) else schedule
        return self._applied(steps, lambda: database(None), None, None)

    def _applied(
        self,
        steps: Schedule,
        db: Callable[[], SpecStore | None],
        progress: Callable[[Progress], None] | None,
        budget: SearchBudget | None,
    ) -> Goal:
        bounds, key = dict(self.bounds), (self.name, self.scheduled)

        def search_in(store: SpecStore | None, spec: Spec, allowed: AllowedSteps, share: float) -> Impl:
            own = budget or SearchBudget.default()
            own = attrs.evolve(own, seconds=own.seconds and share * own.seconds)
            with self.searches.using(store, progress, Leaf(spec, allowed), key) as search:
                found = search.search_within(spec, own)
            if found.low < found.cost:
                # Of two searches by other steps, the lower bound holds for both.
                bounds[spec] = min(found.low, bounds.get(spec, found.low))
            return found.impl

        def find(spec: Spec, allowed: AllowedSteps, share: float = 1.0) -> Impl:
            check_layouts(spec, self.target, allowed)
            if store := db():
                whole = confined(self.target, allowed)
                store.prepare(whole, [spec])
                stack.enter_context(store.snapshot())
                unverified = (answer := store.find(whole, spec)) is not None and answer.unverified
                skipped = unverified and budget is not None and budget.proves
                if not skipped and (known := store.program(whole, spec)):
                    if unverified:
                        bounds[spec] = 1
                    return known
            try:
                return search_in(store, spec, allowed, share)
            except NoImplementation:
                if not self.searches.used_database(store):
                    raise
            # The database may be wrong: search without it before reporting failure.
            return search_in(None, spec, allowed, share)

        with ExitStack() as stack, watch_memory() as limits:
            position = apply(self.position, steps, self.target, find)
            packs = attrs.evolve(self, position=position)._packs(partial(find, share=_PACKING))
        if limits:
            warn_of_memory(self.name)
        before = apply(Position(self.scheduled, self.position.path), steps, self.target, Leaf).impl
        done = attrs.evolve(
            self,
            position=position,
            bounds=bounds,
            before_search=None if before == position.impl else before,
            memory_reached=self.memory_reached or bool(limits),
            packs_found=packs,
        )
        late, last = done._late_kernel, steps[-1] if steps else None
        if late and isinstance(last, Synthesize) and late not in last.allowed.without:
            again = Synthesize(last.allowed + AllowedSteps(without=(late,)))
            # Without a program, emitting this one reports the kernel.
            with suppress(NoImplementation):
                return self._applied((*steps[:-1], again), db, progress, budget)
        return done

    @property
    def _late_kernel(self) -> str:
        """Return the kernel that may read values of an overwritten input after it overwrote them; empty if none."""
        if self.signature is None or self.signature.overwritten is None:
            return ""
        found = hazard(packed(self.impl), self.signature.overwritten, self.target.in_place)
        return found.kernel if found else ""

    def tile(self, *sizes: int | Sequence[int], parallel: bool = False) -> Goal:
        """Apply a loop over tiles of these sizes: of the output's dimensions, or of all iteration dimensions.

        Threads share the tiles of a `parallel` loop.
        """
        return self._step(Tile(_flat(sizes), parallel))

    def fit(self, dim: int, *sizes: int | Sequence[int], times: Sequence[int] = (), parallel: bool = False) -> Goal:
        """Apply a loop over tiles of one iteration dimension, whose sizes cover it exactly.

        Each size has the number of tiles in `times`, by default as few as possible. Threads share the tiles of each
        size of a `parallel` loop in turn.
        """
        return self._step(ExactFit(dim, _flat(sizes), tuple(times), parallel))

    def split(self, size: int) -> Goal:
        """Apply a loop over tiles of the reduction."""
        return self._step(Split(size))

    def move_param(
        self,
        operand: int,
        level: str,
        layout: Layout | str | None = None,
        vector: int | None = None,
        dtype: str | None = None,
    ) -> Goal:
        """Move an operand to another level, with another layout, vector size or data type."""
        return self._step(MoveStep(operand, level, layout, vector, dtype))

    def to_accum(self) -> Goal:
        """Initialize the output, then accumulate."""
        return self._step(ToAccum())

    def select(self, kernel: str) -> Goal:
        """Implement the Spec by a microkernel."""
        return self._step(Select(kernel))

    def subschedule(self, path: int | Sequence[int], body: Callable[[Goal], Goal]) -> Goal:
        """Schedule one child of the last step's node: `body` takes its goal and returns it scheduled."""
        below = (*self.position.path, *_flat([path]))
        child = child_at(self.impl, below)
        if not isinstance(child, Leaf):
            raise Inapplicable(f"child {path} is scheduled already", "schedule all of it in one `subschedule`")
        start = Goal.of(child.spec, self.target, self.name, self.searches)
        inner = body(attrs.evolve(start, position=Position(child)))
        position = Position(with_child(self.impl, below, inner.impl), self.position.path)
        before = with_child(self.scheduled, below, inner.scheduled)
        return attrs.evolve(
            self,
            position=position,
            bounds={**self.bounds, **inner.bounds},
            memory_reached=self.memory_reached or inner.memory_reached,
            before_search=None if before == position.impl else before,
        )

    def allowing(self, using: Sequence[str] = (), without: Sequence[str] = (), layouts: Layouts = "offered") -> Goal:
        """Let a search for the Specs open now take only some steps, by the names of kernels and rewrites.

        `using` kernels are the only ones for their operations, `using` rewrites the only ones besides `select`. Names
        add to those given before. With `layouts="all"`, moves have more layouts than the target offers; search raises
        MorelloError if these are too many. Raises MorelloError for an unknown name.
        """
        if layouts not in get_args(Layouts):
            raise MorelloError(f"layouts={layouts!r}", "pass 'offered' or 'all'")
        allowed = AllowedSteps(tuple(using), tuple(without), layouts == "all")
        check_names(self.target, allowed)
        return attrs.evolve(self, position=apply(self.position, (Synthesize(allowed),), self.target, Leaf))

    def synthesize(
        self,
        db: DatabaseLike = None,
        progress: Listener = None,
        budget: SearchBudget | None = None,
        using: Sequence[str] = (),
        without: Sequence[str] = (),
        layouts: Layouts = "offered",
    ) -> Goal:
        """Implement all open Specs by a search.

        The `budget` is by default `SearchBudget.default()`: the search returns the database's program, if it has one,
        else it ends after about ten seconds. With `SearchBudget()` it goes on to the proof. `db` is a database, open or
        as a path, by default the user's own, or False for none. `progress` is a function called with search's progress,
        by default a display on a terminal or in a notebook, or False for none. Raises NoImplementation if a Spec has no
        program, and MorelloError if the budget is too small to find one, or if the database cannot be used.
        `using`, `without` and `layouts` are those of `allowing`.
        """
        goal, store = self.allowing(using, without, layouts), database(db)
        with subscribe(progress, self.name, self.searches.solved(store), store.name if store else None) as listener:
            return goal._applied((Synthesize(),), lambda: store, listener, budget)

    def _step(self, step: Rewrite) -> Goal:
        if step.keyword not in self.target.rewrites_by_name:
            raise Inapplicable(
                f"{self.target.name} has no rewrite `{step.keyword}`",
                f"it has {', '.join(self.target.rewrites_by_name) or 'none'}",
            )
        return self.apply((step,))


def prepare(goals: Iterable[Goal], db: SpecStore | None) -> None:
    """Prepare a database, if there is one, for the open Specs of goals, before the first snapshot of it."""
    if db is None:
        return
    open_specs: dict[Target, list[Spec]] = defaultdict(list)
    for goal in goals:
        for leaf in leaves(goal.impl):
            open_specs[confined(goal.target, leaf.allowed)].append(leaf.spec)
    for target, specs in open_specs.items():
        db.prepare(target, specs)


def warn_of_memory(name: str) -> None:
    """Warn that a search reached its memory limit."""
    remedy = "--memory, or budget=SearchBudget(memory=...)"
    what = f"{name}: search reached its memory limit; with more it may find another program: {remedy}"
    warnings.warn(what, MemoryLimited, stacklevel=4)


def _unpickled(_target: Target, kind: type[Goal], fields: Mapping[str, Any]) -> Goal:
    return kind(**fields)


def _flat(sizes: Iterable[int | Sequence[int]]) -> tuple[int, ...]:
    """Return one sequence or several numbers as a tuple."""
    return tuple(size for each in sizes for size in (each if isinstance(each, Sequence) else (each,)))
