"""Measure random matrices: the cost of a number, and fused products compared with generating first.

    python benchmarks/random_products.py [--only NAME]... [--target NAME]... [--seconds 60]

A number is timed by calls of its kernel on rows of several lengths, in tenths of a cycle. Products are timed as search
makes them, with all numbers stored first, and alone with a stored matrix. All are compared with numpy and timed in
turn.
"""

from __future__ import annotations

import attrs
import click
import numpy as np
from rich.console import Console
from rich.table import Table

import morello
from morello.api.goals import Goal
from morello.api.kernel import Kernel
from morello.build.toolchain import find_compiler
from morello.calibration.meter import Timer, UnitMeter
from morello.ir.impl import cost_and_peak
from morello.ir.ops.rand_matmul import random_values
from morello.kernels.target import Target
from morello.plugins.registry import installed
from morello.search.budget import SearchBudget

TARGETS = ("x86_avx2", "x86_avx512")
#: Rows, inner size and columns.
PRODUCTS = {
    "square": (256, 256, 256),
    "wide": (256, 2048, 256),
    "sketch": (64, 16384, 64),
    "thin": (1024, 4096, 8),
    "large": (1024, 32768, 8),
    "vector": (2048, 4096, 1),
}
#: Kernels by the shape that they are timed on.
KERNELS = {"1×1×{}": "VectorRandom", "1×{}×1": "VectorRandomColumn"}
LENGTHS = (256, 512, 768, 1024)
ROUNDS, LEAST_SECONDS = 9, 0.05


def number_costs(target: Target, shape: str, kernel_name: str) -> tuple[float, float, int]:
    """Return the tenths of a cycle of a vector of numbers and of a call, and the values of a vector."""
    clock = installed().contributions(target.name).clock
    assert clock is not None
    found: list[float] = []
    for length in LENGTHS:
        text = f"Random({shape.format(length)}, (u32, L1), (u32, L1), (f32, L1), serial)"
        kernel = morello.compile(morello.goal(text, target=target.name).select(kernel_name), db=False)
        call = f"{kernel.program.name}(memory, (const uint32_t *)memory + 2048, (float *)memory + 4096);"
        source = f"{kernel.source}\nstatic void morello_row(void *memory) {{\n    {call}\n}}"
        timer = Timer(find_compiler(), [*kernel.program.flags, "-O3"], 1 << 16, quick=False, deadline=float("inf"))
        found += UnitMeter(timer, clock).units(source, ["morello_row"])
    values = max(vector for level in target.levels for vector in level.vectors) // 4
    slope, start = np.polyfit([length / values for length in LENGTHS], found, 1)
    return float(slope), float(start), values


@attrs.frozen
class Timed:
    """A program and the seconds of its calls."""

    kernel: Kernel
    cost: int
    seconds: list[float] = attrs.field(factory=list)

    @classmethod
    def of(cls, goal: Goal, seconds: float) -> Timed:
        done = goal.synthesize(db=False, budget=SearchBudget(seconds=seconds))
        return cls(morello.compile(done, db=False), cost_and_peak(done.impl).cost)

    def check(self, m: int, k: int, n: int) -> None:
        """Compare a call with numpy: nothing is off by more than rounding. Raises SystemExit if it is."""
        rows, columns = np.arange(m, dtype=np.uint32), np.arange(k, dtype=np.uint32)
        lhs = random_values(0, rows[:, None], columns)
        rhs = np.random.default_rng(0).uniform(-1, 1, (1, k, n)).astype(np.float32)
        out = np.zeros((1, m, n), np.float32)
        given = [rows.reshape(1, m, 1), columns.reshape(1, 1, k)]
        counters = len(self.kernel.impl.spec.logical.states) == 4
        self.kernel(*(given if counters else [lhs.astype(np.float32)[None]]), rhs, out)
        bound = 2 * k * 2.0**-24 * (np.abs(lhs) @ np.abs(rhs[0]))
        if not (np.abs(out[0] - lhs @ rhs[0].astype(np.float64)) <= bound).all():
            raise SystemExit(f"{self.kernel.impl.spec} gives wrong results")

    def time(self) -> None:
        self.seconds.append(self.kernel.bench(LEAST_SECONDS, 3).median)

    @property
    def words(self) -> str:
        return f"{min(self.seconds) * 1e6:,.0f} µs"


def programs(m: int, k: int, n: int, target: str, seconds: float) -> list[Timed]:
    """Return what search makes, what first stores all numbers in memory, and the product of a matrix that is there."""
    random = f"RandMatmul(1×{m}×{k}×{n}, (u32, GL), (u32, GL), (f32, GL), (f32, GL), serial)"
    goals = [
        morello.goal(random, target=target),
        morello.goal(random, target=target).apply("materialize to GL"),
        morello.goal(f"Matmul(1×{m}×{k}×{n}, (f32, GL), (f32, GL), (f32, GL), serial)", target=target),
    ]
    made = [Timed.of(goal, seconds) for goal in goals]
    for one in made:
        one.check(m, k, n)
    for _ in range(ROUNDS):
        for one in made:
            one.time()
    return made


@click.command(help=(__doc__ or "").split("\n")[0])
@click.option("--only", multiple=True, type=click.Choice([*PRODUCTS]), help="These products only.")
@click.option("--target", "targets", multiple=True, type=click.Choice(TARGETS), default=TARGETS)
@click.option("--seconds", default=60.0, show_default=True, help="Of each search.")
@click.option("--numbers", is_flag=True, help="Only the costs of numbers.")
def main(only: tuple[str, ...], targets: tuple[str, ...], seconds: float, numbers: bool) -> None:
    console = Console(width=140)
    for name in targets:
        for shape, kernel in KERNELS.items():
            vector, call, values = number_costs(installed().target(name), shape, kernel)
            console.print(
                f"{name} {kernel}: {vector:.1f} tenths of a cycle for {values} numbers, {call:.0f} for a call"
            )
    if numbers:
        return
    table = Table("product", "target", "search", "stored first", "product alone", "ratio", "ratio of costs")
    for product in only or PRODUCTS:
        m, k, n = PRODUCTS[product]
        for name in targets:
            found, stored, alone = programs(m, k, n, name, seconds)
            ratio, costs = min(stored.seconds) / min(found.seconds), stored.cost / found.cost
            times = [one.words for one in (found, stored, alone)]
            table.add_row(f"{m}×{k}×{n}", name, *times, f"{ratio:.2f}", f"{costs:.2f}")
    console.print(table)


if __name__ == "__main__":
    main()
