"""The fingerprint of a target changes with every rule an answer depends on, and with nothing else."""

from __future__ import annotations

import ast
import enum
import functools
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

import morello
from morello.db import fingerprint as fingerprints
from morello.db.file import FORMAT
from morello.db.fingerprint import fingerprint
from morello.db.normalize import normal_c, normal_python
from morello.db.sources import ASIDE, core, hash_of
from morello.db.store import SpecStore
from morello.errors import PluginError
from morello.ir.impl import cost_and_peak
from morello.kernels.target import Target
from morello.plugins.registry import installed

ROOT = Path(__file__).parents[2]
#: The packages whose sources count for each target, by their folders. That of x86_avx2 has nothing but data, which
#: counts by value.
PLUGINS = {
    "reference_c": ["morello_reference_c"],
    "x86_avx2": ["morello_vectors", "morello_x86"],
    "x86_avx512": ["morello_vectors", "morello_x86", "morello_x86_avx512"],
}
PACKAGES = {
    "morello": ROOT / "morello",
    **{f"morello_{name}": ROOT / "plugins" / name / "src" / f"morello_{name}" for name in ("vectors", "x86", *PLUGINS)},
}
#: Rules that are in methods, by the file that they are in.
RULES = {
    "Machine.move_cost": "kernels/machine.py",
    "Machine.footprint": "kernels/machine.py",
    "ExactFit.worth_trying": "rewrites/fit.py",
    "OneGroup.blocks_until": "rewrites/one_group.py",
    "Matmul.tile_multiple": "ir/ops/matmul.py",
    "Operation.search_hints": "ir/ops/base.py",
    "SearchHints.to_registers": "ir/ops/base.py",
    "Layout.tiled": "ir/layout.py",
}
SPEC = "FillZero(32, (f32, GL), serial)"
PRINTS = """
import json, sys
from morello.plugins.registry import Registry
from morello.db.fingerprint import fingerprint

def prints():
    registry = Registry.discover()
    return {name: fingerprint(registry.target(name)) for name in ("reference_c", "x86_avx2", "x86_avx512")}

found = [prints()]
for file in sys.argv[1:]:
    with open(file, "a") as text:
        text.write("CHANGED = 1\\n")
    found.append(prints())
print(json.dumps(found))
"""


def copied(folder: Path) -> Path:
    """The packages, copied as an installation does it."""
    for name, source in PACKAGES.items():
        shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    return folder


