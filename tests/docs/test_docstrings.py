"""Docstrings are sentences that begin with a verb, or with a noun for a class."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OPENINGS = {"What", "Whether", "Where", "How", "Which", "When", "Why", "Who", "Whom"}


def docstrings() -> Iterator[tuple[str, str]]:
    """Yield each docstring of the packages, their tests and benchmarks, with its place."""
    files = [file for folder in ("benchmarks", "morello", "tests") for file in (ROOT / folder).rglob("*.py")]
    for file in sorted(
        [*files, *(ROOT / "plugins").glob("*/src/**/*.py"), *(ROOT / "plugins").glob("*/tests/**/*.py")]
    ):
        path = file.relative_to(ROOT).as_posix()
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and (text := ast.get_docstring(node)):
                yield f"{path}:{getattr(node, 'lineno', 1)}", text


@pytest.mark.slow
def test_no_docstring_begins_like_a_question() -> None:
    found = [*docstrings()]
    assert len(found) > 2000
    assert [f"{place}: {text}" for place, text in found if text.split()[0].strip(",:") in OPENINGS] == []
