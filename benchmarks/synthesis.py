"""Measure search: a table of goals with Specs solved, seconds, memory and disk, cold and warm.

    python benchmarks/synthesis.py [--only NAME]... [--target NAME] [--json]

Cold is a new process with an empty database, from its start until the C is written. Warm is `morello compile` in a new
process with the database of the cold run: the slowest of three.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from morello import api
from morello.db.database_cache import DatabaseCache
from morello.db.store import SpecStore
from morello.search.solve.engine import Engine
from morello.search.solve.solver import Solver

PACKED = "layout[0, 1, 2, 1p8]"
GOALS = {
    "matmul 64": "Matmul(1×64×64×64, GL, GL, GL, serial)",
    "matmul 256": "Matmul(1×256×256×256, GL, GL, GL, serial)",
    "matmul 512": "Matmul(1×512×512×512, GL, GL, GL, serial)",
    "matmul 1024": "Matmul(1×1024×1024×1024, GL, GL, GL, serial)",
    "matmul 2048": "Matmul(1×2048×2048×2048, GL, GL, GL, serial)",
    "matmul 1×2048×16384": "Matmul(1×1×2048×16384, GL, GL, GL, serial)",
    "matmul 197×768×768": "Matmul(1×197×768×768, GL, GL, GL, serial)",
    "transpose 2048": "Move(2048×2048, GL, (GL, col_major), serial)",
    "pack 2048 1p8": f"Move(1×2048×2048, GL, (GL, {PACKED}), serial)",
    "pack 2048 2p8": "Move(1×2048×2048, GL, (GL, layout[0, 2, 1, 2p8]), serial)",
}
WARM_RUNS = 3


class _Watcher(DatabaseCache):
    """Remembers the engine that it was handed last."""

    engine: Engine

    def save(self, engine: Engine, solver: Solver, *, final: bool) -> None:
        self.engine = engine
        super().save(engine, solver, final=final)


def cold(file: str, database: str, out: str) -> dict[str, Any]:
    """Solve the Spec in `file` and write its C: what search says of it. Meant for a process of its own."""
    (goal,) = api.parse(Path(file).read_text(encoding="utf-8"), cpu="native").values()
    store = SpecStore(database)
    search = goal.searches.of(store)
    watcher = search.cache = _Watcher(store)
    kernel = api.compile(goal, db=store)
    Path(out).write_text(kernel.source, encoding="utf-8")
    counters = watcher.engine.core.progress
    counts = {"solved": search.solved, "met": counters.nodes - 1, "tables": counters.tables}
    return {**counts, "cost": kernel.cost}


def timed(*arguments: str) -> tuple[str, float, int]:
    """Run Python: its output, seconds from its start to its end, and its peak memory in bytes."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as out:
        start = time.perf_counter()
        process = subprocess.Popen([sys.executable, *arguments], stdout=out)
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except KeyboardInterrupt:
            process.kill()
            raise
        seconds = time.perf_counter() - start
        if os.waitstatus_to_exitcode(status):
            raise click.ClickException(f"failed: {' '.join(arguments)}")
        out.seek(0)
        return out.read(), seconds, usage.ru_maxrss * 1024


def measure(name: str, target: str) -> dict[str, Any]:
    """All figures of one goal."""
    with tempfile.TemporaryDirectory() as folder:
        file, database, out = (str(Path(folder) / one) for one in ("goal.spec", "specs.db", "out.c"))
        Path(file).write_text(f"target {target}\nspec goal = {GOALS[name]}\n", encoding="utf-8")
        output, seconds, memory = timed(__file__, "--cold", file, database, out)
        first = Path(out).read_bytes()
        warm = []
        for _ in range(WARM_RUNS):
            warm.append(timed("-m", "morello", "compile", file, "--cpu", "native", "--db", database, "-o", out)[1])
            if Path(out).read_bytes() != first:
                raise click.ClickException(f"{name}: the C from the database differs")
        stored = json.loads(timed("-m", "morello", "db", "stats", database, "--json")[0])
    found = json.loads(output)
    return {
        "goal": name,
        "spec": GOALS[name],
        **found,
        "solved_per_second": found["solved"] / seconds,
        "cold_seconds": seconds,
        "warm_seconds": max(warm),
        "peak_bytes": memory,
        "rectangles": sum(one["rectangles"] for one in stored["fingerprints"]),
        "covered": sum(one["specs"] for one in stored["fingerprints"]),
        "disk_bytes": stored["bytes"],
    }


def table(rows: list[dict[str, Any]]) -> Table:
    shown = Table("goal", box=None, pad_edge=False, header_style="bold")
    for heading in (
        "Specs solved",
        "met",
        "tables",
        "Specs/s",
        "cold",
        "warm",
        "peak RSS",
        "rectangles",
        "disk",
        "cost",
    ):
        shown.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        shown.add_row(
            row["goal"],
            *(f"{row[key]:,}" for key in ("solved", "met", "tables")),
            f"{row['solved_per_second']:,.0f}",
            f"{row['cold_seconds']:.1f} s",
            f"{row['warm_seconds']:.2f} s",
            f"{row['peak_bytes'] / 2**20:,.0f} MiB",
            f"{row['rectangles']:,}",
            f"{row['disk_bytes'] / 2**20:,.1f} MiB",
            f"{row['cost']:,}",
        )
    return shown


@click.command()
@click.option(
    "--only", metavar="NAME", multiple=True, type=click.Choice(list(GOALS)), help="Only this goal; repeatable."
)
@click.option("--target", metavar="NAME", default="x86_avx2", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--cold", "cold_files", nargs=3, hidden=True)
def main(only: tuple[str, ...], target: str, as_json: bool, cold_files: tuple[str, str, str] | None) -> None:
    """Measure search on Specs of different sizes, each in a fresh process."""
    if cold_files:
        print(json.dumps(cold(*cold_files)))
        return
    rows = []
    for name in only or GOALS:
        click.echo(f"measuring {name}", err=True)
        rows.append(measure(name, target))
    if as_json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
    else:
        Console(width=200).print(table(rows))


if __name__ == "__main__":
    main()
