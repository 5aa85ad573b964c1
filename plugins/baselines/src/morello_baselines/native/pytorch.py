"""torch, with its kernels and those of MKL and oneDNN that it is built with. Calls go through Python."""

from __future__ import annotations

import attrs
import numpy as np

from morello.ir.dtypes import BF16
from morello_baselines.calls import arranged
from morello_baselines.native.base import NotInstalled, NotOffered, Prepared
from morello_baselines.native.problems import Problem
from morello_baselines.torch_calls import Torch
from morello_baselines.worker import seconds

#: Results in bf16 have eight bits.
_BF16_TOLERANCE = 2**-8


class TorchRunner:
    def __init__(self) -> None:
        try:
            self._calls = Torch()
        except ImportError as error:
            raise NotInstalled("torch is not installed") from error

    def prepare(self, problem: Problem, inputs: list[np.ndarray], threads: int) -> Prepared:
        self._calls.torch.set_num_threads(threads)
        self._calls.torch.set_grad_enabled(False)
        if not set(problem.types) <= {"f32", "bf16"}:
            raise NotOffered("only floats")
        low = "bf16" in problem.types
        logical = problem.logical
        if low:
            logical = attrs.evolve(logical, states=tuple(attrs.evolve(one, dtype=BF16) for one in logical.states))
        arrays = [*inputs, problem.output("bf16" if low else "")]
        calls = arranged(logical, [self._calls.given(each) for each in arrays], self._calls)

        def output() -> np.ndarray:
            calls.run()
            return self._calls.plain(calls.values[calls.output]).reshape(problem.shape)

        def run(count: int) -> float:
            return count * seconds(calls.run, count)[threads > 1]

        note, tolerance = ("result in bf16", _BF16_TOLERANCE) if low else ("", 1e-5)
        return Prepared(run, output, note, tolerance)
