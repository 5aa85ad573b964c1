"""The folders of caches, configuration and crash reports."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs


def user_folder() -> Path:
    """Return the folder of built libraries and of the default database, which need not exist.

    It is MORELLO_CACHE_DIR if that is set, otherwise the user's cache folder.
    """
    given = os.environ.get("MORELLO_CACHE_DIR")
    return Path(os.path.abspath(os.path.expanduser(given)) if given else platformdirs.user_cache_dir("morello"))


def config_file() -> Path:
    """Return the user's configuration file, which need not exist."""
    return platformdirs.user_config_path("morello") / "morello.toml"


def crash_folder() -> Path:
    """Return the folder of crash reports, which need not exist. It is outside the cache, which may be emptied."""
    return platformdirs.user_state_path("morello") / "crashes"


def make_private(folder: Path) -> None:
    """Make a folder and its missing parents with mode 0700. Raises OSError."""
    for place in (*reversed(folder.parents), folder):
        if not place.is_dir():
            place.mkdir(mode=0o700, exist_ok=True)
