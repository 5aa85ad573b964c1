"""torch, with its kernels and those of MKL and oneDNN that it is built with. Calls go through Python."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from harness.meanings import EPSILON
from harness.problems import NUMPY, Problem
from peers.base import Missing, NotOffered, Prepared

#: Results in bf16 have eight bits.
_BF16_TOLERANCE = 2**-8


class Torch:
    def __init__(self) -> None:
        try:
            # Not imported by name, as it need not be there.
            self._torch: Any = importlib.import_module("torch")
        except ImportError as error:
            raise Missing("torch is not installed") from error

    def prepare(self, problem: Problem, inputs: list[np.ndarray], threads: int) -> Prepared:
        torch = self._torch
        torch.set_num_threads(threads)
        if not set(problem.types) <= {"f32", "bf16"}:
            raise NotOffered("only floats")
        call = self._call(problem, [self._tensor(each) for each in inputs])
        low = "bf16" in problem.types

        def output() -> np.ndarray:
            found = call()
            return (found.T if problem.what == "transpose" else found).float().numpy().reshape(problem.shape)

        note, tolerance = ("result in bf16", _BF16_TOLERANCE) if low else ("", 1e-5)
        return Prepared(timed(call, threads > 1), output, note, tolerance)

    def _tensor(self, array: np.ndarray) -> Any:
        """Return a tensor on the same memory."""
        if array.dtype == NUMPY["bf16"]:
            return self._torch.from_numpy(array.view(np.uint16)).view(self._torch.bfloat16)
        return self._torch.from_numpy(array)

    def _call(self, problem: Problem, x: list[Any]) -> Callable[[], Any]:
        """Return what computes a problem, into memory that is there already wherever torch can."""
        torch, functions = self._torch, self._torch.nn.functional
        if problem.what == "matmul":
            a, b = (each[0] if len(each) == 1 else each for each in x)
            out = torch.matmul(a, b)
            return lambda: torch.matmul(a, b, out=out)
        if problem.what == "softmax":
            out = torch.empty_like(x[0])
            return lambda: torch.softmax(x[0], -1, out=out)
        if problem.what in ("transpose", "copy"):
            source, out = x[0].T if problem.what == "transpose" else x[0], torch.empty_like(x[0])
            return lambda: out.copy_(source)
        if problem.what == "relu":
            out = torch.empty_like(x[0])
            return lambda: torch.clamp_min(x[0], 0, out=out)
        if problem.what == "add":
            out = torch.empty_like(x[0])
            return lambda: torch.add(*x, out=out)
        if problem.what == "sums":
            out = torch.sum(x[0], -1, keepdim=True)
            return lambda: torch.sum(x[0], -1, keepdim=True, out=out)
        if problem.what == "chain":
            return lambda: x[1] @ x[2] @ x[0]
        if problem.what == "gelu":
            return lambda: functions.gelu(x[0])
        if problem.what == "linear gelu":
            return lambda: functions.gelu(torch.addmm(x[0][0], x[1][0], x[2][0]))
        if problem.what == "layer norm":
            return lambda: functions.layer_norm(x[2], x[2].shape[-1:], x[1].flatten(), x[0].flatten(), EPSILON)
        if problem.what == "attention":
            v, q, k = x[0][None], x[1][None], x[2].transpose(-1, -2)[None]
            return lambda: functions.scaled_dot_product_attention(q, k, v)
        raise NotOffered(f"no {problem.what}")


def timed(call: Callable[[], Any], wall: bool) -> Callable[[int], float]:
    """Return what times n calls from Python."""
    clock = time.perf_counter if wall else time.thread_time

    def run(calls: int) -> float:
        start = clock()
        for _ in range(calls):
            call()
        return clock() - start

    return run
