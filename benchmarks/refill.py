"""Measure which stored answers stay proven when costs of a target change, and how much search the others need.

    python benchmarks/refill.py answers [--only TEXT] [--bound 32] [--seed 0]
    python benchmarks/refill.py searches [--only TEXT] [--seed 0]

`answers` solves families of Specs, changes costs, and counts the answers that old ones prove or bound (the lemma is in
docs/scale.md); each is compared with the changed target's own search. `searches` repeats single searches after a
change: without old answers, from the old program, and from the old program and the bounds of its parts. Times are
seconds of CPU.
"""

from __future__ import annotations

import itertools
import math
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import TypeAlias

import attrs
import click
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from morello.db.answers import AnswerBlock, AnswerKind
from morello.db.boxes import to_limits, to_sizes
from morello.db.database_cache import DatabaseCache
from morello.db.fingerprint import fingerprint
from morello.db.labels import read
from morello.db.store import SpecStore
from morello.errors import MorelloError
from morello.frontend.diagnostics import SourceError
from morello.frontend.parser import family, parse_spec
from morello.ir.impl import CostAndPeak, Node, combine, cost_and_peak
from morello.ir.spec import LogicalSpec, Spec
from morello.kernels.machine import Weights
from morello.kernels.microkernel import Combined, Microkernel
from morello.kernels.target import Target
from morello.plugins.registry import installed
from morello.rewrites.base import Rewrite
from morello.schedule import rewrite_leaf
from morello.search.budget import SearchBudget
from morello.search.incumbents import Incumbent
from morello.search.library import library
from morello.search.session import SearchSession
from morello.search.step_kinds import KINDS
from morello.search.tables.kernels import KernelTables
from morello.search.tables.loops import LoopTables
from morello.search.tables.shapes import Key, TypedKey, typed_key_of
from morello.search.tables.step_tables import SearchTables

TARGET = "x86_avx2"
_FLOATS = "(f32, GL), (f32, GL), (f32, GL), serial)"
_BYTES = "(u8, GL), (i8, GL), (i32, GL), serial)"
#: Families of Specs, and how many times smaller than `--bound` their sizes end.
FAMILIES = (
    (f"Matmul(1×1×1×1, {_FLOATS}", 1),
    (f"Matmul(1×1×1×1, {_BYTES}", 2),
    ("Matmul(1×1×1×1, (f32, GL, col_major), (f32, GL), (f32, GL), serial)", 2),
    ("Move(1×1, (f32, GL), (f32, GL, col_major), serial)", 1),
    ("Softmax[dim=1](1×1, (f32, GL), (f32, GL), serial)", 1),
)
#: Single goals.
GOALS = (
    f"Matmul(1×100×100×100, {_FLOATS}",
    f"Matmul(1×37×53×29, {_FLOATS}",
    f"Matmul(1×512×512×512, {_FLOATS}",
    f"Matmul(1×64×64×64, {_BYTES}",
    f"Conv(1×16×16×14×14×3×3, {_FLOATS}",
    "Softmax[dim=1](64×512, (f32, GL), (f32, GL), serial)",
)
#: The budget of one search: that of `morello compile`.
_BUDGET = SearchBudget(expansions=1_200_000)

Floats: TypeAlias = npt.NDArray[np.float64]


# Changes of costs.


