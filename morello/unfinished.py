"""Makes files where nobody sees them before they are whole, and clears away what killed processes left of theirs."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

#: Seconds for which a folder without a lock stays: whoever made it may be about to lock it.
_YOUNG = 60.0


@contextmanager
def unfinished(path: Path) -> Iterator[Path]:
    """Yield a place for what is to be moved or linked to `path`, in a folder beside it that is gone afterwards.

    The folder is locked meanwhile. Those that nobody has locked were left behind, and are removed first.
    Raises OSError.
    """
    start = f".{path.name[:40]}.morello-"
    _clear(path.parent, start)
    folder = tempfile.mkdtemp(prefix=start, dir=path.parent)
    try:
        lock = os.open(folder, os.O_RDONLY)
        try:
            # Where nothing can be locked, nothing is taken for left behind either.
            with suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield Path(folder, "whole")
        finally:
            os.close(lock)
    finally:
        # What cannot be removed takes room, and does no harm.
        shutil.rmtree(folder, ignore_errors=True)


def _clear(parent: Path, start: str) -> None:
    """Remove the folders of processes that are gone. What cannot be removed stays."""
    with suppress(OSError):
        for name in os.listdir(parent):
            if name.startswith(start):
                with suppress(OSError):
                    _remove_abandoned(parent / name)


def _remove_abandoned(folder: Path) -> None:
    """Remove a folder that nobody uses. Raises OSError if somebody does, or if it cannot be removed."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if time.time() - os.fstat(lock).st_mtime > _YOUNG:
            shutil.rmtree(folder)
    finally:
        os.close(lock)
