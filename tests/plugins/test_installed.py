"""Wheels, of third-party plugins as well, in a fresh environment, and used through its `morello` program."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import textwrap
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from morello.db.sources import core, hash_of
from morello.host import missing_features

#: One worker builds the environment for all of them.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("wheels")]

OWN = ("reference_c", "vectors", "x86", "x86_avx2", "x86_avx512")
DISTRIBUTIONS = {
    "morello",
    *(f"morello_{name}" for name in (*OWN, "aarch64_neon", "baselines", "bounds", "cluster", "lsp", "postgres")),
    *("morello_riscv_rvv", "morello_sharing", "morello_tune", "morello_x86_amx"),
    *("avx2_extra", "gemmini_target", "toy_cpu"),
}

Morello = Callable[..., subprocess.CompletedProcess[str]]

TOY_SPEC = """\
spec product = Matmul(1×2×2×4, (i32, MEM), (i32, MEM), (i32, MEM), serial)
"""
EXTRA_SPEC = """\
target x86_avx2

spec step = MatmulAccum(1×8×3×8, (f32, L1), (f32, L1), (f32, VRF, v8), serial)

schedule step {
    tile [1, 4, 8]
    split 1
    select OuterProduct4x8
}
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory, root: Path, third_party: Path) -> Path:
    """Build wheels of Morello, its own plugins and those of third parties, and install just these somewhere new."""
    place = tmp_path_factory.mktemp("environment")
    # Builds leave files next to the sources: build copies.
    leave_out = shutil.ignore_patterns(".*", "*.egg-info", "__pycache__", "tests")
    shutil.copytree(root, place / "src", ignore=leave_out)
    shutil.copytree(third_party, place / "src" / "thirdparty", ignore=leave_out)
    folders = ("plugins", "thirdparty", "examples/plugins")
    sources = [place / "src", *(one for folder in folders for one in (place / "src" / folder).iterdir())]
    sources = [source for source in sources if source.is_dir()]
    for source in sources:
        # Not `morello/build`, which is a package.
        shutil.rmtree(source / "build", ignore_errors=True)
    venv.create(place / "venv", with_pip=True)
    pip = [place / "venv" / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "--no-input"]
    tools, wheels = place / "tools", place / "wheels"
    # Install the tools that build wheels once, and not for each wheel, apart from the environment.
    run_pip([*pip, "install", "--quiet", "--target", tools, "cffi>=1.16", "setuptools>=77"])
    build = [*pip, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", wheels]
    run_pip([*build, *sources], PYTHONPATH=str(tools))
    found = sorted(wheels.glob("*.whl"))
    assert len(found) == len(sources)
    assert {wheel.name.split("-")[0] for wheel in found} == DISTRIBUTIONS
    # The extra `x86` installs Morello's own targets. The other plugins are installed by their files.
    others = [wheel for wheel in found if not wheel.name.startswith("morello")]
    run_pip([*pip, "install", "--quiet", "--no-compile", "--find-links", wheels, "morello[x86]", *others])
    return place / "venv"


def run_pip(command: list[str | Path], **variables: str) -> None:
    own = {**clean_environment(), **variables}
    done = subprocess.run(command, capture_output=True, text=True, env=own, timeout=600)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def morello(environment: Path, tmp_path: Path) -> Morello:
    """Runs the environment's `morello`, somewhere else than in the repository."""

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        command = [environment / "bin" / "morello", *arguments]
        own = {**clean_environment(), **variables}
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=own, timeout=300)

    return run


