"""Arrays of any library are operands, in place; results are of the library of the first one."""

from __future__ import annotations

import ctypes
import gc
import weakref
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from morello.api.kernel import Kernel
from morello.errors import ArgumentError
from morello.ir.dtypes import ALL, BF16, F32, DType
from morello.ir.layout import Dynamic, Layout, Packed, row_major
from morello.run.arrays import pack, unpack
from morello.run.dlpack import Shared, from_dlpack, type_code

Make = Callable[..., Kernel]
MATRIX = np.arange(6, dtype=np.float32).reshape(2, 3)


class Interface:
    """An array that is known by `__array_interface__` alone."""

    def __init__(self, array: np.ndarray):
        self.array = array

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self.array.__array_interface__


class Exported:
    """An array that is known by DLPack alone, and is its library's namespace, too."""

    def __init__(self, array: np.ndarray, device: int = 1, versions: bool = True):
        self.array, self.device, self.versions = array, device, versions

    def __dlpack_device__(self) -> tuple[int, int]:
        return (self.device, 0)

    def __dlpack__(self, *, max_version: tuple[int, int] | None = None) -> Any:
        assert self.device == 1, "memory of devices is not asked for"
        if max_version and not self.versions:
            raise TypeError("this library is older than versions")
        return Shared(self.array).__dlpack__(**({"max_version": max_version} if max_version else {}))

    def __array_namespace__(self) -> Any:
        return Exported

    @staticmethod
    def from_dlpack(shared: Any) -> Exported:
        return Exported(from_dlpack(shared))


@pytest.mark.parametrize("kind", [Interface, Exported, lambda array: Exported(array, versions=False)])
def test_arrays_are_used_in_place(make: Make, kind: Any) -> None:
    kernel = make("Move", (2, 3), [(F32, row_major(2), 0), (F32, row_major(2), 1)])
    memory = np.zeros((2, 8), np.float32)
    for _ in range(2):
        memory[:] = -1
        assert kernel(kind(MATRIX[:, ::-1]), kind(memory[:, 2:5])) is None
        assert np.array_equal(memory[:, 2:5], MATRIX[:, ::-1])
        assert (memory[:, [0, 1, 5, 6, 7]] == -1).all()
        assert np.array_equal(memory[:, 2:5], kernel(memory[:, 2:5]))


@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("versions", [True, False], ids=["versioned", "older"])
def test_every_type_goes_through_dlpack(dtype: DType, versions: bool) -> None:
    array = np.arange(12).astype(dtype.numpy).reshape(3, 4)[:, ::-2]
    seen = from_dlpack(Exported(array, versions=versions))
    assert seen.dtype == dtype.numpy
    assert seen.ctypes.data == array.ctypes.data
    assert seen.strides == array.strides
    assert np.array_equal(seen, array)
    assert type_code(np.dtype(ml_dtypes.bfloat16)) == (4, 16)


@pytest.mark.slow
def test_memory_lives_as_long_as_it_is_seen() -> None:
    array = np.arange(6, dtype=np.float32)
    alive = weakref.ref(array)
    seen = from_dlpack(Exported(array))
    del array
    gc.collect()
    assert seen[1:].tolist() == [1, 2, 3, 4, 5]
    assert alive() is not None
    del seen
    gc.collect()
    assert alive() is None


def test_results_are_of_the_library_of_the_first_operand(make: Make) -> None:
    kernel = make("Matmul", (1, 2, 3, 4))
    rhs = np.ones((3, 4), np.float32)
    for _ in range(2):
        out = kernel(Exported(MATRIX), rhs)
        assert isinstance(out, Exported)
        assert np.array_equal(out.array, MATRIX @ rhs)
        assert isinstance(kernel(MATRIX, Exported(rhs)), np.ndarray)
        assert isinstance(kernel(Interface(MATRIX), rhs), np.ndarray), "it has no namespace"


def test_packing_arrays_of_any_library(make: Make) -> None:
    tensor = make("Move", (2, 3), [(F32, Layout((Dynamic(0), Dynamic(1), Packed(0, 2)))), F32]).spec.operands[0]
    assert np.array_equal(unpack(pack(Exported(MATRIX), tensor), tensor), MATRIX)


def test_arrays_of_devices_are_refused(make: Make) -> None:
    with pytest.raises(
        ArgumentError, match=r"operand 0 \(src\): expected an array in the CPU's memory, got one on CUDA"
    ) as caught:
        make("Move", (2, 3))(Exported(MATRIX, device=2))
    assert "cpu()" in (caught.value.hint or "")
    with pytest.raises(ArgumentError, match="a device of type 99"):
        make("Move", (2, 3))(Exported(MATRIX, device=99))


