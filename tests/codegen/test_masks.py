"""Scores that a CausalMask masks: products with them are left out, wherever rows and keys are."""

from __future__ import annotations

from collections.abc import Callable

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
