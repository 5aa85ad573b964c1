"""torch, with its kernels and those of MKL and oneDNN that it is built with. CallChain go through Python."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np

from morello import api
from morello.ir.dtypes import BF16
from morello.run.arrays import empty
from morello_baselines.calls import arranged
from morello_baselines.native.base import NotInstalled, NotOffered, Prepared
from morello_baselines.native.problems import Problem
from morello_baselines.torch_calls import Torch as CallChain

#: Results in bf16 have eight bits.
_BF16_TOLERANCE = 2**-8


class TorchRunner:
    def __init__(self) -> None:
        try:
            self._calls = CallChain()
        except ImportError as error:
            raise NotInstalled("torch is not installed") from error

    def prepare(self, problem: Problem, inputs: list[np.ndarray], threads: int) -> Prepared:
        self._calls.torch.set_num_threads(threads)
        self._calls.torch.set_grad_enabled(False)
        if not set(problem.types) <= {"f32", "bf16"}:
            raise NotOffered("only floats")
        low = "bf16" in problem.types
        # All targets have the level of its operands.
        (goal,) = api.parse(problem.texts("reference_c", 1)[0]).values()
        logical = goal.spec.logical
        if low:
            logical = attrs.evolve(logical, states=tuple(attrs.evolve(one, dtype=BF16) for one in logical.states))
        arrays = [*inputs, empty(logical.operands[-1])]
        calls = arranged(logical, [self._calls.given(each) for each in arrays], self._calls)

        def output() -> np.ndarray:
            calls.run()
            return self._calls.plain(calls.values[calls.output]).reshape(problem.shape)

        note, tolerance = ("result in bf16", _BF16_TOLERANCE) if low else ("", 1e-5)
        return Prepared(timed(calls.run, threads > 1), output, note, tolerance)


def timed(call: Callable[[], Any], wall: bool) -> Callable[[int], float]:
    """Return what times n calls from Python."""
    clock = time.perf_counter if wall else time.thread_time

    def run(calls: int) -> float:
        start = clock()
        for _ in range(calls):
            call()
        return clock() - start

    return run
