"""Complete programs of one Spec: the optimum, its neighbours, families that search completes, random ones."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator

import attrs

from morello.api.goals import Goal
from morello.db.store import SpecStore
from morello.errors import Inapplicable, NoImplementation
from morello.ir.impl import AllowedSteps, Expansion, Impl, Leaf, Node, expand
from morello.ir.spec import Spec
from morello.rewrites.base import Rewrite, rewrites_of
from morello.schedule import Position, child_at, finish, with_child
from morello.search.progress import Progress
from morello.testing.generate import RandomPrograms

#: The most random steps of a family's member before search completes it.
_DEPTH = 4
#: Draws in vain, one after another, until a way of drawing is given up.
_PATIENCE = 60


class _Late(Exception):
    """Ends a search that takes too long."""


@attrs.define(eq=False)
class Draws:
    """Draws programs for a goal that has no schedule. Each search may take `seconds`."""

    goal: Goal
    rng: random.Random
    store: SpecStore | None = None
    seconds: float = 4.0
    _optimum: Impl = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._optimum = self.goal.synthesize(self.store or False).impl

    def programs(self, count: int) -> Iterator[tuple[str, Impl]]:
        """Yield the optimum, then other programs in turn by the way they are drawn; fewer where no more are found.

        A program that is drawn twice is yielded twice.
        """
        yield "optimum", self._optimum
        ways: dict[str, Callable[[], Impl | None]] = {
            "neighbour": self._neighbour,
            "family": lambda: self._member(self.goal.spec, self.rng.randint(1, _DEPTH)),
            "random": self._random,
        }
        vain = dict.fromkeys(ways, 0)
        left = count - 1
        while left > 0 and ways:
            for name, draw in list(ways.items()):
                drawn = draw()
                vain[name] = 0 if drawn else vain[name] + 1
                if drawn and left > 0:
                    left -= 1
                    yield name, drawn
                if vain[name] == _PATIENCE:
                    del ways[name]

    def _random(self) -> Impl | None:
        wild = self.rng.choice([0, 2, 4, 6])
        return RandomPrograms(self.goal.target, self.rng, wild).draw(self.goal.spec)

    def _neighbour(self) -> Impl | None:
        """Return the optimum with another step at one place, and what search finds below it."""
        path = self.rng.choice([*_paths(self._optimum)])
        place = child_at(self._optimum, path)
        drawn = self._member(place.spec, 1)
        return with_child(self._optimum, path, drawn) if drawn else None

    def _member(self, spec: Spec, steps: int) -> Impl | None:
        """Return a program with random steps at the root and below, completed by search."""
        impl: Impl = Leaf(spec)
        path: tuple[int, ...] = ()
        for _ in range(steps):
            node = self._stepped(child_at(impl, path).spec)
            if node is None:
                return None
            impl = with_child(impl, path, node)
            if not node.children:
                break
            path = (*path, self.rng.randrange(len(node.children)))
        return self._completed(impl)

    def _stepped(self, spec: Spec) -> Node | None:
        """Return a Spec with one of the steps that search would try."""
        target = self.goal.target
        kinds: list[list[Rewrite]] = [[*rewrite.steps(spec.logical, target)] for rewrite in rewrites_of(target)]
        kinds = [steps for steps in kinds if steps]
        if not kinds:
            return None
        try:
            expansion: Expansion = self.rng.choice(self.rng.choice(kinds)).expansion(spec.logical, target)
        except Inapplicable:
            return None
        return expand(spec, expansion, target.grids)

    def _completed(self, impl: Impl) -> Impl | None:
        deadline = time.monotonic() + self.seconds

        def check(_: Progress) -> None:
            if time.monotonic() > deadline:
                raise _Late

        def find(spec: Spec, _: AllowedSteps) -> Impl:
            own = Goal.of(spec, self.goal.target, self.goal.name, self.goal.searches)
            # Without the database: what leads nowhere is not to be kept.
            return own.synthesize(False, check).impl

        try:
            return finish(impl, find)
        except NoImplementation:
            return None
        except _Late:
            return None


def with_program(goal: Goal, impl: Impl) -> Goal:
    """Return a goal as scheduled by a program."""
    return attrs.evolve(goal, position=Position(impl))


def _paths(impl: Impl, path: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """Yield where the nodes are."""
    yield path
    if isinstance(impl, Node):
        for index, child in enumerate(impl.children):
            yield from _paths(child, (*path, index))
