"""The fuzzer of convolutions: draws depend on the seed alone, and its programs are right."""

from __future__ import annotations

import itertools
import random

from morello.ir.ops.compose import Compose
from morello.plugins.registry import installed
from tools.fuzz.convolutions import KERNELS, Convolutions, batches, called
from tools.fuzz.isolated import outcomes


def test_draws_depend_on_the_seed_alone() -> None:
    target = installed().target("x86_avx2", "base")
    first, second = ([*itertools.islice(Convolutions(target, random.Random(1)).draw(), 8)] for _ in range(2))
    assert first == second
    assert all(any(name.startswith(KERNELS) for name in called(one)) for one in first)
    assert len({type(one.spec.op) is Compose for one in first}) == 2
    assert not any(one.spec.op.constants for one in first)


def test_programs_are_verified() -> None:
    ((trials, programs),) = batches(installed().target("x86_avx2", "base"), 6, 2)
    assert [*outcomes(trials)] == [None] * len(programs) == [None] * 6
