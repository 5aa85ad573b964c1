"""Functions on arrays equal numpy's, for all layouts, and compile once for arrays that are alike."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import warnings
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import morello
from morello.api.functions import calls
from morello.errors import ArgumentError, MorelloError
from morello.plugins.registry import installed

from .conftest import PLAIN, laid_out, values


def anything(value: Any) -> Any:
    """Return what types forbid."""
    return value


SIZES = dict(zip("bcmkn", (2, 3, 2, 4, 3), strict=True))


EXPRESSIONS = ["mk,kn->mn", "mk,kn->nm", "bmk,bkn->bmn", "bmk,kn->bmn", "mk,bkn->bmn", "mk,k->m", "m,n->mn", "k,k->"]
EXPRESSIONS += ["bcmk,bckn->bcmn", "mbk,kn->mbn", "mk,mk->mk", "bkm,bkn->bnm", "mbc,bcn->mn", "bm,b->bm"]


def needs_copies(expression: str, arrays: list[np.ndarray], out: np.ndarray | None) -> bool:
    """Return whether no one stride leads through b and c somewhere."""
    terms = expression.replace("->", ",").split(",")
    return any(
        array.strides[term.index("b")] != array.strides[term.index("c")] * SIZES["c"]
        for term, array in zip(terms, (*arrays, out), strict=True)
        if array is not None and "b" in term
    )


@pytest.mark.slow
@settings(max_examples=16)
@given(st.data(), st.sampled_from(EXPRESSIONS), st.booleans())
def test_einsum_equals_numpys_and_copies_if_it_must(data: st.DataObject, expression: str, given_out: bool) -> None:
    *terms, result = expression.replace("->", ",").split(",")
    arrays = [data.draw(laid_out(tuple(SIZES[one] for one in term), seed)) for seed, term in enumerate(terms)]
    out = data.draw(laid_out(tuple(SIZES[one] for one in result), writes=True)) if given_out else None
    for _ in range(2):
        made = morello.einsum(expression, *arrays, out=out, **PLAIN)
        assert made is out or (out is None and made.flags.c_contiguous)
        np.testing.assert_array_equal(made, np.einsum(expression, *arrays))
        assert made.shape == tuple(SIZES[one] for one in result)
    # Only of these, several letters have to be one dimension.
    refused = pytest.raises(ArgumentError, match="one dimension of the product")
    with refused if "bc" in expression and needs_copies(expression, arrays, out) else nullcontext():
        morello.einsum(expression, *arrays, out=out, copy=False, **PLAIN)


@pytest.mark.slow
@settings(max_examples=16)
@given(
    st.data(),
    st.sampled_from(
        [
            ((2, 4), (4, 3)),
            ((2, 2, 4), (2, 4, 3)),
            ((2, 2, 4), (4, 3)),
            ((2, 4), (2, 4, 3)),
            ((2, 2, 4), (1, 4, 3)),
            ((1, 2, 4), (2, 4, 3)),
            ((4,), (4, 3)),
            ((2, 4), (4,)),
            ((4,), (4,)),
            ((3, 2, 2, 4), (3, 2, 4, 3)),
            ((3, 1, 2, 4), (2, 4, 3)),
        ]
    ),
)
def test_matmul_is_that_of_numpy(data: st.DataObject, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    a, b = (data.draw(laid_out(shape, seed)) for seed, shape in enumerate(shapes))
    made = morello.matmul(a, b, **PLAIN)
    np.testing.assert_array_equal(made, np.matmul(a, b))
    assert made.shape == np.matmul(a, b).shape
    assert made.flags.c_contiguous


@pytest.mark.slow
@settings(max_examples=16)
@given(st.data(), st.sampled_from([(3,), (2, 3), (2, 3, 4), (1, 1)]), st.booleans())
def test_softmax_along_any_axis(data: st.DataObject, shape: tuple[int, ...], given_out: bool) -> None:
    x = data.draw(laid_out(shape))
    out = data.draw(laid_out(shape, writes=True)) if given_out else None
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    powers = np.exp(x.astype(np.float64))
    made = morello.softmax(x, axis, out=out, **PLAIN)
    np.testing.assert_allclose(made, powers / powers.sum(axis, keepdims=True), rtol=1e-5)


def test_broadcasts_fold_into_rows_where_that_is_no_copy() -> None:
    x, w = values(2, 3, 4), values(4, 5)
    assert np.array_equal(morello.matmul(x, w, **PLAIN), x @ w)
    assert shape_of_last() == (1, 6, 4, 5)
    apart = values(2, 5, 4)[:, :3]
    assert np.array_equal(morello.matmul(apart, w, **PLAIN), apart @ w)
    assert shape_of_last() == (2, 3, 4, 5)


def shape_of_last() -> tuple[int, ...]:
    """Return the shape of the kernel that was compiled last."""
    return tuple(map(int, [*calls._calls.values()][-1].kernel.spec.shape))


@pytest.mark.parametrize(
    ("expression", "shapes", "message"),
    [
        ("ij,jk->ik", [(2, 3), (2, 3)], "j is 3 in operand 0 and 2 in operand 1"),
        ("ij,jk->il", [(2, 3), (3, 2)], "l is in the result, but in no operand"),
        ("ij,kl->il", [(2, 3), (3, 2)], "j is only in operand 0"),
        ("ii,ij->j", [(2, 2), (2, 3)], "i occurs twice"),
        ("ij->ji", [(2, 3)], "has one operand, a product has two"),
        ("ii->i", [(2, 2)], "has one operand, a product has two"),
        ("ij,jk,kl->il", [(2, 2)] * 3, "has 3 operands, a product has two"),
        ("ij,jk->ik", [(2, 2)], "names 2 operands and got 1"),
        ("ij,jk->", [(2, 3, 4), (3, 2)], "operand 0 has 3 axes"),
        ("i j; k", [(2,), (2,)], "is not an expression"),
        ("i..,i->", [(2, 2), (2,)], "stray dots"),
        ("bmhd,bnhd->bhmn", [(2, 3, 4, 2), (2, 3, 4, 2)], r"(?s)b, h are one dimension.*transpose\(\(0, 2, 1, 3\)\)"),
        ("bamk,bkn->bamn", [(2, 3, 4, 0), (3, 0, 2)], "b is 2 in operand 0 and 3 in operand 1"),
        ("abmk,bkn->abmn", [(2, 3, 4, 2), (3, 2, 2)], "operand 1 has only a part of the batch"),
        (5, [(2, 2), (2, 2)], "expected an expression, got int"),
    ],
)
def test_other_contractions_are_errors(expression: Any, shapes: list[tuple[int, ...]], message: str) -> None:
    with pytest.raises(ArgumentError, match=message) as caught:
        morello.einsum(expression, *(values(*shape) for shape in shapes), copy=False, **PLAIN)
    assert caught.value.hint


def test_the_copy_of_a_hint_is_accepted() -> None:
    a, b = values(2, 3, 4, 2), values(2, 3, 4, 2, seed=1)
    copies = [np.ascontiguousarray(each.transpose((0, 2, 1, 3))) for each in (a, b)]
    assert np.array_equal(morello.einsum("bhmd,bhnd->bhmn", *copies, **PLAIN), np.einsum("bmhd,bnhd->bhmn", a, b))


def test_dots_and_results_left_out() -> None:
    x, w = values(2, 3, 4), values(4, 5)
    assert np.array_equal(morello.einsum("...k,kn", x, w, **PLAIN), x @ w)
    assert np.array_equal(morello.einsum("...mk,...kn->...mn", x, w[None], **PLAIN), x @ w)
    assert np.array_equal(morello.einsum("zk,kb", x[0], w, **PLAIN), np.einsum("zk,kb", x[0], w))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: morello.matmul(values(2, 2, dtype=np.complex64), values(2, 2)), "values of type complex64"),
        (lambda: morello.matmul({1: 1}, values(1, 1)), "expected an array, got dict"),
        (lambda: morello.matmul(values(1, 1), values(1, 1), out=[[1]]), "expected an array, got list"),
        (lambda: morello.matmul([[1]], values(1, 1), copy=False), "a list or number is an operand"),
        (lambda: morello.matmul([[1], [1, 2]], values(1, 1)), "a list is not an array: .*inhomogeneous"),
        (lambda: morello.matmul([[300]], values(1, 1, dtype=np.int8)), "a list is not an array: .*300"),
        (lambda: morello.matmul(values(2, 2), values(2, 2), out=values(2, 3)), r"out has shape \(2, 3\)"),
        (lambda: morello.matmul(np.float32(2), values(2, 2)), "without axes"),
        (lambda: morello.matmul(np.ma.array(values(2, 2)), values(2, 2)), "without a mask"),
        (lambda: morello.matmul([np.ma.array(values(2))], values(2, 2)), "without a mask"),
        (lambda: morello.matmul(values(2, 2), values(2, 2), out=np.ma.array(values(2, 2))), "without a mask"),
        (lambda: morello.matmul(values(2, 2).astype(">f4"), values(2, 2), copy=False), "in the other byte order"),
        (lambda: morello.matmul(values(2, 0), values(0, 2), out=np.broadcast_to(np.float32(1), (2, 2))), "read-only"),
        (lambda: morello.matmul(values(2, 2), values()), "without axes"),
        (lambda: morello.softmax(values(2, 2), 2), "axis is 2"),
        (lambda: morello.softmax(values(2, 2, dtype=np.int32)), "for floats"),
        (lambda: morello.softmax(values(2, 2), time_limit=-1), "time_limit"),
        (
            lambda: morello.softmax(values(2, 2), time_limit=1, budget=morello.SearchBudget()),
            "both time_limit and budget",
        ),
        (lambda: morello.softmax(values(2, 2), time_limit=anything("1")), "time_limit is '1'"),
        (lambda: morello.softmax(values(2, 2), copy=anything("no")), "copy is 'no'"),
        (lambda: morello.softmax(values(2, 2), target="x68"), "unknown target"),
    ],
)
def test_arguments_that_do_not_fit_are_errors(call: Any, message: str) -> None:
    with pytest.raises(MorelloError, match=message) as caught:
        call()
    assert caught.value.hint


def test_types_are_those_of_numpy_or_of_out() -> None:
    a, b = values(2, 4, dtype=np.int8), values(4, 3, dtype=np.int8)
    assert morello.matmul(a, b, **PLAIN).dtype == np.int8
    out = np.zeros((2, 3), np.int32)
    assert morello.matmul(a, b, out=out, **PLAIN) is out
    assert np.array_equal(out, a.astype(np.int32) @ b)


@pytest.mark.slow
def test_lists_and_numbers_are_taken() -> None:
    x = values(2, 3)
    assert np.array_equal(morello.matmul([[1, 2]], x, **PLAIN), [[1, 2]] @ x)
    assert morello.matmul([[1, 2]], x.astype(np.int8), **PLAIN).dtype == np.int8
    assert morello.matmul([[1, 2]], [[3], [4]], **PLAIN).dtype == np.int32
    assert np.array_equal(morello.matmul(([1.5, 2],), [[2.0], [4.0]], **PLAIN), [[11]])
    assert np.array_equal(morello.einsum(",k->k", 2, x[0], **PLAIN), 2 * x[0])


def test_axes_of_size_0_give_what_numpy_gives() -> None:
    for a, b in (((2, 0), (0, 3)), ((0, 2), (2, 3)), ((0, 2, 2), (2, 3)), ((2, 3, 0), (2, 0, 3)), ((0,), (0,))):
        expected = values(*a) @ values(*b)
        made = morello.matmul(values(*a), values(*b), **PLAIN)
        assert (made.shape, made.dtype) == (expected.shape, np.float32)
        assert np.array_equal(made, expected)
    out = values(2, 3)
    assert morello.matmul(values(2, 0), values(0, 3), out=out, **PLAIN) is out
    assert not out.any()
    assert morello.einsum("mk,mk->mk", values(0, 2), values(0, 2), **PLAIN).shape == (0, 2)
    assert np.array_equal(morello.einsum("bmk,bkn->mbn", values(2, 3, 0), values(2, 0, 4)), np.zeros((3, 2, 4)))
    with pytest.raises(ArgumentError, match="k is 0 in operand 0 and 3 in operand 1"):
        morello.einsum("mk,kn->mn", values(2, 0), values(3, 2), **PLAIN)


def test_bytes_in_the_other_order_are_converted() -> None:
    a, b = values(2, 4), values(4, 3)
    for _ in range(2):
        assert np.array_equal(morello.matmul(a.astype(">f4"), b, **PLAIN), a @ b)
    out = np.zeros((2, 3), ">f4")
    assert morello.matmul(a, b, out=out, **PLAIN) is out
    assert np.array_equal(out, a @ b)


def test_arrays_without_axes() -> None:
    a, x = np.array(3, np.float32), values(4)
    assert np.array_equal(morello.einsum(",->", a, a, **PLAIN), 9)
    assert morello.einsum(",k->k", a, x, **PLAIN).tolist() == (3 * x).tolist()
    assert morello.gelu(a, **PLAIN).shape == ()


def test_unknown_options_name_the_functions_own() -> None:
    any_of = anything(morello)
    for call, message, hint in (
        (lambda x: any_of.softmax(x, axes=0), "softmax has no option 'axes'", "did you mean 'axis'?"),
        (lambda x: any_of.gelu(x, approximately="tanh"), "gelu has no option", "did you mean 'approximate'?"),
        (lambda x: any_of.matmul(x, x, treads=1), "matmul has no option", "did you mean 'threads'?"),
        (lambda x: any_of.layer_norm(x, x, x, keepdim=True), "layer_norm has no option", "its options are eps, out"),
        (lambda x: any_of.attention(x, x, x, dropout_p=0.1), "attention has no dropout_p", "leave it out"),
    ):
        with pytest.raises(ArgumentError, match=message) as caught:
            call(values(2, 2))
        assert hint in (caught.value.hint or "")


def test_names_of_torch() -> None:
    x = values(2, 3)
    assert np.array_equal(morello.softmax(x, dim=0, **PLAIN), morello.softmax(x, axis=0, **PLAIN))
    for torch, form in (("none", "erf"), ("tanh", "tanh")):
        assert np.array_equal(
            anything(morello).gelu(x, approximate=torch, **PLAIN), anything(morello).gelu(x, form, **PLAIN)
        )


class Foreign:
    """An array that has only `__array_interface__`."""

    def __init__(self, array: np.ndarray):
        self.array = array
        self.__array_interface__ = array.__array_interface__


def test_arrays_of_other_libraries() -> None:
    a, b = values(2, 4), values(4, 3)
    for _ in range(2):
        assert np.array_equal(morello.matmul(Foreign(a), Foreign(b), **PLAIN), a @ b)
    out = np.zeros((2, 3), np.float32)
    into = Foreign(out)
    assert morello.matmul(a, Foreign(b), out=into, **PLAIN) is into
    assert np.array_equal(out, a @ b)


def test_torch_in_torch_out() -> None:
    torch = pytest.importorskip("torch")
    a, b = torch.tensor(values(2, 2, 4)), torch.tensor(values(4, 3))
    for expression in ("bmk,kn->bmn", "bmk,kn->nbm"):
        for _ in range(2):
            made = morello.einsum(expression, a, b, **PLAIN)
            assert torch.equal(made, torch.einsum(expression, a, b))
    out = torch.zeros(2, 2, 3)
    assert morello.matmul(a, b, out=out, **PLAIN) is out
    assert torch.equal(out, a @ b)
    # The first array determines the library of the result.
    assert isinstance(morello.matmul(a, b.numpy(), **PLAIN), torch.Tensor)
    assert isinstance(morello.matmul(a.numpy(), b, **PLAIN), np.ndarray)
    half = torch.einsum("bmk->bkm", a).bfloat16()
    assert torch.equal(morello.softmax(half, **PLAIN), torch.softmax(half, -1))
    scattered = [each.permute(0, 2, 1, 3) for each in (torch.ones(2, 3, 4, 2), torch.ones(2, 2, 4, 5))]
    with pytest.raises(ArgumentError, match="one dimension of the product"):
        morello.matmul(*scattered, copy=False, **PLAIN)
    assert torch.equal(morello.matmul(*scattered, **PLAIN), scattered[0] @ scattered[1])
    assert torch.equal(morello.matmul(torch.ones(3, 1, 2, 4), b, **PLAIN), torch.ones(3, 1, 2, 4) @ b)
    assert torch.equal(morello.matmul(torch.ones(2, 0), torch.ones(0, 3), **PLAIN), torch.zeros(2, 3))
    assert morello.softmax(torch.ones(0, 3), **PLAIN).shape == (0, 3)
    with pytest.raises(ArgumentError, match="does not share"), warnings.catch_warnings(action="ignore"):
        morello.softmax(torch.ones(2, 3).to_sparse_csr(), **PLAIN)


def test_tensors_that_need_gradients_are_taken_where_none_are_recorded() -> None:
    torch = pytest.importorskip("torch")
    x, weight = torch.ones(2, 4), torch.nn.Parameter(torch.ones(4, 3))
    with pytest.raises(ArgumentError, match="gradient"):
        morello.matmul(x, weight, **PLAIN)
    with torch.no_grad():
        for _ in range(2):
            assert torch.equal(morello.matmul(x, weight, **PLAIN), x @ weight)
            assert torch.equal(morello.matmul(x, torch.ones(4, 3), out=weight[:2], **PLAIN), torch.full((2, 3), 4.0))


def test_gradients_that_are_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same without torch: a library that does not share tensors with a history."""

    class Tensor(Foreign):
        requires_grad = True
        __array_interface__ = property()
        __dlpack__ = property()

        def __init__(self, array: np.ndarray):
            self.array = array

        def detach(self) -> Foreign:
            return Foreign(self.array)

    monkeypatch.setattr(sys.modules[__name__.split(".")[0]], "is_grad_enabled", lambda: False, raising=False)
    a, b = values(2, 4), values(4, 3)
    assert np.array_equal(morello.matmul(Tensor(a), b, **PLAIN), a @ b)
    monkeypatch.setattr(sys.modules[__name__.split(".")[0]], "is_grad_enabled", lambda: True)
    with pytest.raises(ArgumentError, match="expected an array, got Tensor"):
        morello.matmul(Tensor(a), b, **PLAIN)


