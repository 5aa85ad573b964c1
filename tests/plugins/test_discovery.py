"""Installed plugins that cannot be used are skipped, with reason and remedy; the others work."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from morello.errors import MorelloError, PluginDisabled
from morello.plugins.discovery import Disabled
from morello.plugins.registry import Registry


def install(place: Path, entry: str, source: str, distribution: str = "faulty", requires: Sequence[str] = ()) -> None:
    """Lay a distribution with one entry point and one module out, as pip would."""
    info = place / f"{distribution.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    needs = "".join(f"Requires-Dist: {one}\n" for one in requires)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n{needs}")
    (info / "entry_points.txt").write_text(f"[morello]\n{entry}\n")
    (place / f"{entry.partition('= ')[2].partition(':')[0]}.py").write_text(source)


@pytest.mark.parametrize(
    ("entry", "source", "reason"),
    [
        ("faulty = faulty_at_import", "raise RuntimeError('needs a licence')", "RuntimeError: needs a licence"),
        ("faulty = faulty_import", "import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("faulty = faulty_name:PLUGIN", "plugin = 1", "AttributeError"),
        ("faulty = faulty_syntax", "def", "SyntaxError"),
    ],
)
def test_a_plugin_that_cannot_be_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str, source: str, reason: str
) -> None:
    install(tmp_path, entry, source)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.warns(PluginDisabled) as caught:
        registry = Registry.discover()
    (warning,) = map(str, (one.message for one in caught))
    assert f"plugin 'faulty' ({entry.partition('= ')[2]}) cannot be loaded: {reason}" in warning
    assert warning.endswith("plugin faulty is skipped\n  hint: mend or uninstall the plugin: pip uninstall faulty")
    assert registry.target("reference_c").name == "reference_c"
    with pytest.raises(MorelloError, match=r"target 'faulty' is disabled: plugin 'faulty'(?s:.*)hint: mend"):
        registry.target("faulty")


def discovered(place: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Registry, list[Disabled]]:
    """Return the installed registry, with the plugins in `place`, and the plugins that it skips."""
    monkeypatch.syspath_prepend(place)
    left_out: list[Disabled] = []
    return Registry.discover(left_out.append), left_out


HINTS = [
    ("import morello_wide", ["morello", "morello-wide>=1"], "install its requirements: pip install morello-wide"),
    ("import morello_wide", ["morello"], "install its requirements: pip install morello-wide"),
    ("import other", ["morello", 'other>=2; python_version > "3"'], "install its requirements: pip install other"),
    ("import other", ["morello", 'other; extra == "fast"'], "pip uninstall orphan"),
    ("from morello.plugins import Gone", ["morello"], "pip install --upgrade morello orphan"),
    ("import orphan_plugin.gone", ["morello"], "its files are missing: pip install --force-reinstall orphan"),
    ("raise SystemExit(2)", ["morello"], "pip uninstall orphan"),
]


@pytest.mark.parametrize(("source", "requires", "hint"), HINTS)
def test_missing_dependencies_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, requires: list[str], hint: str
) -> None:
    install(tmp_path, "orphan = orphan_plugin", source, distribution="orphan", requires=requires)
    monkeypatch.delitem(sys.modules, "orphan_plugin", raising=False)
    registry, (one,) = discovered(tmp_path, monkeypatch)
    assert one.plugin.distribution == "orphan"
    assert hint in str(one.error.hint)
    assert "reference_c" in registry.names


@pytest.mark.parametrize("hook", ["morello_plugin", "morello_operations"])
def test_a_plugin_that_raises_is_left_out_altogether(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hook: str
) -> None:
    source = f"from morello.plugins import hookimpl\n@hookimpl\ndef {hook}():\n    raise OSError('no such CPU')\n"
    install(tmp_path, f"raising = raising_{hook}", source)
    registry, left_out = discovered(tmp_path, monkeypatch)
    assert "reference_c" in registry.names
    assert [(one.plugin.name, one.target) for one in left_out] == [("raising", None)]
    assert f"failed in {hook}: OSError: no such CPU" in left_out[0].error.message
    assert "raising" not in [one.name for one in registry.plugins]
    assert registry.disabled == left_out


def test_an_extension_that_fails_is_left_out_of_its_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = """
from morello.plugins import TargetPlugin, hookimpl

@hookimpl
def morello_plugin():
    return [TargetPlugin(extends="reference_c", kernels=[7]), TargetPlugin(extends="x86_avx2", kernels=5)]
"""
    install(tmp_path, "extending = extending_faulty", source)
    registry, left_out = discovered(tmp_path, monkeypatch)
    assert registry.target("x86_avx2").kernels_by_name
    assert registry.target("reference_c").kernels_by_name
    assert [(one.plugin.name, one.target) for one in left_out] == [
        ("extending", "x86_avx2"),
        ("extending", "reference_c"),
    ]
    assert "microkernels are morello.plugins.Microkernel" in left_out[1].error.message


def test_an_extension_of_a_missing_target_is_idle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "from morello.plugins import TargetPlugin\nPLUGIN = TargetPlugin(extends='wide')\n"
    install(tmp_path, "lonely = lonely_plugin:PLUGIN", source, distribution="lonely", requires=["morello-wide"])
    registry, left_out = discovered(tmp_path, monkeypatch)
    (idle,) = registry.idle()
    assert (idle.plugin.name, left_out) == ("lonely", [])
    assert idle.error.hint == "install its requirements: pip install morello-wide"


def test_two_distributions_with_one_plugin_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "twin = twin_one", "", distribution="twin-one")
    install(tmp_path, "twin = twin_two", "", distribution="twin-two")
    registry, (left_out,) = discovered(tmp_path, monkeypatch)
    assert "plugin 'twin' is registered twice" in str(left_out.error)
    assert left_out.plugin.distribution == "twin-two"
    assert "twin" in [one.name for one in registry.plugins]
