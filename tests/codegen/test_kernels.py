"""Every microkernel computes the Spec it claims to implement, in every operand state that it accepts."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import numpy as np
import pytest

from morello.ir.dtypes import ALL, BF16, F32, I8, U16
from morello.ir.impl import expand
from morello.ir.spec import LogicalSpec, Spec
from morello.ir.tensor import OperandState, TensorSpec
from morello.plugins import Microkernel, Target
from morello.plugins.registry import installed
from morello.rewrites.select import Select
from morello.runtime import available_compilers
from morello.runtime.machine import missing_features

TARGETS = ["x86_avx2", "x86_avx512"]
MATMULS = [(1, 1, 1, 1), (1, 1, 1, 8), (1, 1, 1, 32), (1, 16, 1, 1), (1, 1, 16, 1), (1, 1, 48, 1), (1, 1, 112, 1)]
MATMULS += [(1, 1, 2, 1), (1, 1, 2, 16), (1, 1, 2, 64), (1, 1, 4, 16), (1, 1, 192, 1), (1, 1, 53, 1), (1, 1, 1, 5)]
TENSORS = [(1,), (1, 1), (8,), (16,), (4, 4), (8, 8), (1, 8, 8), (4, 1, 4), (2, 16), (4, 8)]
TENSORS += [(16, 16), (2, 8), (2, 4), (2, 32), (2, 64), (13,), (2, 11)]


def states(target: Target, shape: tuple[int, ...], kernel: Microkernel, index: int) -> Iterator[OperandState]:
    """Every state that one operand of the kernel may be in: levels, types, layouts, vectors, contiguity."""
    pattern = kernel.operands[index]
    levels = [level for level in target.levels if not pattern.levels or level.name in pattern.levels]
    dtypes = [dtype for dtype in ALL if dtype.name in pattern.dtypes] or [F32, I8, U16, BF16]
    seen = set()
    for level, dtype in itertools.product(levels, dtypes):
        vectors = target.vector_sizes(level, dtype) if level.kind == "vector" else (None,)
        for layout, vector in itertools.product(target.layouts(dtype, len(shape)), vectors):
            if layout.applies(shape):
                tensor = TensorSpec(shape, target.state(level.name, dtype, layout, vector=vector)).canonical()
                if tensor.has_whole_vectors() and tensor.state not in seen:
                    seen.add(tensor.state)
                    yield tensor.state


def accepted(target: Target, kernel: Microkernel, count: int) -> list[Spec]:
    """A random sample of the Specs that the kernel accepts."""
    found = []
    for shape in MATMULS if kernel.op.rank == 4 else TENSORS:
        operands = kernel.op.operands(len(shape))
        choices = [list(states(target, one.shape(shape), kernel, i)) for i, one in enumerate(operands)]
        for combination in itertools.product(*choices):
            logical = LogicalSpec(kernel.op, shape, combination)
            if kernel.accepts(logical) and not kernel.op.check(shape, [state.dtype for state in combination]):
                found.append(target.spec(logical))
    assert found, f"{kernel.name} accepts nothing"
    return random.Random(kernel.name).sample(found, min(count, len(found)))


def all_kernels() -> list[tuple[str, str]]:
    return [(name, kernel.name) for name in TARGETS for kernel in installed().target(name).kernels]


@pytest.mark.parametrize(("target_name", "name"), all_kernels())
def test_kernels_compute_what_they_claim(target_name: str, name: str, prove) -> None:
    target = installed().target(target_name)
    kernel = target.kernels_by_name[name]
    if missing := missing_features((*target.info.cpu_features, *kernel.cpu_features)):
        pytest.skip(f"this CPU lacks {', '.join(missing)}")
    (spec,) = accepted(target, kernel, 1)
    impl = expand(spec, Select(name).expansion(spec.logical, target), target.exact)
    assert impl is not None
    # What both targets have is compiled by one compiler for the one and by the other for the other.
    compilers = available_compilers()
    prove(impl, target, compilers=[compilers[(len(name) + TARGETS.index(target_name)) % len(compilers)]])


@pytest.mark.parametrize(("target_name", "name"), all_kernels())
def test_costs_of_batches_are_those_of_their_specs(target_name: str, name: str) -> None:
    target = installed().target(target_name)
    kernel = target.kernels_by_name[name]
    for spec in accepted(target, kernel, 6):
        logical = spec.logical
        batch = LogicalSpec(logical.op, tuple(np.array([size, size]) for size in logical.shape), logical.states)
        mask = np.broadcast_to(np.asarray(kernel.accepts(batch)), (2,))
        assert mask.tolist() == [True, True]
        cost = np.broadcast_to(np.asarray(kernel.cost(batch, target)), (2,))
        assert cost.tolist() == [kernel.cost(logical, target)] * 2
