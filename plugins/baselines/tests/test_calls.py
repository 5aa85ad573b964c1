"""Call chains of other libraries compute their Specs; calls that are not equivalent are refused."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable

import numpy as np
import pytest
from morello_baselines import NotOffered, compare, require
from morello_baselines.calls import CallLibrary, arranged, calls_for, least
from morello_baselines.numpy_calls import Numpy
from morello_baselines.torch_calls import OneDnn, Torch

from morello.errors import MorelloError
from morello.frontend.parser import parse_spec
from morello.ir.dtypes import BF16
from morello.ir.ops import BY_NAME
from morello.ir.spec import LogicalSpec
from morello.plugins import Target

ROWS = ["Relu", "Gelu", "Gelu[form=tanh]", "Silu", "Sigmoid", "Tanh", "Exp", "Scale[by=0.5]", "Shift[by=-0.75]"]
ROWS += ["Softmax", "Softmax[dim=0]", "Move"]
TWO = ["Add", "Sub", "Mul", "Div", "Maximum", "Minimum", "DivideVec"]
#: What numpy and torch have.
BOTH = [
    *(f"{name}(5×12, GL, GL)" for name in ROWS),
    *(f"{name}(5×12, GL, GL, GL)" for name in TWO if name != "DivideVec"),
    "DivideVec(5×12, GL, GL)",
    "DivideVecScalar(5×12, GL, GL)",
    "Add[over=[0]](5×12, GL, GL, GL)",
    "Rsqrt(5×12, GL, GL)",
    "Move(5×12, GL, (GL, col_major))",
    "Add(5×12, (i32, GL), (i32, GL), (i32, GL))",
    *(f"{name}(5×12, GL, GL)" for name in ("Sum", "SumAccum", "Mean", "Max", "MaxAccum")),
    "Sum[dim=0](5×12, GL, GL)",
    "Broadcast(5×12, GL, GL)",
    "FillZero(5×12, GL)",
    "FillNegInf(5×12, GL)",
    "FillMin(5×12, (i32, GL))",
    "FillMin(5×12, GL)",
    "Matmul(1×7×9×11, GL, GL, GL)",
    "Matmul(3×7×9×11, GL, (GL, col_major), GL)",
    "MatmulAccum(1×7×9×11, GL, GL, GL)",
    "MatmulAccum(2×7×9×11, GL, GL, GL)",
    "LayerNorm(1×5×12, GL, GL, GL, GL)",
    "RMSNorm(1×5×12, GL, GL, GL)",
    "Compose([Matmul, Matmul], [(1×8×9, f32, GL), (1×5×7, f32, GL), (1×7×8, f32, GL), (1×5×9, f32, GL)])",
    "Compose([Matmul, Softmax, Scale[by=0.25], Matmul], "
    "[(1×24×16, f32, GL), (1×20×16, f32, GL), (1×16×24, f32, GL), (1×20×16, f32, GL)])",
    *(
        f"Compose([y = {name}(c), c = Add[over=[0, 1]](h, b), h = Matmul(x, w)], "
        "[x: (1×6×7, f32, GL), w: (1×7×8, f32, GL), b: (1×1×8, f32, GL), y: (1×6×8, f32, GL)])"
        for name in ("Gelu", "Gelu[form=tanh]", "Relu", "Tanh")
    ),
    *(
        f"Compose([y = Add[over=[0, 1]](h, b), h = Matmul(x, w)], "
        f"[x: ({batch}×6×7, f32, GL), w: ({batch}×7×8, f32, GL), b: (1×1×8, f32, GL), y: ({batch}×6×8, f32, GL)])"
        for batch in (1, 2)
    ),
    "Compose([y = Add(x, o), o = Matmul(g, w2), g = Gelu(h), h = Matmul(x, w1)], "
    "[x: (1×6×7, f32, GL), w1: (1×7×8, f32, GL), w2: (1×8×7, f32, GL), y: (1×6×7, f32, GL)])",
]
#: Those whose results in bf16 are within a few roundings of themselves.
LOW = [text for text in BOTH if not any(word in text for word in ("i32", "Min", "Compose", "Norm", "Rsqrt"))]
POOLS = [
    "MaxPool[padding=[1, 1, 0, 0], stride=2](1×2×4×4×3×3, GL, GL)",
    "AvgPool[padding=[1, 1, 0, 0], stride=2](1×2×4×4×3×3, GL, GL)",
    "AvgPool[padding=1, count_include_pad](1×2×4×5×3×2, GL, GL)",
]
NAMED = [f"{name}(5×12, GL, GL)" for name in ("Abs", "Neg", "Erf", "Floor", "Selu", "HardSwish", "Softplus", "Mish")]
CONVOLUTIONS = [
    "Conv[padding=1](2×3×4×6×7×3×3, GL, GL, GL)",
    "Conv[padding=[1, 0, 2, 1], stride=[2, 1], dilation=[1, 2]](1×2×3×4×5×3×2, GL, GL, GL)",
    "GroupedConv[stride=2](2×3×4×2×6×5×3×3, GL, GL, GL)",
    "Compose([Relu, Conv], [(1×4×10×10, f32, GL), (3×4×3×3, f32, GL), (1×3×8×8, f32, GL)])",
]
ONEDNN = [
    "Matmul(1×7×9×11, GL, GL, GL)",
    *(f"{name}(5×12, GL, GL)" for name in ("Relu", "Gelu", "Sigmoid", "Tanh", "Softmax")),
    *(f"{name}(5×12, GL, GL, GL)" for name in ("Add", "Mul")),
    "Conv[padding=1, stride=2](2×3×4×6×7×3×3, GL, GL, GL)",
    "Compose([Relu, Conv], [(1×4×10×10, f32, GL), (3×4×3×3, f32, GL), (1×3×8×8, f32, GL)])",
]


def logical(text: str, target: Target) -> LogicalSpec:
    return parse_spec(text, target).logical


def check(found: LogicalSpec, library: CallLibrary) -> None:
    """Hold what the calls compute against the meaning of the operation."""
    calls = calls_for(found, library, seed=1)
    operands = found.op.operands(len(found.shape))
    dtypes = [state.dtype for state in found.states]
    inputs = [
        np.array(library.plain(calls.values[at]), np.float64 if dtypes[at].is_float else np.int64)
        for at, one in enumerate(operands)
        if one.reads
    ]
    (wanted,) = found.op.evaluate(tuple(map(int, found.shape)), inputs, dtypes)
    calls.run()
    got = library.plain(calls.values[calls.output])
    assert got.shape == wanted.shape
    if not dtypes[-1].is_float:
        assert (got == wanted.astype(dtypes[-1].numpy)).all()
        return
    tolerance = 0.05 if BF16 in dtypes else 2e-5
    np.testing.assert_allclose(got.astype(np.float64), wanted, rtol=tolerance, atol=tolerance)


@pytest.fixture(scope="module")
def torch_library() -> Torch:
    pytest.importorskip("torch")
    return Torch()


@pytest.mark.parametrize("text", BOTH)
def test_numpy_computes_the_meaning(text: str, target: Target) -> None:
    if "Gelu" in text and "tanh" not in text:
        pytest.importorskip("scipy")
    with np.errstate(invalid="ignore"):
        check(logical(text, target), Numpy())


@pytest.mark.parametrize("text", [*BOTH, *CONVOLUTIONS, *POOLS, *NAMED])
def test_torch_computes_the_meaning(text: str, target: Target, torch_library: Torch) -> None:
    check(logical(text, target), torch_library)


@pytest.mark.parametrize("text", LOW)
def test_torch_computes_the_meaning_in_bf16(text: str, target: Target, torch_library: Torch) -> None:
    low = text.replace("GL", "(bf16, GL)").replace("((bf16, GL), col_major)", "(bf16, GL, col_major)")
    check(logical(low, target), torch_library)


@pytest.mark.parametrize("text", ONEDNN)
def test_onednn_computes_the_meaning_by_its_own_primitives(
    text: str, target: Target, torch_library: Torch, capfd: pytest.CaptureFixture[str]
) -> None:
    library, found = OneDnn(), logical(text, target)
    check(found, library)
    calls = calls_for(found, library, seed=1)
    verbose = library.torch.backends.mkldnn
    with verbose.verbose(verbose.VERBOSE_ON):
        calls.run()
    if not text.startswith("Mul("):
        assert "primitive,exec" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("text", "library", "why"),
    [
        ("Matmul(1×4×4×4, (u8, GL), (i8, GL), (i32, GL))", Numpy, "several types"),
        ("Matmul(1×4×4×4, (i32, GL), (i32, GL), (i32, GL))", Numpy, "integers"),
        ("Matmul(1×4×4×4, (bf16, GL), (bf16, GL), (bf16, GL))", Numpy, "no bf16"),
        ("Conv(1×2×2×4×4×3×3, GL, GL, GL)", Numpy, "no call for Conv"),
        ("Compose([Relu, Conv], [(1×4×10×10, f32, GL), (3×4×3×3, f32, GL), (1×3×8×8, f32, GL)])", Numpy, "Conv"),
        ("SoftmaxDenominatorAndMax(4×8, GL, GL, GL)", Numpy, "no call for SoftmaxDenominatorAndMax"),
        ("Matmul(1×4×4×4, (i32, GL), (i32, GL), (i32, GL))", Torch, "integers"),
        ("Matmul(2×4×4×4, GL, GL, GL)", OneDnn, "a matrix that is there"),
        ("Add[over=[0]](5×12, GL, GL, GL)", OneDnn, "whole rows"),
        ("MaxPool[padding=[2, 0, 0, 0], stride=2](1×2×4×4×3×3, GL, GL)", Torch, "smaller by a stride"),
        ("Exp(4, GL, GL)", OneDnn, "no call for Exp"),
    ],
)
def test_what_is_no_honest_call_is_refused(
    text: str, library: Callable[[], CallLibrary], why: str, target: Target
) -> None:
    if library is not Numpy:
        pytest.importorskip("torch")
    with pytest.raises(NotOffered, match=why):
        calls_for(logical(text, target), library(), seed=0)


def test_a_derived_operation_is_no_other(target: Target) -> None:
    """A class of a plugin that is derived from one with calls may mean something else."""
    relu = BY_NAME["Relu"]
    other = type("Other", (type(relu),), {})()
    found = logical("Relu(4, GL, GL)", target)
    with pytest.raises(NotOffered, match="no call for Other"):
        arranged(LogicalSpec(other, found.shape, found.states), [np.zeros(4, np.float32)] * 2, Numpy())


def test_gelu_without_scipy_names_it(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    imported = importlib.import_module

    def without(name: str, package: str | None = None) -> object:
        if name.startswith("scipy"):
            raise ImportError(name)
        return imported(name, package)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(NotOffered, match="pip install scipy"):
        calls_for(logical("Gelu(4, GL, GL)", target), Numpy(), seed=0)


@pytest.mark.parametrize("text", [*BOTH, *CONVOLUTIONS])
def test_least_sizes_are_least(text: str, target: Target) -> None:
    """No size can be less, and there is as good as nothing to compute."""
    small = least(logical(text, target))
    assert math.prod(map(int, small.shape)) <= 9
    for one in small.declared:
        assert min(one.shape(small.shape), default=1) >= 1
    assert small.op.check(tuple(map(int, small.shape)), [state.dtype for state in small.states]) is None


@pytest.mark.slow
def test_times_are_of_what_is_computed(target: Target) -> None:
    small, large = (
        compare(logical(f"Matmul(1×{size}×{size}×{size}, GL, GL, GL)", target), "numpy", min_time=0.05)
        for size in (1, 256)
    )
    assert large.times.best > 20 * large.call > 0
    assert small.times.best < 3 * small.call
    assert large.times.best <= large.times.median
    assert large.times == large.cpu
    assert compare(logical("FillZero(4, GL)", target), "numpy", threads=2, min_time=0.01).times


@pytest.mark.slow
def test_torch_is_timed_with_onednn_on_or_off(target: Target) -> None:
    pytest.importorskip("torch")
    report = compare(logical("Gelu(64×1024, GL, GL)", target), "torch", min_time=0.05)
    assert report.note in ("oneDNN on", "oneDNN off")
    assert report.name == f"torch ({report.note})"


@pytest.mark.slow
def test_a_library_that_fails_is_told(target: Target, monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    broken = f"{tmp_path}/torch.py"
    with open(broken, "w", encoding="utf-8") as file:
        file.write("raise RuntimeError('out of order')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(MorelloError, match=r"torch failed on Relu:\n(.*\n)*.*out of order"):
        compare(logical("Relu(4, GL, GL)", target), "torch")


@pytest.mark.slow
def test_the_process_of_a_library_is_not_held_to_a_lesser_cpu(
    target: Target, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    with open(f"{tmp_path}/torch.py", "w", encoding="utf-8") as file:
        file.write("import os\nraise RuntimeError(os.environ.get('OPENBLAS_CORETYPE', 'its own choice'))\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    with pytest.raises(MorelloError, match="its own choice"):
        compare(logical("Relu(4, GL, GL)", target), "torch")


def test_missing_libraries_name_their_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("morello_baselines.times.find_spec", lambda name: None)
    with pytest.raises(MorelloError, match="torch is not installed") as caught:
        require("onednn")
    assert "pip install torch" in str(caught.value)
