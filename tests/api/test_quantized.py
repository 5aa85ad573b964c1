"""quantize_weights and qmatmul: values that come back, and products with them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import morello
from morello.errors import MorelloError
from morello.ir.ops.quantized import Dequantize

from .conftest import PLAIN, values

FORMS = [(4, 32), (4, 0), (8, 64), (8, 0)]


def restored(w: np.ndarray, bits: int, group: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of the quantised matrix, and the scale of each."""
    made = morello.quantize_weights(w, bits, group)
    op = Dequantize().configured({"bits": bits, "group": group})
    shape = 1, w.shape[0] // op.block, w.shape[1]
    stored = [one[np.newaxis].astype(float) for one in made]
    return op.evaluate(shape, stored, [])[0][0], op.per_row(stored[1], w.shape[0])[0]


@pytest.mark.parametrize(("bits", "group"), FORMS)
@given(st.integers(0, 9), st.sampled_from([1e-30, 1.0, 3e38]), st.sampled_from([0.0, 1.0, -5.0]))
def test_values_are_off_by_half_a_step(bits: int, group: int, seed: int, by: float, apart: float) -> None:
    rng = np.random.default_rng(seed)
    w = ((rng.uniform(-1, 1, (64, 5)) + apart) * (by / 6)).astype(np.float32)
    w[:, 0] = 0
    found, scales = restored(w, bits, group)
    # The zero point is rounded as well, so values at the ends may be clamped.
    assert (np.abs(found - w) <= 1.001 * scales).all()
    assert (found[:, 0] == 0).all()


def test_numbers_of_a_step_come_back() -> None:
    w = np.arange(-8, 8, dtype=np.float32).repeat(2).reshape(32, 1) / 4
    assert (restored(w, 4, 32)[0] == w).all()
    w = np.arange(-128, 128, dtype=np.float32).reshape(256, 1) / 2
    assert (restored(w, 8, 0)[0] == w).all()


@pytest.mark.slow
@pytest.mark.parametrize(("bits", "group"), FORMS)
def test_products(bits: int, group: int) -> None:
    w, x = values(64, 5), values(2, 3, 64)
    made = morello.quantize_weights(w, bits, group)
    expected = x @ restored(w, bits, group)[0]
    for each in (x, x[0, 0], x.transpose(1, 0, 2)):
        found = morello.qmatmul(each, *made, bits, group, **PLAIN)
        wanted = expected if each is x else expected[0, 0] if each.ndim == 1 else expected.transpose(1, 0, 2)
        np.testing.assert_allclose(found, wanted, atol=1e-4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: morello.quantize_weights(np.ones((48, 2), np.float32)), "no matrix of whole groups of 32 rows"),
        (lambda: morello.quantize_weights(np.ones(32, np.float32)), r"shape \(32,\) are no matrix"),
        (lambda: morello.quantize_weights(np.ones((32, 2), np.complex64)), "w is complex64"),
        (lambda: morello.quantize_weights([[1.0, 2.0]]), r"shape \(1, 2\) are no matrix of whole groups"),
        (lambda: morello.quantize_weights(np.full((32, 2), np.nan, np.float32)), "not finite"),
        (lambda: morello.quantize_weights(np.ones((32, 2), np.float32), 5), "bits=5 is not 4 or 8"),
        (
            lambda: morello.qmatmul(values(1, 64), *morello.quantize_weights(values(32, 2))),
            r"weights has shape \(16, 2\), not \(32, 2\)",
        ),
    ],
)
def test_what_does_not_fit_is_refused(call, message: str) -> None:
    with pytest.raises(MorelloError, match=message):
        call()
