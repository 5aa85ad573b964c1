"""The page on architecture lists the layers of the code, and imports have no circle."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from morello.ir.ops import BY_NAME
from morello.plugins.registry import installed

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
#: The map, and the pages of its parts.
PAGES = [ROOT / "docs" / "architecture.md", *sorted((ROOT / "docs" / "design").glob("*.md"))]
PACKAGE = ROOT / "morello"
#: The layers that commands use: the API, reports, errors and how they are displayed.
UNDER_COMMANDS = (
    "api",
    "atomic_write",
    "commands",
    "crash",
    "errors",
    "interrupt",
    "models",
    "paths",
    "progress",
    "report",
    "untrusted",
)
#: The layers that serve every target alike.
NEUTRAL = ["ir", "rewrites", "search", "schedule", "codegen", "db"]


def described() -> list[str]:
    """Return the layers that the page lists."""
    table = PAGE.split("## Layers")[1].split("\n## ")[0]
    return re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)


def modules(layer: str) -> list[Path]:
    folder = PACKAGE / layer
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]


def test_every_layer_is_described() -> None:
    there = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert set(described()) == there - {"__init__", "__pycache__"}


def modules_by_name() -> dict[str, Path]:
    """Return the files of all modules by dotted name, packages among them."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(path: Path, known: Collection[str]) -> set[str]:
    """Return Morello's modules that a file imports, wherever in it, be it for types only."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in known else str(node.module) for name in names}
    return found & set(known)


@cache
def import_graph() -> dict[str, set[str]]:
    """Return the modules that each module imports."""
    known = modules_by_name()
    return {name: imports_of(path, known) for name, path in known.items()}


def circle(graph: Mapping[str, Collection[str]]) -> list[str]:
    """Return the modules of a circle in order, the first one also at the end; [] without a circle."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def test_circles_are_seen() -> None:
    assert circle({"a": ["b"], "b": ["c"], "c": []}) == []
    assert set(circle({"a": ["b"], "b": ["c"], "c": ["b"]})) == {"b", "c"}


@pytest.mark.slow
def test_no_circle_of_imports() -> None:
    graph = import_graph()
    assert "morello.kernels.machine" in graph["morello.kernels.target"]
    assert circle(graph) == [], "imports, those for types among them, lead round in a circle"


def test_layers_import_from_layers_above() -> None:
    order = {layer: place for place, layer in enumerate(described())}
    wrong = {
        f"{name} imports {other}"
        for name, others in import_graph().items()
        for other in others
        if "." in name and "." in other and order[other.split(".")[1]] > order[name.split(".")[1]]
    }
    assert not wrong


def test_commands_import_the_api_only() -> None:
    wrong = {
        f"{name} imports {other}"
        for name, others in import_graph().items()
        for other in others
        if name.startswith("morello.cli") and other.split(".")[1:2] not in [[one] for one in ("cli", *UNDER_COMMANDS)]
    }
    assert wrong <= {
        f"{name} imports morello.frontend.diagnostics" for name in ("morello.cli.app", "morello.cli.common")
    }


@pytest.mark.parametrize("layer", NEUTRAL)
def test_no_target_is_named(layer: str) -> None:
    """No string in the code of these layers is the name of a target, a level or a microkernel."""
    registry = installed()
    names = set(registry.names)
    for target in map(registry.target, registry.names):
        names |= {level.name for level in target.levels}
        # Kernels of the reference have the names of their operations.
        names |= set(target.kernels_by_name) - set(BY_NAME)
    for file in modules(layer):
        strings = {
            node.value
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        assert not strings & names, file


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_the_pages_name_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for name in re.findall(r"`((?:[a-z]+/)?[\w/]+\.(?:py|c)|(?:morello|plugins|tests|tools)/[\w/]+)`", text):
        candidates = [ROOT / name, PACKAGE / name, *PACKAGE.glob(f"*/{name}")]
        assert any(path.exists() for path in candidates), name
