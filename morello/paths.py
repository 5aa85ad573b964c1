"""The folders of caches, configuration and crash reports."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import platformdirs

from morello.errors import ToolchainError

#: The prefix of files in the cache folder with the tables of a parser.
GRAMMAR = "grammar-"


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


def private_folder(folder: Path) -> Path:
    """Make a folder that no other user can write to or replace. Raises OSError, and ToolchainError if one can."""
    # Resolve links before the check, so that the folder checked is the one used.
    folder = Path(os.path.realpath(folder))
    make_private(folder)
    for place in (folder, *folder.parents):
        _check_private(folder, place, place.stat())
    return folder


def _check_private(folder: Path, place: Path, status: os.stat_result) -> None:
    """Raise ToolchainError if another user can write to `place`, which is `folder` or one of its parents."""
    subject = "" if place == folder else f"is in {place}, which "
    parent = place != folder
    if status.st_uid != os.geteuid() and not (parent and status.st_uid == 0):
        raise unusable(folder, f"{subject}belongs to another user (uid {status.st_uid}), who could put code into it")
    others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if others and not (parent and status.st_mode & stat.S_ISVTX):
        raise unusable(folder, f"{subject}can be written by others, who could put code into it: `chmod go-w {place}`")


def unusable(folder: Path, reason: str) -> ToolchainError:
    """Return the error for a cache folder that cannot be used."""
    return ToolchainError(
        f"the cache directory {folder} {reason}",
        "set the environment variable MORELLO_CACHE_DIR to a directory that only you can write to",
    )
