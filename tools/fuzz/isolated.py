"""Checks programs in processes of their own, so that one that crashes or hangs harms no other."""

from __future__ import annotations

import faulthandler
from collections.abc import Iterator
from functools import partial
from multiprocessing.connection import Connection

from morello.build.toolchain import timeout_seconds
from morello.errors import MorelloError
from morello.testing import Trials
from morello.testing.trials import spec_file
from tools.children import forked


def outcomes(trials: Trials) -> Iterator[str | None]:
    """Yield each program's fault in turn, None if it has none."""
    done = 0
    trials.build()
    while done < len(trials.impls):
        for error in _run_apart(trials, done):
            done += 1
            yield error


def _run_apart(trials: Trials, first: int) -> Iterator[str | None]:
    """Yield the faults from program `first` on, found in a process of its own, which ends at one that crashes."""
    process, mine = forked(partial(_report, trials, first))
    try:
        for index in range(first, len(trials.impls)):
            try:
                ended = "does not end" if not mine.poll(timeout_seconds()) else None
                fault = None if ended else mine.recv()
            except EOFError:
                process.join()
                ended, fault = f"crashes: exit code {process.exitcode}", None
            if ended:
                yield f"p{index} {ended}\n\n{spec_file(trials.impls[index], trials.target)}"
                return
            yield fault
    finally:
        process.kill()
        process.join()
        mine.close()


def _report(trials: Trials, first: int, to: Connection) -> None:
    faulthandler.disable()  # The parent says what crashed.
    for index in range(first, len(trials.impls)):
        try:
            trials.check(index)
            to.send(None)
        except MorelloError as error:
            to.send(error.message)
