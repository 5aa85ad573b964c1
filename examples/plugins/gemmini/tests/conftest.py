"""Makes the plugin importable from its sources, where it is not installed, and its targets."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from morello.plugins.registry import Registry

SOURCE = str(Path(__file__).parents[1] / "src")
if SOURCE not in sys.path:
    sys.path.append(SOURCE)


@pytest.fixture(scope="session")
def registry() -> Registry:
    """The plugin's two targets."""
    from gemmini.plugin import FP32, INT8  # pyright: ignore[reportMissingImports]

    return Registry.of(gemmini=INT8, gemmini_fp32=FP32)
