"""Finds the folders in which Morello keeps things for its user."""

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


def config_file() -> Path:
    """Return the file in which the user says what is to be used without being asked for. It may not exist."""
    return platformdirs.user_config_path("morello") / "morello.toml"


def crash_folder() -> Path:
    """Return the folder of files about faults: no cache, which things may empty. It may not exist yet."""
    return platformdirs.user_state_path("morello") / "crashes"


def make_private(folder: Path) -> None:
    """Make a folder and what is missing above it, for the user alone. Raises OSError."""
    for place in (*reversed(folder.parents), folder):
        if not place.is_dir():
            place.mkdir(mode=0o700, exist_ok=True)
