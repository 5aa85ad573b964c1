"""Makes Ctrl-C end the program in a word wherever nothing better is said of it, such as while modules are imported."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:  # `guard` comes before anything that takes long to import
    from concurrent.futures import Future

T = TypeVar("T")

#: What shells report of a program that Ctrl-C ended.
INTERRUPTED = 130
#: Seconds until Ctrl-C is heard of at the latest.
_TURN = 0.2


def guard() -> None:
    """From now on, end the program at once when Ctrl-C is pressed, unless Ctrl-C is ignored or handled already."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


@contextmanager
def raised() -> Iterator[None]:
    """Within a program that is guarded, let Ctrl-C raise KeyboardInterrupt for the time of a block that catches it."""
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

    Python hears of a signal that comes as a wait begins, or to another thread, only once the wait ends: so it waits in
    short turns.
    """
    while not future.done():
        with suppress(TimeoutError):
            future.exception(_TURN)
    return future.result()


def _end(*_: object) -> None:
    try:
        os.write(2, b"interrupted\n")
    finally:
        os._exit(INTERRUPTED)
