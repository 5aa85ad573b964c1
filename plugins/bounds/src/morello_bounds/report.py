"""Bounds of a goal, compared with its program: the facts that `morello bound` shows, and verifies in JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from morello.api.goals import Goal
from morello.api.kernel import Kernel
from morello.db.programs import replayed
from morello.errors import MorelloError, Undecided, UnknownName
from morello.ir.impl import Impl, cost_and_peak
from morello.schedule import schedule_of, schedule_text
from morello_bounds.certificate import Certificate, Cut, certificate, cuts_of, verify
from morello_bounds.nest import is_single
from morello_bounds.proofs import (
    differences,
    parse_cuts,
    parse_prices,
    prices_as_json,
    refused,
    segments_as_json,
)
from morello_bounds.randomized import RandomProduct, random_products
from morello_bounds.tiles import Tiling, best_tiling, tiling
from morello_bounds.traffic import Segments, check, program_traffic, reads_beyond


@attrs.frozen
class Boundary:
    """A boundary between levels: its bound, a tiling near it, and the bytes that the program moves, if there is one."""

    cut: Cut
    fast: str
    slow: str
    memory: int
    bytes: int
    #: The bound in lines of the slow level.
    lines: int
    compulsory: int
    binding: str
    segments: Segments | None
    tile: Tiling | None
    program: int | None
    #: Whether kernels of the program may read more than `program` counts.
    kernels_read_beyond: bool
    #: `program` divided by the bound; None without a program, or for a bound of 0.
    ratio: float | None

    @classmethod
    def of(cls, goal: Goal, impl: Impl | None, cut: Cut, tile: Tiling | None) -> Boundary:
        """Return the boundary of a cut, with the bytes that a program moves across it."""
        bound, slow = cut.traffic, goal.target.levels[cut.level]
        moved = impl and program_traffic(impl, goal.target, cut.level)
        return cls(
            cut=cut,
            fast=goal.target.levels[cut.level - 1].name,
            slow=slow.name,
            memory=bound.memory,
            bytes=bound.bytes,
            lines=-(-bound.bytes // slow.unit),
            compulsory=bound.compulsory,
            binding=bound.binding,
            segments=bound.segments,
            tile=tile,
            program=moved,
            kernels_read_beyond=impl is not None and reads_beyond(impl, goal.target, cut.level),
            ratio=moved / bound.bytes if moved is not None and bound.bytes else None,
        )

    def as_json(self) -> dict[str, Any]:
        segments = self.segments and segments_as_json(self.segments)
        return {**attrs.asdict(self, filter=lambda field, _: field.name != "cut"), "segments": segments}


@attrs.frozen
class BoundReport:
    """All bounds of a goal, and its program `impl`, that of `kernel` unless the report was read from JSON.

    Without a program, or without a certified cost, the reason is in words.
    """

    goal: Goal
    kernel: Kernel | None
    impl: Impl | None
    undecided: str
    boundaries: tuple[Boundary, ...]
    #: Bounds on moves and random numbers together, by the level behind the boundary.
    numbers: Mapping[int, RandomProduct]
    certified: Certificate | None
    reason: str

    @property
    def cost(self) -> int | None:
        """Return the cost of the program."""
        return self.impl and cost_and_peak(self.impl).cost

    @property
    def gap(self) -> float | None:
        """Return by which share the program costs more than the certified bound."""
        return self.cost / self.certified.cost - 1 if self.certified and self.cost else None

    def verify(self) -> None:
        """Verify all proofs in exact arithmetic. Raises MorelloError for one that does not hold."""
        for one in self.boundaries:
            check(one.cut.traffic)
        if self.certified is not None:
            verify(self.certified)

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON, with all proofs and the program's schedule: `verify_json` reads them."""
        levels, certified = self.goal.target.levels, self.certified
        numbers = [
            {"fast": levels[level - 1].name, "slow": levels[level].name, "generating": float(one.generating)}
            | {"memory": one.memory, "bytes": one.bytes}
            for level, one in self.numbers.items()
        ]
        return {
            "boundaries": [one.as_json() for one in self.boundaries],
            "numbers": numbers,
            "schedule": self.impl and schedule_text(schedule_of(self.impl)).splitlines(),
            "cost": self.cost,
            "certified": certified and certified.cost,
            "why": self.reason or None,
            "gap": self.gap,
            "prices": certified and prices_as_json(certified, self.goal.target),
        }


