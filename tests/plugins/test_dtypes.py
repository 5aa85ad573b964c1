"""Data types of plugins belong to their registry, and are as good as Morello's own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import morello
from morello.db import labels
from morello.db.fingerprint import fingerprint
from morello.errors import MorelloError, PluginError
from morello.frontend import SourceError, parse_spec
from morello.frontend.specfile import show_spec
from morello.ir.dtypes import BY_NAME, DType
from morello.plugins import Target, hookimpl
from morello.plugins.registry import Registry, installed
from morello.search.budget import SearchBudget

E4M3, E5M2 = DType("f8e4m3", ml_dtypes.float8_e4m3fn), DType("f8e5m2", ml_dtypes.float8_e5m2)
TEXT = "Matmul(1×4×9×3, (f8e4m3, GL), (f8e5m2, GL), (f32, GL), serial)"


def declaring(*dtypes: Any) -> Any:
    """Return a plugin with these data types."""
    return SimpleNamespace(morello_dtypes=hookimpl(lambda: [*dtypes]))


@pytest.fixture(scope="module")
def reference() -> Any:
    from morello_reference_c import plugin

    return plugin


@pytest.fixture(scope="module")
def registry(reference: Any) -> Registry:
    return Registry.of(float8=declaring(E4M3, E5M2), reference_c=reference)


@pytest.fixture(scope="module")
def target(registry: Registry) -> Target:
    return registry.target("reference_c")


def test_specs_and_labels_have_them(target: Target) -> None:
    spec = parse_spec(TEXT, target)
    assert [state.dtype for state in spec.logical.states[:2]] == [E4M3, E5M2]
    assert parse_spec(show_spec(spec, target), target) == spec
    written = labels.write(spec.logical)
    assert labels.read(written, target.operations, target.dtypes).states == spec.logical.states
    with pytest.raises(MorelloError, match="unknown data type 'f8e4m3'"):
        labels.read(written, target.operations, BY_NAME)
    plain = installed().target("reference_c")
    with pytest.raises(SourceError, match="unknown data type 'f8e4m3'"):
        parse_spec(TEXT, plain)
    assert "f8e4m3" not in BY_NAME
    assert fingerprint(target) != fingerprint(plain)


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        "Move(3×40, (f32, GL), (f8e4m3, GL), serial)",
        "Max(3×40, (f8e4m3, GL), (f8e4m3, GL), serial)",
        "FillNegInf(3×4, (f8e4m3, GL), serial)",
        "Softmax(3×40, (f8e5m2, GL), (f8e4m3, GL), serial)",
    ],
)
def test_programs_are_right(registry: Registry, text: str) -> None:
    goal = morello.goal(text, target="reference_c", registry=registry)
    kernel = morello.compile(goal.select(goal.impl.spec.logical.op.name))
    assert kernel.check(thorough=True).worst <= 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "Add(3×40, (f8e4m3, GL), (f8e5m2, GL), (f8e4m3, GL), serial)",
        "Move(2×40, (f32, GL), (f8e4m3, GL), serial)",
        "Move(2×40, (f64, GL), (f8e5m2, GL), serial)",
        "Softmax(2×9, (f8e4m3, GL), (f32, GL), serial)",
        "Matmul(1×4×8×4, (f8e4m3, GL), (f8e5m2, GL), (f32, GL), serial)",
    ],
)
def test_kernels_that_name_no_types_take_them(x86_plugin: Any, text: str) -> None:
    registry = Registry.of(float8=declaring(E4M3, E5M2), x86_avx2=x86_plugin)
    goal = morello.goal(text, target="x86_avx2", registry=registry)
    assert morello.compile(goal.synthesize(budget=SearchBudget(expansions=3000))).check().worst <= 1


def test_arrays_hold_values_or_bits(registry: Registry) -> None:
    goal = morello.goal("Move(4, (f8e4m3, GL), (f32, GL), serial)", target="reference_c", registry=registry)
    kernel = morello.compile(goal.select("Move"))
    values = np.array([1, -448, 0.015625, np.nan], E4M3.numpy)
    for given in (values, values.view(np.uint8)):
        assert np.array_equal(kernel(given), values.astype(np.float32), equal_nan=True)
    torch = pytest.importorskip("torch")
    shared = torch.tensor([1, -448, 0.015625, torch.nan]).to(torch.float8_e4m3fn)
    assert np.array_equal(np.asarray(kernel(shared)), values.astype(np.float32), equal_nan=True)


@pytest.mark.parametrize(
    ("dtype", "message"),
    [
        (DType("half", np.float16), "begins with f, i, u or bf and a digit"),
        (DType("f16", ml_dtypes.float8_e5m2), "Morello has f16"),
        (DType("f16x", np.float16), "Morello has f16"),
        (DType("u64", np.uint64), "floats of 8 or 16 bits"),
        (DType("f8fnuz", ml_dtypes.float8_e4m3fnuz), "zeros of both signs"),
        (DType("f4", ml_dtypes.float4_e2m1fn), "floats of 8 or 16 bits"),
        ("f8", "data types are"),
    ],
    ids=str,
)
def test_faulty_ones_are_errors(dtype: Any, message: str) -> None:
    with pytest.raises(PluginError, match=message):
        assert Registry.of(mine=declaring(dtype)).dtypes


def test_two_plugins_cannot_have_one() -> None:
    with pytest.raises(PluginError, match=r"'other'.*one has f8e4m3"):
        assert Registry.of(one=declaring(E4M3), other=declaring(E4M3)).dtypes
