"""Blocks of pages are true: Specs parse, Python runs, commands print the shown output.

Blocks of a page are read from top to bottom. One that begins with a comment `# NAME.spec` is a file of that name for
the commands after it; so are C, C++ and CMake that begin so. Python blocks share their names; those with `>>>` are
doctests. `...` stands for any text.
"""

from __future__ import annotations

import doctest
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from morello.frontend import parse
from morello.host import missing_features

ROOT = Path(__file__).parents[2]
#: docs/writing-a-target.md has tests in tests/plugins.
PAGES = [
    "README.md",
    *(
        f"docs/{name}.md"
        for name in (
            "architecture bounds c convolutions database departures language mappers models python sharing tuning"
        ).split()
    ),
]
for folder in ("design", "tutorials"):
    PAGES += sorted(str(path.relative_to(ROOT)) for path in ROOT.glob(f"docs/{folder}/*.md"))
PAGES += sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("plugins/*/README.md"))
#: CPU features of programs of a page besides AVX2, as profile `base` leaves out no kernel.
FEATURES = {"docs/c.md": ("avx_vnni",)}
PIP = "pip install . ./plugins/* && "


@attrs.frozen
class Block:
    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [Block(page, text.count("\n", 0, one.start()) + 2, one[1], one[2]) for one in found]


BLOCKS = {page: blocks(page) for page in PAGES}


def of(language: str) -> list[Any]:
    return [
        pytest.param(block, id=str(block)) for page in PAGES for block in BLOCKS[page] if block.language == language
    ]


def named(block: Block) -> str | None:
    """The file that a block is."""
    found = re.match(r"(?:#|//|/\*) ([\w./]+\.(?:spec|c|cpp|txt|py))(?: \*/)?\n", block.text)
    return found[1] if found else None


def commands(block: Block) -> list[tuple[str, str]]:
    """Return the command lines of a console block, each with its output."""
    pieces = re.split(r"^\$ (.*)\n", block.text, flags=re.MULTILINE)[1:]
    return list(zip(pieces[::2], pieces[1::2], strict=True))


def agree(expected: str, got: str) -> None:
    flags = doctest.ELLIPSIS | doctest.REPORT_NDIFF
    checker = doctest.OutputChecker()
    # A line of `...` also matches no line at all.
    expected = re.sub(r"^\.\.\.\n", "...", expected, flags=re.MULTILINE)
    expected, got = f"|\n{expected.strip()}\n|\n", f"|\n{got.strip()}\n|\n"
    if not checker.check_output(expected, got, flags):
        example = doctest.Example("", expected)
        pytest.fail(checker.output_difference(example, got, flags), pytrace=False)


def test_pages_have_blocks() -> None:
    languages = {block.language for page in PAGES for block in BLOCKS[page]}
    assert languages <= {"", "spec", "python", "console", "text", "c", "cpp", "cmake"}
    assert min(len(of(language)) for language in ("spec", "python", "console")) > 2


@pytest.mark.parametrize("block", of("spec"))
def test_specs_parse(block: Block) -> None:
    assert parse(block.text, filename=str(block)).goals


@pytest.mark.parametrize("block", [param for param in of("spec") if (named(param.values[0]) or "").startswith("ex")])
def test_specs_of_examples_are_the_examples(block: Block) -> None:
    file = named(block)
    assert file
    assert parse(block.text) == parse((ROOT / file).read_text(encoding="utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_commands_print_the_output_on_the_page(
    page: str,
    tmp_path: Path,
    shell: Callable[[str, Path], str],
    runs_avx2: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if page == "docs/models.md":
        # Its commands search for the same kernels.
        monkeypatch.setenv("MORELLO_DB", str(tmp_path / "solved.db"))
    if missing := missing_features(FEATURES.get(page, ())):
        pytest.skip(f"this machine lacks {', '.join(missing)}")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for block in BLOCKS[page]:
        file = named(block)
        if file and not (tmp_path / file).exists():
            (tmp_path / file).parent.mkdir(exist_ok=True)
            (tmp_path / file).write_text(block.text, encoding="utf-8")
        for line, expected in commands(block) if block.language == "console" else []:
            # The one long search of the pages is done once, by the command in the README.
            database = " --db solved.db" if line == f"{PIP}morello run examples/matmul.spec" else ""
            agree(expected, shell(line.removeprefix(PIP) + database, tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if any(each.language == "python" for each in BLOCKS[page])])
def test_python_runs(page: str, tmp_path: Path, runs_avx2: None) -> None:
    names: dict[str, Any] = {"__name__": "page"}
    before = Path.cwd()
    os.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    try:
        for block in BLOCKS[page]:
            file = named(block)
            if file and not (tmp_path / file).exists():
                (tmp_path / file).write_text(block.text, encoding="utf-8")
            if block.language == "python":
                run_python(block, names)
    finally:
        os.chdir(before)


def run_python(block: Block, names: dict[str, Any]) -> None:
    if ">>> " not in block.text:
        exec(compile("\n" * (block.line - 1) + block.text, block.page, "exec"), names)
        return
    test = doctest.DocTestParser().get_doctest(block.text, names, str(block), block.page, block.line - 1)
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    report: list[str] = []
    runner.run(test, out=report.append, clear_globs=False)
    names.update(test.globs)
    if runner.failures:
        pytest.fail("".join(report), pytrace=False)
