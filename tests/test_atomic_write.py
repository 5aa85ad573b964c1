"""Files are written aside and moved into place; leftovers of killed processes are removed, and no other files."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from morello.atomic_write import staging_path, write_file
from morello.db.file import DatabaseFile
from morello.errors import MorelloError

#: A process that stays in the middle of writing a file.
WRITES = """
import os, sys
def stay(*_):
    print("stays", flush=True)
    sys.stdin.read()
os.link = os.replace = stay
{imports}
{call}
"""
#: How a database and any other file is made.
WAYS = {
    "database": ("from morello.db.file import DatabaseFile", "DatabaseFile(sys.argv[1])"),
    "output": ("from morello.atomic_write import write_file", "write_file(sys.argv[1], b'new')"),
}


@contextmanager
def writer(path: Path, way: str) -> Iterator[subprocess.Popen[str]]:
    """A process in the middle of making a file, which is killed in the end."""
    imports, call = WAYS[way]
    code = WRITES.format(imports=imports, call=call)
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout
        assert child.stdout.readline() == "stays\n"
        yield child
    finally:
        child.kill()
        child.communicate()


def hidden(folder: Path) -> list[Path]:
    """Return the other entries of a folder, with old times."""
    found = sorted(folder.glob(".*"))
    for one in found:
        os.utime(one, (0, 0))
    return found


def make(path: Path, way: str) -> None:
    if way == "database":
        path.unlink(missing_ok=True)
        DatabaseFile(path).close()
    else:
        write_file(path, b"mine")


@pytest.mark.parametrize("way", WAYS)
def test_files_of_killed_processes_are_removed(way: str, tmp_path: Path) -> None:
    path = tmp_path / "file.db"
    with writer(path, way):
        (left,) = hidden(tmp_path)
        make(path, way)
        assert hidden(tmp_path) == [left], "it was still in use"
    assert hidden(tmp_path) == [left], "it could not be removed"
    make(path, way)
    assert [one.name for one in tmp_path.iterdir()] == ["file.db"]


def test_recent_files_stay_until_they_are_locked(tmp_path: Path) -> None:
    young = tmp_path / ".file.morello-abcdefgh"
    young.mkdir()
    write_file(tmp_path / "file", b"mine")
    assert young.is_dir()


def test_files_keep_their_mode(tmp_path: Path) -> None:
    (tmp_path / "file").touch(0o600)
    write_file(tmp_path / "file", b"mine")
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600


def test_nothing_else_is_removed(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    (tmp_path / ".file.morello-linked").symlink_to(tmp_path / "kept")
    (tmp_path / ".file.morello-afile").touch()
    for name in (".file.config", ".other.morello-abcdefgh", ".file"):
        (tmp_path / name).mkdir()
    before = hidden(tmp_path)
    os.utime(tmp_path / "kept", (0, 0))
    write_file(tmp_path / "file", b"mine")
    assert hidden(tmp_path) == before
    assert (tmp_path / "kept" / "file").exists()


@pytest.mark.parametrize("name", ["a" * 255, "語" * 85, "[a]*", "-"])
def test_any_name_will_do(name: str, tmp_path: Path) -> None:
    write_file(tmp_path / name, b"whole")
    assert [one.name for one in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_bytes() == b"whole"


def test_failures_leave_no_files(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(MorelloError, match="cannot be made: No such file"):
        DatabaseFile(tmp_path / "missing" / "file.db")
    with pytest.raises(MorelloError, match="cannot write"):
        write_file(tmp_path / "folder" / ("a" * 256), b"whole")
    with pytest.raises(FileNotFoundError), staging_path(tmp_path / "folder") as aside:
        aside.replace(tmp_path / "other")
    assert [*tmp_path.rglob("*")] == [tmp_path / "folder"]
