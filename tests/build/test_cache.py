"""The directory of built libraries: permissions, damage and eviction."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from morello.api.kernel import Kernel
from morello.build.cache import cache_directory, contents, limit_cache, size_limit
from morello.build.library import build
from morello.build.toolchain import find_compiler
from morello.errors import NotSaved, ToolchainError

ONE = {"one.c": "int one(void) { return 1; }\n"}
Make = Callable[..., Kernel]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "private"
    monkeypatch.setenv("MORELLO_CACHE_DIR", str(folder))
    return folder


def test_a_temporary_directory_replaces_one_that_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "cache"
    monkeypatch.setenv("MORELLO_CACHE_DIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.warns(NotSaved, match=f"{re.escape(str(folder))} cannot be made.*\n.*MORELLO_CACHE_DIR"):
        library = build(ONE, (), find_compiler())
    assert library.parent == tmp_path / f"morello-{os.geteuid()}"
    assert library.parent.stat().st_mode & 0o777 == 0o700
    with pytest.raises(ToolchainError, match=re.escape(str(folder))):
        limit_cache(1 << 20)


def test_directory_that_cannot_be_written(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> str:
        raise PermissionError(30, "Read-only file system")

    library = build(ONE, (), find_compiler())
    monkeypatch.setattr("tempfile.mkdtemp", refuse)
    assert build(ONE, (), find_compiler()) == library, "existing libraries can still be used"
    with pytest.raises(ToolchainError, match=rf"{re.escape(str(cache))} cannot be written: Read-only") as caught:
        build(ONE, ("-DTWO",), find_compiler())
    assert "MORELLO_CACHE_DIR" in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to any directory, whatever its mode")
def test_directory_without_write_permission(cache: Path) -> None:
    cache.mkdir(mode=0o500)
    with pytest.raises(ToolchainError, match="cannot be written"):
        build(ONE, (), find_compiler())


@pytest.mark.parametrize("mode", [0o770, 0o702])
def test_directory_that_others_can_write(cache: Path, mode: int) -> None:
    cache.mkdir()
    cache.chmod(mode)
    with pytest.raises(ToolchainError, match="can be written by others"):
        cache_directory()


def test_directory_of_another_user(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.mkdir()
    monkeypatch.setattr("os.geteuid", lambda: cache.stat().st_uid + 1)
    with pytest.raises(ToolchainError, match="belongs to another user"):
        cache_directory()


def test_the_users_own_directory_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MORELLO_CACHE_DIR")
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name: str(tmp_path / "user" / name))
    assert cache_directory() == tmp_path / "user" / "morello"


@pytest.mark.parametrize("mode", [0o770, 0o702])
def test_parent_that_others_can_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int) -> None:
    parent = tmp_path / "parent"
    (parent / "between").mkdir(parents=True)
    monkeypatch.setenv("MORELLO_CACHE_DIR", str(parent / "between" / "cache"))
    parent.chmod(mode)
    with pytest.raises(ToolchainError, match=f"is in {parent}, which can be written by others.*chmod go-w {parent}"):
        cache_directory()
    parent.chmod(mode | 0o1000)
    assert cache_directory().is_dir(), "users cannot replace files of others in a sticky folder"


def test_parent_of_another_user(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.mkdir()
    real = Path.stat

    def stat(path: Path, **options: bool) -> os.stat_result:
        found = real(path, **options)
        return os.stat_result((*found[:4], 1234, *found[5:])) if path == cache.parent else found

    monkeypatch.setattr(Path, "stat", stat)
    with pytest.raises(ToolchainError, match=f"is in {cache.parent}, which belongs to another user \\(uid 1234\\)"):
        cache_directory()


def test_links_are_followed_before_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "open" / "cache").mkdir(parents=True)
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to(tmp_path / "open" / "cache")
    monkeypatch.setenv("MORELLO_CACHE_DIR", str(tmp_path / "link"))
    with pytest.raises(ToolchainError, match=f"is in {tmp_path / 'open'}, which can be written by others"):
        cache_directory()


def test_folders_are_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MORELLO_CACHE_DIR", str(tmp_path / "a" / "b"))
    before = os.umask(0)
    try:
        cache_directory()
    finally:
        os.umask(before)
    assert [(tmp_path / place).stat().st_mode & 0o777 for place in ("a", "a/b")] == [0o700, 0o700]


def _flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda data: b"",
    "one byte": lambda data: data[:1],
    "the header": lambda data: data[:64],
    "a page": lambda data: data[:4096],
    "half": lambda data: data[: len(data) // 2],
    "all but a byte": lambda data: data[:-1],
    "a byte too many": lambda data: data + b"\0",
    "header flipped": lambda data: _flipped(data, 5),
    "middle flipped": lambda data: _flipped(data, len(data) // 2),
    "end flipped": lambda data: _flipped(data, len(data) - 1),
    "zeros": lambda data: bytes(len(data)),
    "garbage": lambda data: np.random.default_rng(0).bytes(len(data)),
    "text": lambda data: b"damaged",
}


@pytest.mark.slow
def test_a_damaged_library_is_built_again(cache: Path) -> None:
    compiler = find_compiler()
    library = build(ONE, (), compiler)
    whole = library.read_bytes()
    for name, damage in DAMAGE.items():
        library.write_bytes(damage(whole))
        assert build(ONE, (), compiler) == library, name
        assert library.read_bytes() == whole, name
        assert os.listdir(cache) == [library.name], name
    assert ctypes.CDLL(str(library)).one() == 1


def test_a_damaged_library_that_would_kill_the_process(cache: Path) -> None:
    """Loading half a library is SIGBUS: a separate process calls a kernel from it."""
    code = (
        "import morello, numpy as np\n"
        "kernel = morello.compile('target reference_c\\nspec f = FillZero(4096, (f32, GL))', db=False)\n"
        "library = kernel.library\n"
        "data = library.read_bytes()\n"
        "library.unlink()\n"
        "library.write_bytes(data[: len(data) // 4])\n"
        "assert not kernel().any()\n"
        "print('zero')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "zero\n"), done.stderr


@pytest.mark.parametrize("damage", ["text", "half", "gone"])
def test_damage_between_building_and_calling(make: Make, cache: Path, damage: str) -> None:
    kernel = make("FillZero", (2,))
    data = kernel.library.read_bytes()
    kernel.library.unlink()
    if damage != "gone":
        kernel.library.write_bytes(DAMAGE[damage](data))
    assert kernel().tolist() == [0, 0]


def test_a_killed_move_leaves_no_half(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a file durable before it is moved into place."""
    events: list[str] = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr("os.fsync", lambda descriptor: (events.append("fsync"), fsync(descriptor)))
    monkeypatch.setattr("os.replace", lambda old, new: (events.append("replace"), replace(old, new)))
    build(ONE, (), find_compiler())
    assert events == ["fsync", "replace", "fsync"]


