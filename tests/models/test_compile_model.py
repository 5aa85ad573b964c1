"""Models of ONNX run as one program in C and compute what ONNX's reference does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import morello

pytestmark = pytest.mark.slow


def saved(path: Path, text: str, **constants: np.ndarray) -> Path:
    """Save the model of ONNX's text, with these constants."""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in constants.items())
    onnx.save(model, path)
    return path


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


BLOCK = """
<ir_version: 8, opset_import: ["" : 17]>
block (float[1, 3, 12, 12] x) => (float[1, 10] y) {
    stem = Conv<pads = [1, 1, 1, 1], strides = [2, 2]>(x, stem_w, stem_b)
    scaled = BatchNormalization(stem, scale, shift, mean, variance)
    a = Relu(scaled)
    small = Conv(a, small_w, small_b)
    small_relu = Relu(small)
    large = Conv<pads = [1, 1, 1, 1]>(a, large_w, large_b)
    large_relu = Relu(large)
    both = Concat<axis = 1>(small_relu, large_relu)
    sum = Add(both, a)
    pool = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(sum)
    deep = Conv<pads = [1, 1, 1, 1], group = 8>(pool, deep_w)
    mean_pool = GlobalAveragePool(deep)
    flat = Flatten(mean_pool)
    classes = Gemm<transB = 1>(flat, dense_w, dense_b)
    y = Softmax<axis = 1>(classes)
}
"""


def test_a_network(tmp_path):
    weights = {
        "stem_w": random(8, 3, 3, 3),
        "stem_b": random(8),
        "scale": random(8),
        "shift": random(8) + 1,
        "mean": random(8),
        "variance": np.abs(random(8)) + 1,
        "small_w": random(4, 8, 1, 1),
        "small_b": random(4),
        "large_w": random(4, 8, 3, 3),
        "large_b": random(4),
        "deep_w": random(8, 1, 3, 3),
        "dense_w": random(10, 8),
        "dense_b": random(10),
    }
    path = saved(tmp_path / "block.onnx", BLOCK, **weights)
    x = random(1, 3, 12, 12)
    (expected,) = ReferenceEvaluator(str(path)).run(None, {"x": x})
    model = morello.compile_model(path, target="x86_avx2", expansions=1)
    np.testing.assert_allclose(model(x), expected, rtol=1e-4, atol=1e-5)