def run(folder: Path, code: str, *arguments: str | Path, seed: str = "0") -> str:
    """Return the output of a process that finds the packages in a folder."""
    own = {**os.environ, "PYTHONPATH": str(folder), "PYTHONHASHSEED": seed, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, env=own, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def edit(folder: Path, rule: str, statement: str) -> None:
    """Put a statement before all others of a method."""
    file = folder / RULES[rule]
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    owner, method = rule.split(".")
    classes = [one for one in ast.parse("".join(lines)).body if isinstance(one, ast.ClassDef) and one.name == owner]
    (found,) = (one for one in classes[0].body if isinstance(one, ast.FunctionDef) and one.name == method)
    lines.insert(found.body[0].lineno - 1, f"        {statement}\n")
    file.write_text("".join(lines), encoding="utf-8")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copied(tmp_path_factory.mktemp("tree")) / "morello"


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_every_rule_of_the_core_counts(tree: Path, rule: str) -> None:
    file = tree / RULES[rule]
    before = file.read_bytes()
    assert hash_of(tree, ASIDE).hash == core()
    edit(tree, rule, "return None")
    assert hash_of(tree, ASIDE).hash != core()
    file.write_bytes(before)


#: Edits of sources that have no effect, by the file that they are in.
NO_EFFECT = [
    ("ir/layout.py", "from __future__", "# A comment\nfrom __future__"),
    ("ir/layout.py", "    @property\n", "\n    @property  # a comment\n"),
    ("kernels/machine.py", '        """Return', '        """Another docstring. Return'),
    ("kernels/machine.py", "return ", "return  "),
    ("search/solve/solve.c", ";\n", " ; /* a comment */\n\n"),
    ("search/solve/solve.c", ", ", ",\n    "),
]


@pytest.mark.parametrize(("name", "old", "new"), NO_EFFECT)
def test_edits_without_effect_do_not_count(tree: Path, name: str, old: str, new: str) -> None:
    file = tree / name
    before = file.read_text(encoding="utf-8")
    assert old in before
    file.write_text(before.replace(old, new), encoding="utf-8")
    found = hash_of(tree, ASIDE).hash
    file.write_text(before, encoding="utf-8")
    assert found == core()


def test_constants_in_c_count(tree: Path) -> None:
    file = tree / "search" / "solve" / "solve.c"
    before = file.read_text(encoding="utf-8")
    (found, *_) = re.finditer(r" [1-9]\b", before)
    file.write_text(f"{before[: found.start()]} 77{before[found.end() :]}", encoding="utf-8")
    assert hash_of(tree, ASIDE).hash != core()
    file.write_text(before, encoding="utf-8")


SAME = {
    "docstrings": ('"""A."""\nclass A:\n    """B."""\n    x = 1', "class A:\n    x = 1\n    pass"),
    "quotes": ("x = 'a'  # b", 'x = ("a")'),
}
OTHER = {
    "local variable": ("def f(a):\n    b = a\n    return b", "def f(a):\n    c = a\n    return c"),
    "parameter": ("def f(a):\n    return a", "def f(b):\n    return b"),
    "module": ("a = 1", "b = 1"),
    "attribute": ("class A:\n    a = 1", "class A:\n    b = 1"),
    "constant": ("def f():\n    return 1", "def f():\n    return 1.0"),
    "swap": ("def f():\n    a = 1; b = 2\n    return a - b", "def f():\n    a = 1; b = 2\n    return b - a"),
    "text": ("def f():\n    return 'a'", "def f():\n    return 'b'"),
}


@pytest.mark.parametrize("case", SAME)
def test_docstrings_and_formatting_do_not_count(case: str) -> None:
    one, other = SAME[case]
    assert normal_python(one) == normal_python(other)


@pytest.mark.parametrize("case", OTHER)
def test_all_other_names_and_values_count(case: str) -> None:
    one, other = OTHER[case]
    assert normal_python(one) != normal_python(other)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("int a = b+1; // c", "int a=b + 1;", True),
        ('x("/* a */")', 'x("")', False),
        ("a - -b", "a --b", False),
        ("#define F(x) x", "#define F (x) x", False),
        ("#if A\nx;\n#endif", "#if A x;\n#endif", False),
        ("#define A 1 \\\n + 2\n", "#define A 1 + 2\n", True),
        ("'\"' // '\"'", "'\"'", True),
    ],
)
def test_white_space_in_c_counts_where_it_has_an_effect(one: str, other: str, same: bool) -> None:
    assert (normal_c(one) == normal_c(other)) is same


