"""torch: products by the BLAS it is built with, or by oneDNN with packed weights. Calls go through Python."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from harness.problems import Problem
from peers.base import Missing, NotOffered, Prepared


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
        if problem.what != "matmul" or problem.types != ("f32", "f32", "f32"):
            raise NotOffered("only products of f32")
        a, b = (torch.from_numpy(each if len(each) > 1 else each[0]) for each in inputs)
        out = torch.matmul(a, b)
        batch, m, _, n = problem.sizes

        def call() -> None:
            torch.matmul(a, b, out=out)

        return Prepared(timed(call, threads > 1), lambda: out.numpy().reshape(batch, m, n))


def timed(call: Callable[[], None], wall: bool) -> Callable[[int], float]:
    """Return what times n calls from Python."""
    clock = time.perf_counter if wall else time.thread_time

    def run(calls: int) -> float:
        start = clock()
        for _ in range(calls):
            call()
        return clock() - start

    return run
