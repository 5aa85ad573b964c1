"""benchmarks/random_products.py compares correct programs, and reports wrong ones."""

from __future__ import annotations

import pytest

import random_products
from morello.host import missing_features
from morello.kernels.target import Target


@pytest.mark.slow
def test_programs_of_one_product(avx2: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    if missing_features(avx2.info.cpu_features):
        pytest.skip("this machine cannot run it")
    monkeypatch.setattr(random_products, "ROUNDS", 1)
    monkeypatch.setattr(random_products, "LEAST_SECONDS", 1e-4)
    found, stored, alone = random_products.programs(4, 8, 8, "x86_avx2", 60)
    assert found.cost <= stored.cost
    assert alone.cost < stored.cost
    assert all(len(one.seconds) == 1 for one in (found, stored, alone))
    monkeypatch.setattr(random_products, "random_values", lambda *given: 2 * random_values(*given))
    with pytest.raises(SystemExit, match="gives wrong results"):
        found.check(4, 8, 8)


random_values = random_products.random_values
