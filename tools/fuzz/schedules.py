"""Look for schedules that cost less than the proven optimum of their Spec.

    python -m tools.fuzz.schedules [--count 10000] [--seed 0] [--first 0] [--jobs 1] [--draws 250] [--target NAME]

Schedules are drawn from all that the language allows: any sizes of `tile`, `split` and `fit`, layouts, levels, vectors
and orders of steps, whether or not search tries them. Each starts as the optimum's own, has at least one step that
search does not try, and is completed by search. Specs have any operation; search proves them in about a second. Costs
are those of the targets without a profile.

Each schedule that costs less is counted by kind: in what the step that gains differs from those that search tries. The
best of each kind and Spec is printed with that step alone, and repeated as text. The exit code is 1 if one gains more
than 1 % that is not among the exceptions of docs/reliability.md.
"""

from __future__ import annotations

import argparse
import itertools
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

import attrs
from rich.console import Console
from rich.table import Table

from morello.plugins.registry import installed
from morello.search.library import library
from tools.children import forked
from tools.fuzz.outside import Finding, Report, report

#: Targets of Specs, in turn.
TARGETS = ("x86_avx2", "x86_avx512", "x86_avx2", "x86_avx512", "reference_c")
#: Specs of one process.
CHUNK = 10
#: The largest tolerated gain.
TOLERATED = 0.01
#: The starts of kinds that docs/reliability.md lists as outside the space.
EXCEPTIONS = (
    "fit: sizes of Matmul",
    "tile: sizes of Matmul",
    "tile: sizes of Move",
)


@attrs.define(eq=False)
class Campaign:
    """A run: the reports so far, in the order of Specs."""

    options: argparse.Namespace
    console: Console
    reports: list[Report] = attrs.field(factory=list)
    #: Specs whose process died or raised, with the message.
    died: list[str] = attrs.field(factory=list)

    def run(self) -> None:
        """Examine Specs, `jobs` at a time, until there are as many schedules as wanted."""
        for number, found in self._outcomes():
            if isinstance(found, str):
                self.died.append(found)
                self._print(f"Spec {number}: {found}\n  {self._again(number)}")
                continue
            self.reports.append(found)
            for one in found.findings:
                self._print(
                    f"\nSpec {number}: {one.kind}: {one.gain:.2%} cheaper\n{one.file}\n"
                    f"{one.part_gain:.2%} for the step alone:\n{one.part}  {self._again(number)}\n"
                )
            if found.schedules:
                cheaper = sum(one.cheaper for one in self.reports)
                self._print(
                    f"{self.schedules:,} of {self.options.count:,} schedules, {cheaper:,} cheaper; Spec {number}"
                )
            if self.schedules >= self.options.count:
                return

    @property
    def schedules(self) -> int:
        return sum(one.schedules for one in self.reports)

    @property
    def failures(self) -> list[Finding]:
        """Return the findings that are no exceptions."""
        findings = [one for found in self.reports for one in found.findings]
        return [one for one in findings if one.gain > TOLERATED and not one.kind.startswith(EXCEPTIONS)]

    def _outcomes(self) -> Iterator[tuple[int, Report | str]]:
        """Yield the report of each Spec in turn, or what its process said when it died."""
        starts = itertools.count(self.options.first, CHUNK)
        waiting: list[range] = []
        running: dict[Connection, tuple[BaseProcess, range]] = {}
        done: dict[int, Report | str] = {}
        try:
            for turn in itertools.count(self.options.first):
                while turn not in done:
                    while len(running) < self.options.jobs:
                        numbers = waiting.pop() if waiting else range(start := next(starts), start + CHUNK)
                        process, pipe = forked(partial(_examine, self.options, numbers))
                        running[pipe] = process, numbers
                    for pipe in wait([*running]):
                        assert isinstance(pipe, Connection)
                        process, numbers = running.pop(pipe)
                        try:
                            done[numbers[0]] = pipe.recv()
                        except EOFError:
                            process.join()
                            done[numbers[0]] = f"its process died with exit code {process.exitcode}"
                            waiting += [numbers[1:]] if numbers[1:] else []
                            continue
                        if numbers[1:]:
                            running[pipe] = process, numbers[1:]
                        else:
                            pipe.close()
                            process.join()
                yield turn, done.pop(turn)
        finally:
            for process, _ in running.values():
                process.kill()
                process.join()

    def _again(self, number: int) -> str:
        options = self.options
        return (
            f"repeat it with: python -m tools.fuzz.schedules --seed {options.seed} --first {number} --count 1"
            f" --draws {options.draws}" + "".join(f" --target {name}" for name in options.target or ())
        )

    def _print(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def summary(self) -> None:
        """Print the counts, and the findings by kind."""
        proven = sum(one.proven for one in self.reports)
        table = Table("target", "drawn", "proven", "schedules", "undecided", "cheaper", "by over 1 %")
        for name in (*dict.fromkeys(self.options.target or TARGETS), None):
            mine = [one for one in self.reports if name in (None, one.target)]
            over = sum(each.schedules for one in mine for each in one.findings if each.gain > TOLERATED)
            sums = (sum(getattr(one, field) for one in mine) for field in ("schedules", "undecided", "cheaper"))
            counts = (len(mine), sum(one.proven for one in mine), *sums, over)
            table.add_row(name or "all", *(f"{count:,}" for count in counts))
        self.console.print(table)
        kinds = Table("kind", "schedules", "Specs", "share of Specs", "largest gain", "of the step alone")
        findings = sorted((one for found in self.reports for one in found.findings), key=lambda one: one.kind)
        for kind, those in itertools.groupby(findings, key=lambda one: one.kind):
            mine = [*those]
            specs, count = len(mine), sum(one.schedules for one in mine)
            gains = max(one.gain for one in mine), max(one.part_gain for one in mine)
            kinds.add_row(kind, f"{count:,}", str(specs), f"{specs / proven:.1%}", *(f"{one:.2%}" for one in gains))
        self.console.print(kinds)


def _examine(options: argparse.Namespace, numbers: range, to: Connection) -> None:
    """Examine Specs in this process, and send their reports."""
    names = options.target or TARGETS
    for number in numbers:
        try:
            target = installed().target(names[number % len(names)], "base")
            to.send(report(target, options.seed, number, options.draws))
        except Exception as error:
            to.send(f"{type(error).__name__}: {error}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a campaign; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.fuzz.schedules",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--count", type=int, default=10_000, help="schedules (default: 10000)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first Spec (default: 0)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: 1)")
    parser.add_argument(
        "--draws", type=int, default=250, help="schedules drawn for each Spec and those below (default: 250)"
    )
    parser.add_argument("--target", action="append", help="by default all, in turn")
    options = parser.parse_args(arguments)
    library()
    start = time.monotonic()
    campaign = Campaign(options, Console(width=None if sys.stdout.isatty() else 120))
    try:
        campaign.run()
    except KeyboardInterrupt:
        campaign.console.print("interrupted")
    campaign.summary()
    campaign.console.print(f"seed {options.seed}, {time.monotonic() - start:.0f} s", highlight=False)
    return int(bool(campaign.failures or campaign.died))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
