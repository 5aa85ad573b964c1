"""Meanings of problems in numpy, on arrays of float64."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

#: LayerNorm's, where a Spec gives no other.
EPSILON = 1e-5


def _softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def _gelu(x: np.ndarray) -> np.ndarray:
    return x / 2 * (1 + np.vectorize(math.erf, otypes=[np.float64])(x / math.sqrt(2)))


def _layer_norm(beta: np.ndarray, gamma: np.ndarray, x: np.ndarray) -> np.ndarray:
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + EPSILON) * gamma + beta


#: Arguments are in the order of the Spec's operands: for Composes, the input used last comes first.
REFERENCES: dict[str, Callable[..., np.ndarray]] = {
    "matmul": np.matmul,
    "chain": lambda c, a, b: a @ b @ c,
    "softmax": _softmax,
    "transpose": lambda x: x,
    "layer norm": _layer_norm,
    "gelu": _gelu,
    "relu": lambda x: np.maximum(x, 0),
    "copy": lambda x: x,
    "add": np.add,
    "sums": lambda x: x.sum(axis=-1, keepdims=True),
    "linear gelu": lambda b, x, w: _gelu(x @ w + b),
    "attention": lambda v, q, k: _softmax(q @ k / math.sqrt(q.shape[-1])) @ v,
}