@pytest.mark.slow
def test_damaged_normal_forms_are_computed_again(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MORELLO_CACHE_DIR", str(tree.parent / "cache"))
    folder = tree / "rewrites"
    first = hash_of(folder)
    (kept,) = (tree.parent / "cache").iterdir()
    assert hash_of(folder) == first
    kept.write_text('[["a"')
    assert hash_of(folder) == first


@pytest.mark.slow
def test_answers_of_an_older_release_are_not_used(tmp_path: Path, avx2: Target) -> None:
    folder, path = copied(tmp_path / "older"), tmp_path / "solved.db"
    edit(folder / "morello", "Machine.move_cost", "return 9999 if tensor.state.level == 'GL' else 0")
    code = """
import sys, morello
from morello.db.store import SpecStore
from morello.ir.impl import cost_and_peak
print(cost_and_peak(morello.goal(sys.argv[1], target="x86_avx2").synthesize(SpecStore(sys.argv[2])).impl).cost)
"""
    older = int(run(folder, code, SPEC, path))
    assert older >= 9999
    goal = morello.goal(SPEC, target="x86_avx2")
    store = SpecStore(path)
    assert store.find(avx2, goal.spec) is None
    assert cost_and_peak(goal.synthesize(store).impl).cost < 9999
    # Both answers are there, and each release finds its own.
    assert int(run(folder, code, SPEC, path)) == older


@pytest.mark.slow
def test_sources_count_wherever_they_are_and_whose_they_are(tmp_path: Path) -> None:
    """Copies in another place, with other line ends, in a process with another hash seed, are the same."""
    folder = copied(tmp_path)
    for name in ("morello/ir/tensor.py", "morello/frontend/morello.lark", "morello_x86_avx2/plugin.py"):
        (file,) = folder.glob(name.replace("morello.lark", "*.lark"))
        file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    (folder / "morello" / "search" / "solve" / "_engine.cpython-39-other.so").write_bytes(b"\x7fELF")
    (folder / "morello" / "cli" / "app.py").write_text("from morello.cli.common import nothing")
    edited = [folder / name / "plugin.py" for name in PACKAGES if name != "morello"]
    edited[:2] = folder / "morello_vectors" / "fill.py", folder / "morello_reference_c" / "meanings" / "products.py"
    assert all(file.exists() for file in edited)
    first, *rest = json.loads(run(folder, PRINTS, *edited, seed="17"))
    assert first == {name: fingerprint(installed().target(name)) for name in PLUGINS}
    for file, before, after in zip(edited, [first, *rest], rest, strict=False):
        changed = {name for name in PLUGINS if before[name] != after[name]}
        assert changed == {name for name, own in PLUGINS.items() if file.relative_to(folder).parts[0] in own}


@pytest.mark.slow
def test_counted_modules_import_no_excluded_ones() -> None:
    """No module that counts imports an excluded one, nor the root package, which imports all."""
    aside = {name.removesuffix(".py") for name in ASIDE}
    assert all((ROOT / "morello" / name).exists() for name in ASIDE)
    for package, root in PACKAGES.items():
        files = [
            file for file in root.rglob("*.py") if package != "morello" or file.relative_to(root).parts[0] not in ASIDE
        ]
        assert files
        for file in files:
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                if isinstance(node, ast.ImportFrom):
                    assert node.level == 0, f"{file}: relative imports are not followed"
                    names = [f"{node.module}.{alias.name}" for alias in node.names]
                for name in names:
                    head, _, rest = name.partition(".")
                    assert head != "morello" or (rest and rest.split(".")[0] not in aside), f"{file} imports {name}"


@attrs.frozen
class Costs:
    table: Any


class Plain:
    def __init__(self, table: Any):
        self.table = table
        self.me = self

    @functools.cached_property
    def total(self) -> int:
        return 7

    def cost(self, spec: Any, target: Any) -> int:
        return self.table


class Slotted:
    __slots__ = ("table",)

    def __init__(self, table: Any):
        self.table = table

    def __call__(self, spec: Any, target: Any) -> int:
        return self.table


class Speed(enum.Enum):
    SLOW = 40
    FAST = 41


def closure(held: Any) -> Callable[..., Any]:
    lock = threading.Lock()

    def inner(at: Any = held) -> Any:
        with lock:
            return at

    return lambda spec, target: inner()


def default(held: Any) -> Callable[..., Any]:
    def cost(spec: Any, target: Any, *, table: Any = held) -> Any:
        return table

    return cost


def recursive(held: Any) -> Callable[..., Any]:
    table = [held]
    table.append(table)
    return lambda spec, target: table[0]


WAYS: dict[str, Callable[[int], Callable[..., Any]]] = {
    "array": lambda cost: closure(np.array([1, cost])),
    "array of objects": lambda cost: closure(np.array([1, [cost]], dtype=object)),
    "array's type": lambda cost: closure(np.array([1], dtype=np.int32 if cost == 40 else np.uint32)),
    "dict": lambda cost: closure({"a": 1, "b": {"c": cost}}),
    "list": lambda cost: closure([1, [cost]]),
    "tuple": lambda cost: closure((1, (cost,))),
    "set": lambda cost: closure({"a", "b", cost}),
    "number": lambda cost: closure(float(cost)),
    "enum": lambda cost: closure(Speed(cost)),
    "attrs": lambda cost: closure(Costs(cost)),
    "object": lambda cost: Plain(cost).cost,
    "slots": lambda cost: Slotted(cost),
    "partial": lambda cost: functools.partial(lambda table, spec, target: table, cost),
    "default": default,
    "cache": lambda cost: functools.cache(closure([cost])),
    "recursive": recursive,
}


def with_cost(target: Target, cost: Callable[..., Any]) -> Target:
    return attrs.evolve(target, kernels=(attrs.evolve(target.kernels[0], cost=cost), *target.kernels[1:]))


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_costs_count_by_value(avx2: Target, way: str) -> None:
    one, same, other = (fingerprint(with_cost(avx2, WAYS[way](cost))) for cost in (40, 40, 41))
    assert one == same
    assert one != other


@pytest.mark.parametrize("field", [{"miss_cost": 7}, {"hit_cost": 7}, {"capacity": 4 << 30}])
def test_costs_of_levels_count(avx2: Target, field: dict[str, Any]) -> None:
    slower = attrs.evolve(avx2.levels[-1], **field)
    assert fingerprint(attrs.evolve(avx2, levels=(*avx2.levels[:-1], slower))) != fingerprint(avx2)


@pytest.mark.slow
def test_offered_layouts_count(avx2: Target) -> None:
    def offering(offers: Callable[..., bool] | None) -> str:
        return fingerprint(attrs.evolve(avx2, info=attrs.evolve(avx2.info, offers=offers)))

    def always(layout: Any, buffer: Any) -> bool:
        return True

    rules = (None, always, lambda layout, buffer: buffer.cast)
    assert len({fingerprint(avx2), *map(offering, rules)}) == 4
    assert offering(avx2.info.offers) == fingerprint(avx2)


@pytest.mark.slow
def test_declarations_of_kernels_count(avx2: Target) -> None:
    def with_needs(**fields: Any) -> str:
        return fingerprint(attrs.evolve(avx2, kernels=(attrs.evolve(avx2.kernels[0], **fields), *avx2.kernels[1:])))

    ways = [{}, {"tile_sizes": {1: (7,)}}, {"tile_sizes": {1: (7, 8)}}, {"tile_sizes": {2: (7,)}}]
    ways += [{"registers": {"VRF": need}} for need in (7, closure([7]), closure([8]))]
    assert len({with_needs(**fields) for fields in ways}) == len(ways)


def test_functions_without_sources_are_of_this_process(avx2: Target) -> None:
    space: dict[str, Any] = {"__name__": __name__}
    exec("def cost(spec, target):\n    return 40", space)
    one, other = (with_cost(avx2, space["cost"]) for _ in range(2))
    assert fingerprint(one) == fingerprint(one) != fingerprint(other)


def test_imports_of_plugins_count(tmp_path: Path, avx2: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "costly.py").write_text(
        "from costly_helper import cost\n\ndef total(spec, target):\n    return cost()\n"
    )
    found: list[str] = []
    for body in ("return 1", "return 1  # one", "return 2"):
        (tmp_path / "costly_helper.py").write_text(f"def cost():\n    {body}\n")
        total = importlib.import_module("costly").total
        found.append(fingerprint(with_cost(avx2, total)))
    assert found[0] == found[1] != found[2]
    for name in ("costly", "costly_helper"):
        sys.modules.pop(name, None)


def test_caches_do_not_count(avx2: Target) -> None:
    """Leave out values that an object computes once and caches: they depend on earlier calls."""
    used = Plain(40)
    assert used.total == 7
    assert fingerprint(with_cost(avx2, used.cost)) == fingerprint(with_cost(avx2, Plain(40).cost))
    cached = functools.cache(closure([40]))
    before = fingerprint(with_cost(avx2, cached))
    cached(1, 2)
    assert fingerprint(with_cost(avx2, cached)) == before


def test_descriptions_do_not_count(avx2: Target) -> None:
    info = attrs.evolve(avx2.info, description="another", cost_unit="beats", units_per_cycle=7)
    assert fingerprint(attrs.evolve(avx2, info=info, mhz=1_234)) == fingerprint(avx2)


def test_values_without_content_are_errors(avx2: Target) -> None:
    with pytest.raises(PluginError) as error:
        fingerprint(with_cost(avx2, closure(one for one in [40])))
    kernel = avx2.kernels[0].name
    assert f"target x86_avx2, microkernel {kernel}: answers depend on an object of builtins.generator" in str(
        error.value
    )
    assert error.value.hint
    assert "plain data" in error.value.hint


def test_values_nested_too_deeply_are_errors(avx2: Target) -> None:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(PluginError, match=r"target x86_avx2, microkernel \w+: .* nested too deeply"):
        fingerprint(with_cost(avx2, closure(nested)))
    while nested:
        nested = nested[0]


def test_the_format_counts(avx2: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint(avx2)
    monkeypatch.setattr("morello.db.fingerprint.FORMAT", FORMAT + 1)
    assert fingerprint(attrs.evolve(avx2)) != before


def test_threads_compute_a_fingerprint_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.11 raises SystemError for sources that two threads parse at once."""
    made, target = list[Target](), attrs.evolve(installed().target("reference_c"), mhz=1234)

    def slow(target: Target) -> dict[str, str]:
        made.append(target)
        time.sleep(0.05)
        return {}

    monkeypatch.setattr(fingerprints, "_parts", slow)
    with ThreadPoolExecutor(4) as pool:
        assert len({*pool.map(fingerprint, [target] * 4)}) == 1
    assert len(made) == 1
