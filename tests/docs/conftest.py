"""Runs the commands of the pages as a reader would."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from morello.cli.app import main
from morello.host import missing_features
from morello.plugins.registry import installed

#: Runs a command line in a directory; returns its output.
Shell = Callable[[str, Path], str]


@pytest.fixture(scope="session")
def shell() -> Shell:
    """Runs `morello ... [> FILE]` in this process. The output includes errors, but not progress.

    Other programs run as they do in a shell; tests are skipped where one of them is not installed.
    """

    def run(line: str, folder: Path) -> str:
        program, *arguments = line.split()
        if program == "python":
            program = sys.executable
            line = shlex.join([program, *arguments])
        if program != "morello":
            if "/" not in program and not shutil.which(program):
                pytest.skip(f"{program} is not installed")
            pipe = subprocess.PIPE
            return subprocess.run(f"{line} 2>&1", shell=True, cwd=folder, text=True, timeout=300, stdout=pipe).stdout
        *arguments, arrow, file = arguments if ">" in arguments else (*arguments, "", "")
        before = Path.cwd()
        os.chdir(folder)
        try:
            result = CliRunner(catch_exceptions=False).invoke(main, arguments)
        finally:
            os.chdir(before)
        if arrow:
            (folder / file).write_text(result.stdout, encoding="utf-8")
        return ("" if arrow else result.stdout) + (result.stderr if result.exit_code else "")

    return run


@pytest.fixture(scope="session")
def runs_avx2() -> None:
    """Skip if this machine cannot run the programs of the pages."""
    missing = missing_features(installed().target("x86_avx2").info.cpu_features)
    if missing:
        pytest.skip(f"this machine lacks {', '.join(missing)}")
