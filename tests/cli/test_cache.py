"""`morello cache` shows, clears and limits the cache."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

NAMES = {
    "a" * 64 + ".so": "libraries",
    "b" * 64 + "-" + "c" * 64 + ".so": "libraries",
    "d" * 64 + ".times": "times of compiler choices",
    "grammar-" + "e" * 64: "grammars",
    "one-0123456789ab.c": "C that was shown",
}


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache of one file of each kind, with a database and somebody else's file."""
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    for name in (*NAMES, "specs.db", "notes.txt"):
        (folder / name).write_bytes(bytes(1000))
    for name, file in (("failed-" + "0" * 16, "one.c"), ("headers-" + "0" * 64, "headers.h")):
        (folder / name).mkdir()
        (folder / name / file).write_bytes(bytes(10))
    return folder


def test_the_contents(cli, cache):
    output = cli("cache", MORELLO_CACHE_DIR=str(cache), MORELLO_DB="").stdout
    assert output.startswith(f"{cache}: 5,020 bytes of at most 1,073,741,824\n")
    assert re.search(r"^libraries +2 +2,000$", output, re.MULTILINE)
    assert f"The database {cache / 'specs.db'} is separate" in output
    found = json.loads(cli("cache", "--json", MORELLO_CACHE_DIR=str(cache)).stdout)
    assert (found["folder"], found["bytes"], found["limit"]) == (str(cache), 5020, 1 << 30)
    assert {kind: one["entries"] for kind, one in found["kinds"].items()} == {
        "libraries": 2,
        "precompiled headers": 1,
        "times of compiler choices": 1,
        "C that did not compile": 1,
        "grammars": 1,
        "C that was shown": 1,
    }


def test_nothing_is_made_to_show_nothing(cli, tmp_path):
    output = cli("cache", MORELLO_CACHE_DIR=str(tmp_path / "none")).stdout
    assert "none: 0 bytes of at most" in output
    assert not (tmp_path / "none").exists()


def test_clear(cli, cache):
    output = cli("cache", "clear", MORELLO_CACHE_DIR=str(cache)).stdout
    assert output == f"{cache}: 7 entries of 5,020 bytes removed\n"
    assert {one.name for one in cache.iterdir()} == {"specs.db", "notes.txt"}


def test_limit(cli, cache, refused):
    own = {"MORELLO_CACHE_DIR": str(cache)}
    assert cli("cache", "limit", "5MB", **own).stdout == f"{cache}: 5,020 bytes of at most 5,000,000\n"
    assert cli("cache", "limit", **own).stdout == f"{cache}: 5,020 bytes of at most 5,000,000\n"
    over = cli("cache", "limit", "2MiB", **own, MORELLO_CACHE_LIMIT="1KB")
    assert "of at most 1,000\n" in over.stdout
    assert "MORELLO_CACHE_LIMIT is set" in over.stderr
    assert "of at most 2,097,152\n" in cli("cache", "limit", **own).stdout
    refused(cli("cache", "limit", "much", **own), "'much' is not a size", code=2)
    refused(cli("cache", **own, MORELLO_CACHE_LIMIT="much"), "MORELLO_CACHE_LIMIT is 'much', which is not a size")
    refused(cli("cache", "--json", "clear", **own), "--json is for `morello cache`", code=2)
    assert (
        "of at most 1,073,741,824\n"
        in cli("cache", "clear", **own).stdout + cli("cache", MORELLO_CACHE_DIR="/none").stdout
    )
