"""Functions on arrays: from the second size of the first dimension on, one kernel for all sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import morello
from morello.api.functions import calls

from .conftest import values

OPTIONS: dict[str, Any] = {"target": "x86_avx2", "threads": 1, "progress": False}


def source_of_last() -> str:
    return [*calls._calls.values()][-1].kernel.source


@pytest.mark.slow
def test_sizes_after_the_first_share_a_kernel() -> None:
    w = values(7, 3)
    sources = []
    for size in (4, 6, 1, 33, 4, 2):
        x = values(size, 7)
        np.testing.assert_array_equal(morello.matmul(x, w, **OPTIONS), x @ w)
        sources.append(source_of_last())
    assert len({*sources[1:4]}) == 1
    assert sources[0] != sources[1]
    assert morello.matmul(values(0, 7), w, **OPTIONS).shape == (0, 3)


@pytest.mark.slow
def test_layouts_have_kernels_of_their_own() -> None:
    for size in (3, 5, 9):
        x = values(6, size).T[:, :5]
        np.testing.assert_array_equal(morello.matmul(x, x.T.copy(), **OPTIONS), x @ x.T)
        np.testing.assert_array_equal(morello.matmul(x.copy(), values(5, 4), **OPTIONS), x @ values(5, 4))
    # Layouts of one image leave the batch out.
    image, w = values(1, 2, 3, 2), values(1, 2, 1, 1)
    for x in (image, np.asfortranarray(image)):
        np.testing.assert_array_equal(morello.conv2d(x, w, **OPTIONS), np.einsum("bcyx,fczt->bfyx", image, w))
