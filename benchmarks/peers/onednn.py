"""oneDNN through its C interface; no headers are needed, so its few constants are here."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from harness import native
from harness.problems import Problem, empty
from peers.base import Missing, NotOffered, Prepared
from peers.blas import installed_files

_TYPES = {"bf16": 2, "f32": 3, "i32": 4, "i8": 5, "u8": 6}
_CPU, _IN_ORDER, _ANY = 1, 1, 1
_SRC, _FROM, _DST, _WEIGHTS = 1, 1, 17, 33
_QUERY_WEIGHTS, _QUERY_NAME = 131, 8


class _Argument(ctypes.Structure):
    _fields_ = (("index", ctypes.c_int), ("memory", ctypes.c_void_p))


class OneDnn:
    """Products by the matmul primitive; `weights=any` packs B beforehand, `call=sgemm` uses dnnl_sgemm instead."""

    def __init__(self, weights: str = "plain", call: str = "primitive"):
        files = installed_files("libdnnl.so.*")
        if not files:
            raise Missing("there is no libdnnl.so (onednn-cpu-gomp)")
        self._library = ctypes.CDLL(files[0])
        self._any = weights == "any"
        self._sgemm = call == "sgemm"
        self._engine = self._new("dnnl_engine_create", ctypes.c_int(_CPU), ctypes.c_size_t(0))
        self._stream = self._new("dnnl_stream_create", self._engine, ctypes.c_uint(_IN_ORDER))

    def prepare(self, problem: Problem, inputs: list[np.ndarray], threads: int) -> Prepared:
        if problem.what != "matmul" or not set(problem.types) <= set(_TYPES):
            raise NotOffered("no primitive for it")
        batch, m, k, n = problem.sizes
        output = empty((batch, m, n), problem.output)
        if self._sgemm:
            if problem.types != ("f32", "f32", "f32"):
                raise NotOffered("only products of f32")
            function = ctypes.cast(self._library.dnnl_sgemm, ctypes.c_void_p).value
            context = native.Gemm(function, batch, m, k, n, *map(native.address, (*inputs, output)))
            return Prepared(native.timer(native.library().run_dnnl_sgemm, context, threads > 1), lambda: output)
        a, b = inputs
        x, y = self._plain(a, problem.types[0]), self._plain(output, problem.types[2])
        weights = self._plain(b, problem.types[1])
        wanted = self._description(b, problem.types[1]) if self._any else weights
        made = self._new("dnnl_matmul_primitive_desc_create", self._engine, x, wanted, None, y, None)
        chosen = self._query(made, _QUERY_WEIGHTS)
        memory = self._memory(weights, native.address(b))
        if self._any:
            packed = self._memory(chosen, -1)
            self._reorder(weights, memory, chosen, packed)
            memory = packed
        arguments = [
            (_SRC, self._memory(x, native.address(a))),
            (_WEIGHTS, memory),
            (_DST, self._memory(y, native.address(output))),
        ]
        run = self._timer(made, arguments, wall=threads > 1)
        name = ctypes.cast(self._query(made, _QUERY_NAME), ctypes.c_char_p).value or b""
        return Prepared(run, lambda: output, name.decode())

    def _timer(self, made: ctypes.c_void_p, arguments: Sequence[tuple[int, ctypes.c_void_p]], wall: bool) -> Any:
        listed = (_Argument * len(arguments))(*(_Argument(index, memory.value) for index, memory in arguments))
        context = native.Primitive(
            *(ctypes.cast(each, ctypes.c_void_p) for each in (self._library.dnnl_primitive_execute,)),
            ctypes.cast(self._library.dnnl_stream_wait, ctypes.c_void_p),
            self._new("dnnl_primitive_create", made),
            self._stream,
            len(arguments),
            ctypes.cast(listed, ctypes.c_void_p),
        )
        timed = native.timer(native.library().run_primitive, context, wall)
        # The list must live as long as what uses it.
        return lambda calls, _listed=listed: timed(calls)

    def _plain(self, array: np.ndarray, kind: str) -> ctypes.c_void_p:
        strides = [stride // array.itemsize for stride in array.strides]
        sizes = (ctypes.c_int64 * array.ndim)(*array.shape)
        distances = (ctypes.c_int64 * array.ndim)(*strides)
        return self._new("dnnl_memory_desc_create_with_strides", array.ndim, sizes, _TYPES[kind], distances)

    def _description(self, array: np.ndarray, kind: str) -> ctypes.c_void_p:
        sizes = (ctypes.c_int64 * array.ndim)(*array.shape)
        return self._new("dnnl_memory_desc_create_with_tag", array.ndim, sizes, _TYPES[kind], _ANY)

    def _memory(self, description: ctypes.c_void_p, handle: int) -> ctypes.c_void_p:
        return self._new("dnnl_memory_create", description, self._engine, ctypes.c_void_p(handle))

    def _reorder(self, source: Any, source_memory: Any, target: Any, target_memory: Any) -> None:
        made = self._new("dnnl_reorder_primitive_desc_create", source, self._engine, target, self._engine, None)
        self._timer(made, [(_FROM, source_memory), (_DST, target_memory)], wall=True)(1)

    def _query(self, made: ctypes.c_void_p, what: int) -> ctypes.c_void_p:
        if what == _QUERY_NAME:
            found = ctypes.c_void_p()
            self._check("dnnl_primitive_desc_query", made, what, 0, ctypes.byref(found))
            return found
        self._library.dnnl_primitive_desc_query_md.restype = ctypes.c_void_p
        return ctypes.c_void_p(self._library.dnnl_primitive_desc_query_md(made, what, 0))

    def _new(self, function: str, *arguments: Any) -> ctypes.c_void_p:
        """Return what one of the library's `create` functions makes. Raises NotOffered."""
        made = ctypes.c_void_p()
        self._check(function, ctypes.byref(made), *arguments)
        return made

    def _check(self, function: str, *arguments: Any) -> None:
        if status := getattr(self._library, function)(*arguments):
            raise NotOffered(f"{function} failed with status {status}")
