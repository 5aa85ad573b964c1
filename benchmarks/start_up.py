"""Measure what short runs take: the start of Python, `morello compile` fresh and warm, and a second Spec in a process.

    python benchmarks/start_up.py [--target NAME] [--runs 7]

In seconds of CPU, of child processes too; the least of several runs counts. A fresh run has no database, a warm one
takes its program from one. Both have byte code, and the cache of a run before.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

#: Products by name, with their sizes.
PRODUCTS = {"2×8×2": "1×2×8×2", "100³": "1×100×100×100", "128³": "1×128×128×128"}
#: Prints the seconds of a Spec after another one.
SECOND = """
import sys, time, morello
first, second = sys.argv[1:]
morello.synthesize(first, db=False)
start = time.process_time()
morello.synthesize(second, db=False)
print(time.process_time() - start)
"""


def spec(sizes: str, target: str) -> str:
    """Return the text of a Spec file with a product of f32."""
    return f"target {target}\nspec product = Matmul({sizes}, (f32, GL), (f32, GL), (f32, GL), serial)\n"


def run(*arguments: str, database: str = "off") -> tuple[float, str]:
    """Run Python; return the seconds of CPU, and its output."""

    def taken() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before, command = taken(), [sys.executable, *arguments]
    done = subprocess.run(
        command, env={**environment, "MORELLO_DB": database}, stdout=subprocess.PIPE, text=True, check=True
    )
    return taken() - before, done.stdout


def measured(name: str, target: str, runs: int) -> list[float]:
    """Return the least seconds of a product: fresh, warm, and after a Spec of other sizes."""
    with tempfile.TemporaryDirectory() as folder:
        file, database = Path(folder, "product.spec"), str(Path(folder, "specs.db"))
        text = spec(PRODUCTS[name], target)
        file.write_text(text, encoding="utf-8")
        compiled = "-m", "morello", "compile", str(file)
        run(*compiled, database=database)
        fresh = min(run(*compiled)[0] for _ in range(runs))
        warm = min(run(*compiled, database=database)[0] for _ in range(runs))
        second = min(float(run("-c", SECOND, spec("1×64×64×64", target), text)[1]) for _ in range(runs))
    return [fresh, warm, second]


@click.command(help=(__doc__ or "").split("\n")[0])
@click.option("--target", default="x86_avx2", show_default=True, help="The target of the products.")
@click.option("--runs", default=7, show_default=True, help="Runs of each; the least counts.")
def main(target: str, runs: int) -> None:
    table = Table("", "fresh", "warm", "second Spec", box=None, pad_edge=False)
    for name, code in (("Python", "pass"), ("and numpy", "import numpy")):
        table.add_row(name, f"{min(run('-c', code)[0] for _ in range(runs)):.2f} s")
    for name in PRODUCTS:
        table.add_row(name, *(f"{seconds:.2f} s" for seconds in measured(name, target, runs)))
    Console(width=80).print(table)


if __name__ == "__main__":
    main()
