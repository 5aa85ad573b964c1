"""Tables of kernels: costs and memory of each kernel on all shapes and states equal those of single Specs."""

from __future__ import annotations

import random

import attrs
import pytest

from morello.errors import PluginError
from morello.frontend.parser import parse_spec
from morello.ir.numbers import Num
from morello.ir.spec import LogicalSpec
from morello.kernels.microkernel import Cost
from morello.kernels.target import Target
from morello.plugins import Combined
from morello.plugins.registry import Registry
from morello.rewrites.select import accepted, checked_cost, checked_needs
from morello.search.step_kinds import KINDS
from morello.search.tables.kernels import KernelTables
from morello.search.tables.step_tables import SearchTables
from tools.fuzz.sweep import toy_plugin

GOALS = (
    "Matmul(1×4×4×16, GL, GL, GL, serial)",
    "Matmul(1×2×4×16, (bf16, GL), (bf16, GL), (f32, GL), serial)",
    pytest.param("Conv(1×8×2×3×3×2×2, GL, GL, GL, serial)", marks=pytest.mark.slow),
)


def tables_of(text: str, target: Target) -> SearchTables:
    return SearchTables([parse_spec(text, target).logical], target, [kind.tables for kind in KINDS])


@pytest.mark.parametrize("text", GOALS)
def test_costs_and_needs_are_those_of_single_specs(text: str, avx2: Target) -> None:
    rng, tables = random.Random(0), tables_of(text, avx2)
    for key, kernels in tables.of(KernelTables).by_key.items():
        space = tables.spaces.by_key[key]
        for table in rng.sample(kernels, min(20, len(kernels))):
            row, at = rng.randrange(len(table.states)), rng.randrange(len(table.shapes))
            shape = tuple(space.sizes[:, table.shapes[at]].tolist())
            states = tuple(tables.states.states[number][1] for number in table.states[row].tolist())
            logical = LogicalSpec(key.op, shape, states, key.serial)
            kernel = avx2.kernels_by_name[table.step.kernel]
            assert accepted(kernel, logical, avx2)
            assert int(checked_cost(kernel, logical, avx2)) == table.costs[table.which[row], at]
            assert tuple(map(int, checked_needs(kernel, logical, avx2))) == table.needs


def test_tables_have_every_call_that_a_kernel_accepts(avx2: Target) -> None:
    rng, tables = random.Random(0), tables_of(GOALS[0], avx2)
    for key, kernels in tables.of(KernelTables).by_key.items():
        space, states = tables.spaces.by_key[key], tables.states
        rows = [(one.step.kernel, row, one.shapes.tolist()) for one in kernels for row in one.states.tolist()]
        calls = [(kernel, *row, shape) for kernel, row, shapes in rows for shape in shapes]
        there = set(calls)
        assert len(calls) == len(there)
        for _ in range(20):
            shape = rng.randrange(space.count)
            of_ranks = [
                [number for number, (rank, _) in enumerate(states.states) if rank == len(operand.dims)]
                for operand in space.operands
            ]
            numbers = [
                rng.choice([number for number in own if states.describes(number)[tensors[shape]]])
                for own, tensors in zip(of_ranks, space.tensors, strict=True)
            ]
            chosen = tuple(states.states[number][1] for number in numbers)
            logical = LogicalSpec(key.op, tuple(space.sizes[:, shape].tolist()), chosen, key.serial)
            for kernel in avx2.kernels:
                found = (kernel.name, *numbers, shape) in there
                assert found == bool(kernel.implements(key.op) and accepted(kernel, logical, avx2))


def half(spec: LogicalSpec, machine: object) -> Num:
    return 0.5  # pyright: ignore[reportReturnType]


def none(spec: LogicalSpec, machine: object) -> Num:
    return 0


def two(spec: LogicalSpec, machine: object) -> tuple[Num, ...]:
    return 1, half(spec, machine)


def pair(spec: LogicalSpec, machine: object) -> Num:
    return 1, 2  # pyright: ignore[reportReturnType]


def ragged(spec: LogicalSpec, machine: object) -> tuple[Num, ...]:
    return (1,) * (1 + spec.states[0].aligned)


@pytest.mark.parametrize(
    ("cost", "what"),
    [
        (Combined(lambda one: one, (half,)), "its cost is an integer of at least 1, not 0.5"),
        (Combined(lambda one: one + 0.5, (none,)), "its cost is an integer of at least 1, not 0.5"),
        (Combined(lambda one: one, (none,)), "its cost is an integer of at least 1, not 0"),
        (Combined(lambda one, two: one, (none,)), "its cost failed: TypeError"),
        (Combined(lambda two: two[1], (two,)), "its cost is an integer of at least 1, not 0.5"),
        (Combined(lambda some: 1, (ragged,)), "each part of its cost has as many values for all Specs"),
        (pair, r"its cost has one value per Spec, not \(2,\)"),
    ],
)
def test_invalid_costs_are_errors(cost: Cost, what: str) -> None:
    plugin = toy_plugin()
    kernels = tuple(attrs.evolve(kernel, cost=cost) for kernel in plugin.kernels)
    target = Registry.of(toy_cpu=attrs.evolve(plugin, kernels=kernels)).target("toy_cpu")
    with pytest.raises(PluginError, match=what):
        tables_of("Matmul(1×2×2×4, C, C, C, serial)", target)