def bound(goal: Goal, search: Callable[[Goal], Kernel] | None = None, level: str | None = None) -> BoundReport:
    """Return the bounds of a goal, compared with the program of `search` if given, such as `morello.compile`.

    `level` chooses the boundary behind it. Raises MorelloError if it has none.
    """
    target, kernel, undecided, certified, reason = goal.target, None, "", None, ""
    cuts = {target.levels[cut.level - 1].name: cut for cut in cuts_of(goal.spec, goal.target)}
    if level is not None and target.level(level).name not in cuts:
        raise UnknownName(f"no boundary is behind {level}", f"boundaries are behind {', '.join(cuts)}")
    chosen = [cut for name, cut in cuts.items() if level in (None, name)]
    try:
        kernel = search and search(goal)
    except Undecided as error:
        undecided = error.message
    try:
        certified = certificate(goal.spec, target)
    except MorelloError as error:
        reason = error.message
    impl = kernel and kernel.impl
    boundaries = tuple(Boundary.of(goal, impl, cut, _best_tile(goal, cut)) for cut in chosen)
    numbers = random_products(goal.spec, target, chosen)
    return BoundReport(goal, kernel, impl, undecided, boundaries, numbers, certified, reason)


def _best_tile(goal: Goal, cut: Cut) -> Tiling | None:
    bound = cut.traffic
    tiled = is_single(goal.spec) and bound.resident <= bound.nest.indirect
    return best_tiling(bound.nest, bound.memory) if tiled else None


def verify_json(entry: Mapping[str, Any], goal: Goal) -> BoundReport:
    """Return the report that an entry of JSON has, verified in exact arithmetic from Spec and target, without a search.

    Proofs, tiles and the program are read; all other values are computed from them. Raises MorelloError for a proof
    that is wrong, and for a value that differs.
    """
    try:
        report = _report_of(entry, goal)
    except (KeyError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        what = f"these are not proofs: {type(error).__name__}: {error}"
        raise MorelloError(what, "write some: `morello bound FILE --json`") from error
    report.verify()
    for difference in differences(entry, json.loads(json.dumps(report.as_json()))):
        raise refused(difference)
    return report


def _report_of(entry: Mapping[str, Any], goal: Goal) -> BoundReport:
    """Return the report of the proofs, tiles and schedule in an entry; other errors mean that these are none."""
    spec, target = goal.spec, goal.target
    cuts = {cut.level: cut for cut in parse_cuts(entry["boundaries"], spec, target)}
    impl, certified, reason = None, None, ""
    try:
        if entry["schedule"] is not None:
            impl, _ = replayed(spec, "\n".join(entry["schedule"]), target)
    except MorelloError as error:
        raise refused(f"its schedule gives no program: {error.message}") from error
    if entry["prices"] is not None:
        # Prices are for all boundaries together.
        certified = parse_prices(
            entry["prices"], spec, target, tuple(cuts.get(one.level, one) for one in cuts_of(spec, target))
        )
    else:
        try:
            certificate(spec, target)
        except MorelloError as error:
            reason = error.message
    boundaries = tuple(
        Boundary.of(goal, impl, cut, one["tile"] and tiling(cut.traffic.nest, cut.traffic.memory, **one["tile"]))
        for cut, one in zip(cuts.values(), entry["boundaries"], strict=True)
    )
    return BoundReport(
        goal, None, impl, "", boundaries, random_products(spec, target, [*cuts.values()]), certified, reason
    )
