"""NaN of either sign propagates through maxima, wherever in a vector it is."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import morello
from morello.host import missing_features
from morello.plugins.registry import installed

CASES: dict[str, Callable[..., np.ndarray]] = {
    "Relu(37, (f32, L1), (f32, L1), serial)": lambda x: np.maximum(x, 0),
    "Maximum(37, (f32, L1), (f32, L1), (f32, L1), serial)": np.maximum,
    "Minimum(37, (f32, L1), (f32, L1), (f32, L1), serial)": np.minimum,
    "Max[dim=0](100, (f32, L1), (f32, L1), serial)": lambda x: x.max(0, keepdims=True),
    "Max[dim=0](5×37, (f32, L1), (f32, L1), serial)": lambda x: x.max(0, keepdims=True),
}


@pytest.mark.parametrize("name", ["x86_avx2", pytest.param("x86_avx512", marks=pytest.mark.slow)])
@pytest.mark.parametrize("spec", CASES)
def test_nan_propagates_from_each_lane(spec: str, name: str) -> None:
    if missing := missing_features(installed().target(name).info.cpu_features):
        pytest.skip(f"this machine lacks {', '.join(missing)}")
    kernel = morello.compile(spec, target=name, db=False, progress=False, budget=morello.SearchBudget(expansions=2000))
    inputs = [np.ones(one.tensor.shape, np.float32) for one in kernel.arguments if one.reads]
    for array in inputs:
        for place in range(array.size):
            for nan in (np.nan, -np.nan):
                array.flat[place] = nan
                np.testing.assert_array_equal(kernel(*inputs), CASES[spec](*inputs))
            array.flat[place] = -1