def test_a_library_that_cannot_be_made_durable(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("os.fsync", refuse)
    with pytest.raises(ToolchainError, match="cannot be written: Input/output error"):
        build(ONE, (), find_compiler())
    assert os.listdir(cache) == []


def _used(path: Path, seconds_ago: float) -> Path:
    moment = time.time() - seconds_ago
    os.utime(path, (moment, moment))
    return path


def test_the_least_recently_used_entry_goes_first(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = find_compiler()
    libraries = [build(ONE, (f"-DN={each}",), compiler) for each in range(4)]
    kept_c = cache / "failed-0123456789abcdef"
    kept_c.mkdir()
    (kept_c / "one.c").write_text(" " * 1000)
    database = cache / "specs.db"
    database.write_bytes(bytes(100_000))
    for path, seconds in zip([*libraries, kept_c, database], [500, 400, 300, 200, 600, 9000], strict=True):
        _used(path, seconds)
    assert build(ONE, ("-DN=0",), compiler) == libraries[0], "now used last"
    _used(libraries[0], 100)
    size = libraries[0].stat().st_size
    monkeypatch.setenv("MORELLO_CACHE_LIMIT", f"{3 * size + size // 2} B")
    newest = build(ONE, ("-DN=4",), compiler)
    assert set(cache.iterdir()) == {libraries[0], libraries[3], newest, database}


def test_recent_entries_stay(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = find_compiler()
    monkeypatch.setenv("MORELLO_CACHE_LIMIT", "0")
    old, used = build(ONE, ("-DN=1",), compiler), build(ONE, ("-DN=2",), compiler)
    loaded = ctypes.CDLL(str(_used(old, 500)))
    built = build(ONE, ("-DN=3",), compiler)
    assert set(cache.iterdir()) == {used, built}
    assert loaded.one() == 1, "loaded libraries stay in memory"


def test_folders_of_killed_builds_are_removed(cache: Path) -> None:
    cache.mkdir(mode=0o700)
    for name, seconds in (("building-old", 100_000), ("building-now", 10)):
        (cache / name).mkdir()
        (cache / name / "one.c").touch()
        _used(cache / name, seconds)
    library = build(ONE, (), find_compiler())
    assert set(os.listdir(cache)) == {"building-now", library.name}


@pytest.mark.parametrize(
    ("text", "size"),
    [("1000", 1000), ("1000B", 1000), ("2 KiB", 2048), ("1MiB", 2**20), ("7 GiB", 7 * 2**30), ("500MB", 500 * 10**6)],
)
def test_sizes(monkeypatch: pytest.MonkeyPatch, text: str, size: int) -> None:
    monkeypatch.setenv("MORELLO_CACHE_LIMIT", text)
    assert size_limit() == size


@pytest.mark.parametrize("text", ["much", "-1", "1.5GiB", "1e9", "1 Gb", "1kB", "GiB", "٣", "1" * 5000, " "])
def test_invalid_sizes(cache: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("MORELLO_CACHE_LIMIT", text)
    with pytest.raises(ToolchainError, match=r"MORELLO_CACHE_LIMIT is .*which is not a size") as caught:
        build(ONE, (), find_compiler())
    assert "500MiB" in str(caught.value)


def test_a_limit_is_stored(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = find_compiler()
    _, new = (_used(build(ONE, (f"-DN={each}",), compiler), 500 - each) for each in range(2))
    size = new.stat().st_size
    assert contents(cache)["libraries"] == (2, 2 * size)
    limit_cache(size + size // 2)
    assert set(cache.glob("*.so")) == {new}, "what was not used for longest is gone"
    assert size_limit() == size + size // 2
    monkeypatch.setenv("MORELLO_CACHE_LIMIT", "7KB")
    assert size_limit() == 7000
    monkeypatch.delenv("MORELLO_CACHE_LIMIT")
    (cache / "limit").write_text("much\n")
    with pytest.raises(ToolchainError, match=r"limit is 'much', which is not a size(?s:.*)morello cache limit SIZE"):
        build(ONE, (), compiler)


@pytest.mark.slow
def test_processes_that_build_and_evict_at_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MORELLO_CACHE_LIMIT", "0")
    code = (
        "import ctypes\nfrom morello.build.library import build\nfrom morello.build.toolchain import find_compiler\n"
        "compiler = find_compiler()\n"
        f"for n in range(4):\n    assert ctypes.CDLL(str(build({ONE!r}, (f'-DN={{n}}',), compiler))).one() == 1\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
    assert [process.wait(timeout=120) for process in running] == [0] * 2
