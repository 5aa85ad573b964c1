"""The pictures are up to date with search and commands."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def script(name: str) -> Any:
    """Return a script of docs/ as a module."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_picture_is_up_to_date() -> None:
    figures = script("figures")
    assert figures.picture() == figures.PICTURE.read_text(encoding="utf-8"), "run python docs/figures.py"


def test_the_picture_of_bounds_is_up_to_date() -> None:
    figures = script("figures")
    data = figures.data()
    assert figures.bounds_picture(data) == figures.BOUNDS.read_text(encoding="utf-8"), "run make figures"
    assert [*data] == [*figures.EXAMPLES]
    for curves in data.values():
        bound, tiles = dict(curves["bound"]), dict(curves["tiles"])
        assert [*bound] == [*tiles] == [*figures.MEMORIES]
        assert all(bound[memory] <= tiles[memory] for memory in bound)
        # More memory than a bound is for only makes it lower.
        assert all(moved >= bound[min(each for each in bound if each >= memory)] for memory, moved in curves["program"])


@pytest.mark.slow
@pytest.mark.parametrize("number", range(2))
def test_bounds_in_the_picture_are_right(number: int) -> None:
    figures = script("figures")
    title, text = [*figures.EXAMPLES.items()][number]
    curves = figures.data()[title]
    assert [32 << 10, figures.traffic(figures.nest_of(figures.parsed(text)), 32 << 10).bytes] in curves["bound"]
    for point in figures.programs(text, figures.LIMITS[-1]):
        assert point in curves["program"], "run make figures"


@pytest.mark.slow
def test_the_picture_of_a_terminal_is_up_to_date(runs_avx2: None) -> None:
    picture = script("picture")
    shown = picture.text(picture.PICTURE.read_text(encoding="utf-8"))
    printed = picture.text(picture.svg(picture.output()))
    assert picture.stable(shown) == picture.stable(printed), "run make picture"
    assert "proof optimal" in picture.stable(shown)


def test_all_that_is_printed_is_in_the_picture() -> None:
    picture = script("picture")
    printed = "\x1b[1mtree  \x1b[0m <1&2>\n\n├ one\n└ " + "long " * 30
    lines = picture.text(picture.svg(printed)).splitlines()
    assert lines[:4] == [f"$ {picture.COMMAND}", "tree   <1&2>", "", "├ one"]
    assert "".join(lines).count("long") == 30
