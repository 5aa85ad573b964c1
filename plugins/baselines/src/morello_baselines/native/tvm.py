"""TVM: its MetaSchedule tunes a TensorIR program on the core that it is then timed on. CallChain come from C."""

from __future__ import annotations

import ctypes
import importlib
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from morello_baselines.native import timer
from morello_baselines.native.base import NotInstalled, NotOffered, Prepared, unpinned
from morello_baselines.native.problems import NUMPY, Problem

#: How many programs it measures for a problem, all in one round, as is its default.
_TRIALS = 64
_SEED = 1
#: Kinds of scalars by dlpack: signed, unsigned, float, bfloat.
_CODES = {"f32": 2, "bf16": 4, "u8": 1, "i8": 0, "i32": 0}
_CPU, _TENSOR = 1, 7


class _TvmTensor(ctypes.Structure):
    """A tensor of dlpack."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("offset", ctypes.c_uint64),
    )


class _TvmArgument(ctypes.Structure):
    """A tagged value."""

    _fields_ = (("kind", ctypes.c_int32), ("zero", ctypes.c_uint32), ("value", ctypes.c_void_p))


class Tvm:
    """Programs that are tuned for `cpu`, a name of LLVM's, or for the machine's own if empty."""

    def __init__(self, cpu: str = ""):
        try:
            # Not imported by name, as it need not be there.
            self._tvm, self._te, self._topi, self._tuner = (
                importlib.import_module(name) for name in ("tvm", "tvm.te", "tvm.topi", "tvm.s_tir.meta_schedule")
            )
            # What its tuner loads by itself, half a minute of it, is not of the time that it takes for a problem.
            for name in ("cloudpickle", "psutil", "xgboost", "tvm.s_tir.tensor_intrin"):
                importlib.import_module(name)
        except ImportError as error:
            raise NotInstalled(f"{error.name or error} is not installed (benchmarks/requirements.txt)") from error
        cpu = cpu or self._tvm.target.codegen.llvm_get_system_cpu()
        self._target: Any = self._tvm.target.Target({"kind": "llvm", "mcpu": cpu, "num-cores": 1})

    def prepare(self, problem: Problem, inputs: list[np.ndarray], threads: int) -> Prepared:
        if threads > 1:
            raise NotOffered("only one thread")
        # Sums of bytes are of 32 bits.
        kind = "i32" if problem.types[-1] == "i16" else problem.types[-1]
        operands = [
            np.swapaxes(each, -1, -2) if problem.columns and place == 1 else each for place, each in enumerate(inputs)
        ]
        module = self._module(problem, operands, NUMPY[kind].name)
        output = problem.output(kind)
        with tempfile.TemporaryDirectory(prefix="tvm-") as folder:
            start = time.perf_counter()
            tuned = self._tuned(module, folder)
            seconds = time.perf_counter() - start
            path = str(Path(folder) / "program.so")
            _built(tuned, self._target).export_library(path)
            run = self._timer(path, [*operands, output.T if problem.what == "transpose" else output])
        note = f"{_TRIALS} trials{', sums of 32 bits' if kind != problem.types[-1] else ''}"
        facts = {"search_seconds": seconds}
        return Prepared(run, lambda: output, note, facts=facts)

    def _module(self, problem: Problem, operands: list[np.ndarray], dtype: str) -> Any:
        """Return what computes a problem, not scheduled. Raises NotOffered."""
        x = [
            self._te.placeholder(each.shape, NUMPY[kind].name, f"x{place}")
            for place, (each, kind) in enumerate(zip(operands, problem.types, strict=False))
        ]
        y = self._result(problem, x, dtype)
        main = self._te.create_prim_func([*x, y]).with_attr("global_symbol", "main")
        return self._tvm.IRModule({"main": main})

    def _result(self, problem: Problem, x: list[Any], dtype: str) -> Any:
        """Return the result of a problem as a tensor expression."""
        if problem.what == "matmul":
            return self._product(x[0], x[1], dtype, problem.columns)
        if problem.what == "chain":
            return self._product(self._product(x[1], x[2], dtype), x[0], dtype)
        if problem.what == "sums":
            return self._topi.sum(x[0], axis=-1, keepdims=True)
        simple: dict[str, Callable[..., Any]] = {
            "softmax": self._topi.nn.softmax,
            "transpose": self._topi.transpose,
            "relu": self._topi.nn.relu,
            "copy": self._topi.identity,
            "add": self._topi.add,
        }
        if problem.what not in simple:
            raise NotOffered(f"no {problem.what}")
        return simple[problem.what](*x)

    def _product(self, a: Any, b: Any, dtype: str, columns: bool = False) -> Any:
        te = self._te
        (batch, m, size), n = a.shape, b.shape[-2 if columns else -1]
        k = te.reduce_axis((0, size), "k")

        def value(g: Any, i: Any, j: Any) -> Any:
            right = b[g, j, k] if columns else b[g, k, j]
            return te.sum(a[g, i, k].astype(dtype) * right.astype(dtype), axis=k)

        return te.compute((batch, m, n), value)

    def _tuned(self, module: Any, folder: str) -> Any:
        """Return the fastest program of those that are tried. Raises NotOffered if none runs."""
        # Its process is started here, pinned, and measures; the rest uses all CPUs.
        runner = self._tuner.runner.LocalRunner()
        with unpinned():
            builder = self._tuner.builder.LocalBuilder(max_workers=os.cpu_count(), f_build=_built)
            database = self._tuner.tune_tir(
                module,
                self._target,
                folder,
                max_trials_global=_TRIALS,
                num_trials_per_iter=_TRIALS,
                builder=builder,
                runner=runner,
                num_tuning_cores=os.cpu_count(),
                seed=_SEED,
            )
        schedule = self._tuner.tir_integration.compile_tir(database, module, self._target)
        if schedule is None:
            raise NotOffered("no program that runs")
        return schedule.mod

    def _timer(self, path: str, arrays: list[np.ndarray]) -> Callable[[int], float]:
        """Return what calls an exported program, with the checks of its arguments that each call does."""
        # Its own loader fills in what the program calls.
        module = self._tvm.runtime.load_module(path)
        function = ctypes.cast(ctypes.CDLL(path)["__tvm_ffi_main"], ctypes.c_void_p)
        tensors = [_tensor(each) for each in arrays]
        listed = (_TvmArgument * len(tensors))(*(_TvmArgument(_TENSOR, 0, ctypes.addressof(each)) for each in tensors))
        context = timer.Packed(function, ctypes.cast(listed, ctypes.c_void_p), len(tensors))
        # They must live as long as what uses them.
        context.kept = (module, tensors, listed)
        return timer.timer(timer.library().run_tvm, context, wall=False)


def _built(module: Any, target: Any, _: object = None) -> Any:
    """Return a program, in a process that builds. TVM's own function loads intrinsics first, which takes 20 s each."""
    return importlib.import_module("tvm").tirx.build(module, target=target)


def _tensor(array: np.ndarray) -> _TvmTensor:
    """Return a row-major array as a tensor on the same memory."""
    kind = next(name for name, dtype in NUMPY.items() if dtype == array.dtype)
    shape = (ctypes.c_int64 * array.ndim)(*array.shape)
    strides = (ctypes.c_int64 * array.ndim)(*(each // array.itemsize for each in array.strides))
    sizes = [ctypes.cast(each, ctypes.c_void_p) for each in (shape, strides)]
    scalar = (_CODES[kind], 8 * array.itemsize, 1)
    made = _TvmTensor(timer.address(array), (_CPU, 0), array.ndim, *scalar, *sizes, 0)
    made.kept = (array, shape, strides)
    return made
