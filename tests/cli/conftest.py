"""Runs commands in this process, on Specs that take no time to search."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from morello import crash
from morello.cli.app import main
from morello.host import missing_features
from morello.plugins.registry import installed

#: Runs a command line: arguments, then perhaps environment variables.
Cli = Callable[..., Result]
#: Writes a Spec file of a target; gives its path.
Write = Callable[..., str]

ONE = "spec one = Matmul(1×1×1×1, GL, GL, GL, serial)\n"
#: No kernel adds up bytes, so that search takes several steps.
BYTES = "spec one = Matmul(1×1×1×1, (u8, GL), (u8, GL), (u8, GL), serial)\n"


@pytest.fixture
def cli() -> Cli:
    """Exceptions that nobody foresaw are bugs, and fail the test."""

    def invoke(*arguments: str, **environment: str) -> Result:
        result = CliRunner(catch_exceptions=False).invoke(main, [*arguments], env=environment)
        assert result.exit_code != crash.EXIT, result.stderr
        return result

    return invoke


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str = ONE, target: str = "x86_avx2", name: str = "test.spec") -> str:
        path = tmp_path / name
        path.write_text(f"target {target}\n{text}", encoding="utf-8")
        return str(path)

    return write


@pytest.fixture(scope="session")
def runnable() -> str:
    """A target whose programs this machine can run, the more interesting one if possible."""
    features = installed().target("x86_avx2").info.cpu_features
    return "reference_c" if missing_features(features) else "x86_avx2"


@pytest.fixture(scope="session")
def refused() -> Callable[..., None]:
    """Checks that a command failed as it should: nothing on standard output, and a message with these words."""

    def check(result: Result, *words: str, code: int = 1) -> None:
        assert result.exit_code == code, result.output
        assert result.stdout == ""
        assert "Traceback" not in result.stderr
        for word in words:
            assert word in result.stderr

    return check
