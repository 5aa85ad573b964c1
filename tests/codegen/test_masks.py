"""Scores that a CausalMask masks: products with them are left out, wherever rows and keys are."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import morello
from morello.host import missing_features
from morello.kernels.target import Target

_SCHEDULE = """
    bufferize to L1
    subschedule [0] { tile [1, 4, 16, 16]; select RegisterTile }
    subschedule [1] { tile [1, 1, 48]; select VectorCausalMask }
    subschedule [2] { tile [1, 1, 48]; select VectorSoftmax }
    subschedule [3] { tile [1, 4, 48, 16]; select RegisterTile }"""
_PARALLEL = """
    bufferize to GL
    subschedule [0] { tile [1, 16, 16, 48] parallel; tile [1, 4, 16, 16]; select RegisterTile }
    subschedule [1] { move 0 to L1; move 1 to L1; move 2 to L1; move 3 to L1; tile [1, 1, 48]; select VectorCausalMask }
    subschedule [2] { move 0 to L1; move 1 to L1; tile [1, 1, 48]; select VectorSoftmax }
    subschedule [3] { tile [1, 16, 48, 16] parallel
                      to_accum
                      subschedule [0] { select MemsetZero }
                      subschedule [1] { split 16; tile [1, 4, 16, 16]; select RegisterTileAccum } }"""
_SPEC = """Compose([y = Matmul(p, v), p = Softmax(c), c = CausalMask[window={window}](s, rows, keys), s = Matmul(q, k)],
    [q: (1×32×16, f32, L1), k: (1×16×48, f32, L1), v: (1×48×16, f32, L1), rows: (1×32×1, i32, L1),
     keys: (1×1×48, i32, L1), y: (1×32×16, f32, L1)], serial)"""
_IN_MEMORY = _SPEC.replace("L1", "GL").replace(", serial", "")


@pytest.mark.parametrize(
    ("spec", "schedule", "window"), [(_SPEC, _SCHEDULE, 0), (_SPEC, _SCHEDULE, 12), (_IN_MEMORY, _PARALLEL, 0)]
)
def test_masked_keys_are_left_out(spec: str, schedule: str, window: int, avx2: Target, prove: Callable) -> None:
    if missing := missing_features(avx2.info.cpu_features):
        pytest.skip(f"this machine lacks {', '.join(missing)}")
    goal = morello.goal(spec.format(window=window), target=avx2.name).apply(schedule)
    prove(goal.impl, avx2)
    kernel = morello.compile(goal)
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal(shape).astype(np.float32) for shape in ((32, 16), (16, 48), (48, 16)))
    last, keys = np.arange(16, 48, dtype=np.int32), np.arange(48, dtype=np.int32)
    # Rows in order, in another order, some of them and all of them without keys, keys in another order.
    for rows, columns in (
        (last, keys),
        (rng.permutation(last), keys),
        (last - 20, keys),
        (last - 99, keys),
        (last, rng.permutation(keys)),
    ):
        kept = columns <= rows[:, None]
        kept &= columns > rows[:, None] - (window or 99)
        with np.errstate(invalid="ignore"):
            scores = np.where(kept, q.astype(float) @ k, -np.inf)
            powers = np.exp(scores - scores.max(-1, keepdims=True))
            expected = powers / powers.sum(-1, keepdims=True) @ v
        given = q[None], k[None], v[None], rows[None, :, None], columns[None, None]
        np.testing.assert_allclose(kernel(*given)[0], expected, atol=1e-5)
    # Only products that are computed spread a NaN: those of the rows from position 32 on.
    v[32:] = np.nan
    made = kernel(q[None], k[None], v[None], last[None, :, None], keys[None, None])[0]
    assert np.array_equal(np.isnan(made).all(-1), last >= 32)


_MASK = """Compose([c = CausalMask({scores}, {positions}, keys), {stages}s = Matmul(q, k)],
    [q: (1×{m}×16, f32, GL), k: (1×16×48, f32, GL), {name}rows: (1×{rows}×1, i32, GL), keys: (1×1×48, i32, GL),
     c: (1×{rows}×48, f32, GL)], serial)"""
_PLAIN = {"scores": "s", "positions": "rows", "stages": "", "m": 32, "rows": 32, "name": ""}
_BROADCAST = {"scores": "a", "stages": "a = Add[over_lhs=[1]](s, bias), ", "m": 1, "name": "bias: (1×32×48, f32, GL), "}
# More positions than the stack takes.
_OFF = "off: (1×2048×1, i32, GL), "
_INTERMEDIATE = {"positions": "at", "stages": "at = Add(rows, off), ", "m": 2048, "rows": 2048, "name": _OFF}
_PRODUCT = "subschedule [{}] {{ tile [1, {}, 16, 16]; select RegisterTile }}"


@pytest.mark.parametrize(
    ("fields", "schedule"),
    [
        (_BROADCAST, "bufferize to GL\n" + _PRODUCT.format(0, 1)),
        ({}, "tile [0, 1, 0, 0]\nmove 0 to L1\nmove 0 to RF\nbufferize to L1\n" + _PRODUCT.format(0, 1)),
        (_INTERMEDIATE, "bufferize to GL\n" + _PRODUCT.format(1, 4)),
    ],
    ids=["broadcast", "registers", "intermediate"],
)
def test_a_product_is_computed_if_it_cannot_read_the_positions(
    fields: dict[str, Any], schedule: str, avx2: Target
) -> None:
    if missing := missing_features(avx2.info.cpu_features):
        pytest.skip(f"this machine lacks {', '.join(missing)}")
    fields = _PLAIN | fields
    kernel = morello.compile(morello.goal(_MASK.format(**fields), target=avx2.name).apply(schedule).synthesize())
    rng, count = np.random.default_rng(0), fields["rows"]
    q, k = (rng.standard_normal(shape).astype(np.float32) for shape in ((1, fields["m"], 16), (1, 16, 48)))
    bias = rng.standard_normal((1, 32, 48)).astype(np.float32)
    keys, rows = np.arange(48, dtype=np.int32)[None, None], np.full((1, count, 1), 40, np.int32)
    rows[0, 0] = -1
    off = np.arange(count, dtype=np.int32)[None, :, None] % 5
    named = {"q": q, "k": k, "bias": bias, "rows": rows, "off": off, "keys": keys}
    made = kernel(*(named[one.name] for one in kernel.arguments if not one.writes))
    scores = q.astype(float) @ k + (bias if fields["scores"] == "a" else 0)
    kept = keys <= rows + (off if fields["positions"] == "at" else 0)
    np.testing.assert_allclose(made, np.where(kept, scores, -np.inf), atol=1e-5)


def test_values_are_read_before_one_is_chosen(avx2: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """gcc 12.2 at -O3 read some of these scores by the masks of others, if it was to read them on a condition."""
    if missing := missing_features(avx2.info.cpu_features):
        pytest.skip(f"this machine lacks {', '.join(missing)}")
    if not shutil.which("gcc"):
        pytest.skip("gcc is missing")
    monkeypatch.setenv("MORELLO_CC", "gcc")
    goal = morello.goal(
        """Compose([y = Mul(x, c), c = CausalMask(s, rows, keys)],
           [x: (9×3×7, f32, L1, layout[1, 0, 2]), s: (9×3×7, f32, L1, layout[1, 0, 2]), rows: (9×3×1, i32, L1),
            keys: (1×1×7, i32, L1), y: (9×3×7, f32, L1)], serial)""",
        target=avx2.name,
    ).apply(
        """bufferize to L1
           subschedule [0] {
               tile [0, 2, 0]
               subschedule [0] { tile [1, 0, 0]; tile [0, 0, 1]; tile [0, 1, 0]; select ValueCausalMask }
               subschedule [1] { tile [1, 0, 0]; tile [0, 0, 1]; select ValueCausalMask }
           }
           subschedule [1] { tile [1, 1, 1]; select ValueMul }"""
    )
    rng = np.random.default_rng(0)
    x, s = (rng.standard_normal((3, 9, 7)).astype(np.float32).transpose(1, 0, 2) for _ in range(2))
    rows, keys = rng.integers(3, 9, (9, 3, 1), np.int32), rng.integers(0, 5, (1, 1, 7), np.int32)
    np.testing.assert_array_equal(morello.compile(goal)(x, s, rows, keys), x * np.where(keys <= rows, s, -np.inf))