def test_arrays_that_are_alike_share_a_kernel() -> None:
    morello.matmul(values(3, 4), values(4, 3), **PLAIN)
    before = len(calls._calls), len(calls._kernels)
    for seed in range(3):
        a, b = values(3, 4, seed=seed), values(4, 3, seed=seed)
        assert np.array_equal(morello.matmul(a, b, target="reference_c"), a @ b)
        assert np.array_equal(morello.einsum("mk,kn->mn", a, b, **PLAIN), a @ b)
    assert len(calls._calls) == before[0] + 1


@pytest.fixture
def repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let functions without options compile for reference_c, whose searches are short."""
    monkeypatch.setattr(calls, "host_target", lambda cpu: installed().target("reference_c"))


@pytest.mark.usefixtures("repeated")
def test_repeated_calls_take_no_checks_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, out = values(3, 5), values(2, 5), np.empty((3, 2), np.float32)
    first = morello.matmul(a, b.T), morello.matmul(a, b.T, out=out), morello.softmax(a, 0), morello.gelu(a)
    monkeypatch.setattr(calls, "_call", None)
    again = morello.matmul(a, b.T), morello.matmul(a, b.T, out=out), morello.softmax(a, 0), morello.gelu(a)
    assert again[1] is out
    for one, other in zip(first, again, strict=True):
        assert np.array_equal(one, other)
    assert not np.shares_memory(first[0], again[0])


@pytest.mark.usefixtures("repeated")
def test_arrays_without_a_quick_call_are_tried_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[bool] = []
    monkeypatch.setattr(calls.FunctionCall, "on", lambda call, arrays, allocates: tried.append(allocates))
    a = values(3, 7)
    for _ in range(20):
        assert np.allclose(morello.matmul(a, a.T), a @ a.T)
    assert 0 < len(tried) < 10


@pytest.mark.usefixtures("repeated")
def test_repeated_calls_refuse_what_the_first_refuses() -> None:
    a, b, out = values(3, 3), values(3, 3, seed=1), np.empty((3, 3), np.float32)
    for _ in range(3):
        assert np.allclose(morello.matmul(a, b), a @ b)
        assert np.allclose(morello.matmul(a, b, out=out), a @ b)
        assert np.allclose(morello.matmul(a.T, b), a.T @ b)
        assert np.allclose(morello.softmax(a, 1).sum(1), 1)
        with pytest.raises(ArgumentError, match="without a mask"):
            morello.matmul(np.ma.masked_array(a, a > 0), b)
        with pytest.raises(ArgumentError, match="overlap"):
            morello.matmul(a, b, out=b)
        with pytest.raises(ArgumentError, match="read-only"):
            morello.matmul(a, b, out=np.broadcast_to(out, (3, 3)))
        with pytest.raises(ArgumentError, match="axis"):
            morello.softmax(a, anything(1.0))
        assert np.allclose(morello.matmul(a, b, threads=1), a @ b)
        with pytest.raises(ArgumentError, match="3 operands"):
            morello.einsum("mk,kn,mn->mn", a, b, out)
        assert np.allclose(morello.matmul(a.astype(np.int32), np.eye(3, dtype=np.int32)), a.astype(np.int32))
        assert np.allclose(morello.matmul(a.view(np.matrix), b), a @ b)


def test_threads_compile_once_and_agree() -> None:
    a, b, results, before = values(5, 7), values(7, 5), list[bool](), len(calls._kernels)
    start = threading.Barrier(4)

    def work() -> None:
        start.wait()
        results.extend(np.array_equal(morello.matmul(a, b, **PLAIN), a @ b) for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert results == [True] * 80
    assert len(calls._kernels) == before + 1


SECOND = """
import numpy as np, morello
seen = []
x = np.ones((2, 3, 4), np.float32)
assert (morello.matmul(x, x[0].T, target='reference_c', progress=seen.append, threads=1) == 4).all()
print(max((one.solved for one in seen), default=0))
"""


@pytest.mark.slow
def test_another_process_neither_searches_nor_builds(tmp_path: Path) -> None:
    environment = {**os.environ, "MORELLO_DB": str(tmp_path / "specs.db"), "MORELLO_CACHE_DIR": str(tmp_path / "cache")}
    run = partial(subprocess.run, [sys.executable, "-c", SECOND], text=True, capture_output=True, timeout=120)
    first = run(env=environment)
    assert int(first.stdout) > 0, first.stderr
    libraries = {each: each.stat().st_ino for each in (tmp_path / "cache").rglob("*.so")}
    assert libraries
    second = run(env=environment)
    assert second.stdout == "0\n", second.stderr
    assert {each: each.stat().st_ino for each in (tmp_path / "cache").rglob("*.so")} == libraries


def test_the_target_is_one_that_this_machine_can_run() -> None:
    assert calls.host_target().name in installed().names
    assert np.array_equal(morello.matmul(values(1, 2), values(2, 1), threads=1), values(1, 2) @ values(2, 1))
