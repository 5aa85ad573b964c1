"""Makes Ctrl-C end the program in a word wherever nothing better is said of it, such as while modules are imported."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

#: What shells report of a program that Ctrl-C ended.
INTERRUPTED = 130


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


def _end(*_: object) -> None:
    try:
        os.write(2, b"interrupted\n")
    finally:
        os._exit(INTERRUPTED)
