"""Measure the set-up of a search: time and memory of tables and bounds.

    python benchmarks/set_up.py [--only TEXT] [--target NAME]... [--runs 2]

Each is measured in its own process, in seconds of CPU and in peak MiB above the process before; the least of several
runs counts. A Spec with many shapes starts in a smaller space, and its full tables and bounds by class come later.
Bounds by layout come after 16,384 expansions without a proof.
"""

from __future__ import annotations

import multiprocessing
import resource
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress

import click
from rich.console import Console
from rich.table import Table

from harness.specs import SPECS
from morello.search.budget import SearchBudget, resident, setting_up
from morello.search.library import library
from morello.search.progress import Phase, Progress
from morello.search.session import SearchSession
from morello.search.solve.engine import Engine

#: Products of all types, a graph, and convolutions: those of papers/004 that take longest.
NAMES = (
    "100³",
    "2048³",
    "bf16 100³",
    "u8·i8→i32 1024³",
    "LayerNorm 8×768",
    "ResNet18-2 64,64,56,3",
    "Yolo-2 64,32,272,3",
    "ResNet50 2048,512,7,1",
)
TARGETS = ("x86_avx2", "x86_avx512")
#: Seconds of the processor, and bytes.
Taken = tuple[float, int]


def taken(make: Callable[[], object]) -> Taken:
    """Return the seconds and the memory of a call."""
    before, memory = time.process_time(), resident()
    # It stays until the process has been asked for its peak.
    made = make()
    seconds, peak = time.process_time() - before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    del made
    return seconds, max(0, peak - memory)


class _Begun(Exception):
    """Search takes Specs apart."""


def begun(name: str, target: str) -> tuple[Taken]:
    """Return what a search takes until it begins, as commands make it. Meant for a process of its own."""
    spec, made = SPECS[name].for_target(target)
    library()

    def report(progress: Progress) -> None:
        if progress.phase == Phase.SEARCH:
            raise _Begun

    def begin() -> None:
        with suppress(_Begun):
            SearchSession(made, progress=report).search_within(spec, SearchBudget.default())

    return (taken(begin),)


def measured(name: str, target: str) -> tuple[Taken, Taken]:
    """Return what tables and bounds of all take, and what finer bounds take. Meant for a process of its own."""
    spec, made = SPECS[name].for_target(target)
    library()
    with setting_up():
        engines: list[Engine] = []
        whole = taken(lambda: engines.append(Engine([spec.logical], made, ceilings=spec.limits)))
        finer = taken(lambda: engines.append(engines[0].refined() or engines[0]))
    return whole, finer


def least(name: str, target: str, runs: int) -> list[Taken]:
    """Return the least of several runs, one after another."""
    found: list[list[Taken]] = []
    for _ in range(runs):
        own: list[Taken] = []
        for work in (begun, measured):
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                own += pool.submit(work, name, target).result()
        found.append(own)
    return [min(column) for column in zip(*found, strict=True)]


@click.command(help=(__doc__ or "").split("\n")[0])
@click.option("--only", default="", help="Specs whose name contains this.")
@click.option("--target", "targets", multiple=True, default=TARGETS, help="Targets, by default both.")
@click.option("--runs", default=2, show_default=True, help="Runs of each; the least counts.")
def main(only: str, targets: tuple[str, ...], runs: int) -> None:
    table = Table("Spec", "target", "until search begins", "MiB", "tables of all", "MiB", "finer bounds", "MiB")
    for name in NAMES:
        for target in targets if only in name else ():
            columns = [(f"{seconds:.2f} s", str(peak >> 20)) for seconds, peak in least(name, target, runs)]
            table.add_row(name, target, *(cell for column in columns for cell in column))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
