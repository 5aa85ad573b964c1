"""Commands import no more than they need: slow imports happen only where they are used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

#: Modules that are slow to import.
HEAVY = {"archspec", "attrs", "cffi", "lark", "ml_dtypes", "numpy", "pycparser", "rich", "rtree", "scipy"}
#: Has no use where a program is in the database already, and C is all that is wanted.
UNUSED = {"cffi", "numpy.ma", "numpy.random", "pycparser", "rich", "rtree"}
UNUSED |= {f"morello.{name}" for name in ("search.session", "search.solve.engine", "verify.check", "report.tree")}
RUN = "import json, sys\nsys.argv = ['morello', *{arguments}]\n{code}\n"
MAIN = "from morello.cli import main\ntry:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code"


def imported(code: str, *arguments: str, **variables: str) -> set[str]:
    """Return the names of all modules that a process has imported in the end."""
    script = RUN.format(arguments=arguments, code=code) + "print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    own = {**os.environ, **variables}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=own, timeout=60)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stderr.splitlines()[-1]))


@pytest.mark.parametrize(
    ("code", "arguments", "variables"),
    [
        ("import morello", (), {}),
        (MAIN, ("--help",), {}),
        (MAIN, ("--version",), {}),
        (MAIN, (), {"_MORELLO_COMPLETE": "bash_source"}),
        (MAIN, (), {"_MORELLO_COMPLETE": "bash_complete", "COMP_WORDS": "morello co", "COMP_CWORD": "1"}),
    ],
    ids=["import", "help", "version", "script", "completion"],
)
def test_nothing_heavy_is_imported(code: str, arguments: tuple[str, ...], variables: dict[str, str]) -> None:
    found = imported(code, *arguments, **variables)
    assert "morello" in found
    assert not found & HEAVY
    assert not [
        name
        for name in found
        if name.startswith("morello.") and name.split(".")[1] not in ("cli", "commands", "errors", "interrupt", "lazy")
    ]


def test_targets_are_completed_without_plugins() -> None:
    words = {"COMP_WORDS": "morello compile --target x86", "COMP_CWORD": "3"}
    found = imported(MAIN, _MORELLO_COMPLETE="bash_complete", **words)
    assert not [name for name in found if name.startswith("morello_")]


@pytest.mark.slow
def test_a_program_that_is_stored_needs_no_search(cli, write, tmp_path: Path) -> None:
    database = {"MORELLO_DB": str(tmp_path / "specs.db"), "MORELLO_CACHE_DIR": str(tmp_path / "cache")}
    arguments = "compile", write()
    assert "void one(" in cli(*arguments, **database).stdout
    found = imported(MAIN, *arguments, **database)
    assert "numpy" in found
    assert not found & UNUSED
