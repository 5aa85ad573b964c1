"""oneDNN through its C interface; no headers are needed, so its few constants are here."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from morello.ir.ops.conv import Conv, GroupedConv
from morello_baselines.native import timer
from morello_baselines.native.base import NotInstalled, NotOffered, Prepared
from morello_baselines.native.blas import installed_files
from morello_baselines.native.problems import NUMPY, Problem, empty, images

#: LayerNorm's, where a Spec gives no other.
EPSILON = 1e-5
_TYPES = {"bf16": 2, "f32": 3, "i32": 4, "i8": 5, "u8": 6}
_CPU, _IN_ORDER, _ANY = 1, 1, 1
_SRC, _FROM, _DST, _WEIGHTS, _BIAS, _SCALE, _SHIFT = 1, 1, 17, 33, 41, 51, 52
_QUERY_WEIGHTS, _QUERY_NAME = 131, 8
_INFERENCE, _DIRECT, _SOFTMAX, _USE_SCALE_AND_SHIFT = 96, 1, 0x30000, 2 | 4
_GELU, _RELU = 0x31, 0x20
#: Problems besides products.
_ROWS = ("softmax", "gelu", "relu", "layer norm", "transpose", "copy")
_ZERO = ctypes.c_float(0)


class _Argument(ctypes.Structure):
    _fields_ = (("index", ctypes.c_int), ("memory", ctypes.c_void_p))


#: A primitive's description, and the memory of each argument.
_Ready = tuple[ctypes.c_void_p, list[tuple[int, ctypes.c_void_p]]]


class OneDnnRunner:
    """Primitives; `weights=any` packs weights beforehand, `call=sgemm` uses dnnl_sgemm instead."""

    def __init__(self, weights: str = "plain", call: str = "primitive"):
        files = installed_files("libdnnl.so.*")
        if not files:
            raise NotInstalled("libdnnl.so is not installed (onednn-cpu-gomp)")
        self._library = ctypes.CDLL(files[0])
        self._any = weights == "any"
        self._packed: np.ndarray | None = None
        self._sgemm = call == "sgemm"
        self._engine = self._new("dnnl_engine_create", ctypes.c_int(_CPU), ctypes.c_size_t(0))
        self._stream = self._new("dnnl_stream_create", self._engine, ctypes.c_uint(_IN_ORDER))

    def prepare(self, problem: Problem, inputs: list[np.ndarray], threads: int) -> Prepared:
        wall = threads > 1
        # Sums of bytes are of 32 bits.
        kind = "i32" if problem.types[-1] == "i16" else problem.types[-1]
        output = problem.output(kind)
        if self._sgemm:
            function = ctypes.cast(self._library.dnnl_sgemm, ctypes.c_void_p).value
            return timer.product(problem, inputs, function, timer.library().run_dnnl_sgemm, wall)
        if problem.what in ("matmul", "linear gelu"):
            descriptor, arguments = self._product(inputs, output)
        elif problem.what == "conv":
            descriptor, arguments = self._convolution(problem, inputs, output)
        elif self._any or problem.what not in _ROWS:
            raise NotOffered(f"no {problem.what}")
        else:
            descriptor, arguments = self._rows(problem, inputs, output)
        name = ctypes.cast(self._query(descriptor, _QUERY_NAME), ctypes.c_char_p).value or b""
        note = f"{name.decode()}{', sums of 32 bits' if kind != problem.types[-1] else ''}"
        return Prepared(self._timer(descriptor, arguments, wall), lambda: output, note)

    def _product(self, inputs: list[np.ndarray], output: np.ndarray) -> _Ready:
        """Return a product, with a bias and Gelu where the problem has them."""
        bias, (a, b) = (inputs[:-2], inputs[-2:])
        x, y, weights = self._plain(a), self._plain(output), self._plain(b)
        wanted = self._plain(b, anyhow=True) if self._any else weights
        shift = self._plain(bias[0]) if bias else None
        descriptor = self._new(
            "dnnl_matmul_primitive_desc_create", self._engine, x, wanted, shift, y, self._gelu() if bias else None
        )
        memory = self._weights(descriptor, weights, b)
        places = [(_SRC, x, a), (_DST, y, output), *([(_BIAS, shift, bias[0])] if bias else [])]
        return descriptor, [
            (_WEIGHTS, memory),
            *((place, self._memory(d, timer.address(each))) for place, d, each in places),
        ]

    def _convolution(self, problem: Problem, inputs: list[np.ndarray], output: np.ndarray) -> _Ready:
        """Return a convolution, direct so that its sums are those of the problem."""
        op = problem.logical.op
        assert isinstance(op, Conv | GroupedConv)
        image, filters, result = images(inputs[0]), inputs[1], images(output)
        x, y, weights = self._plain(image), self._plain(result), self._plain(filters)
        wanted = self._plain(filters, anyhow=True) if self._any else weights
        pairs = (op.strides, [one - 1 for one in op.dilations], op.pads[:2], op.pads[2:])
        sizes = [(ctypes.c_int64 * 2)(*pair) for pair in pairs]
        descriptor = self._new(
            "dnnl_convolution_forward_primitive_desc_create",
            *(self._engine, _INFERENCE, _DIRECT, x, wanted, None, y, *sizes, None),
        )
        memory = self._weights(descriptor, weights, filters)
        places = ((_SRC, x, image), (_DST, y, result))
        held = [(place, self._memory(each, timer.address(array))) for place, each, array in places]
        return descriptor, [(_WEIGHTS, memory), *held]

    def _weights(self, descriptor: ctypes.c_void_p, plain: ctypes.c_void_p, array: np.ndarray) -> ctypes.c_void_p:
        """Return the memory of weights, packed as a primitive wants them where they may be."""
        memory = self._memory(plain, timer.address(array))
        if not self._any:
            return memory
        chosen = self._query(descriptor, _QUERY_WEIGHTS)
        self._packed = empty((self._size(chosen),), np.dtype(np.uint8))
        packed = self._memory(chosen, timer.address(self._packed))
        self._reorder(plain, memory, chosen, packed)
        return packed

    def _gelu(self) -> ctypes.c_void_p:
        """Return the attribute that applies Gelu to a result."""
        attribute, operations = self._new("dnnl_primitive_attr_create"), self._new("dnnl_post_ops_create")
        self._check("dnnl_post_ops_append_eltwise", operations, _GELU, _ZERO, _ZERO)
        self._check("dnnl_primitive_attr_set_post_ops", attribute, operations)
        return attribute

    def _rows(self, problem: Problem, inputs: list[np.ndarray], output: np.ndarray) -> _Ready:
        """Return what works on values or rows of the last input."""
        x, y = self._plain(inputs[-1]), self._plain(output)
        arguments = [
            (_SRC, self._memory(x, timer.address(inputs[-1]))),
            (_DST, self._memory(y, timer.address(output))),
        ]
        start = (self._engine, _INFERENCE)
        if problem.what in ("transpose", "copy"):
            return self._new("dnnl_reorder_primitive_desc_create", x, self._engine, y, self._engine, None), arguments
        if problem.what == "softmax":
            descriptor = self._new("dnnl_softmax_forward_primitive_desc_create", *start, _SOFTMAX, x, y, 1, None)
        elif problem.what in ("gelu", "relu"):
            which = _GELU if problem.what == "gelu" else _RELU
            descriptor = self._new(
                "dnnl_eltwise_forward_primitive_desc_create", *start, which, x, y, _ZERO, _ZERO, None
            )
        else:
            epsilon, flags = ctypes.c_float(EPSILON), _USE_SCALE_AND_SHIFT
            descriptor = self._new(
                "dnnl_layer_normalization_forward_primitive_desc_create", *start, x, y, None, epsilon, flags, None
            )
            for place, array in ((_SHIFT, inputs[0]), (_SCALE, inputs[1])):
                arguments.append((place, self._memory(self._plain(array.reshape(-1)), timer.address(array))))
        return descriptor, arguments

    def _timer(self, descriptor: ctypes.c_void_p, arguments: Sequence[tuple[int, ctypes.c_void_p]], wall: bool) -> Any:
        listed = (_Argument * len(arguments))(*(_Argument(index, memory.value) for index, memory in arguments))
        context = timer.Primitive(
            ctypes.cast(self._library.dnnl_primitive_execute, ctypes.c_void_p),
            ctypes.cast(self._library.dnnl_stream_wait, ctypes.c_void_p),
            self._new("dnnl_primitive_create", descriptor),
            self._stream,
            len(arguments),
            ctypes.cast(listed, ctypes.c_void_p),
        )
        timed = timer.timer(timer.library().run_primitive, context, wall)
        # The list must live as long as what uses it.
        return lambda calls, _listed=listed: timed(calls)

    def _plain(self, array: np.ndarray, anyhow: bool = False) -> ctypes.c_void_p:
        """Return the description of an array as it lies in memory, or in whatever way suits the primitive."""
        kind = _TYPES[next(name for name, dtype in NUMPY.items() if dtype == array.dtype)]
        sizes = (ctypes.c_int64 * array.ndim)(*array.shape)
        if anyhow:
            return self._new("dnnl_memory_desc_create_with_tag", array.ndim, sizes, kind, _ANY)
        strides = (ctypes.c_int64 * array.ndim)(*(stride // array.itemsize for stride in array.strides))
        return self._new("dnnl_memory_desc_create_with_strides", array.ndim, sizes, kind, strides)

    def _memory(self, description: ctypes.c_void_p, handle: int) -> ctypes.c_void_p:
        return self._new("dnnl_memory_create", description, self._engine, ctypes.c_void_p(handle))

    def _size(self, description: ctypes.c_void_p) -> int:
        """Return the bytes of an array with this description."""
        self._library.dnnl_memory_desc_get_size.restype = ctypes.c_size_t
        return self._library.dnnl_memory_desc_get_size(description)

    def _reorder(self, source: Any, source_memory: Any, target: Any, target_memory: Any) -> None:
        made = self._new("dnnl_reorder_primitive_desc_create", source, self._engine, target, self._engine, None)
        self._timer(made, [(_FROM, source_memory), (_DST, target_memory)], wall=True)(1)

    def _query(self, descriptor: ctypes.c_void_p, what: int) -> ctypes.c_void_p:
        if what == _QUERY_NAME:
            found = ctypes.c_void_p()
            self._check("dnnl_primitive_desc_query", descriptor, what, 0, ctypes.byref(found))
            return found
        self._library.dnnl_primitive_desc_query_md.restype = ctypes.c_void_p
        return ctypes.c_void_p(self._library.dnnl_primitive_desc_query_md(descriptor, what, 0))

    def _new(self, function: str, *arguments: Any) -> ctypes.c_void_p:
        """Return what one of the library's `create` functions makes. Raises NotOffered."""
        made = ctypes.c_void_p()
        self._check(function, ctypes.byref(made), *arguments)
        return made

    def _check(self, function: str, *arguments: Any) -> None:
        if status := getattr(self._library, function)(*arguments):
            raise NotOffered(f"{function} failed with status {status}")
