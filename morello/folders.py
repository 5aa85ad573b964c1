"""Finds the folder in which Morello keeps what it would otherwise have to do again."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs


def user_folder() -> Path:
    """Return the folder of built libraries and of the user's own database: MORELLO_CACHE_DIR, or the system's choice.

    It may not exist yet.
    """
    asked = os.environ.get("MORELLO_CACHE_DIR")
    return Path(os.path.abspath(os.path.expanduser(asked)) if asked else platformdirs.user_cache_dir("morello"))


def make_private(folder: Path) -> None:
    """Make a folder and what is missing above it, for the user alone. Raises OSError."""
    for place in (*reversed(folder.parents), folder):
        if not place.is_dir():
            place.mkdir(mode=0o700, exist_ok=True)
