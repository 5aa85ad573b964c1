"""Emit, run and judge random programs: any operation, data types, shape, operand states and schedule.

    python -m tools.fuzz.random_programs [--count 10000] [--seed 0] [--target NAME] [--op NAME] [--sanitize]

Each program is compared with numpy and with reference_c, on all data sets and between
guard zones, and compiled with all warnings; with `--sanitize` it also runs under the address and undefined-behaviour
sanitizers. Draws without a program are redrawn and counted. A failure is printed with the Spec file that reproduces it
(`morello check FILE`). Exit code 1 if anything fails. The tests run the same on fewer programs.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence

import attrs
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from morello.build.toolchain import available_compilers, find_compiler, is_foreign
from morello.kernels.target import Target
from morello.plugins.registry import installed
from morello.run.runner import missing_here
from morello.testing.draws import Drawn, Draws
from morello.testing.trials import FLAGS, Trials
from tools.fuzz.isolated import outcomes

TARGETS = ("x86_avx2", "x86_avx512")
#: Programs that are built together.
BATCH = 100
#: How much batches are optimised, in turn: mostly little, which is fast.
LEVELS = ("-O1", "-O1", "-O1", "-O2", "-O1", "-O1", "-O1", "-O3")


@attrs.define
class Tally:
    """Counts of what has been run, and its failures."""

    draws: list[Draws]
    failures: list[str] = attrs.field(factory=list)
    kernels: Counter[tuple[str, str]] = attrs.field(factory=Counter)
    rewrites: Counter[str] = attrs.field(factory=Counter)

    def add(self, target: Target, drawn: Sequence[Drawn], faults: Sequence[str | None], seed: int) -> None:
        for one, fault in zip(drawn, faults, strict=True):
            self.kernels.update((target.name, name) for name in one.kernels)
            self.rewrites.update(one.rewrites)
            if fault:
                self.failures.append(f"program {one.index} of seed {seed} on {target.name}: {fault}")

    def table(self) -> Table:
        """Return a table of programs and redraws by target, operation and data types."""
        table = Table("target", "operation", "data types", "programs", "redrawn")
        for draws in self.draws:
            for (op, dtypes), count in sorted(draws.found.items(), key=str):
                redrawn = draws.redrawn[op, dtypes]
                table.add_row(draws.target.name, op, " ".join(map(str, dtypes)), str(count), str(redrawn))
        return table

    def remarks(self) -> list[str]:
        """Return a line on each thing that no program was found for, was left out, or never came up."""
        said = [f"rewrites: {', '.join(f'{name} {count}' for name, count in self.rewrites.most_common())}"]
        for draws in self.draws:
            vain = draws.given_up()
            names = Counter(op for op, _ in vain)
            never = [one.name for one in draws.target.kernels if not self.kernels[draws.target.name, one.name]]
            said += [
                f"{draws.target.name}: {sum(draws.redrawn.values())} draws without a program; {len(vain)} "
                f"combinations of operation and data types had none at all"
                + (f" ({', '.join(f'{op}: {count}' for op, count in sorted(names.items()))})" if vain else ""),
                f"{draws.target.name}: {draws.long} draws left out because their C is long",
                f"{draws.target.name}: microkernels that were in no program: {', '.join(never) or 'none'}",
            ]
        return said


def run(options: argparse.Namespace, console: Console) -> Tally:
    """Draw and run programs, the targets in turn."""
    names = options.target or TARGETS
    draws = [Draws(_target(name), options.seed, options.op or ()) for name in names]
    share = -(-options.count // len(draws))
    streams = [(each, each.programs(share)) for each in draws]
    tally, compilers = Tally(draws), available_compilers()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    # Refreshed by hand: programs run in forks of this process, which has no other threads then.
    with Progress(*columns, console=console, auto_refresh=False, disable=not console.is_terminal) as bar:
        task = bar.add_task("programs", total=share * len(draws))
        for turn in range(-(-share // options.batch)):
            for number, (each, stream) in enumerate(streams):
                drawn, info = list(itertools.islice(stream, options.batch)), each.target.info
                compiler = compilers[(turn + number) % len(compilers)]
                trials = Trials(
                    [one.impl for one in drawn],
                    each.target,
                    compiler=find_compiler(info=info) if is_foreign(info) else compiler,
                    flags=(*FLAGS, LEVELS[turn % len(LEVELS)]),
                    sanitize=options.sanitize,
                    seed=options.seed,
                    runner=options.runner,
                )
                before = len(tally.failures)
                tally.add(each.target, drawn, [*outcomes(trials)], options.seed)
                for failure in tally.failures[before:]:
                    bar.console.print(failure, markup=False, highlight=False)
                bar.update(task, advance=len(drawn), description=f"{len(tally.failures)} failures")
                bar.refresh()
                if bar.disable:
                    done = sum(sum(one.found.values()) for one in draws)
                    print(
                        f"{done:,} programs, {len(tally.failures)} failed; last: {len(drawn)} on {each.target.name}",
                        flush=True,
                    )
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=10_000, help="programs, over all targets")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", action="append", help=f"by default {' and '.join(TARGETS)}, in turn")
    parser.add_argument("--op", action="append", help="an operation; by default all")
    parser.add_argument("--sanitize", action="store_true", help="also run all of them under the sanitizers")
    parser.add_argument("--batch", type=int, default=BATCH, help="programs that are built together")
    parser.add_argument("--runner", help="a command that runs the programs, by default the target's, if it has one")
    options = parser.parse_args()
    console, start = Console(), time.monotonic()
    options.target = [name for name in options.target or TARGETS if not _lacking(name, options.runner, console)]
    if not options.target:
        console.print("nothing was executed")
        return 1
    with tempfile.TemporaryDirectory(prefix="morello-programs-") as folder:
        os.environ.setdefault("MORELLO_CACHE_DIR", folder)
        tally = run(options, console)
    console.print(tally.table())
    for remark in tally.remarks():
        console.print(remark, highlight=False)
    count = sum(sum(draws.found.values()) for draws in tally.draws)
    sanitized = ", under the sanitizers too" if options.sanitize else ""
    summary = f"{count:,} programs{sanitized}: {len(tally.failures)} failed, {time.monotonic() - start:.0f} s"
    console.print(summary, highlight=False)
    return 1 if tally.failures else 0


def _target(name: str) -> Target:
    """Return a target with the optional CPU features of this machine, or if it is for another one with all."""
    target = installed().target(name)
    if not is_foreign(target.info):
        return installed().target(name, cpu="native")
    return installed().target(" + ".join((name, *target.optional_features)))


def _lacking(name: str, runner: str | None, console: Console) -> list[str]:
    """Return the CPU features that a target needs and this machine lacks, and print them if there are any."""
    missing = missing_here(installed().target(name).info, (), runner)
    if missing:
        console.print(f"{name} is left out: this CPU lacks {', '.join(missing)}")
    return missing


if __name__ == "__main__":
    sys.exit(main())
