"""Morello's own programs: found by search, called from C."""

from __future__ import annotations

import contextlib
import importlib
import time
from collections.abc import Iterator

import attrs
import numpy as np

from morello import api
from morello.api.kernel import Kernel
from morello.db.default import open_store
from morello.errors import NoImplementation
from morello.ir.ops.conv import Conv
from morello.run.arrays import empty, pack, unpack
from morello.run.timing import FunctionTimer
from morello.search.budget import SearchBudget
from morello_baselines.native.base import TOLERANCES, NotInstalled, NotOffered, Prepared, unpinned
from morello_baselines.native.problems import Problem, placed

#: The most schemes of TTile that are measured, and the layouts of image, filters and output.
TRIED, _PAPERS = 50, ("nhwc", "layout[2, 3, 1, 0]", "nhwc")


class Ours:
    """Programs for `target`, searched for with the database in `database` (none if empty).

    A search ends after `expansions`, a number; with the proof if it is empty.
    """

    def __init__(self, target: str, database: str = "", expansions: str = ""):
        self._target = target
        self._budget = attrs.evolve(SearchBudget.default(), expansions=int(expansions)) if expansions else None
        self._store = open_store(database) if database else None

    def prepare(self, problem: Problem, inputs: list[np.ndarray], threads: int) -> Prepared:
        start = time.process_time()
        with unpinned():
            found = [*self._found(problem, threads)]
        if not found:
            raise NotOffered("no program")
        kernel = min(found, key=lambda one: one.cost)
        seconds = time.process_time() - start
        layout = kernel.spec.operands[1].state.layout if problem.packed else None
        made = prepared(kernel, operands(kernel, inputs), threads)
        facts = {"search_seconds": seconds, "cost": float(kernel.cost), "gap": kernel.cost / kernel.low - 1}
        return attrs.evolve(made, note=f"{layout or ''}", facts=facts)

    def _found(self, problem: Problem, threads: int) -> Iterator[Kernel]:
        """Yield the program of each Spec that has one."""
        for text in problem.texts(self._target, threads):
            with contextlib.suppress(NoImplementation):
                yield api.compile(text, cpu="native", db=self._store or False, budget=self._budget)


class TTile(Ours):
    """Programs of the mapper `ttile` for convolutions with channels last, in the paper's layouts.

    Images are padded and filters packed before the clock starts; kernels and the schemes that move least are measured.
    """

    def prepare(self, problem: Problem, inputs: list[np.ndarray], threads: int) -> Prepared:
        op = problem.logical.op
        if not isinstance(op, Conv) or not problem.channels_last:
            raise NotOffered("only convolutions of all channels, channels last")
        top, left, bottom, right = op.pads
        image = np.pad(inputs[0], ((0, 0), (0, 0), (top, bottom), (left, right)))
        shape, operands = "×".join(map(str, problem.logical.shape)), ", ".join(f"(f32, GL, {one})" for one in _PAPERS)
        spec = f"{attrs.evolve(op, padding=0)}({shape}, {operands}, serial)"
        padded = attrs.evolve(problem, specs=(spec,), packed=False)
        made = super().prepare(padded, [image, inputs[1]], threads)
        # Nothing is proven.
        return attrs.evolve(made, facts={"search_seconds": made.facts["search_seconds"]})

    def _found(self, problem: Problem, threads: int) -> Iterator[Kernel]:
        try:
            mapped, ttile = (importlib.import_module(f"morello_bounds.mappers.{name}") for name in ("mapped", "ttile"))
        except ImportError as error:
            raise NotInstalled("morello-bounds is not installed") from error
        options = ttile.TTileOptions(lambda one: mapped.MappedProgram.of(one, ()).timed().seconds or 0.0, tried=TRIED)
        for text in problem.texts(self._target, threads):
            (goal,) = api.parse(text, cpu="native").values()
            program = mapped.Completion(goal, ()).best(ttile.ttile(options), objective=mapped.TIME)
            yield api.compile(program.goal, db=False)


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
