"""A staging path for files and folders, so that no reader sees a partial one, even after a kill."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

#: Seconds before an unlocked staging folder counts as abandoned: its owner may not have locked it yet.
_GRACE = 60.0


@contextmanager
def staging_path(path: Path) -> Iterator[Path]:
    """Yield a path in a new folder next to `path`, from where the caller renames or links the result to `path`.

    The folder stays locked until it is removed on exit. Unlocked folders of killed processes are removed first.
    Raises OSError.
    """
    prefix = f".{path.name[:40]}.morello-"
    with suppress(OSError):
        for name in os.listdir(path.parent):
            if name.startswith(prefix):
                with suppress(OSError):
                    _remove_abandoned(path.parent / name)
    folder = tempfile.mkdtemp(prefix=prefix, dir=path.parent)
    try:
        lock = os.open(folder, os.O_RDONLY)
        try:
            # A file system without locks: `_remove_abandoned` cannot lock there either, and removes nothing.
            with suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield Path(folder, "whole")
        finally:
            os.close(lock)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned(folder: Path) -> None:
    """Remove a folder that no process has locked. Raises OSError if one has, or if it cannot be removed."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if time.time() - os.fstat(lock).st_mtime > _GRACE:
            shutil.rmtree(folder)
    finally:
        os.close(lock)
