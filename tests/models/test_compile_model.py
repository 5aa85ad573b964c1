"""Models of ONNX run as one program in C and compute what ONNX's reference does."""

from __future__ import annotations

import json
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs
import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import morello
from morello.api.kernel import Kernel
from morello.errors import VerificationError
from morello.models.check import check_model

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
    np.testing.assert_allclose(model(x), np.asarray(expected), rtol=1e-4, atol=1e-5)


LAYERS = """
<ir_version: 8, opset_import: ["" : 17]>
layers (float[2, 8] x, float[16] b) => (float[2, 16] y, float[2, 16] z) {
    made = MatMul(x, w)
    y = Add(made, b)
    z = Exp(y)
}
"""


@pytest.fixture(scope="module")
def layers(tmp_path_factory):
    """The path of a small model."""
    return saved(tmp_path_factory.mktemp("layers") / "layers.onnx", LAYERS, w=random(8, 16))


@pytest.fixture(scope="module")
def model(layers):
    return morello.compile_model(layers, target="x86_avx2", expansions=1)


def test_calls(model, layers):
    x, b = random(2, 8), random(16)
    expected = ReferenceEvaluator(str(layers)).run(None, {"x": x, "b": b})
    made = np.empty((2, 16), np.float32), np.empty((2, 16), np.float32)
    assert model(x, b=b, out=made) is made
    calls = [
        model(x, b),
        model(b=b, x=x),
        model(np.asfortranarray(x), b),
        made,
        pickle.loads(pickle.dumps(model))(x, b),
    ]
    with ThreadPoolExecutor(4) as threads:
        calls += threads.map(lambda _: model(x, b), range(16))
    for outputs in calls:
        for got, one in zip(outputs, expected, strict=True):
            np.testing.assert_allclose(got, np.asarray(one), rtol=1e-4, atol=1e-5)
    assert "2 calls of 2 kernels" in repr(model)
    assert model.bench(0.001) > 0


THREADED = """
<ir_version: 8, opset_import: ["" : 17]>
threaded (float[1, 4, 64, 64] x) => (float[1, 16] y, float[1, 16] z) {
    a = Conv<pads = [1, 1, 1, 1]>(x, filters)
    b = Exp(a)
    c = Conv<pads = [1, 1, 1, 1]>(b, deep)
    mean = GlobalAveragePool(c)
    y = Flatten(mean)
    z = Exp(y)
}
"""


def test_threads_share_loops_that_take_long(tmp_path):
    path = saved(tmp_path / "threaded.onnx", THREADED, filters=random(16, 4, 3, 3) / 9, deep=random(16, 16, 3, 3) / 9)
    x, options = random(1, 4, 64, 64), {"target": "x86_avx2", "expansions": 1, "db": False}
    alone, model = morello.compile_model(path, **options), morello.compile_model(path, threads=2, **options)
    parallel = {one.program.name: one.program.parallel for one in model.program.all_kernels}
    assert sum(parallel.values()) >= 2
    assert not parallel["threaded_4_exp"]
    assert not alone.program.parallel
    assert model.program.workspace_for(2) <= model.program.workspace_for(3)
    expected = alone(x)
    calls = [model(x), model(x, threads=1), model(x, threads=3), pickle.loads(pickle.dumps(model))(x)]
    with ThreadPoolExecutor(3) as threads:
        calls += threads.map(lambda number: model(x, threads=number), (1, 2, 3))
    for outputs in calls:
        for got, one in zip(outputs, expected, strict=True):
            np.testing.assert_array_equal(got, one)
    with pytest.raises(morello.MorelloError, match="0 threads"):
        model(x, threads=0)
    assert "steps passed" in str(check_model(morello.from_onnx(path), model.program))


class Other:
    """An array of another library, as far as DLPack goes."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __array_namespace__(self):
        return Library


class Library:
    from_dlpack = staticmethod(lambda array: Other(np.from_dlpack(array)))


def test_outputs_are_of_the_library_of_the_first_input(model):
    x, b = random(2, 8), random(16)
    y, z = model(Other(x), Other(b))
    assert isinstance(y, Other)
    np.testing.assert_array_equal(z.array, model(x, b)[1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model, x, b: model(x), "takes 2 arrays, not 1"),
        (lambda model, x, b: model(x, b, b), "takes 2 arrays, not 3"),
        (lambda model, x, b: model(x, c=b), "no input c"),
        (lambda model, x, b: model(x, x=b), "two arrays for the input x"),
        (lambda model, x, b: model(x, b.astype(np.float64)), "b: expected values of float32, got float64"),
        (lambda model, x, b: model(x[:1], b), r"x: expected shape \(2, 8\), got \(1, 8\)"),
        (lambda model, x, b: model([1], b), "x: expected an array, got list"),
        (lambda model, x, b: model(x, b, out=x), "has 2 outputs, not 1"),
        (lambda model, x, b: model(x, b, out=(np.tile(x, 2)[:, ::1],) * 2), "z: overlaps another array"),
        (lambda model, x, b: model(x, b, out=(np.tile(x, 4)[:, ::2], b)), "y: expected a contiguous, writable array"),
    ],
)
def test_arrays_that_do_not_fit(model, call, message):
    with pytest.raises(morello.MorelloError, match=message):
        call(model, random(2, 8), random(16))


def test_checks_of_the_whole(model, layers):
    source = morello.from_onnx(layers)
    report = check_model(source, model.program)
    assert [one.name for one in report.steps] == ["made", "z"]
    assert all(one.error <= 1 for one in (*report.steps, *report.outputs))
    assert "2 steps passed" in str(report)
    tensors = {
        name: attrs.evolve(one, value=None if one.value is None else -one.value) for name, one in source.tensors.items()
    }
    with pytest.raises(VerificationError, match="output y is wrong"):
        check_model(attrs.evolve(source, tensors=tensors), model.program)
    first, second = model.program.kernels
    wrong = attrs.evolve(first.program, source=first.source.rstrip().removesuffix("}") + "    y0[3] += 1;\n}\n")
    (variant,) = model.program.variants
    variants = (attrs.evolve(variant, kernels=(Kernel(first.goal, wrong), second)),)
    with pytest.raises(VerificationError, match=r"made \(Matmul \+ Add\), computed by layers_0_matmul_add, is wrong"):
        check_model(source, attrs.evolve(model.program, variants=variants))


def test_the_command_checks_a_model(cli, layers):
    result = cli("check", str(layers), "--target", "x86_avx2", "--effort", "1", "--json")
    assert result.exit_code == 0, result.output
    *kernels, whole = json.loads(result.stdout)
    assert [one["spec"] for one in kernels] == ["layers_0_matmul_add", "layers_1_exp"]
    assert [one["name"] for one in whole["outputs"]] == ["y", "z"]
