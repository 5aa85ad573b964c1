"""Measure the lower bound at the start of a search, compared with that of a certificate.

    python benchmarks/starting_bounds.py [--only TEXT] [--effort 1000000]

Search starts from bounds by classes of operands, and by layouts if needed; the certificate is that of `morello bound`.
Both are in percent of the cheapest program found, which is proven optimal unless marked with `≤`. Times are
seconds of CPU.
"""

from __future__ import annotations

import time

import click
from morello_bounds.certificate import certificate
from rich.console import Console
from rich.table import Table

from morello.frontend.parser import parse_spec
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.plugins.registry import installed
from morello.search.budget import SearchBudget
from morello.search.progress import Phase, Progress
from morello.search.session import SearchSession

_BYTES = "(u8, GL), (i8, GL), (i32, GL), serial)"
_FLOATS = "(f32, GL), (f32, GL), (f32, GL), serial)"
_HALVES = "(bf16, GL), (bf16, GL), (f32, GL), serial)"
SPECS = (
    ("x86_avx512", f"Matmul(1×64×64×64, {_BYTES}"),
    ("x86_avx512", f"Matmul(1×256×256×256, {_BYTES}"),
    ("x86_avx512", f"Matmul(1×100×100×100, {_BYTES}"),
    ("x86_avx512", f"Matmul(1×512×512×512, {_BYTES}"),
    ("x86_avx512", f"Matmul(1×1×1024×1024, {_BYTES}"),
    ("x86_avx512", f"Matmul(1×100×100×100, {_FLOATS}"),
    ("x86_avx512", f"Matmul(1×128×128×128, {_HALVES}"),
    ("x86_avx512", f"Conv(1×16×16×14×14×3×3, {_FLOATS}"),
    ("x86_avx512", f"Conv[stride=2](1×16×16×7×7×3×3, {_FLOATS}"),
    ("x86_avx2", f"Matmul(1×64×64×64, {_BYTES}"),
    ("x86_avx2", f"Matmul(1×100×100×100, {_FLOATS}"),
    ("x86_avx2", f"Matmul(1×37×53×29, {_FLOATS}"),
    ("x86_avx2", f"Matmul(1×256×256×256, {_FLOATS}"),
    ("x86_avx2", f"Conv(1×16×16×14×14×3×3, {_FLOATS}"),
)


class Begun(Exception):
    """Ends a search when it begins; holds the lower bound of its goal."""


def start(spec: Spec, target: Target) -> tuple[int, float]:
    """Return the bound that a search starts from, and the seconds until then."""

    def stop(progress: Progress) -> None:
        if progress.phase is Phase.SEARCH:
            raise Begun(progress.low)

    before = time.process_time()
    try:
        # Bounds by layout are part of it where a proof takes long.
        found = SearchSession(target, progress=stop, refine_after=0).search_within(spec, SearchBudget())
    except Begun as begun:
        return int(begun.args[0]), time.process_time() - before
    return found.low, time.process_time() - before


@click.command(help=(__doc__ or "").split("\n")[0])
@click.option("--only", default="", help="Specs whose text contains this.")
@click.option("--effort", default=1_000_000, show_default=True, help="Specs that a search takes apart at most.")
def main(only: str, effort: int) -> None:
    table = Table("target", "Spec", "search starts at", "after", "certificate", "takes", "search takes")
    for name, text in SPECS:
        if only not in text:
            continue
        target = installed().target(name, "base")
        spec = parse_spec(text, target)
        low, begun_after = start(spec, target)
        before = time.process_time()
        found = SearchSession(target).search_within(spec, SearchBudget(expansions=effort))
        searched, begun = time.process_time() - before, time.process_time()
        certified = certificate(spec, target).cost
        taken = time.process_time() - begun
        mark = "" if found.low >= found.cost else "≤ "
        shares = [f"{mark}{100 * one / found.cost:.1f} %" for one in (low, certified)]
        times = [f"{one:.1f}" for one in (begun_after, taken, searched)]
        shape = text.split(", (")[0] + f", {spec.logical.states[0].dtype})"
        table.add_row(name, shape, shares[0], times[0], shares[1], times[1], times[2])
    Console(width=130).print(table)


if __name__ == "__main__":
    main()
