"""The page on writing targets is up to date with the code, and its programs run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import attrs
import pytest
from morello_x86_avx2.plugin import PLUGIN as X86_AVX2

from morello import api
from morello.host import missing_features
from morello.kernels.site import KernelSite, OperandSite
from morello.plugins import (
    PUBLIC_MODULES,
    MemoryLevel,
    Microkernel,
    OperandPattern,
    Registry,
    TargetInfo,
    TargetPlugin,
    Weights,
    plugin,
)
from tests.docs.test_blocks import agree

PAGE = (Path(__file__).parents[2] / "docs" / "writing-a-target.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
EXCERPTS = [match.groups() for _, text in BLOCKS if (match := re.match(r"# file: (\S+)\n(.*)", text, re.DOTALL))]


PROGRAMS = [text for language, text in BLOCKS if language == "python" and not text.startswith("# file: ")]


def test_the_page_has_programs_and_excerpts() -> None:
    assert len(PROGRAMS) > 0
    assert len(EXCERPTS) > 3


@pytest.mark.skipif(bool(missing_features(("avx2", "fma"))), reason="needs a CPU with AVX2 and FMA")
@pytest.mark.parametrize("text", PROGRAMS, ids=range(len(PROGRAMS)))
def test_programs_run(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    exec(compile(text, "page", "exec"), names)
    if "derive" in names:
        target = Registry.of(x86_avx2=X86_AVX2, mine=names["PLUGIN"]).target("my_cpu")
        assert (target.level("L2").capacity, target.weights.threads) == (1 << 20, 8)
        return
    printed = capsys.readouterr().out
    assert "passed" in printed
    assert any(text in printed for text in ("_mm256_fmadd_ps", "to_sigmoid", "f8e4m3", "any_cpu"))
    assert len(text.splitlines()) <= 30


@pytest.mark.parametrize(("file", "text"), EXCERPTS, ids=[f"{file}-{i}" for i, (file, _) in enumerate(EXCERPTS)])
def test_excerpts_equal_their_files(file: str, text: str, root: Path) -> None:
    """A line of `...` stands for any others."""
    whole = (root / file).read_text()
    for piece in text.split("...\n"):
        assert piece in whole
        whole = whole.partition(piece)[2]


def test_every_block_shows_its_imports() -> None:
    blocks = [text for language, text in BLOCKS if language == "python"]
    assert not [
        text for text in blocks if not re.search(r"^from morello\.(plugins|testing) import ", text, re.MULTILINE)
    ]
    names = {name for text in blocks for name in re.findall(r"^(?:from|import) (morello[\w.]*)", text, re.MULTILINE)}
    core = {name for name in names if re.match(r"morello(\.|$)", name)}
    assert core <= {*PUBLIC_MODULES}


def test_the_first_kernel_is_near_the_top() -> None:
    assert any("Microkernel(" in line for line in PAGE.splitlines()[:30])


def _emulated() -> str:
    """Return what is missing to run the commands of the page."""
    needed = {"qemu-aarch64": shutil.which("qemu-aarch64"), "ziglang": find_spec("ziglang")}
    return " and ".join(name for name, found in needed.items() if not found)


@pytest.mark.slow
@pytest.mark.skipif(bool(_emulated()), reason=f"needs {_emulated()}")
def test_a_new_target_is_verified_under_qemu(tmp_path: Path) -> None:
    """The commands of the page print what it shows. Pip installs into a folder of the test's own."""
    folder, own = tmp_path, {**os.environ, "PYTHONPATH": f"{tmp_path}/my_arm/src{os.pathsep}{tmp_path}/site"}
    pip = f"{sys.executable} -m pip install -q --no-deps --target site ./"
    for block in [text for language, text in BLOCKS if language == "console"]:
        pieces = re.split(r"^\$ (.*)\n", block, flags=re.MULTILINE)[1:]
        for line, expected in zip(pieces[::2], pieces[1::2], strict=True):
            if line.startswith("cd "):
                folder /= line.removeprefix("cd ")
                continue
            command = line.replace("pip install -e ", pip)
            command = re.sub(r"^morello ", f"{sys.executable} -m morello ", command)
            done = subprocess.run(command, shell=True, cwd=folder, env=own, capture_output=True, text=True, timeout=300)
            assert done.returncode == 0, f"{line}: {done.stderr}"
            agree(expected, done.stdout)


@pytest.mark.parametrize("declared", [MemoryLevel, Microkernel, OperandPattern, TargetInfo, TargetPlugin, Weights])
def test_every_field_is_explained(declared: type[attrs.AttrsInstance]) -> None:
    missing = [field.name for field in attrs.fields(declared) if f"`{field.name}`" not in PAGE]
    assert not (set(missing) - {"description"})


@pytest.mark.parametrize("site", [KernelSite, OperandSite])
def test_every_method_of_a_site_is_explained(site: type) -> None:
    public = [name for name in vars(site) if not name.startswith("_")]
    assert not [name for name in public if not re.search(rf"`{name}[`(]", PAGE)]


def test_every_hook_is_explained() -> None:
    hooks = [name for name in vars(plugin) if name.startswith("morello_")]
    assert hooks
    assert not [name for name in hooks if f"`{name}(" not in PAGE]


def test_the_example_spec_works(registry: Registry) -> None:
    (text,) = [text for _, text in BLOCKS if text.startswith("# row.spec")]
    api.compile(api.parse(text, registry=registry)["row"]).check()
