"""Public names stay: plugins of others import them. The page of the API lists them all."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest

import morello.plugins
from morello.plugins import API_VERSION, PUBLIC_MODULES

ROOT = Path(__file__).parents[2]
#: A line for each public name. With another API_VERSION it may lose lines; names that are added are added here.
GOLDEN = Path(__file__).with_name("public_names.txt")
PAGES = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "api").glob("*.md"))
PLACES = {name: module for module, names in morello.plugins._EXPORTS.items() for name in names}


def current() -> list[str]:
    names = [f"{module}.{name}" for module in PUBLIC_MODULES for name in import_module(module).__all__]
    return [f"API_VERSION {API_VERSION}", *sorted(names)]


def test_no_public_name_disappears() -> None:
    assert current() == GOLDEN.read_text(encoding="utf-8").splitlines()


def test_every_name_can_be_imported() -> None:
    for module in PUBLIC_MODULES:
        for name in import_module(module).__all__:
            assert getattr(import_module(module), name) is not None, f"{module}.{name}"


@pytest.mark.parametrize("package", ["morello.plugins", "morello.api"])
def test_type_checkers_see_the_same_names(package: str) -> None:
    module = import_module(package)
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    seen = {one.module: {alias.name for alias in one.names} for one in block.body if isinstance(one, ast.ImportFrom)}
    assert seen == {name: {*names} for name, names in module._EXPORTS.items()}


@pytest.mark.parametrize("folder", ["tests/thirdparty/toy_cpu", "tests/thirdparty/avx2_extra", "examples/plugins"])
def test_example_plugins_need_no_other_module(folder: str) -> None:
    files = [file for file in (ROOT / folder).rglob("src/**/*.py") if file.name != "__init__.py"]
    lines = [line for file in files for line in re.findall(r"^from (morello[\w.]*) ", file.read_text(), re.MULTILINE)]
    assert lines
    assert {line for line in lines if line.partition(".")[0] == "morello"} <= {*PUBLIC_MODULES}


def test_no_name_is_that_of_a_module() -> None:
    """An import of the module would replace it."""
    folder = Path(str(morello.plugins.__file__)).parent
    assert not {path.stem for path in folder.glob("*.py")} & {*PLACES}


@pytest.mark.parametrize("name", sorted(PLACES))
def test_the_reference_has_every_name(name: str) -> None:
    module = PLACES[name]
    assert re.search(rf"^::: ({re.escape(module)}|{re.escape(module)}\.{name})$", PAGES, re.MULTILINE)


def test_a_missing_name_is_reported_with_the_version_and_a_remedy() -> None:
    with pytest.raises(ImportError, match=rf"API version {API_VERSION} .*no 'Matmull': did you mean 'Matmul'\?"):
        exec("from morello.plugins import Matmull")
    with pytest.raises(ImportError, match="pip install --upgrade morello"):
        exec("from morello.plugins import later_function")
    assert not hasattr(morello.plugins, "later_function")
