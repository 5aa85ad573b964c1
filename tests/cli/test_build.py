"""`morello build MODEL -d DIR`: CMake builds the folder, and its example computes what ONNX's reference does."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from morello.host import missing_features
from morello.models.naming import c_name

MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
graph (float[batch, 8] class) => (float[batch, 16] inputs, float[batch, 16] t_2x) {
    made = MatMul(class, w)
    inputs = Relu(made)
    t_2x = Add(inputs, b)
}
"""
#: The quickest searches.
QUICK = ("--dim", "batch=2", "--effort", "1")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model whose file and tensors have names that C cannot have."""
    made = onnx.parser.parse_model(MODEL)
    rng = np.random.default_rng(0)
    for name, shape in {"w": (8, 16), "b": (16,)}.items():
        value = rng.standard_normal(shape).astype(np.float32)
        made.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    path = tmp_path / "2 layers!.onnx"
    onnx.save(made, path)
    return path


def printed(text: str) -> Iterator[list[float]]:
    """Yield the values that the example prints of each output."""
    for line in re.findall(r"^\w+: (.*?)(?: \.\.\.)?$", text, re.MULTILINE):
        yield [float(one) for one in line.split()]


@pytest.mark.slow
@pytest.mark.skipif(bool(missing_features(["avx2", "fma"])), reason="needs AVX2")
@pytest.mark.skipif(not shutil.which("cmake"), reason="needs CMake")
@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--embed-weights", "--name", "net", "--target", "x86_avx512"),
        ("--name", "net", "--target", "x86_avx512", "--threads", "3", "--dim", "batch=16384"),
    ],
    ids=str,
)
def test_the_example_computes_the_model(cli, model, tmp_path, options):
    out = tmp_path / "out"
    quick = QUICK if "--dim" not in options else QUICK[2:]
    result = cli("build", str(model), "-d", str(out), *quick, "--target", "x86_avx2", *options)
    assert result.exit_code == 0, result.output
    name, threads, embedded = (
        "net" if options else "model_2_layers",
        "--threads" in options,
        "--embed-weights" in options,
    )
    assert (out / f"{name}.bin").exists() == (not embedded)
    assert ("net_set_parallel" in (out / f"{name}.h").read_text()) == threads
    assert ("-pthread" in (out / f"{name}.pc").read_text()) == threads
    assert not {path.name for path in tmp_path.iterdir()} - {"out", model.name}
    strict = "-DCMAKE_C_FLAGS=-Wall -Wextra -Werror"
    subprocess.run(["cmake", "-S", out, "-B", out / "made", strict], check=True, stdout=subprocess.PIPE)
    subprocess.run(["cmake", "--build", out / "made"], check=True, stdout=subprocess.PIPE)
    x = np.random.default_rng(1).standard_normal((16384 if threads else 2, 8)).astype(np.float32)
    x.tofile(tmp_path / "x.bin")
    words = [out / "made" / f"{name}_example", *([] if embedded else [out / f"{name}.bin"]), tmp_path / "x.bin"]
    shown = subprocess.run(words, check=True, text=True, stdout=subprocess.PIPE).stdout
    expected = [*map(np.asarray, ReferenceEvaluator(str(model)).run(None, {"class": x}))]
    for got, one in zip(printed(shown), expected, strict=True):
        np.testing.assert_allclose(got, one.reshape(-1)[:8], rtol=1e-4, atol=1e-5)
    assert f"the largest is value {expected[0].argmax()}\n" in shown
    if embedded:
        # The bias, 64 bytes, is there once; the weights are packed for each target, in strips of one size or two.
        sizes = re.search(r"NET_WEIGHTS (\d+)\n", (out / "net.h").read_text())
        assert sizes
        assert int(sizes[1]) in (512 + 64, 2 * 512 + 64)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--name", "3x"], "'3x' cannot name a C function"),
        (["--name", "math"], "'math' cannot name a model: it is a header of the C library"),
        (["--dim", "rows=3"], "no input has the dimension rows"),
        (["-d", "file"], "cannot write into file: it is a file"),
        (["-d", "no/where"], "cannot make no/where"),
    ],
    ids=lambda one: one[-1] if isinstance(one, list) else "",
)
def test_errors(cli, model, refused, tmp_path, monkeypatch, options, words):
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    given = ["-d", "out", "--dim", "batch=1", "--target", "reference_c", *options]
    refused(cli("build", str(model), *given), words)
    assert not Path("out").exists()


def test_errors_of_the_command_line(cli, model, refused):
    words = ("build", str(model), "-d", "out")
    refused(cli(*words, "--dim", "batch"), "'batch' is not a name and a size", code=2)
    refused(cli(*words, "--dim", "batch=1", "--dim", "batch=2"), "batch has two sizes, 1 and 2", code=2)
    refused(cli(*words, "--prove", "--effort", "1"), "exclude each other", code=2)
    refused(cli(*words), "--dim batch=1")


def test_names_in_c():
    assert [c_name(one) for one in ("squeezenet1.0-7", "3d", "math", "int", "größe", "a" * 99, "--")] == [
        "squeezenet1_0_7",
        "model_3d",
        "model_math",
        "model_int",
        "gru00f6u00dfe",
        "a" * 40,
        "model",
    ]
