"""Bounds of a goal, compared with its program: the facts that `morello bound` shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from morello.api.goals import Goal
from morello.api.kernel import Kernel
from morello.errors import MorelloError, Undecided
from morello_bounds.certificate import Certificate, Cut, certificate, cuts_of, verify
from morello_bounds.nest import is_single
from morello_bounds.proofs import prices_as_json, segments_as_json
from morello_bounds.randomized import RandomProduct, random_products
from morello_bounds.tiles import Tiling, best_tiling
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
    def of(cls, goal: Goal, kernel: Kernel | None, cut: Cut) -> Boundary:
        """Return the boundary of a cut."""
        bound, slow = cut.traffic, goal.target.levels[cut.level]
        tiled = is_single(goal.spec) and bound.resident <= bound.nest.indirect
        moved = kernel and program_traffic(kernel.impl, goal.target, cut.level)
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
            tile=best_tiling(bound.nest, bound.memory) if tiled else None,
            program=moved,
            kernels_read_beyond=kernel is not None and reads_beyond(kernel.impl, goal.target, cut.level),
            ratio=moved / bound.bytes if moved is not None and bound.bytes else None,
        )

    def as_json(self) -> dict[str, Any]:
        segments = self.segments and segments_as_json(self.segments)
        return {**attrs.asdict(self, filter=lambda field, _: field.name != "cut"), "segments": segments}


@attrs.frozen
class BoundReport:
    """All bounds of a goal, and its program. Without one, or without a certified cost, the reason is in words."""

    goal: Goal
    kernel: Kernel | None
    undecided: str
    boundaries: tuple[Boundary, ...]
    #: Bounds on moves and random numbers together, by the level behind the boundary.
    numbers: Mapping[int, RandomProduct]
    certified: Certificate | None
    reason: str

    @property
    def gap(self) -> float | None:
        """Return by which share the program costs more than the certified bound."""
        return self.kernel.cost / self.certified.cost - 1 if self.certified and self.kernel else None

    def verify(self) -> None:
        """Verify all proofs in exact arithmetic. Raises MorelloError for one that does not hold."""
        for one in self.boundaries:
            check(one.cut.traffic)
        if self.certified is not None:
            verify(self.certified)

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON, with all proofs: `verify_json` reads them."""
        levels, kernel, certified = self.goal.target.levels, self.kernel, self.certified
        numbers = [
            {"fast": levels[level - 1].name, "slow": levels[level].name, "generating": float(one.generating)}
            | {"memory": one.memory, "bytes": one.bytes}
            for level, one in self.numbers.items()
        ]
        return {
            "boundaries": [one.as_json() for one in self.boundaries],
            "numbers": numbers,
            "cost": kernel and kernel.cost,
            "low": kernel and kernel.low,
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
        raise MorelloError(f"no boundary is behind {level}", f"boundaries are behind {', '.join(cuts)}")
    chosen = [cut for name, cut in cuts.items() if level in (None, name)]
    try:
        kernel = search and search(goal)
    except Undecided as error:
        undecided = error.message
    try:
        certified = certificate(goal.spec, target)
    except MorelloError as error:
        reason = error.message
    boundaries = tuple(Boundary.of(goal, kernel, cut) for cut in chosen)
    numbers = random_products(goal.spec, target, chosen)
    return BoundReport(goal, kernel, undecided, boundaries, numbers, certified, reason)
