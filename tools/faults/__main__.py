"""Breaks databases and build caches in every way a machine can, and checks that nothing wrong comes of it.

Kills writers and changes bytes by random draws, fills disks; with --calls or --power, does those instead, on 64-bit
Linux with glibc; with --postgres, kills a PostgreSQL server and its clients. POSIX only: writers are forked, and killed
with SIGKILL.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from morello.db.file import APPLICATION
from morello.db.store import SpecStore
from morello.errors import MorelloError
from tools.faults import calls, disks, flips, kills, power, servers, shim
from tools.faults.pieces import Broken, make
from tools.faults.works import WORKS
from tools.postgres import Server, server


def print_outcomes(name: str, outcomes: Counter[str], started: float) -> None:
    """Print the outcomes of one kind of fault."""
    counts = ", ".join(f"{what} {count:,}" for what, count in sorted(outcomes.items()))
    print(f"{name:<12} {counts}  ({time.monotonic() - started:.0f} s)", flush=True)


def sampled(folder: Path, options: argparse.Namespace) -> None:
    """Inject the random faults: kills, and changed bytes."""
    luck = random.Random(options.seed)
    started = time.monotonic()
    print_outcomes("kill -9", kills.kill(folder / "killed.db", options.kills, luck), started)
    make(folder / "whole.db", 4)
    changes = ((flips.flip, options.flips), (flips.tear, options.flips // 4), (flips.truncate, options.flips // 4))
    for change, times in changes:
        started = time.monotonic()
        print_outcomes(change.__name__, flips.damage(folder / "whole.db", 4, times, luck, change), started)


def conditions(folder: Path) -> None:
    """Inject the other faults: many writers, full disks, read-only files, files of a newer version."""
    for processes in (2, 4):
        started = time.monotonic()
        print_outcomes(f"{processes} writers", kills.together(folder / f"{processes}.db", processes, 40), started)
    (folder / "disk").mkdir()
    (folder / "fixed").mkdir()
    print(f"file limit   {disks.file_limit(folder / 'limited.db')}")
    print(f"full disk    {disks.full_disk(folder / 'disk') or 'not tried: no disk may be mounted here'}")
    print(f"read-only    {disks.read_only(folder / 'fixed', 3)}")
    make(folder / "other.db", 1)
    flips.mark(folder / "other.db", APPLICATION, 99)
    try:
        SpecStore(folder / "other.db")
    except MorelloError as error:
        print(f"newer file   {error}")
    else:
        raise Broken("a file of a newer version was opened")


def postgres(folder: Path, options: argparse.Namespace) -> None:
    """Kill a server of its own, and processes that write to it."""
    luck = random.Random(options.seed)
    works: dict[str, Callable[[Server, Path], Counter[str]]] = {
        "kill server": lambda one, at: servers.kill_server(one, at, options.commits, 20, luck),
        "kill clients": lambda one, at: servers.kill_writers(one, at, options.kills, luck),
        "16 writers": lambda one, at: servers.together(one, at, 16, 20),
    }
    with server() as whole:
        for number, (name, work) in enumerate(works.items()):
            started, one = time.monotonic(), whole.create_database()
            servers.make_schema(one, folder / str(number))
            print_outcomes(name, work(one, folder / str(number)), started)


def _calls(loaded: shim.Shim, every: int) -> bool:
    files = [shim.Fault.EIO, shim.Fault.ENOSPC, shim.Fault.SHORT]
    well = calls.main(loaded, [*WORKS], files)
    return calls.main(loaded, [*WORKS], [shim.Fault.ENOMEM], every) and well


def main(arguments: Sequence[str]) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tools.faults", description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--flips", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--calls", action="store_true", help="fail every call on a file, and every allocation")
    parser.add_argument("--every", type=int, default=1, metavar="K", help="fail only every Kth allocation")
    parser.add_argument("--postgres", action="store_true", help="kill a PostgreSQL server and its clients")
    parser.add_argument("--commits", type=int, default=1000, help="acknowledged writes while the server is killed")
    parser.add_argument("--power", action="store_true", help="lose power at every moment")
    options = parser.parse_args(arguments)
    if options.postgres:
        with disks.public_folder() as folder:
            postgres(folder, options)
        return
    if not options.calls and not options.power:
        with disks.public_folder() as folder:
            sampled(folder, options)
            conditions(folder)
        return
    loaded = shim.load()
    well = not options.power or power.main(loaded, [*WORKS])
    well = (not options.calls or _calls(loaded, options.every)) and well
    sys.exit(0 if well else 1)


if __name__ == "__main__":
    main(sys.argv[1:])
