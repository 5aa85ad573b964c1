"""Runner-ups: steps that search did not take, with the costs of the programs that begin with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from morello.ir.impl import AllowedSteps, Impl, Leaf
from morello.ir.spec import Spec
from morello.report.tree import RunnerUp, RunnerUps
from morello.search.solve.solver import Alternative

#: Returns the best steps of a Spec, among the allowed ones, that search did not take.
Ranking: TypeAlias = Callable[[Spec, AllowedSteps], tuple[RunnerUp, ...]]


def find_runner_ups(best: Ranking, scheduled: Impl, program: Impl) -> RunnerUps:
    """Return the best other steps of every node of a program that its schedule left to search."""
    places = {id(node): (node.spec, allowed) for node, allowed in _searched(scheduled, program)}
    found = {key: best(*key) for key in dict.fromkeys(places.values())}
    return lambda impl: found[places[id(impl)]] if id(impl) in places else None


def ranked(alternatives: Sequence[Alternative]) -> tuple[RunnerUp, ...]:
    """Return the runner-ups of the first alternative, which was chosen."""
    chosen, *others = alternatives
    return tuple(_runner_up(one, chosen.cost) for one in others)


def _searched(scheduled: Impl, program: Impl) -> Iterator[tuple[Impl, AllowedSteps]]:
    """Yield the nodes that search made, with the steps that it was allowed."""
    if isinstance(scheduled, Leaf):
        yield program, scheduled.allowed
    for index, child in enumerate(_children(program)):
        below = scheduled if isinstance(scheduled, Leaf) else scheduled.children[index]
        yield from _searched(below, child)


def _children(impl: Impl) -> Sequence[Impl]:
    return () if isinstance(impl, Leaf) else impl.children


def _runner_up(alternative: Alternative, least: int) -> RunnerUp:
    # Bounds of search may lie below the optimum; no program does.
    cost = max(alternative.cost, least)
    return RunnerUp(str(alternative.step), cost, alternative.exact, cost - least, 100 * (cost - least) / least)
