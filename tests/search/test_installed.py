"""The installed engine is used with the sources that it was built from only."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from shutil import copytree, ignore_patterns

import pytest

from morello.search.library import library_path

ROOT = Path(__file__).parents[2]
PRINTS = "from morello.search.library import installed; from morello.search.library import digest; "


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Return a copy of the package, without the compiled engine."""
    return copytree(ROOT / "morello", tmp_path / "morello", ignore=ignore_patterns("__pycache__", "*.so"))


def printed(package: Path, expression: str) -> str:
    command = [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(package.parent)!r}); {PRINTS}"]
    command[-1] += f"print({expression})"
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def library_of(package: Path) -> Path:
    return package / "search" / "solve" / f"_engine{sysconfig.get_config_var('EXT_SUFFIX')}"


@pytest.mark.parametrize("edited", ["bounds/moves.c", "layout_bounds/layouts.h", "solve/_engine.h"])
def test_a_library_of_other_sources_is_skipped_even_if_newer(package: Path, edited: str) -> None:
    assert printed(package, "installed()") == "None"
    library = library_of(package)
    library.write_bytes(b"\x7fELF" + printed(package, "digest()").encode() + b"\0")
    assert printed(package, "installed()") == str(library)
    source = package / "search" / edited
    source.write_bytes(source.read_bytes() + b"/* A remark. */\n")
    library.touch()
    assert printed(package, "installed()") == "None"


def test_added_or_renamed_files_change_the_sources(package: Path) -> None:
    before = printed(package, "digest()")
    (package / "search" / "bounds" / "more.c").touch()
    after = printed(package, "digest()")
    (package / "search" / "bounds" / "more.c").rename(package / "search" / "bounds" / "less.c")
    assert len({before, after, printed(package, "digest()")}) == 3


def test_the_library_exports_the_engine_only() -> None:
    nm = shutil.which("nm")
    if nm is None:
        pytest.skip("needs nm")
    command = [nm, "-D", "--defined-only", str(library_path())]
    symbols = [line.split()[2] for line in subprocess.run(command, capture_output=True, text=True).stdout.splitlines()]
    assert symbols
    assert [name for name in symbols if not name.startswith(("engine_", "PyInit_"))] == []
