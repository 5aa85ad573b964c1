"""Edits of schedules: a step is inserted, removed or replaced; the steps below it stay if they still apply."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import attrs

from morello.errors import Inapplicable
from morello.ir.impl import Impl, Leaf, Loop, Node
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.rewrites.base import Rewrite
from morello.rewrites.tile import Tile, per_dimension
from morello.schedule import Schedule, child_at, default_child, rewrite_leaf, schedule_of, with_child
from morello_tune.interface import TuningCandidate

#: Child numbers from the root of a program.
Path: TypeAlias = tuple[int, ...]
#: Builds the subtree below the last step of an edit.
Regrow: TypeAlias = Callable[[Impl], Impl]


@attrs.frozen
class StepSite:
    """A node of a program that a step made, with its path. `main` is True if the path has only main children."""

    path: Path
    node: Node
    main: bool = True

    @property
    def step(self) -> Rewrite:
        step = self.node.expansion.step
        assert isinstance(step, Rewrite)
        return step

    @property
    def spec(self) -> Spec:
        return self.node.spec

    @property
    def below(self) -> StepSite | None:
        """Return its main child, None for a leaf."""
        index = main_child(self.node)
        child = None if index is None else self.node.children[index]
        return StepSite((*self.path, index or 0), child, self.main) if isinstance(child, Node) else None


def sites(impl: Impl, path: Path = (), main: bool = True) -> Iterator[StepSite]:
    """Yield every node of a program that a rewrite made, parents before children."""
    if isinstance(impl, Leaf):
        return
    if isinstance(impl.expansion.step, Rewrite):
        yield StepSite(path, impl, main)
    index = main_child(impl)
    for number, child in enumerate(impl.children):
        yield from sites(child, (*path, number), main and number == index)


def main_child(node: Node) -> int | None:
    """Return the child that a schedule continues with; for loops with boundary tiles, the main tiles."""
    child = default_child(node)
    return 0 if child is None and isinstance(node.expansion, Loop) and node.children else child


def distinct_edits(candidate: TuningCandidate, edits: Iterable[Callable[[], Schedule]]) -> Iterator[Schedule]:
    """Yield the schedules of edits, each once. Edits that do not apply or change nothing are skipped."""
    seen = {candidate.schedule}
    for edit in edits:
        try:
            schedule = edit()
        except Inapplicable:
            continue
        if schedule not in seen:
            seen.add(schedule)
            yield schedule


def replace_step(candidate: TuningCandidate, site: StepSite, *steps: Rewrite) -> Schedule:
    """Return the schedule with other steps in place of the one at a site. Raises Inapplicable, as all edits here."""
    return _edited(candidate, site.path, steps, lambda node: _over(node, site.node, candidate.target))


def insert_step(candidate: TuningCandidate, site: StepSite, *steps: Rewrite) -> Schedule:
    """Return the schedule with more steps before the one at a site."""
    target = candidate.target

    def rest(node: Impl) -> Impl:
        index = main_child(node) if isinstance(node, Node) else None
        if index is None:
            raise Inapplicable(f"`{steps[-1]}` leaves no single Spec for `{site.step}`", "choose another step")
        return with_child(node, (index,), _regrown(child_at(node, (index,)).spec, site.node, target))

    return _edited(candidate, site.path, steps, rest)


def remove_step(candidate: TuningCandidate, site: StepSite) -> Schedule:
    """Return the schedule without the step at a site."""
    below = site.below
    if below is None:
        raise Inapplicable(f"no step below `{site.step}` can take its place", "replace it")
    return replace_subtree(candidate, site, below.node)


def exchange_steps(candidate: TuningCandidate, site: StepSite) -> Schedule:
    """Return the schedule with the step at a site after the next one."""
    below = site.below
    if below is None:
        raise Inapplicable(f"no step follows `{site.step}`", "exchange another one")
    steps = normal(below.step, below.spec), normal(site.step, site.spec)
    return _edited(candidate, site.path, steps, lambda node: _over(node, below.node, candidate.target))


def replace_subtree(candidate: TuningCandidate, site: StepSite, other: Node) -> Schedule:
    """Return the schedule with the steps of another program's node in place of all at a site, as far as they apply."""
    return _edited(candidate, site.path, (), lambda leaf: _regrown(leaf.spec, other, candidate.target))


def child_started(candidate: TuningCandidate, site: StepSite, *steps: Rewrite) -> Schedule:
    """Return the schedule with steps in place of the one at a site and all below it; search completes them."""
    return _edited(candidate, site.path, steps, lambda leaf: leaf)


def normal(step: Rewrite, spec: Spec) -> Rewrite:
    """Return the step with size 0 for whole dimensions, so that it applies to other extents of these."""
    if not isinstance(step, Tile):
        return step
    sizes = zip(per_dimension(step.sizes, spec.logical), map(int, spec.logical.shape), strict=True)
    return attrs.evolve(step, sizes=tuple(0 if size == whole else size for size, whole in sizes))


def _edited(candidate: TuningCandidate, path: Path, steps: Sequence[Rewrite], rest: Regrow) -> Schedule:
    grown = _grown(child_at(candidate.impl, path).spec, steps, rest, candidate.target)
    return schedule_of(with_child(candidate.impl, path, grown))


def _grown(spec: Spec, steps: Sequence[Rewrite], rest: Regrow, target: Target) -> Impl:
    """Take steps along main children; `rest` replaces the node of the last one, or the leaf without steps."""
    if not steps:
        return rest(Leaf(spec))
    node = rewrite_leaf(spec, steps[0], target)
    if len(steps) == 1:
        return rest(node)
    index = main_child(node)
    if index is None:
        raise Inapplicable(f"`{steps[1]}` cannot follow `{steps[0]}`, which leaves no single Spec", "leave it out")
    return with_child(node, (index,), _grown(node.children[index].spec, steps[1:], rest, target))


def _regrown(spec: Spec, old: Impl, target: Target) -> Impl:
    """Return the steps of an old program taken on a Spec again; those that do not apply are skipped."""
    if isinstance(old, Leaf):
        return Leaf(spec)
    step = old.expansion.step
    try:
        assert isinstance(step, Rewrite)
        node = rewrite_leaf(spec, step, target)
    except Inapplicable:
        index = main_child(old)
        return Leaf(spec) if index is None else _regrown(spec, old.children[index], target)
    return _over(node, old, target)


def _over(new: Impl, old: Node, target: Target) -> Impl:
    """Return a new node, or leaf, over the children of an old node."""
    if isinstance(new, Leaf):
        return _regrown(new.spec, old, target)
    if not new.children:
        return new
    places = _matched(new, old)
    children = tuple(
        child if place is None else _regrown(child.spec, old.children[place], target)
        for child, place in zip(new.children, places, strict=True)
    )
    return attrs.evolve(new, children=children)


def _matched(new: Node, old: Node) -> list[int | None]:
    """Return for each child of a new node the similar child of an old one, None without one."""
    roles = [[part.role for part in node.expansion.parts] for node in (new, old)]
    if roles[0] == roles[1]:
        return [*range(len(old.children))]
    mains = main_child(new), main_child(old)
    free = {number for number in range(len(old.children)) if number != mains[1]}
    places: list[int | None] = []
    for number, part in enumerate(new.expansion.parts):
        if number == mains[0]:
            place = mains[1]
        else:
            op = new.children[number].spec.op
            alike = (one for one in sorted(free) if roles[1][one] == part.role and old.children[one].spec.op == op)
            place = next(alike, None)
            free.discard(-1 if place is None else place)
        places.append(place)
    return places
