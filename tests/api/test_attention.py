"""`morello.attention` equals attention in float64 of numpy: masks, shared heads, scale."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import morello
from morello.api.functions import calls
from morello.errors import ArgumentError
from morello.host import missing_features
from morello.plugins.registry import installed

from .conftest import PLAIN

#: Any program will do.
FAST: dict[str, Any] = {"target": "x86_avx2", "progress": False, "threads": 1, "time_limit": 1}
#: For calls that types forbid.
ANY: Any = morello


@pytest.fixture
def runs() -> None:
    if missing := missing_features(installed().target("x86_avx2").info.cpu_features):
        pytest.skip(f"this machine lacks {', '.join(missing)}")


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def attention(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, kept: np.ndarray | bool = True, add: Any = 0, scale: Any = None
) -> np.ndarray:
    """Return attention in float64, where a row uses the keys that are `kept`."""
    q, k, v = (np.asarray(one, np.float64) for one in (q, k, v))
    if q.ndim > 2:
        k, v = (np.repeat(one, q.shape[-3] // one.shape[-3], -3) for one in (k, v))
    scores = q @ k.swapaxes(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale) + add
    with np.errstate(invalid="ignore"):
        scores = np.where(kept, scores, -np.inf)
        powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True) @ v


@pytest.mark.slow
def test_masks_of_all_shapes(runs: None) -> None:
    q, k, v = normal(2, 3, 5, 8), normal(2, 3, 7, 8, seed=1), normal(2, 3, 7, 4, seed=2)
    for shape in ((5, 7), (1, 7), (5, 1), (2, 1, 1, 7), (3, 1, 7), (2, 1, 5, 7), (2, 3, 5, 7)):
        add = normal(*shape, seed=3)
        made = morello.attention(q, k, v, mask=add, **FAST)
        np.testing.assert_allclose(made, attention(q, k, v, add=add), atol=1e-5)
    with pytest.raises(ArgumentError, match="repeats along some axes"):
        morello.attention(q, k, v, mask=normal(2, 1, 5, 7), copy=False, **FAST)


@pytest.mark.slow
def test_heads_that_share_keys(runs: None) -> None:
    q, k, v = normal(2, 6, 5, 8), normal(2, 2, 7, 8, seed=1), normal(2, 2, 7, 4, seed=2)
    out = np.zeros((2, 6, 5, 4), np.float32)
    for heads in (2, 1):
        made = ANY.attention(q, k[:, :heads], v[:, :heads], scale=0.5, out=out, enable_gqa=True, **FAST)
        assert made is out
        np.testing.assert_allclose(out, attention(q, k[:, :heads], v[:, :heads], scale=0.5), atol=1e-5)
    for shape in ((5, 7), (6, 5, 7), (2, 1, 1, 7)):
        add = normal(*shape, seed=3)
        made = morello.attention(q, k, v, mask=add, **FAST)
        np.testing.assert_allclose(made, attention(q, k, v, add=add), atol=1e-5)


@pytest.mark.slow
def test_boolean_masks_and_rows_without_keys(runs: None) -> None:
    q, k, v = normal(5, 8), normal(7, 8, seed=1), normal(7, 4, seed=2)
    kept = np.random.default_rng(0).random((5, 7)) < 0.6
    kept[2] = False
    made = ANY.attention(q, k, v, attn_mask=kept, **FAST)
    assert np.isnan(made[2]).all()
    np.testing.assert_allclose(made, attention(q, k, v, kept), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 5, 7, 9])
def test_causal_rows(runs: None, rows: int) -> None:
    q, k, v = normal(2, 4, rows, 8), normal(2, 2, 7, 8, seed=1), normal(2, 2, 7, 4, seed=2)
    at, keys = np.arange(7 - rows, 7)[:, None], np.arange(7)
    made = morello.attention(q, k, v, causal=True, **FAST)
    np.testing.assert_allclose(made, attention(q, k, v, keys <= at), atol=1e-5)
    add = normal(5, 7, seed=3) if rows == 5 else np.zeros((1, 7), np.float32)
    made = morello.attention(q, k, v, mask=add, causal=True, window=3, **FAST)
    np.testing.assert_allclose(made, attention(q, k, v, (keys <= at) & (keys > at - 3), add), atol=1e-5)


@pytest.mark.slow
def test_a_growing_cache_needs_few_kernels(runs: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "_kernels", kernels := {})
    q, k, v = normal(1, 4, 3, 8), normal(1, 2, 80, 8, seed=1), normal(1, 2, 80, 4, seed=2)
    lengths = range(61, 71)
    for length in lengths:
        at, keys = np.arange(length - 3, length)[:, None], np.arange(length)
        used = q, k[:, :, :length], v[:, :, :length]
        add = normal(80, seed=3)
        made = morello.attention(q, k, v, causal=True, length=length, **FAST)
        np.testing.assert_allclose(made, attention(*used, keys <= at), atol=1e-5)
        made = morello.attention(q, k, v, mask=add, length=length, **FAST)
        np.testing.assert_allclose(made, attention(*used, add=add[:length]), atol=1e-5)
    assert len(kernels) == 4


@pytest.mark.slow
def test_scores_of_bf16_are_f32(runs: None) -> None:
    q, k, v = (normal(*shape).astype(ml_dtypes.bfloat16) for shape in ((3, 64), (9, 64), (9, 4)))
    expected, out = attention(q, k, v), np.zeros((3, 4), np.float32)
    for given, error in ((None, 2**-8), (out, 1e-5)):
        for mask in (None, np.zeros((3, 9), ml_dtypes.bfloat16)):
            made = morello.attention(q, k, v, mask=mask, out=given, **FAST)
            np.testing.assert_allclose(made.astype(np.float32), expected, rtol=error, atol=error)


def test_zero_keys() -> None:
    made = morello.attention(normal(2, 3, 4), normal(2, 0, 4), normal(2, 0, 5), causal=True, **PLAIN)
    assert made.shape == (2, 3, 5)


@pytest.mark.slow
def test_lists_are_operands(runs: None) -> None:
    q, k, mask = normal(3, 4), normal(40, 4, seed=1), np.tri(3, 40, dtype=bool)
    expected = attention(q, k[:3], k[:3], mask[:, :3])
    lists = q.tolist(), k.tolist(), k.tolist()
    for given in (lists, (q, k, lists[2])):
        made = morello.attention(*given, mask=mask.tolist(), length=3, **FAST)
        np.testing.assert_allclose(made, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: ANY.attention(x, x[:2], x[:2], is_causal=True), "in torch the first row uses the first key"),
        (lambda x: ANY.attention(x, x, x, window=2), "pass causal=True"),
        (lambda x: ANY.attention(x, x, x, causal=True, window=-1), "a number of keys, or 0 for all"),
        (lambda x: ANY.attention(x, x, x, length=4), "it is a number of keys"),
        (lambda x: ANY.attention(x, x, x, length=1.0), "it is a number of keys"),
        (lambda x: ANY.attention(*[x.astype(float)] * 3, causal=True), "convert q, k, v to float32"),
        (lambda x: ANY.attention(x.tolist(), x, x, copy=False), "leave out copy=False"),
    ],
)
def test_wrong_parameters_are_errors(call: Any, message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        call(normal(3, 8))
    assert message in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("shapes", "mask", "message"),
    [
        ([(4, 2, 8), (3, 2, 8), (3, 2, 8)], None, "only q may have a multiple of the heads"),
        ([(2, 2, 8), (4, 2, 8), (4, 2, 8)], None, "only q may have a multiple of the heads"),
        ([(2, 8), (1, 2, 8), (1, 2, 8)], None, "only q may have a multiple of the heads"),
        ([(2, 2, 8), (2, 3, 8), (2, 3, 8)], (3, 2), "broadcast to"),
        ([(2, 8), (3, 8), (3, 8)], (1, 2, 3), "broadcast to"),
    ],
)
def test_arrays_that_do_not_fit_are_errors(
    shapes: list[tuple[int, ...]], mask: tuple[int, ...] | None, message: str
) -> None:
    with pytest.raises(ArgumentError) as caught:
        morello.attention(*(normal(*shape) for shape in shapes), mask=None if mask is None else normal(*mask), **PLAIN)
    assert message in (caught.value.hint or "")
