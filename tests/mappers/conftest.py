"""The plugin whose registry tests add mappers to."""

from __future__ import annotations

import importlib
from typing import Any

import pytest


@pytest.fixture(scope="session")
def x86_plugin() -> Any:
    """The plugin object of x86_avx2."""
    return importlib.import_module("morello_x86_avx2.plugin").PLUGIN
