"""The page on writing targets is up to date with the code, and its programs run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import attrs
import pytest
from morello_x86_avx2.plugin import PLUGIN as X86_AVX2

from morello import api
from morello.host import missing_features
from morello.kernels.site import KernelSite, OperandSite
from morello.plugins import MemoryLevel, Microkernel, OperandPattern, TargetInfo, TargetPlugin, Weights, plugin
from morello.plugins.registry import Registry

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
    assert any(text in printed for text in ("_mm256_fmadd_ps", "to_sigmoid", "f8e4m3_to_float("))
    assert len(text.splitlines()) <= 30


@pytest.mark.parametrize(("file", "text"), EXCERPTS, ids=[f"{file}-{i}" for i, (file, _) in enumerate(EXCERPTS)])
def test_excerpts_equal_their_files(file: str, text: str, root: Path) -> None:
    assert text in (root / file).read_text()


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
