"""Copies of this process that do part of its work and send results through a pipe."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import attrs

#: Seconds after which a copy hangs.
PATIENCE = 60


def forked(work: Callable[[Connection], None]) -> tuple[BaseProcess, Connection]:
    """Start a copy of this process that does `work`; return it and the end of the pipe that hears it.

    Ctrl-C waits until the copy is there: Python drops an interrupt that arrives in the middle of a fork.
    """
    context = multiprocessing.get_context("fork")
    hears, says = context.Pipe(duplex=False)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})

    def run() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        work(says)

    try:
        process = context.Process(target=run)
        process.start()
    finally:
        says.close()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return process, hears


@attrs.frozen
class Ending:
    """The end of a copy: with a result, or the way in which it `died`."""

    result: Any
    died: str = ""


def ending_of(action: Callable[[], Any]) -> Ending:
    """Do an action in a copy of this process; return its result, or how the copy died."""
    with tempfile.TemporaryFile() as errors:

        def work(says: Connection) -> None:
            signal.alarm(PATIENCE)
            os.dup2(errors.fileno(), 2)
            says.send(action())

        process, hears = forked(work)
        try:
            return Ending(hears.recv())
        except EOFError:
            pass
        finally:
            process.join()
        errors.seek(0)
        lines = errors.read().decode(errors="replace").splitlines()
    code = process.exitcode or 0
    how = f"ended with {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"
    words = [line for line in lines if line.startswith(("Fatal", "terminate"))] or lines[-1:]
    return Ending(None, ": ".join(["hung" if code == -signal.SIGALRM else how, *words[:1]]))
