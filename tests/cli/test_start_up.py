"""Commands keep the parser's tables in the cache, which makes the next one start faster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def shown(path: str, cache: Path) -> str:
    """Return the schedule that a new process shows."""
    command = [sys.executable, "-m", "morello", "compile", "--no-search", "--emit", "schedule", path]
    variables = {**os.environ, "MORELLO_CACHE_DIR": str(cache)}
    return subprocess.run(command, capture_output=True, text=True, env=variables, timeout=60, check=True).stdout


def kept(cache: Path) -> dict[str, int]:
    """Return the sizes of the files that processes keep in a cache."""
    return {file.name: file.stat().st_size for file in cache.glob("grammar-*")}


@pytest.mark.slow
@pytest.mark.parametrize("damage", [b"", b"damaged", None], ids=["empty", "garbage", "half"])
def test_damaged_files_are_replaced(write, tmp_path: Path, damage: bytes | None) -> None:
    path, cache = write(), tmp_path / "cache"
    first = shown(path, cache)
    sizes = kept(cache)
    assert len(sizes) == 1
    for name, size in sizes.items():
        whole = (cache / name).read_bytes()
        (cache / name).write_bytes(whole[: size // 2] if damage is None else damage)
    assert shown(path, cache) == first
    assert min(kept(cache).values()) > 10_000


@pytest.mark.slow
def test_kept_files_are_used(write, tmp_path: Path) -> None:
    path, cache = write(), tmp_path / "cache"
    first = shown(path, cache)
    times = {file: (cache / file).stat().st_mtime_ns for file in kept(cache)}
    assert shown(path, cache) == first
    assert {file: (cache / file).stat().st_mtime_ns for file in kept(cache)} == times


@pytest.mark.slow
def test_a_folder_that_others_can_write_to_is_not_used(write, tmp_path: Path) -> None:
    cache = tmp_path / "shared"
    cache.mkdir()
    cache.chmod(0o777)
    assert "spec one" in shown(write(), cache)
    assert not kept(cache)
