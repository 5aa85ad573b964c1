"""Vector functions are as accurate as they say, on a sample of all floats and on those that are special.

`python -m tools.ulps` takes every float there is.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from morello_vectors.vector_math import FUNCTIONS

from morello.build.toolchain import Compiler
from tools.ulps import EXACT, FEATURES, FLAGS, measure

from .scheduled import in_turns, require_features

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MORELLO_CACHE_DIR", str(tmp_path_factory.mktemp("cache", numbered=True)))
        yield


@in_turns("case", [(function, values) for function in EXACT for values in FLAGS])
def test_errors_are_those_that_are_stated(case: tuple[str, int], compiler: Compiler) -> None:
    function, values = case
    require_features(FEATURES[values])
    # A step that is odd meets all exponents; one of 2^20 from 0 on meets zeros, infinities, NaN and subnormals.
    sample = measure(function, values, compiler, step=40_009)
    special = measure(function, values, compiler, step=2**20)
    stated = FUNCTIONS[function].ulps
    assert stated is not None
    assert max(sample.ulps, special.ulps) <= stated


def test_functions_that_state_an_error_are_measured() -> None:
    assert {name for name, function in FUNCTIONS.items() if function.ulps is not None} == {*EXACT}
