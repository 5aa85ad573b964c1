"""Morello's own programs: found by search, called from C."""

from __future__ import annotations

import contextlib
import ctypes
import time
from collections.abc import Iterator

import attrs
import numpy as np

from morello import api
from morello.api.kernel import Kernel
from morello.db.store import SpecStore
from morello.errors import NoImplementation
from morello.run.arrays import empty, pack, unpack
from morello_baselines.native import timer
from morello_baselines.native.base import NotOffered, Prepared, unpinned
from morello_baselines.native.problems import Problem

#: The program's own call, with all arguments in a context; a file of its own, so that nothing is hoisted.
_SOURCE = """\
#include <stddef.h>
{header}
typedef __typeof__(&{name}) bench_kernel;
struct call {{ bench_kernel function; void *pointers[{pointers}]; ptrdiff_t numbers[{numbers}]; }};
void bench_call(void *context) {{
    const struct call *call = context;
    call->function({arguments});
}}
"""


class Ours:
    """Programs for `target`, searched for with the database in `database` (none if empty)."""

    def __init__(self, target: str, database: str = ""):
        self._target = target
        self._store = SpecStore(database) if database else None

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
                yield api.compile(text, db=self._store or False)


def operands(kernel: Kernel, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """Return an array for each operand in the order of a call, laid out as the Spec says.

    `inputs` are those that are read, in the order of the Spec, of logical shapes.
    """
    waiting = iter(inputs)
    given = [
        pack(next(waiting), tensor) if one.reads else empty(tensor)
        for one, tensor in zip(kernel.spec.logical.declared, kernel.spec.operands, strict=True)
    ]
    return [given[argument.operand] for argument in kernel.arguments]


def prepared(kernel: Kernel, arrays: list[np.ndarray], threads: int) -> Prepared:
    """Return a kernel as something to run on these arrays."""
    function, context = _call(kernel, arrays, kernel.threads(threads))
    run = timer.timer(function, context, wall=threads > 1)
    output = next(argument for argument in kernel.arguments if argument.writes)
    return Prepared(run, lambda: unpack(arrays[output.index], kernel.spec.operands[output.operand]))


def _call(kernel: Kernel, arrays: list[np.ndarray], threads: int) -> tuple[object, ctypes.Structure]:
    """Return a function of C that calls the kernel, and what to hand it."""
    words, numbers = [], []
    for position, (argument, array) in enumerate(zip(kernel.arguments, arrays, strict=True)):
        strides = argument.form.outer_strides(array)
        words += [f"call->pointers[{position}]"]
        words += [f"call->numbers[{len(numbers) + each}]" for each in range(len(strides))]
        numbers += strides
    memory = list(arrays)
    if kernel.program.workspace_for(threads):
        words.append(f"call->pointers[{len(memory)}]")
        memory.append(kernel.function.workspace(threads))
    if kernel.program.parallel:
        words.append(f"(int)call->numbers[{len(numbers)}]")
        numbers.append(threads)
    source = _SOURCE.format(
        header=kernel.header,
        name=kernel.program.name,
        arguments=", ".join(words),
        pointers=len(memory),
        numbers=max(1, len(numbers)),
    )
    loaded = kernel.function.load()
    library = timer.compiled(source)

    class Call(ctypes.Structure):
        _fields_ = (
            ("function", ctypes.c_void_p),
            ("pointers", ctypes.c_void_p * len(memory)),
            ("numbers", ctypes.c_ssize_t * max(1, len(numbers))),
        )

    context = Call(
        int(loaded.ffi.cast("uintptr_t", loaded.function)),
        tuple(each.ctypes.data for each in memory),
        tuple(numbers),
    )
    # The loader and the workspace must live as long as what calls them.
    context.kept = (loaded, memory, library)
    return library.bench_call, context
