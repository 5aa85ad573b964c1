"""The page on architecture and the code agree on who knows whom."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from morello.ir.ops import BY_NAME
from morello.plugins.registry import installed

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PACKAGE = ROOT / "morello"
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


@pytest.mark.parametrize("layer", NEUTRAL)
def test_no_target_is_named(layer: str) -> None:
    """No string in the code of these layers is the name of a target, a level or a microkernel."""
    registry = installed()
    names = set(registry.names)
    for target in map(registry.target, registry.names):
        names |= {level.name for level in target.levels}
        # Kernels of the reference are called what their operations are.
        names |= set(target.kernels_by_name) - set(BY_NAME)
    for file in modules(layer):
        strings = {
            node.value
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        assert not strings & names, file


def test_files_that_the_page_names_exist() -> None:
    for name in re.findall(r"`((?:morello/|plugins/|tests/)?[\w/]+\.py|(?:morello|plugins|tests)/[\w/]+)`", PAGE):
        candidates = [ROOT / name, PACKAGE / name, *PACKAGE.glob(f"*/{name}")]
        assert any(path.exists() for path in candidates), name
