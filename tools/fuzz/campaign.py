"""Fuzz search with random small Specs: each must get a verified, optimal program, or be infeasible.

    python -m tools.fuzz.campaign [--specs 1000] [--seconds 1] [--seed 0] [--first 0] [--jobs 1] [--target NAME]
        [--op NAME]

Specs have any operation or Compose, data types, layouts, levels, vectors and limits, parallel or serial, on the
installed targets in turn. Search takes up to `--seconds` of CPU for each. The program is emitted, compiled with all
warnings, run between guard zones, and compared with numpy and with reference_c. Brute force that ends within
`--patience` seconds of CPU must return the same program, or none. Anything else is a failure, printed with the Spec and
the command that repeats it. The exit code is 1 after a failure.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import os
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

import attrs
from rich.console import Console
from rich.table import Table

from morello.plugins.registry import installed
from morello.run.runner import is_native
from tools.children import forked
from tools.fuzz.examine import (
    EQUAL,
    FAILED,
    NO_PROGRAM,
    NOT_RUN,
    OUT_OF_TIME,
    TOO_LONG,
    VERIFIED,
    Examiner,
    Outcome,
)

#: Specs of one process; their programs are built together.
CHUNK = 60
#: Seconds without output after which a process counts as hanging.
_SILENCE = 600.0
INTERRUPTED = 130


@attrs.frozen
class Chunk:
    """Specs of one target, by number."""

    target: str
    numbers: tuple[int, ...]


@attrs.define(eq=False)
class Worker:
    """A process that examines a chunk, its outcomes so far, and the number of its current Spec."""

    chunk: Chunk
    process: BaseProcess
    pipe: Connection
    #: The file of its tracebacks after a crash or a long pause.
    trace: Path
    outcomes: list[Outcome] = attrs.field(factory=list)
    at: int | None = None
    last_message: float = attrs.field(factory=time.monotonic)

    @property
    def done(self) -> bool:
        return len(self.outcomes) == len(self.chunk.numbers)

    def end(self) -> None:
        """End the process and all that it started."""
        assert self.process.pid
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.join()
        self.pipe.close()


@attrs.define(eq=False)
class Campaign:
    """A run over some Specs: the waiting chunks and the outcomes so far."""

    options: argparse.Namespace
    console: Console
    folder: str
    waiting: list[Chunk]
    outcomes: list[Outcome] = attrs.field(factory=list)
    workers: list[Worker] = attrs.field(factory=list)

    def run(self) -> None:
        """Examine everything, `jobs` chunks at a time. A process that dies is a failure of its current Spec."""
        try:
            while self.waiting or self.workers:
                while self.waiting and len(self.workers) < self.options.jobs:
                    self.workers.append(self._started(self.waiting.pop(0)))
                wait([worker.pipe for worker in self.workers], timeout=1.0)
                for worker in [*self.workers]:
                    self._listen(worker)
        finally:
            for worker in self.workers:
                self.outcomes += worker.outcomes
                worker.end()

    def _started(self, chunk: Chunk) -> Worker:
        handle, trace = tempfile.mkstemp(prefix="trace-", dir=self.folder)
        os.close(handle)
        process, mine = forked(partial(_examine, chunk, self.options, trace))
        return Worker(chunk, process, mine, Path(trace))

    def _listen(self, worker: Worker) -> None:
        """Receive the messages of a worker."""
        try:
            while worker.pipe.poll():
                message = worker.pipe.recv()
                worker.last_message = time.monotonic()
                if isinstance(message, Outcome):
                    worker.outcomes.append(message)
                else:
                    worker.at = message
            if time.monotonic() - worker.last_message > _SILENCE:
                self._lost(worker, "worker hangs")
        except EOFError:
            worker.process.join()
            if worker.done:
                self._finish(worker, worker.outcomes)
            else:
                self._lost(worker, f"worker dies: {_ending(worker.process.exitcode)}")

    def _lost(self, worker: Worker, kind: str) -> None:
        """Record the Spec that ended a worker as a failure, and queue the others of its chunk again."""
        numbers, target, lost = worker.chunk.numbers, worker.chunk.target, worker.at
        if lost is None and len(numbers) > 1:
            self.waiting += [Chunk(target, (number,)) for number in numbers]
            self._finish(worker, [])
            return
        rest = tuple(number for number in numbers if number != lost)
        if rest and lost is not None:
            self.waiting.append(Chunk(target, rest))
        story = f"{kind}\n{worker.trace.read_text(errors='replace')}"
        self._finish(worker, [Outcome(min(numbers) if lost is None else lost, target, FAILED, None, kind, story)])

    def _finish(self, worker: Worker, outcomes: Sequence[Outcome]) -> None:
        self.workers.remove(worker)
        worker.end()
        self.outcomes += outcomes
        for one in outcomes:
            if one.end == FAILED:
                self._print(f"\nSpec {one.number} on {one.target}: {one.kind}\n{one.story}\n  {self._again(one)}\n")
        failed = sum(one.end == FAILED for one in self.outcomes)
        self._print(f"{len(self.outcomes):,} of {self.options.specs:,} Specs examined, {failed} failed")

    def _again(self, outcome: Outcome) -> str:
        """Return the command that repeats one Spec."""
        options = self.options
        return (
            f"repeat it with: python -m tools.fuzz.campaign --seed {options.seed} --first {outcome.number}"
            f" --specs 1 --target {outcome.target} --seconds {options.seconds:g} --patience {options.patience:g}"
            + (f" --op {options.op}" if options.op else "")
        )

    def _print(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def summary(self) -> None:
        """Print the counts, by target, and failures by kind."""
        titles = ("verified", "no program", "not run", "out of time", "failed", "brute force: equal", "took too long")
        table = Table("target", "Specs", *titles)
        ends: dict[str, Counter[str | None]] = defaultdict(Counter)
        for outcome in self.outcomes:
            for row in (outcome.target, "all"):
                ends[row].update([outcome.end, outcome.brute, ""])
        for row, count in sorted(ends.items(), key=lambda pair: (pair[0] == "all", pair[0])):
            columns = ("", VERIFIED, NO_PROGRAM, NOT_RUN, OUT_OF_TIME, FAILED, EQUAL, TOO_LONG)
            table.add_row(row, *(f"{count[column]:,}" for column in columns))
        self.console.print(table)
        kinds: dict[str, list[Outcome]] = defaultdict(list)
        for outcome in self.outcomes:
            if outcome.end == FAILED:
                kinds[outcome.kind].append(outcome)
        for kind, those in sorted(kinds.items(), key=lambda pair: -len(pair[1])):
            self._print(f"{len(those)} × {kind}; first: Spec {those[0].number} on {those[0].target}")


def _examine(chunk: Chunk, options: argparse.Namespace, trace: str, to: Connection) -> None:
    """Examine a chunk in this process, and send its outcomes."""
    os.setpgrp()
    examiner = Examiner(
        installed(),
        installed().target(chunk.target, cpu="native"),
        options.seed,
        options.seconds,
        options.patience,
        options.op,
    )
    with open(trace, "w") as file:
        faulthandler.enable(file)

        def begin(number: int | None) -> None:
            faulthandler.dump_traceback_later(0.9 * _SILENCE, file=file)
            to.send(number)

        for outcome in examiner.examine(chunk.numbers, begin):
            to.send(outcome)
        faulthandler.cancel_dump_traceback_later()
        faulthandler.disable()


def _ending(code: int | None) -> str:
    if code is not None and code < 0:
        return signal.Signals(-code).name
    return f"exit code {code}"


def _native() -> list[str]:
    """Return the installed targets whose programs run on this machine."""
    return [name for name in sorted(installed().names) if is_native(installed().target(name).info)]


def _chunks(options: argparse.Namespace) -> list[Chunk]:
    """Return the requested Specs by number, alternating between targets."""
    targets, chunks = options.target, []
    for start in range(options.first, options.first + options.specs, CHUNK * len(targets)):
        numbers = range(start, min(start + CHUNK * len(targets), options.first + options.specs))
        for turn, target in enumerate(targets):
            mine = tuple(number for number in numbers if number % len(targets) == turn)
            if mine:
                chunks.append(Chunk(target, mine))
    return chunks


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a campaign; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.fuzz.campaign",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--specs", type=int, default=1000, help="how many (default: 1000)")
    parser.add_argument("--seconds", type=float, default=1.0, help="of CPU for the search of each (default: 1)")
    parser.add_argument("--patience", type=float, help="seconds of CPU for brute force (default: half of --seconds)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first Spec (default: 0)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: 1)")
    parser.add_argument("--target", action="append", help="by default all that this machine runs, in turn")
    parser.add_argument("--op", help="an operation, or Compose; by default any")
    options = parser.parse_args(arguments)
    options.patience = options.seconds / 2 if options.patience is None else options.patience
    options.target = options.target or _native()
    for name in options.target:
        installed().target(name)
    start, code = time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="morello-campaign-") as folder:
        os.environ.setdefault("MORELLO_CACHE_DIR", folder)
        campaign = Campaign(options, Console(width=None if sys.stdout.isatty() else 120), folder, _chunks(options))
        try:
            campaign.run()
        except KeyboardInterrupt:
            campaign.console.print("interrupted")
            code = INTERRUPTED
    campaign.summary()
    failed = any(one.end == FAILED for one in campaign.outcomes)
    campaign.console.print(f"seed {options.seed}, {time.monotonic() - start:.0f} s", highlight=False)
    return code or int(failed)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
