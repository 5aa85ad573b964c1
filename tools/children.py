"""Copies of this process that do part of its work and send results through a pipe."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess


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
