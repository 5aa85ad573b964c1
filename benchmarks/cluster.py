"""The effort of precomputing many products, measured on samples.

    python benchmarks/cluster.py [--samples 8] [--target x86_avx2] [--workers 1000]

The products are those of f32 up to 256×256×256 with sizes that are multiples of 8, or odd and below 64. The first table
has CPU seconds a Spec for groups that share tables, the second an estimate for all products: lines of n are drawn from
four strata by the product of m and k, each solved as a task of `morello precompute` with a database of its own.
With --workers, times drawn from these samples are replayed: each task sleeps on Dask's own scheduler with simulated
workers, threads in its process. Times are scaled so that a replay takes about a minute, which adds to the overhead.
"""

from __future__ import annotations

import logging
import math
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import click
from distributed import Client, LocalCluster

from morello import api
from morello.api.precomputing import Counts, solve_group
from morello.db.fingerprint import fingerprint_parts

SPEC = "Matmul(1×1×1×1, (f32, GL), (f32, GL), (f32, GL), serial)"
SIZES = api.parse_sizes("8-256/8,1-63/2")
STRATA = 4
#: Processes of Dask that are simulated: each has as many threads as are needed for all workers.
HOSTS = 10

Shape = tuple[int, ...]


def line(m: int, k: int) -> list[Shape]:
    """Return the shapes of all products of m×k with k×n."""
    return [(1, m, k, n) for n in SIZES]


def solved(family: api.Family, groups: Sequence[Sequence[Shape]]) -> Counts:
    """Solve groups one after another, with a database of their own; return the counts of all."""
    with tempfile.TemporaryDirectory() as folder:
        db, sources = str(Path(folder, "solved.db")), fingerprint_parts(family.target)
        return sum((solve_group(family, group, db, None, sources) for group in groups), Counts())


def ways(sizes: Sequence[int], chance: random.Random) -> dict[str, list[list[Shape]]]:
    """Return groups of products with one m, by the sizes that they share."""
    m, start = chance.choice(sizes), chance.randrange(len(sizes) - 8)
    block = [line(m, k) for k in sizes[start : start + 8]]
    every = [shape for one in block for shape in one]
    return {
        "one": [[shape] for shape in chance.sample(every, 16)],
        "8 neighbours in n": [chance.choice(block)[start : start + 8] for start in chance.sample(range(0, 64, 8), 4)],
        "7 in n, each dividing the next": [
            [(1, m, one[0][2], n) for n in (1, 8, 16, 32, 64, 128, 256)] for one in chance.sample(block, 4)
        ],
        "64: all of n": block[::2],
        "512: all of n, 8 neighbours in k": [every],
    }


def estimate(seconds: Sequence[Sequence[float]], lines: int) -> tuple[float, float]:
    """Return the total of lines in strata of equal size, from samples of each, and its standard error."""
    each = lines / len(seconds)
    total = sum(each * statistics.mean(one) for one in seconds)
    variance = sum(each**2 * statistics.variance(one) / len(one) for one in seconds)
    return total, math.sqrt(variance)


def replay(tasks: Sequence[float], workers: int, most: float = 60.0) -> float:
    """Return the makespan of tasks, in seconds each, on simulated workers. The replay takes about `most` seconds."""
    scale, hosts = min(1.0, most * workers / sum(tasks)), min(workers, HOSTS)
    options = {"processes": False, "dashboard_address": ":0", "memory_limit": None, "silence_logs": logging.CRITICAL}
    with (
        LocalCluster(n_workers=hosts, threads_per_worker=workers // hosts, **options) as cluster,
        Client(cluster) as client,
    ):
        began = time.perf_counter()
        client.gather(client.map(time.sleep, [scale * one for one in tasks], pure=False))
        return (time.perf_counter() - began) / scale


@click.command()
@click.option("--samples", default=8, show_default=True, help="Lines for each of the four strata.")
@click.option("--target", default="x86_avx2", show_default=True)
@click.option("--workers", multiple=True, type=int, help="Simulate this number of workers.")
def main(samples: int, target: str, workers: Sequence[int]) -> None:
    """Measure the savings of groups, and estimate the effort for all products."""
    chance = random.Random(43)
    (family,) = api.parse_families(SPEC, target).values()
    click.echo("Specs solved together               CPU seconds a Spec")
    for name, groups in ways(SIZES, chance).items():
        done = solved(family, groups)
        click.echo(f"{name:<36}{done.seconds / done.done:.3f}")
    pairs = sorted(((m, k) for m in SIZES for k in SIZES), key=lambda pair: pair[0] * pair[1])
    size = len(pairs) // STRATA
    seconds = [
        [solved(family, [line(*pair)]).seconds for pair in chance.sample(pairs[start : start + size], samples)]
        for start in range(0, len(pairs), size)
    ]
    for number, one in enumerate(seconds, 1):
        click.echo(f"stratum {number}: {statistics.mean(one):.2f} s a line, from {min(one):.2f} to {max(one):.2f}")
    total, error = estimate(seconds, len(pairs))
    specs = len(pairs) * len(SIZES)
    click.echo(f"{specs:,} products: {total / 3600:.1f} ± {error / 3600:.1f} core hours (standard error)")
    tasks = sorted((chance.choice(one) for one in seconds for _ in range(size)), reverse=True)
    for count in workers:
        took = replay(tasks, count)
        click.echo(f"{count:,} simulated workers: {took:.0f} s, efficiency {sum(tasks) / count / took:.2f}")


if __name__ == "__main__":
    main()
