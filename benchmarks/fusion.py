"""Measure fusion: a Compose as one program, compared with its operations one after the other.

    python benchmarks/fusion.py [--only NAME]... [--target NAME]

Both sides are the best programs that search finds; the second stores every intermediate in GL. Times are medians of
programs timed in turn.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path

import attrs
import click
from rich.console import Console
from rich.table import Table

import morello
from morello.api.goals import Goal
from morello.api.kernel import Kernel
from morello.ir.impl import cost_and_peak

EXAMPLES = Path(__file__).parent.parent / "examples"
FILES = ("chain", "fused", "mlp", "attention")
ROUNDS = 7


@attrs.frozen
class Timed:
    """The best program of a goal, built and verified, and the times of its calls in seconds."""

    goal: Goal
    kernel: Kernel
    seconds: list[float] = attrs.field(factory=list)

    @classmethod
    def of(cls, goal: Goal) -> Timed:
        done = goal.synthesize(db=False)
        kernel = morello.compile(done)
        kernel.check()
        return cls(done, kernel)

    @property
    def cost(self) -> int:
        return cost_and_peak(self.goal.impl).cost

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def compared(path: Path, target: str) -> Iterator[tuple[str, Timed, Timed]]:
    """Name, fused program and program one by one of each Compose in a Spec file."""
    for goal in morello.parse(path.read_text(encoding="utf-8"), filename=str(path), target=target).values():
        pair = Timed.of(goal), Timed.of(goal.apply("bufferize to GL"))
        for _ in range(ROUNDS):
            for one in pair:
                one.seconds.append(one.kernel.bench(0.1, 3).median)
        yield (goal.name, *pair)


@click.command(help=(__doc__ or "").split("\n")[0])
@click.option("--only", multiple=True, type=click.Choice(FILES), help="Of these example files only.")
@click.option("--target", default="x86_avx2", show_default=True)
def main(only: tuple[str, ...], target: str) -> None:
    table = Table("Compose", "one program", "one by one", "ratio", "ratio of costs")
    for file in only or FILES:
        for name, fused, apart in compared(EXAMPLES / f"{file}.spec", target):
            times = [f"{one.median * 1e6:,.1f} µs" for one in (fused, apart)]
            table.add_row(name, *times, f"{apart.median / fused.median:.2f}", f"{apart.cost / fused.cost:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
