"""Measures fusion: how long a Compose runs as one program, and how long its operations take one after the other.

    python benchmarks/fusion.py [--only NAME]... [--target NAME]

Both sides are the best programs that search finds. One by one, operations hand their results on in memory, in row
major. Times are medians, of programs that are timed in turn.
"""

from __future__ import annotations

import statistics
from pathlib import Path

import attrs
import click
from rich.console import Console
from rich.table import Table

import morello
from morello.ir.spec import LogicalSpec
from morello.plugins.registry import installed
from morello.plugins.target import Target
from morello.runtime import Kernel
from morello.search.blocks import BlockSearch
from morello.testing.graphs import one_by_one

EXAMPLES = Path(__file__).parent.parent / "examples"
FILES = ("chain", "fused", "mlp", "attention")
ROUNDS = 5


@attrs.frozen
class Fused:
    """A Compose as one program, and as one per operation."""

    name: str
    whole: Kernel
    apart: list[Kernel]

    def seconds(self) -> tuple[float, float]:
        """A call of the one program, and of all the others."""
        whole, apart = [], []
        for _ in range(ROUNDS):
            whole.append(self.whole.bench(0.1, 3).median)
            apart.append(sum(one.bench(0.1, 3).median for one in self.apart))
        return statistics.median(whole), statistics.median(apart)


def kernel(target: Target, logical: LogicalSpec, name: str) -> Kernel:
    """The best program for a Spec, built and verified."""
    impl = BlockSearch(target).synthesize(target.spec(logical))
    made = Kernel(impl, target, target.emitter.emit(impl, target, name))
    made.check()
    return made


def fused(path: Path, name: str) -> list[Fused]:
    """The Composes of a Spec file, and what they consist of."""
    target = installed().target(name)
    found = []
    for goal in morello.parse(path.read_text(encoding="utf-8"), filename=str(path), target=name).values():
        parts = enumerate(one_by_one(goal.spec.logical, target))
        apart = [kernel(target, part, f"{goal.name}_{number}") for number, part in parts]
        found.append(Fused(goal.name, kernel(target, goal.spec.logical, goal.name), apart))
    return found


@click.command(help=(__doc__ or "").split("\n")[0])
@click.option("--only", multiple=True, type=click.Choice(FILES), help="Of these example files only.")
@click.option("--target", default="x86_avx2", show_default=True)
def main(only: tuple[str, ...], target: str) -> None:
    table = Table("Compose", "operations", "one program", "one by one", "ratio")
    for file in only or FILES:
        for one in fused(EXAMPLES / f"{file}.spec", target):
            whole, apart = one.seconds()
            table.add_row(
                one.name, str(len(one.apart)), f"{whole * 1e6:.1f} µs", f"{apart * 1e6:.1f} µs", f"{apart / whole:.2f}"
            )
    Console().print(table)


if __name__ == "__main__":
    main()
