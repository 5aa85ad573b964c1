"""`morello targets new` and `new-kernel` write what works at once."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from morello import api
from morello.errors import MorelloError
from morello.plugins import Registry, installed
from morello.testing.target_check import check_target

#: Operations of `new-kernel` that have C on vectors, or on single values.
VECTORS = ("Add", "Sub", "Mul", "Div")
VALUES = ("Move", "FillZero", "MatmulAccum", "SumAccum", "Maximum", "Minimum", "MaxAccum", "Relu", "Exp", "Sigmoid")
VALUES += ("Silu", "Tanh", "Rsqrt")


@pytest.fixture
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Returns the plugin of a distribution in the temporary folder, as its files are now."""

    def plugin(name: str) -> Any:
        monkeypatch.syspath_prepend(tmp_path / name / "src")
        for module in [one for one in sys.modules if one.partition(".")[0] == name]:
            del sys.modules[module]
        return importlib.import_module(f"{name}.plugin").PLUGIN

    return plugin


@pytest.mark.slow
def test_a_new_target_is_installed_and_tested(cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As its README says: installation by pip, the command, and its own tests."""
    monkeypatch.chdir(tmp_path)
    assert cli("targets", "new", "fresh_cpu").stdout.splitlines()[-1].startswith("Next: `pip install -e fresh_cpu`")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", "site"]
    own = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}

    def run(*command: str, folder: Path = tmp_path) -> str:
        done = subprocess.run(command, cwd=folder, env=own, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run(*pip, "./fresh_cpu")
    report = json.loads(
        run(sys.executable, "-m", "morello", "targets", "test", "fresh_cpu", "--programs", "5", "--json")
    )
    assert report["passed"]
    assert [one["status"] for one in report["checks"]] == ["passed"] * 12
    run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", folder=tmp_path / "fresh_cpu")


@pytest.mark.slow
def test_a_new_target_computes_a_product(tmp_path: Path, imported: Callable[[str], Any]) -> None:
    api.new_target("plain_cpu", tmp_path)
    registry = Registry.of(plain_cpu=imported("plain_cpu"))
    (goal,) = api.parse(tmp_path / "plain_cpu" / "product.spec", registry=registry).values()
    done = goal.synthesize()
    assert done.proof == "optimal"
    api.compile(done).check()


def test_a_variant_of_another_target(tmp_path: Path, imported: Callable[[str], Any]) -> None:
    api.new_target("variant", tmp_path, base="x86_avx2")
    from morello_x86_avx2.plugin import PLUGIN

    registry = Registry.of(x86_avx2=PLUGIN, variant=imported("variant"))
    target, base = registry.target("variant"), registry.target("x86_avx2")
    assert registry.base_of("variant") == "x86_avx2"
    assert (target.levels, target.weights, target.kernels) == (base.levels, base.weights, base.kernels)
    assert '"morello-x86-avx2"' in (tmp_path / "variant" / "pyproject.toml").read_text()


def test_a_target_of_another_platform(tmp_path: Path, imported: Callable[[str], Any]) -> None:
    for name, base in (("plain_arm", None), ("derived_arm", "x86_avx2")):
        api.new_target(name, tmp_path, base=base, triple="aarch64-linux-musl")
        plugin = imported(name)
        info = plugin.info or plugin.derives
        fields = info.info if base else {field: getattr(info, field) for field in ("triple", "compilers", "runners")}
        assert fields["triple"] == "aarch64-linux-musl"
        assert fields["compilers"] == ("zig cc -target aarch64-linux-musl",)
        assert fields["runners"] == ("qemu-aarch64",)
        assert "qemu-user" in (tmp_path / name / ".github" / "workflows" / "test.yml").read_text()


@pytest.mark.slow
def test_new_kernels_of_every_operation_are_right(tmp_path: Path, imported: Callable[[str], Any]) -> None:
    api.new_target("grown_cpu", tmp_path)
    registry = Registry.of(grown_cpu=imported("grown_cpu"))
    names = [f"My{operation}" for operation in (*VECTORS, *VALUES)]
    for name in names:
        target, file = api.new_kernel(name, name.removeprefix("My"), tmp_path / "grown_cpu", registry=registry)
        assert (target, file) == ("grown_cpu", tmp_path / "grown_cpu" / "src" / "grown_cpu" / "kernels.py")
    grown = Registry.of(grown_cpu=imported("grown_cpu")).target("grown_cpu")
    report = check_target(grown, names)
    assert report.passed
    assert report.count("passed") == len(names)
    assert all(grown.kernels_by_name[f"My{one}"].operands[0].levels == ("VRF",) for one in VECTORS)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("9x", "'9x' is no name of a target"),
        ("Mine", "'Mine' is no name of a target"),
        ("class", "'class' is no name of a target"),
        ("x86_avx2", "a target x86_avx2 is installed already"),
        ("there", "there exists already"),
    ],
)
def test_names_that_are_refused(name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with pytest.raises(MorelloError, match=message):
        api.new_target(name, tmp_path)


def test_kernels_that_are_refused(tmp_path: Path, imported: Callable[[str], Any]) -> None:
    with pytest.raises(MorelloError, match=r"pyproject\.toml does not exist"):
        api.new_kernel("Mine", "Add", tmp_path)
    api.new_target("some_cpu", tmp_path)
    with pytest.raises(MorelloError, match=r"target some_cpu is not installed\n  hint: pip install -e "):
        api.new_kernel("Mine", "Add", tmp_path / "some_cpu", registry=installed())
    registry = Registry.of(some_cpu=imported("some_cpu"))
    with pytest.raises(MorelloError, match=r"no C is known for 'Ad'\n  hint: did you mean 'Add'"):
        api.new_kernel("Mine", "Ad", tmp_path / "some_cpu", registry=registry)
    with pytest.raises(MorelloError, match="'Load' is no identifier, or some_cpu has a kernel of that name"):
        api.new_kernel("Load", "Add", tmp_path / "some_cpu", registry=registry)
