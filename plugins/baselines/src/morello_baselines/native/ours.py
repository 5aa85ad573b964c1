"""Morello's own programs: found by search, called from C."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import attrs
import numpy as np

from morello import api
from morello.api.kernel import Kernel
from morello.db.default import open_store
from morello.errors import NoImplementation
from morello.run.arrays import empty, pack, unpack
from morello.run.timing import FunctionTimer
from morello_baselines.native.base import TOLERANCES, NotOffered, Prepared, unpinned
from morello_baselines.native.problems import Problem, placed


class Ours:
    """Programs for `target`, searched for with the database in `database` (none if empty)."""

    def __init__(self, target: str, database: str = ""):
        self._target = target
        self._store = open_store(database) if database else None

    def prepare(self, problem: Problem, inputs: list[np.ndarray], threads: int) -> Prepared:
        start = time.perf_counter()
        with unpinned():
            found = [*self._found(problem, threads)]
        if not found:
            raise NotOffered("no program")
        kernel = min(found, key=lambda one: one.cost)
        seconds = time.perf_counter() - start
        layout = kernel.spec.operands[1].state.layout if problem.packed else None
        made = prepared(kernel, operands(kernel, inputs), threads)
        facts = {"search_seconds": seconds, "cost": float(kernel.cost)}
        return attrs.evolve(made, note=f"{layout or ''}", facts=facts)

    def _found(self, problem: Problem, threads: int) -> Iterator[Kernel]:
        """Yield the program of each Spec that has one."""
        for text in problem.texts(self._target, threads):
            with contextlib.suppress(NoImplementation):
                yield api.compile(text, cpu="native", db=self._store or False)


def operands(kernel: Kernel, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """Return an array for each operand in the order of a call, laid out as the Spec says.

    `inputs` are those that are read, in the order of the Spec, of logical shapes.
    """
    waiting = iter(inputs)
    given = [
        placed(pack(next(waiting), tensor) if one.reads else empty(tensor))
        for one, tensor in zip(kernel.spec.logical.declared, kernel.spec.operands, strict=True)
    ]
    return [given[argument.operand] for argument in kernel.arguments]


def prepared(kernel: Kernel, arrays: list[np.ndarray], threads: int) -> Prepared:
    """Return a kernel as something to run on these arrays."""
    timer = FunctionTimer(kernel.function, arrays, kernel.threads(threads))
    output = next(argument for argument in kernel.arguments if argument.writes)
    result = kernel.spec.operands[output.operand]
    return Prepared(
        lambda calls: timer(calls)[threads > 1],
        lambda: unpack(arrays[output.index], result),
        tolerance=TOLERANCES.get(result.state.dtype.name, 1e-5),
    )