def test_inputs_are_not_written(make: Make) -> None:
    locked = MATRIX.copy()
    locked.flags.writeable = False
    kernel = make("Move", (2, 3))
    assert np.array_equal(kernel(Interface(locked)), MATRIX)
    with pytest.raises(ArgumentError, match=r"operand 1 .*read-only") as caught:
        kernel(MATRIX, Interface(locked))
    assert "leave it out" in (caught.value.hint or "")
    with pytest.raises(ArgumentError, match="a numpy array, got float32"):
        make("Move", (1,))(np.ones(1, np.float32), np.float32(1))


def test_other_types_of_dlpack_are_reported(make: Make) -> None:
    shared = Exported(np.zeros((2, 3), np.complex64))
    with pytest.raises(ArgumentError, match=r"float32, got complex64") as caught:
        make("Move", (2, 3))(shared)
    assert "to float32" in (caught.value.hint or "")


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


def test_torch_tensors(make: Make, torch: Any) -> None:
    kernel = make("Matmul", (1, 2, 3, 4))
    lhs, rhs = torch.from_numpy(MATRIX), torch.ones(3, 4)
    for _ in range(3):
        made, given = kernel(lhs, rhs), torch.zeros(2, 4)
        assert type(made) is torch.Tensor
        assert torch.equal(made, lhs @ rhs)
        assert kernel(lhs, rhs, out=given) is given
        assert torch.equal(given, lhs @ rhs)
        # Kinds may be mixed.
        assert np.array_equal(kernel(lhs.numpy(), rhs), MATRIX @ rhs.numpy())


def test_bf16_tensors(make: Make, torch: Any) -> None:
    for kinds in ([BF16, BF16], [F32, BF16], [BF16, F32]):
        kernel = make("Move", (2, 3), kinds)
        types = [torch.bfloat16 if kind == BF16 else torch.float32 for kind in kinds]
        source = torch.from_numpy(MATRIX).to(types[0])
        for _ in range(3):
            made = kernel(source)
            assert made.dtype == types[1]
            assert torch.equal(made.float(), source.float())
            given = torch.zeros(2, 3, dtype=types[1])
            kernel(source, given)
            assert torch.equal(given, made)


def test_f16_tensors_are_not_bf16(make: Make, torch: Any) -> None:
    kernel = make("Move", (2, 3), [BF16, F32])
    kernel(torch.zeros(2, 3, dtype=torch.bfloat16))
    with pytest.raises(ArgumentError, match=r"expected data type bfloat16.*got float16") as caught:
        kernel(torch.zeros(2, 3, dtype=torch.float16))
    assert "with torch" in (caught.value.hint or "")


def test_tensors_that_do_not_fit_a_quick_call(make: Make, torch: Any) -> None:
    kernel = make("Move", (2, 3), [(F32, row_major(2), 1), F32])
    for _ in range(2):
        kernel(torch.ones(2, 3), torch.ones(2, 3))
    both = torch.zeros(4, 3)
    for arrays, expected in (
        ((torch.ones(2, 3, requires_grad=True), both[:2]), "does not share: .*gradient"),
        ((torch.ones(2, 3, device="meta"), both[:2]), "does not share: .*meta"),
        ((torch.ones(2, 3).to_sparse(), both[:2]), "does not share: .*strided"),
        ((torch.ones(3, 2).T, both[:2]), "strides"),
        ((torch.ones(3, 2), both[:2]), "shape"),
        ((torch.ones(2, 3, dtype=torch.int32), both[:2]), "int32"),
        ((both[:2], both[1:3]), "overlaps"),
    ):
        with torch.enable_grad(), pytest.raises(ArgumentError, match=f"operand [01].*{expected}"):
            kernel(*arrays)
    kernel(both[:2], both[2:])


def test_quick_calls_need_no_python_of_tensors(make: Make, torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        pytest.skip("this version of torch has no exchange in C")
    kernel, source, out = make("Move", (2, 3)), torch.ones(2, 3), torch.zeros(2, 3)
    kernel(source, out)
    out.zero_()
    monkeypatch.delattr(torch.Tensor, "__dlpack__")
    kernel(source, out)
    assert torch.equal(out, source)


def test_a_capsule_that_was_patched_is_freed() -> None:
    """Results in bf16 are handed over in numpy's own capsule of their bits."""
    array = np.zeros(3, ml_dtypes.bfloat16)
    alive = weakref.ref(array)
    capsule = Shared(array).__dlpack__()
    assert ctypes.pythonapi.PyCapsule_IsValid(ctypes.py_object(capsule), b"dltensor")
    del array
    assert alive() is not None
    del capsule
    gc.collect()
    assert alive() is None
