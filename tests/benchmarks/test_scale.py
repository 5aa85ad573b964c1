"""benchmarks/scale.py: layers of models are as published, and caches count hits."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import scale
from harness.models import IMAGES, MODELS, layers_of
from morello.db.store import SpecStore
from morello.frontend.parser import parse_spec
from morello.kernels.target import Target

#: Distinct convolutions, convolutions, and millions of multiply-adds of one image, as published.
PUBLISHED = {"resnet50": (23, 53, 4089), "squeezenet": (18, 26, 349), "vgg19": (9, 16, 19632)}


@pytest.mark.parametrize("model", PUBLISHED)
def test_layers_are_those_of_the_model(model: str) -> None:
    layers = layers_of(model, 1, 224, "f32")
    convs = {text: count for text, count in layers.items() if text.startswith("Conv")}
    adds = sum(
        count * math.prod(map(int, re.findall(r"\d+(?=×|,)", text.split("(")[1]))) for text, count in layers.items()
    )
    *counts, millions = PUBLISHED[model]
    assert [len(convs), sum(convs.values())] == counts
    assert adds / 1e6 == pytest.approx(millions, rel=0.005)


@pytest.mark.parametrize("model", MODELS)
def test_layers_are_specs(model: str, avx2: Target) -> None:
    for text in layers_of(model, 2, 224 if model in IMAGES else 100, "bf16"):
        parse_spec(text, avx2)


def test_the_cache_drops_what_was_used_longest_ago() -> None:
    cache = scale.Lru(2)
    assert [cache.hit(spec) for spec in (1, 2, 1, 3, 1, 2)] == [False, False, True, False, True, False]


def test_growth_counts_distinct_specs() -> None:
    found = scale.growth([[1, 2], [1, 2], [2, 3], [1, 3]] * 5)
    assert found.distinct[-1] == 3
    assert found.hits == [1 - 3 / 20, 1.0]


def test_a_refill_solves_each_dropped_spec_once() -> None:
    fingerprint = scale.FINGERPRINTS
    asked = [[0], [1], [fingerprint], [0], [1], [0, fingerprint], [2 * fingerprint]]
    dropped, rows = scale.refill(asked, [1])
    assert dropped == 2
    # Request 0, then 0 again with the other one, then a Spec that was never stored.
    assert rows == [(1, 1, 1), (3, 2, 2)]


def test_cores_exceed_the_load() -> None:
    assert scale.cores(0.5, 1.0, 5.0) == 2
    assert 100 < scale.cores(100.0, 1.0, 5.0) < 120


def test_the_same_seed_gives_the_same_requests() -> None:
    one, two, other = ([*scale.Traffic(1.0, True, seed).requests(20)] for seed in (1, 1, 2))
    assert one == two != other


@pytest.mark.slow
def test_a_second_search_finds_its_parts_stored(avx2: Target, tmp_path: Path) -> None:
    texts = [f"Matmul(1×{rows}×8×32, (f32, GL), (f32, GL), (f32, GL), serial)" for rows in (16, 16)]
    store = SpecStore(tmp_path / "shared.db")
    first, second = scale.sample(texts, avx2, 30, store)
    assert first.proven
    assert first.known == 0 < second.known == second.parts


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["requests", "--requests", "200"], ["tables", "--most", "1000"]])
def test_commands(arguments: list[str]) -> None:
    result = CliRunner(catch_exceptions=False).invoke(scale.main, arguments)
    assert result.exit_code == 0
    assert "1,000" in result.output or "extrapolated" in result.output
