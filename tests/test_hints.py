"""Errors have hints: the sources are read for each place that raises one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

ROOT = Path(__file__).parents[1]
#: Errors without a hint, by file and the code of their message, and why each has none.
WITHOUT = {
    (
        "morello/ir/ops/base.py",
        "f'{self.name}: {name} is {what}, not {value!r}'",
    ): "the message names the values that the parameter takes",
}


@attrs.frozen
class Made:
    """A place in the sources that makes an error."""

    file: str
    line: int
    message: str
    hinted: bool


def files() -> list[Path]:
    return sorted([*ROOT.glob("morello/**/*.py"), *ROOT.glob("plugins/*/src/**/*.py")])


def name_of(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def errors(trees: list[ast.Module]) -> set[str]:
    """The names of MorelloError and all classes that come from it."""
    classes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    found = {"MorelloError"}
    while more := {one.name for one in classes if {*map(name_of, one.bases)} & found} - found:
        found |= more
    return found


def position(call: ast.Call, kinds: set[str]) -> int | None:
    """The number of the argument that is the message, for a call that makes an error; the hint comes after it."""
    name = name_of(call.func)
    if name in kinds:
        return 0
    of_source = name == "error" and isinstance(call.func, ast.Attribute) and name_of(call.func.value) == "source"
    return 1 if name == "require" or of_source else None


def is_hint(node: ast.AST) -> bool:
    if isinstance(node, ast.IfExp):
        return is_hint(node.body) and is_hint(node.orelse)
    return not (isinstance(node, ast.Constant) and not node.value)


def made(tree: ast.Module, file: str, kinds: set[str]) -> Iterator[Made]:
    """The errors that a module makes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Name) and node.exc.id in kinds:
            yield Made(file, node.lineno, "", False)
        if not isinstance(node, ast.Call) or (at := position(node, kinds)) is None or len(node.args) <= at:
            continue
        hints = [*node.args[at + 1 : at + 2], *(one.value for one in node.keywords if one.arg == "hint")]
        yield Made(file, node.lineno, ast.unparse(node.args[at]), any(map(is_hint, hints)))


@pytest.fixture(scope="module")
def every() -> list[Made]:
    trees = {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in files()}
    kinds = errors([*trees.values()])
    return [one for file, tree in trees.items() for one in made(tree, file, kinds)]


@pytest.mark.slow
def test_errors_have_a_hint_or_a_listed_exception(every: list[Made]) -> None:
    assert len(every) > 250
    bare = [one for one in every if not one.hinted and (one.file, one.message) not in WITHOUT]
    assert not bare, "\n".join(["give each a hint:", *(f"{one.file}:{one.line}: {one.message}" for one in bare)])


@pytest.mark.slow
def test_listed_exceptions_exist_and_have_no_hint(every: list[Made]) -> None:
    bare = {(one.file, one.message) for one in every if not one.hinted}
    assert not WITHOUT.keys() - bare


CASES = {
    "raise SpecError('no')": [False],
    "raise SpecError": [False],
    "raise SpecError('no', None)": [False],
    "raise errors.SpecError('no', '')": [False],
    "raise SpecError('no', 'do' if it else None)": [False],
    "return SpecError('no', 'do')": [True],
    "raise SpecError('no', hint='do')": [True],
    "fine = require(size > 1, 'no')": [False],
    "fine = require(size > 1, 'no', 'do')": [True],
    "raise self.source.error(place, 'no')": [False],
    "raise source.error(place, 'no', 'do')": [True],
    "raise ValueError('no')": [],
    "class Own(SpecError): pass\nraise Own('no')": [False],
}


@pytest.mark.parametrize("text", CASES)
def test_errors_are_found_however_they_are_made(text: str) -> None:
    tree = ast.parse(text)
    kinds = errors([ast.parse("class SpecError(MorelloError): pass"), tree])
    assert [one.hinted for one in made(tree, "file", kinds)] == CASES[text]
