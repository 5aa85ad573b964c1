"""Makes the plugin importable from its sources, where it is not installed, and its targets."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pluggy
import pytest
from morello_tune import interface

from morello.plugins.discovery import manager_of
from morello.plugins.registry import Registry

ROOT = Path(__file__).parents[1]
SOURCE = str(ROOT / "src")
if SOURCE not in sys.path:
    sys.path.append(SOURCE)


@pytest.fixture(scope="session")
def registry() -> Registry:
    """The plugin's two targets."""
    from gemmini.plugin import FP32, INT8  # pyright: ignore[reportMissingImports]

    return Registry.of(gemmini=INT8, gemmini_fp32=FP32)


@pytest.fixture(scope="session")
def tuning_plugins() -> pluggy.PluginManager:
    """The plugin's menus."""
    from gemmini.menu import TUNE_FP32, TUNE_INT8  # pyright: ignore[reportMissingImports]

    return manager_of(interface.GROUP, interface, {"gemmini": TUNE_INT8, "gemmini_fp32": TUNE_FP32})


@pytest.fixture
def morello(tmp_path: Path) -> Callable[..., str]:
    """Run `morello` with the plugin installed, in its own folder; return its output."""
    info = tmp_path / "installed" / "gemmini_target-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gemmini-target\nVersion: 0.1.0\n")
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    entries = project.split("[project.entry-points.morello]\n")[1].split("\n\n")[0].replace('"', "")
    (info / "entry_points.txt").write_text(f"[morello]\n{entries}\n")
    path = [str(info.parent), SOURCE, *filter(None, [os.environ.get("PYTHONPATH")])]

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "morello", *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