def clean_environment() -> dict[str, str]:
    """This process's environment variables but for those by which its own packages would leak in."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}


@pytest.fixture
def python(environment: Path, tmp_path: Path) -> Callable[[str], str]:
    """Runs Python code in the environment; returns its output."""

    def run(code: str) -> str:
        command = [environment / "bin" / "python", "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=clean_environment())
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_wheels_are_whole_and_need_no_test_tools(python: Callable[[str], str], environment: Path) -> None:
    code = """
        import importlib, importlib.util
        own = ("vectors", "x86", "x86_avx2", "x86_avx512", "reference_c")
        for name in ("morello", *(f"morello_{one}" for one in own)):
            print(importlib.import_module(name).__file__)
        from morello.search.library import installed
        assert installed(), "the compiled part of search is missing"
        assert not any(map(importlib.util.find_spec, ("pytest", "hypothesis", "xdist")))
    """
    assert all(Path(file).is_relative_to(environment) for file in python(textwrap.dedent(code)).splitlines())


def test_the_search_of_a_wheel_is_passed_over_once_its_sources_differ(
    python: Callable[[str], str], environment: Path
) -> None:
    code = "from morello.search.library import installed; print(installed())"
    (source,) = environment.glob("lib/python*/site-packages/morello/search/solve/solve.c")
    whole = source.read_bytes()
    try:
        source.write_bytes(whole.replace(b"/* ", b"/*  ", 1))
        assert python(code).strip() == "None"
    finally:
        source.write_bytes(whole)
    assert "_engine" in python(code)


def test_wheels_use_answers_of_the_checkout(python: Callable[[str], str], root: Path) -> None:
    """All that answers depend on is in the wheels: its hashes are those of the tree."""
    code = """
        import morello_x86_avx2.plugin, morello_x86_avx512.plugin, morello_reference_c.plugin
        from morello.db.sources import core, package_sources
        names = ("morello_reference_c", "morello_vectors", "morello_x86", "morello_x86_avx2", "morello_x86_avx512")
        print(core(), *(package_sources(name).hash for name in names))
    """
    tree = [hash_of(root / "plugins" / name / "src" / f"morello_{name}").hash for name in OWN]
    assert python(textwrap.dedent(code)).split() == [core(), *tree]


def test_a_wheel_compiles_and_checks_a_kernel(morello: Morello, root: Path, tmp_path: Path) -> None:
    shutil.copy(root / "examples" / "tiny.spec", tmp_path)
    assert morello("compile", "tiny.spec", "-o", "tiny.c").returncode == 0
    assert "void tiny(" in (tmp_path / "tiny.c").read_text()
    done = morello("check", "tiny.spec", "--target", "reference_c")
    assert done.returncode == 0, done.stderr


def test_both_plugins_are_found(morello: Morello) -> None:
    done = morello("targets", "--json")
    assert done.returncode == 0, done.stderr
    targets = {one["name"]: one for one in json.loads(done.stdout)["targets"]}
    assert {"toy_cpu", "x86_avx2", "x86_avx512", "reference_c"} <= targets.keys()
    assert targets["toy_cpu"]["plugin"] == {"name": "toy_cpu", "distribution": "toy-cpu", "version": "0.1.0"}
    assert [level["name"] for level in targets["toy_cpu"]["levels"]] == ["R", "C", "MEM"]
    assert targets["x86_avx2"]["plugin"]["distribution"] == "morello-x86-avx2"
    assert "OuterProduct4x8" in targets["x86_avx2"]["microkernels"]
    (extension,) = targets["x86_avx2"]["extended_by"]
    assert (extension["name"], extension["distribution"]) == ("avx2_extra", "avx2-extra")
    assert extension["contributes"] == {"microkernel": 3}
    assert not targets["x86_avx512"]["extended_by"]


def test_a_spec_runs_on_the_toy_target(morello: Morello, tmp_path: Path) -> None:
    (tmp_path / "product.spec").write_text(TOY_SPEC)
    done = morello("run", "product.spec", "--target", "toy_cpu")
    assert done.returncode == 0, done.stderr
    assert "product for toy_cpu" in done.stdout
    assert "AddScaledRow" in done.stdout
    assert "correct" in done.stdout


def test_the_example_of_an_accelerator_counts(morello: Morello, tmp_path: Path) -> None:
    (tmp_path / "product.spec").write_text("spec product = Matmul(16×16×16, (i8, GL), (i8, GL), (i32, GL), serial)\n")
    done = morello("run", "product.spec", "--target", "gemmini")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^counted +compute 1 instructions$", done.stdout, re.M)
    assert "speed" not in done.stdout


@pytest.mark.skipif(bool(missing_features(("avx2", "fma"))), reason="needs a CPU with AVX2 and FMA")
def test_a_schedule_selects_the_extensions_kernel(morello: Morello, tmp_path: Path) -> None:
    (tmp_path / "step.spec").write_text(EXTRA_SPEC)
    done = morello("check", "step.spec", "--json")
    assert done.returncode == 0, done.stderr
    (checked,) = json.loads(done.stdout)
    assert checked["passed"]
    assert checked["target"] == "x86_avx2"
    assert morello("explain", "step.spec").stdout.count("OuterProduct4x8")


def test_new_targets_are_written_from_the_wheel(morello: Morello, tmp_path: Path) -> None:
    done = morello("targets", "new", "mine")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "mine" / "src" / "mine" / "kernels.py").is_file()


def test_a_plugin_that_cannot_be_imported_is_named(morello: Morello, tmp_path: Path) -> None:
    info = tmp_path / "faulty-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: faulty\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[morello]\nfaulty = faulty_plugin\n")
    (tmp_path / "faulty_plugin.py").write_text("raise RuntimeError('needs a licence')\n")
    done = morello("targets", PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert "plugin 'faulty' (faulty_plugin) cannot be loaded: RuntimeError: needs a licence" in done.stdout
    assert "pip uninstall faulty" in done.stdout
