"""What tests of search share: `scripts/sweep.py`, and the targets that it knows."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from morello.kernels.target import Target

SCRIPT = Path(__file__).parents[2] / "scripts" / "sweep.py"


@pytest.fixture(scope="session")
def sweep() -> ModuleType:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("sweep", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def target_named(sweep: ModuleType) -> Callable[[str], Target]:
    """Gives an installed target, the third party's `toy_cpu`, or `packing`, where copies in memory pay."""
    return cache(sweep.target_named)
