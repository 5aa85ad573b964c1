"""Handle Ctrl-C: end the program with a short message where no command handles it, such as during imports."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:  # `guard` must run before slow imports
    from concurrent.futures import Future

T = TypeVar("T")

#: The exit status of a program that Ctrl-C ended.
INTERRUPTED = 130
#: The longest delay of Ctrl-C in seconds.
_TURN = 0.2


def guard() -> None:
    """Make Ctrl-C end the program at once, unless it is ignored or handled already."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


@contextmanager
def raised() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt within a block, after `guard`."""
    guarded = signal.getsignal(signal.SIGINT) is _end
    if guarded:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        if guarded:
            signal.signal(signal.SIGINT, _end)


def result_of(future: Future[T]) -> T:
    """Return a future's result, or raise its error; Ctrl-C ends the wait.

    It waits in short turns: Python handles a signal that arrives just before a wait, or in another thread, only after
    the wait.
    """
    while not future.done():
        with suppress(TimeoutError):
            future.exception(_TURN)
    return future.result()


def completed(futures: Collection[Future[T]]) -> Iterator[Future[T]]:
    """Yield futures as they are done; Ctrl-C ends the wait."""
    # `guard` must run before slow imports.
    from queue import Empty, SimpleQueue

    done: SimpleQueue[Future[T]] = SimpleQueue()
    for future in futures:
        future.add_done_callback(done.put)
    for _ in futures:
        while True:
            with suppress(Empty):
                yield done.get(timeout=_TURN)
                break


def _end(*_: object) -> None:
    try:
        os.write(2, b"interrupted\n")
    finally:
        os._exit(INTERRUPTED)
