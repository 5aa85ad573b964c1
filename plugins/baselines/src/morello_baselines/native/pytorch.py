"""torch, with its kernels and those of MKL and oneDNN that it is built with. Calls go through Python."""

from __future__ import annotations

import attrs
import numpy as np

from morello.ir.dtypes import BY_NAME
from morello_baselines.calls import arranged
from morello_baselines.native.base import TOLERANCES, NotInstalled, Prepared
from morello_baselines.native.problems import Problem
from morello_baselines.torch_calls import Torch
from morello_baselines.worker import seconds


class TorchRunner:
    def __init__(self) -> None:
        try:
            self._calls = Torch()
        except ImportError as error:
            raise NotInstalled("torch is not installed") from error

    def prepare(self, problem: Problem, inputs: list[np.ndarray], threads: int) -> Prepared:
        self._calls.torch.set_num_threads(threads)
        self._calls.torch.set_grad_enabled(False)
        low = next((kind for kind in problem.types if kind in TOLERANCES), "")
        logical = problem.logical
        if low:
            states = tuple(attrs.evolve(one, dtype=BY_NAME[low]) for one in logical.states)
            logical = attrs.evolve(logical, states=states)
        arrays = [*inputs, problem.output(low)]
        calls = arranged(logical, [self._calls.given(each) for each in arrays], self._calls)

        def output() -> np.ndarray:
            calls.run()
            return self._calls.plain(calls.values[calls.output]).reshape(problem.shape)

        def run(count: int) -> float:
            return count * seconds(calls.run, count)[threads > 1]

        note, tolerance = (f"result in {low}", TOLERANCES[low]) if low else ("", 1e-5)
        return Prepared(run, output, note, tolerance)
