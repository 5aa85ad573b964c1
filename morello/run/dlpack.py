"""Exchange arrays between libraries without copies by DLPack, also bf16 and fp8, which numpy does not support.

See https://dmlc.github.io/dlpack/latest and, for `__dlpack__`, https://data-apis.org/array-api/latest.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from morello.errors import ArgumentError

#: Devices with memory of the CPU: CPU, CUDA host and ROCm host.
_CPUS = (1, 3, 11)
_DEVICES = {2: "CUDA", 4: "OpenCL", 7: "Vulkan", 8: "Metal", 10: "ROCm", 13: "CUDA (managed)", 14: "oneAPI"}
#: The supported version.
_VERSION = (1, 0)
#: Flags of read-only memory and of copies: writes to a copy would be lost.
_READ_ONLY = 0b11
#: DLPack's codes of types, by numpy's kinds, and of types that numpy lacks.
_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_FOREIGN = {
    np.dtype(kind): code
    for kind, code in (
        (ml_dtypes.bfloat16, 4),
        (ml_dtypes.float8_e3m4, 7),
        (ml_dtypes.float8_e4m3, 8),
        (ml_dtypes.float8_e4m3fn, 10),
        (ml_dtypes.float8_e5m2, 12),
    )
}


class _Type(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    """DLTensor: strides are in values, or NULL if they are those of rows."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32),
        ("device_number", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("type", _Type),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned; DLManagedTensor, of libraries before version 1, begins with its tensor."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


class _ExchangeApi(ctypes.Structure):
    """DLPackExchangeAPI."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("previous", ctypes.c_void_p),
        ("allocator", ctypes.c_void_p),
        ("managed_from_object", ctypes.c_void_p),
        ("object_from_managed", ctypes.c_void_p),
        ("tensor_from_object", ctypes.c_void_p),
    )


_is_capsule = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
_content = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


class _Memory:
    """The memory of a numpy array; the capsule frees it."""

    def __init__(self, capsule: Any, interface: dict[str, Any]):
        self._capsule = capsule
        self.__array_interface__ = interface


def from_dlpack(array: Any) -> np.ndarray:
    """Return a numpy array on the memory of an object that has `__dlpack__`; bf16 and fp8 are types of `ml_dtypes`.

    Raises ArgumentError for an array that is not in the CPU's memory, that its library does not share, or whose data
    type numpy lacks.
    """
    array = detached(array)
    try:
        device = int(array.__dlpack_device__()[0])
        capsule = _capsule_of(array) if device in _CPUS else None
    except Exception as error:  # of whatever type its library chooses
        raise ArgumentError(
            f"expected an array to be used in place, got one that {library_of(array)} does not share: {error}",
            "pass a plain array of its values in the CPU's memory: with torch, tensor.detach(), or call in no_grad()",
        ) from error
    if capsule is None:
        raise ArgumentError(
            f"expected an array in the CPU's memory, got one on {_DEVICES.get(device, f'a device of type {device}')}",
            "copy it there first: with torch, tensor.cpu(); with jax, jax.device_put(array, jax.devices('cpu')[0])",
        )
    tensor, read_only = _tensor_of(capsule)
    dtype = _numpy_type(tensor.type)
    shape = tuple(tensor.shape[: tensor.rank])
    strides = tuple(stride * dtype.itemsize for stride in tensor.strides[: tensor.rank]) if tensor.strides else None
    bits = np.dtype(f"u{dtype.itemsize}") if dtype in _FOREIGN else dtype
    interface = {
        "version": 3,
        "shape": shape,
        "typestr": bits.str,
        "strides": strides,
        "data": ((tensor.data or 0) + tensor.offset, read_only),
    }
    return np.asarray(_Memory(capsule, interface)).view(dtype)


def detached(array: Any) -> Any:
    """Return a tensor without its history if its library records none now, as torch under `no_grad`."""
    if getattr(array, "requires_grad", False):
        records = (getattr(library, "is_grad_enabled", None) for library in _libraries(array))
        if any(recording and not recording() for recording in records):
            return array.detach()
    return array


class Shared:
    """A numpy array, of bf16 and fp8 too, for the `from_dlpack` of any library."""

    def __init__(self, array: np.ndarray):
        self._array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, **asked: Any) -> Any:
        code = _FOREIGN.get(self._array.dtype)
        if code is None:
            return self._array.__dlpack__(**asked)
        capsule = self._array.view(f"u{self._array.itemsize}").__dlpack__(**asked)
        _tensor_of(capsule)[0].type.code = code
        return capsule


def to_library_of(array: Any) -> Callable[[np.ndarray], Any] | None:
    """Return the function that converts numpy arrays to the library of `array`, without copies; None if it has none.

    The library is the array's `__array_namespace__`, or the package of its type.
    """
    if isinstance(array, np.ndarray):
        return None
    libraries = [array.__array_namespace__()] if hasattr(array, "__array_namespace__") else _libraries(array)
    take = next(filter(None, (getattr(library, "from_dlpack", None) for library in libraries)), None)
    return take and (lambda made: take(Shared(made) if made.dtype in _FOREIGN else made))


def type_code(dtype: np.dtype) -> tuple[int, int]:
    """Return DLPack's code and bits of a type."""
    return _FOREIGN[dtype] if dtype in _FOREIGN else _CODES[dtype.kind], 8 * dtype.itemsize


def exchange_of(kind: type) -> int | None:
    """Return the address of the C function that fills a DLTensor for an object of this type, or None.

    It takes a Python object and a DLTensor, and returns 0 on success.
    """
    capsule, name = getattr(kind, "__dlpack_c_exchange_api__", None), b"dlpack_exchange_api"
    if capsule is None or not _is_capsule(capsule, name):
        return None
    api = _ExchangeApi.from_address(_content(capsule, name))
    return api.tensor_from_object if api.major == _VERSION[0] else None


def _capsule_of(array: Any) -> Any:
    try:
        return array.__dlpack__(max_version=_VERSION)
    except TypeError:  # a library before version 1
        return array.__dlpack__()


def _tensor_of(capsule: Any) -> tuple[_Tensor, bool]:
    """Return the tensor of a capsule, and whether it is read-only."""
    if _is_capsule(capsule, b"dltensor_versioned"):
        managed = _Versioned.from_address(_content(capsule, b"dltensor_versioned"))
        return managed.tensor, bool(managed.flags & _READ_ONLY)
    return _Tensor.from_address(_content(capsule, b"dltensor")), False


def _numpy_type(given: _Type) -> np.dtype:
    if given.lanes == 1:
        for foreign, code in _FOREIGN.items():
            if (given.code, given.bits) == (code, 8 * foreign.itemsize):
                return foreign
    kind = next((kind for kind, code in _CODES.items() if code == given.code), "")
    try:
        if not kind or given.lanes != 1:
            raise TypeError
        return np.dtype(f"{kind}{given.bits // 8}")
    except TypeError:
        raise ArgumentError(
            f"expected values of a type that operands have, got {given.bits} bits of DLPack's type {given.code}"
            f"{f', {given.lanes} at a time' if given.lanes != 1 else ''}",
            "convert the array with its own library",
        ) from None


def library_of(array: Any) -> str:
    """Return the name of an array's library."""
    return "numpy" if isinstance(array, np.ndarray) else _package(type(array))


def _libraries(array: Any) -> list[Any]:
    """Return the packages of an array's types."""
    return [sys.modules.get(_package(kind)) for kind in type(array).__mro__]


def _package(kind: type) -> str:
    return kind.__module__.split(".")[0]
