"""Commands of the README print the output shown there."""

from __future__ import annotations

import doctest
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from morello import api
from morello.plugins.registry import Registry

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
INSTALL = "pip install ./examples/plugins/gemmini && "


@pytest.mark.slow
def test_commands_print_the_output_on_the_page(morello: Callable[..., str], tmp_path: Path) -> None:
    for language, text in BLOCKS:
        if name := re.match(r"# (\w+\.spec)\n", text):
            (tmp_path / name[1]).write_text(text, encoding="utf-8")
        for line, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
            assert language == "console"
            program, *arguments = line.removeprefix(INSTALL).split()
            assert program == "morello"
            printed = morello(*arguments, "--db", "solved.db")
            checker, flags = doctest.OutputChecker(), doctest.ELLIPSIS | doctest.REPORT_NDIFF
            wanted, got = f"|\n{expected}", f"|\n{printed}"
            assert checker.check_output(wanted, got, flags), checker.output_difference(
                doctest.Example("", wanted), got, flags
            )


def test_costs_of_the_papers_programs_are_true(registry: Registry) -> None:
    goals = api.parse((ROOT / "examples" / "gemm.spec").read_text(encoding="utf-8"), registry=registry)
    for name, goal in goals.items():
        (row,) = [row for row in README.splitlines() if row.startswith(f"| `{name}`")]
        assert row.endswith(f" {api.compile(goal.synthesize()).cost:,} |")
