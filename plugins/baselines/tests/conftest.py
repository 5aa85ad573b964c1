"""The reference target."""

from __future__ import annotations

import pytest
from morello_reference_c import plugin

from morello.plugins import Target
from morello.plugins.registry import Registry


@pytest.fixture(scope="session")
def target() -> Target:
    return Registry.of(reference_c=plugin).target("reference_c")
