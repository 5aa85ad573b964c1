"""Share the targets that the sweep knows among the tests of search."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from morello.kernels.target import Target
from morello.testing import sweep


@pytest.fixture(scope="session")
def target_named() -> Callable[[str], Target]:
    """Give an installed target, the third party's `toy_cpu`, or `packing`, where copies in memory pay."""
    return cache(sweep.target_named)
