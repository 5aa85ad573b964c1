"""The two third-party plugins of `tests/thirdparty`, imported from their sources."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from morello.plugins.registry import Registry

ROOT = Path(__file__).parents[2]
THIRD_PARTY = ROOT / "tests" / "thirdparty"


def _from_source(package: str) -> Any:
    source = str(THIRD_PARTY / package / "src")
    if source not in sys.path:
        sys.path.append(source)
    return importlib.import_module(f"{package}.plugin")


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture(scope="session")
def third_party() -> Path:
    """The folder of the third-party distributions."""
    return THIRD_PARTY


@pytest.fixture(scope="session")
def toy_plugin() -> Any:
    """The plugin object of toy_cpu."""
    return _from_source("toy_cpu").PLUGIN


@pytest.fixture(scope="session")
def extra_plugin() -> Any:
    """The plugin module avx2_extra."""
    return _from_source("avx2_extra")


@pytest.fixture(scope="session")
def x86_plugin() -> Any:
    """The plugin object of x86_avx2."""
    return importlib.import_module("morello_x86_avx2.plugin").PLUGIN


@pytest.fixture(scope="session")
def registry(toy_plugin: Any, extra_plugin: Any, x86_plugin: Any) -> Registry:
    """toy_cpu, and x86_avx2 with the extension."""
    return Registry.of(toy_cpu=toy_plugin, avx2_extra=extra_plugin, x86_avx2=x86_plugin)


@pytest.fixture(scope="session")
def unextended(x86_plugin: Any) -> Registry:
    """x86_avx2 alone."""
    return Registry.of(x86_avx2=x86_plugin)