def scaled(kernel: Microkernel, percent: int) -> Microkernel:
    """Return a kernel whose calls cost a percentage of the present cost, rounded up."""

    def change(cost: npt.NDArray[np.int64] | int) -> npt.NDArray[np.int64] | int:
        return -(-cost * percent // 100)

    cost = kernel.call_cost
    if isinstance(cost, Combined):
        combine = cost.combine
        return attrs.evolve(kernel, cost=Combined(lambda *parts: change(combine(*parts)), cost.parts))
    return attrs.evolve(kernel, cost=lambda spec, machine: change(cost(spec, machine)))


def with_kernels(target: Target, percents: dict[str, int]) -> Target:
    """Return a target with other costs of some kernels, in percent."""
    kernels = [scaled(one, percents[one.name]) if one.name in percents else one for one in target.kernels]
    return attrs.evolve(target, kernels=tuple(kernels))


def with_levels(target: Target, percents: dict[str, int]) -> Target:
    """Return a target with other costs of touching lines of some levels, in percent, rounded."""
    levels = [
        attrs.evolve(
            level,
            **{name: round(getattr(level, name) * percents.get(level.name, 100) / 100) for name in _LEVEL_COSTS},
        )
        for level in target.levels
    ]
    return attrs.evolve(target, levels=tuple(levels))


_LEVEL_COSTS = ("hit_cost", "miss_cost", "start_cost")


def lacking(target: Target, *kernels: str) -> Target:
    """Return a target without some kernels."""
    return attrs.evolve(target, kernels=tuple(one for one in target.kernels if one.name not in kernels))


def calibrated(target: Target, percent: int, seed: int) -> Target:
    """Return a target with each kernel and level up to some percent cheaper or dearer, at random."""
    draws = random.Random(seed)
    kernels = {one.name: draws.randint(100 - percent, 100 + percent) for one in target.kernels}
    levels = {one.name: draws.randint(100 - percent, 100 + percent) for one in target.levels}
    return with_levels(with_kernels(target, kernels), levels)


def changes(base: Target, seed: int) -> dict[str, tuple[Target, Target]]:
    """Return pairs of an old target and a new one by what changed."""
    of = installed().target
    return {
        "kernel RegisterTile +10 %": (base, with_kernels(base, {"RegisterTile": 110})),
        "kernel RegisterTile -10 %": (base, with_kernels(base, {"RegisterTile": 90})),
        "kernel VectorMove +20 %": (base, with_kernels(base, {"VectorMove": 120})),
        "kernel VectorExp -10 %": (base, with_kernels(base, {"VectorExp": 90})),
        "level GL +10 %": (base, with_levels(base, {"GL": 110})),
        "level GL -10 %": (base, with_levels(base, {"GL": 90})),
        "level L2 +20 %": (base, with_levels(base, {"L2": 120})),
        "level L2 -20 %": (base, with_levels(base, {"L2": 80})),
        "all kernels, levels ±5 %": (base, calibrated(base, 5, seed)),
        "new kernel TransposeMatrix": (lacking(base, "TransposeMatrix"), base),
        "new kernel RegisterTile": (lacking(base, "RegisterTile"), base),
        "profile sapphire_rapids": (base, of(TARGET, "sapphire_rapids")),
        "profile zen4": (base, of(TARGET, "zen4")),
    }


# Claims that old answers support under new costs.


def least_ratio(old: Target, new: Target, specs: Sequence[LogicalSpec]) -> Fraction | None:
    """Return the least ratio of new to old own costs over all steps on Specs and on those below, at most 1.

    None if the targets may differ in programs of these Specs. Both have tables for all rewrites.
    """
    kinds = [kind.tables for kind in KINDS]
    before = SearchTables(specs, old, kinds)
    keys = [*before.spaces.by_key]
    if _without_costs(old, keys) != _without_costs(new, keys):
        return None
    after = SearchTables(specs, new, kinds)
    return min((_ratio(*pair) for pair in _own_costs(before, after)), default=Fraction(1))


def _without_costs(target: Target, keys: Sequence[Key]) -> tuple[object, ...]:
    """Return what programs of some operations depend on besides costs."""
    kernels = [one for one in target.kernels if any(one.implements(key.op) for key in keys)]
    levels = tuple(attrs.evolve(level, **dict.fromkeys(_LEVEL_COSTS, 0)) for level in target.levels)
    free = attrs.evolve(
        target,
        levels=levels,
        kernels=tuple(attrs.evolve(one, cost=None) for one in kernels),
        weights=Weights(threads=target.weights.threads),
        tables={},
        kernel_costs={},
    )
    return fingerprint(free), *(sorted(target.tile_sizes(key.op).items()) for key in keys)


def _own_costs(before: SearchTables, after: SearchTables) -> Iterator[tuple[Floats, Floats]]:
    """Yield arrays of the costs that own costs are sums of, on all shapes, those of both targets in the same order."""
    # Moves and pipelines cost what touching their tensors costs.
    yield from zip(before.states.cost, after.states.cost, strict=True)
    for key, loops in before.of(LoopTables).by_key.items():
        for one, two in zip(loops, after.of(LoopTables).by_key[key], strict=True):
            yield one.cost.astype(np.float64), two.cost.astype(np.float64)
    for key, calls in before.of(KernelTables).by_key.items():
        for one, two in zip(calls, after.of(KernelTables).by_key[key], strict=True):
            assert np.array_equal(one.states, two.states), "kernels accept the same operands"
            assert np.array_equal(one.shapes, two.shapes), "kernels accept the same shapes"
            rows = np.unique(np.stack([one.which, two.which]), axis=1)
            yield one.costs[rows[0]], two.costs[rows[1]]


def _ratio(old: Floats, new: Floats) -> Fraction:
    """Return a lower bound of all ratios of new to old costs, at most 1, close to the least one."""
    if (new >= old).all():
        return Fraction(1)
    counted = (old > 0) & (old < np.inf)
    return Fraction(float((new[counted] / old[counted]).min()) * (1 - 1e-15))


@attrs.frozen
class Carried:
    """The claim that the old answer to a Spec supports under new costs.

    EXACT: the old program stays optimal. LOWER: no program costs less than `low`, 0 if nothing is known, and the old
    one costs `high`. NONE: there is still no program.
    """

    spec: Spec
    kind: AnswerKind
    low: int
    high: int
    impl: Node | None


def carried(store: SpecStore, old: Target, new: Target) -> list[Carried]:
    """Return the claims about a new target that the verified answers of a database for the old one support."""
    groups: dict[TypedKey, list[Spec]] = defaultdict(list)
    for spec in stored_specs(store, old):
        groups[typed_key_of(spec.logical)].append(spec)
    found: list[Carried] = []
    programs: dict[Spec, tuple[Node, CostAndPeak] | None] = {}
    for specs in groups.values():
        ratio = least_ratio(old, new, list(dict.fromkeys(spec.logical for spec in specs)))
        found += (_carried(store, old, new, spec, ratio, programs) for spec in specs)
    return found


def _carried(
    store: SpecStore,
    old: Target,
    new: Target,
    spec: Spec,
    ratio: Fraction | None,
    programs: dict[Spec, tuple[Node, CostAndPeak] | None],
) -> Carried:
    answer, impl, same = store.find(old, spec), store.program(old, spec), for_target(spec, old, new)
    if answer is not None and answer.kind == AnswerKind.NONE and ratio is not None:
        return Carried(same, AnswerKind.NONE, 0, 0, None)
    if answer is None or not isinstance(impl, Node):
        return Carried(same, AnswerKind.LOWER, 0, 0, None)
    low = 0 if ratio is None else -(-answer.cost * ratio.numerator // ratio.denominator)
    again = recosted(impl, same, new, programs)
    if again is None:
        return Carried(same, AnswerKind.LOWER, low, 0, None)
    node, found = again
    proven = ratio is not None and found.cost == answer.cost * ratio
    return Carried(same, AnswerKind.EXACT if proven else AnswerKind.LOWER, low, found.cost, node)


def for_target(spec: Spec, old: Target, new: Target) -> Spec:
    """Return a Spec for another target; a limit that was the capacity of its level stays the capacity."""
    full = zip(spec.limits, old.full_limits(), new.full_limits(), strict=True)
    return Spec(spec.logical, new.limits([int(theirs if own == most else own) for own, most, theirs in full]))


def recosted(
    impl: Node, spec: Spec, target: Target, known: dict[Spec, tuple[Node, CostAndPeak] | None]
) -> tuple[Node, CostAndPeak] | None:
    """Return the steps of a program on a Spec of another target, with cost and peak; None if one does not apply."""
    if spec not in known:
        known[spec] = None
        step = impl.expansion.step
        assert isinstance(step, Rewrite)
        with suppress(MorelloError):
            node = rewrite_leaf(spec, step, target)
            pairs = zip(impl.children, node.children, strict=True)
            parts = [recosted(one, leaf.spec, target, known) for one, leaf in pairs if isinstance(one, Node)]
            whole = [part for part in parts if part]
            if len(whole) == len(parts):
                found = combine(node.expansion, [one for _, one in whole], node.grids)
                known[spec] = attrs.evolve(node, children=tuple(child for child, _ in whole)), found
    return known[spec]


def stored_specs(store: SpecStore, target: Target) -> Iterator[Spec]:
    """Yield the Specs in the rectangles of a database, each with the largest limits of its rectangle."""
    for table in store.tables():
        labels = read(table.labels, target.operations, target.dtypes)
        limits = to_limits(table.boxes.high[:, table.rank :], table.owner.grids).tolist()
        for i, own in enumerate(limits):
            sides = (side[i, : table.rank].tolist() for side in (table.boxes.low, table.boxes.high))
            points = itertools.product(*(range(low, high + 1) for low, high in zip(*sides, strict=True)))
            for shape in to_sizes(np.array([*points], dtype=np.int64)).tolist():
                yield Spec(attrs.evolve(labels, shape=tuple(shape)), tuple(own))


def keep(store: SpecStore, target: Target, answers: Iterable[Carried]) -> None:
    """Store carried answers for the new target: proven ones, and bounds of the others."""
    blocks: list[AnswerBlock] = []
    for one in answers:
        if one.kind != AnswerKind.LOWER or one.low:
            exact = one.kind == AnswerKind.EXACT and one.impl
            peak = cost_and_peak(one.impl).peak if exact and one.impl else (0,) * len(one.spec.limits)
            blocks.append(
                AnswerBlock(
                    attrs.evolve(one.spec.logical, shape=(1,) * len(one.spec.shape)),
                    np.array([one.spec.shape], dtype=np.int64),
                    np.array([one.spec.limits], dtype=np.int64),
                    np.array([peak], dtype=np.int64),
                    np.array([one.low], dtype=np.int64),
                    np.array([one.kind], dtype=np.int8),
                    (str(one.impl.expansion.step),) if exact and one.impl else (),
                    np.array([0 if exact else -1], dtype=np.int32),
                )
            )
    store.add(target, blocks)


# The tables.


def solve(store: SpecStore, target: Target, bound: int) -> int:
    """Solve all families and store the answers; return the number of goals."""
    count = 0
    for text, smaller in FAMILIES:
        one = family(text, target)
        rank = len(one.spec.shape) - one.implicit_dims
        powers = [1 << bit for bit in range((bound // smaller).bit_length())]
        shapes = itertools.product(*([[1], powers, powers, powers] if rank == 4 else [powers] * rank))
        specs: list[Spec] = []
        for shape in sorted(shapes, key=math.prod, reverse=True):
            # Some layouts take no single rows.
            with suppress(SourceError):
                specs.append(one.at(shape))
        SearchSession(target, cache=DatabaseCache(store)).solve_all(list(dict.fromkeys(specs)))
        count += len(specs)
    return count


def searched(specs: Sequence[Spec], target: Target) -> dict[Spec, Node | None]:
    """Return the program that a target's own search finds for each Spec."""
    found: dict[Spec, Node | None] = {}
    kinds: dict[TypedKey, list[Spec]] = defaultdict(list)
    for spec in specs:
        kinds[typed_key_of(spec.logical)].append(spec)
    for own in kinds.values():
        for spec, impl in zip(own, SearchSession(target).programs(own), strict=True):
            found[spec] = impl if isinstance(impl, Node) else None
    return found


def fault(one: Carried, impl: Node | None) -> str | None:
    """Return how the program that search finds contradicts a carried answer, if it does."""
    if impl is None or one.kind == AnswerKind.NONE:
        return None if impl is None and not one.impl else "one has a program, the other does not"
    true = cost_and_peak(impl)
    if one.kind == AnswerKind.EXACT:
        same = one.impl and (cost_and_peak(one.impl), one.impl) == (true, impl)
        return None if same else "another program is cheaper, or comes first"
    return None if one.low <= true.cost <= (one.high or true.cost) else "its cost is not within the bounds"


@attrs.frozen
class Shares:
    """The claims of old answers after a change: counts, the largest true excess of an old program, seconds of CPU."""

    answers: int
    proven: int
    #: Answers within 1, 5 and 10 % of a bound, proven ones included.
    within: tuple[int, ...]
    #: Old programs that are still among the cheapest, and the largest excess of one.
    optimal: int
    excess: float
    seconds: float


WITHIN = (0.01, 0.05, 0.10)


def shares(store: SpecStore, old: Target, new: Target) -> Shares:
    """Return the shares of old answers that hold for a new target. Raises AssertionError for one that does not."""
    before = time.process_time()
    answers = carried(store, old, new)
    seconds = time.process_time() - before
    truth = searched(list(dict.fromkeys(one.spec for one in answers)), new)
    excesses: list[float] = []
    for one in answers:
        wrong = fault(one, impl := truth[one.spec])
        assert wrong is None, f"{one.spec}: {wrong}"
        if impl and one.impl:
            excesses.append(one.high / cost_and_peak(impl).cost - 1)
    proven = sum(one.kind != AnswerKind.LOWER for one in answers)
    close = (
        sum(one.kind == AnswerKind.LOWER and 0 < one.high <= (1 + gap) * one.low for one in answers) for gap in WITHIN
    )
    within = tuple(proven + count for count in close)
    return Shares(len(answers), proven, within, excesses.count(0), max(excesses, default=0.0), seconds)


@attrs.frozen
class Effort:
    """Specs expanded, and seconds of CPU."""

    expansions: int
    seconds: float


def efforts(spec: Spec, old: Target, new: Target) -> list[Effort]:
    """Return the effort of a search without old answers, from the old program, and from bounds of its parts, too."""
    found: list[Effort] = []
    with tempfile.TemporaryDirectory() as folder:
        store = SpecStore(Path(folder) / "specs.db")
        _search(SearchSession(old, cache=DatabaseCache(store)), spec)
        same = for_target(spec, old, new)
        found.append(_search(SearchSession(new), same))
        for parts in (False, True):
            before = time.process_time()
            answers = carried(store, old, new) if parts else []
            if parts:
                keep(store, new, answers)
            one = _carried(store, old, new, spec, None, {})
            session = SearchSession(new, cache=DatabaseCache(store) if parts else None)
            if one.impl:
                session.incumbents.add(Incumbent(one.impl, one.high, 1))
            expansions = _search(session, same).expansions
            found.append(Effort(expansions, time.process_time() - before))
        store.close()
    return found


def _search(session: SearchSession, spec: Spec) -> Effort:
    before = time.process_time()
    session.search_within(spec, _BUDGET)
    return Effort(session.expansions, time.process_time() - before)


@click.group(help=(__doc__ or "").split("\n")[0])
def main() -> None:
    library()


@main.command("answers")
@click.option("--only", default="", help="Changes whose name contains this.")
@click.option("--bound", default=32, show_default=True, help="The largest size of the Specs, a power of two.")
@click.option("--seed", default=0, show_default=True, help="Seed of random changes.")
def answers_command(only: str, bound: int, seed: int) -> None:
    """Count the answers that old ones prove or bound."""
    table = Table(
        "change", "answers", "proven", *(f"within {gap:.0%}" for gap in WITHIN), "still optimal", "excess", "s"
    )
    base = installed().target(TARGET, "base")
    with tempfile.TemporaryDirectory() as folder:
        databases: dict[Target, SpecStore] = {}
        for name, (old, new) in changes(base, seed).items():
            if only not in name:
                continue
            if old not in databases:
                before = time.process_time()
                databases[old] = SpecStore(Path(folder) / f"{len(databases)}.db")
                goals = solve(databases[old], old, bound)
                click.echo(f"{goals:,} goals solved in {time.process_time() - before:.1f} s of CPU")
            one = shares(databases[old], old, new)
            parts = [f"{100 * count / one.answers:.1f} %" for count in (one.proven, *one.within, one.optimal)]
            table.add_row(name, f"{one.answers:,}", *parts, f"{one.excess:.1%}", f"{one.seconds:.1f}")
    Console(width=130).print(table)


@main.command("searches")
@click.option("--only", default="", help="Changes whose name contains this.")
@click.option("--seed", default=0, show_default=True, help="Seed of random changes.")
def searches_command(only: str, seed: int) -> None:
    """Repeat single searches with and without old answers."""
    columns = [f"{one}, {unit}" for one in ("cold", "old program", "and bounds") for unit in ("Specs", "s")]
    table = Table("change", "Spec", *columns)
    base = installed().target(TARGET, "base")
    for name, (old, new) in changes(base, seed).items():
        for text in GOALS if only in name else ():
            found = efforts(parse_spec(text, base), old, new)
            cells = (cell for one in found for cell in (f"{one.expansions:,}", f"{one.seconds:.1f}"))
            table.add_row(name, text.split(", (")[0], *cells)
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
