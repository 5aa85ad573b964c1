"""Runner-ups: steps that search did not take, with the costs of the programs that begin with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from morello.ir.impl import Impl, Leaf
from morello.ir.spec import Spec
from morello.report.tree import RunnerUp, RunnerUps
from morello.search.session import SearchSession
from morello.search.solve.solver import Alternative


def find_runner_ups(search: SearchSession, scheduled: Impl, program: Impl, count: int) -> RunnerUps:
    """Return the `count` best other steps of every node of a program that its schedule left to search."""
    nodes = [*_searched(scheduled, program)]
    found: dict[Spec, tuple[RunnerUp, ...]] = {
        spec: ranked(search.alternatives(spec, count)) for spec in dict.fromkeys(node.spec for node in nodes)
    }
    places = {id(node) for node in nodes}
    return lambda impl: found[impl.spec] if id(impl) in places else None


def ranked(alternatives: Sequence[Alternative]) -> tuple[RunnerUp, ...]:
    """Return the runner-ups of the first alternative, which was chosen."""
    chosen, *others = alternatives
    return tuple(_runner_up(one, chosen.cost) for one in others)


def _searched(scheduled: Impl, program: Impl) -> Iterator[Impl]:
    open_ = isinstance(scheduled, Leaf)
    if open_:
        yield program
    for index, child in enumerate(_children(program)):
        yield from _searched(scheduled if open_ else _children(scheduled)[index], child)


def _children(impl: Impl) -> Sequence[Impl]:
    return () if isinstance(impl, Leaf) else impl.children


def _runner_up(alternative: Alternative, least: int) -> RunnerUp:
    # Bounds of search may lie below the optimum; no program does.
    cost = max(alternative.cost, least)
    return RunnerUp(str(alternative.step), cost, alternative.exact, cost - least, 100 * (cost - least) / least)
