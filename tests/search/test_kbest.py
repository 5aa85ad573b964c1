"""The k cheapest programs: costs of the plain recursion, each program once, and correct."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from itertools import product as combinations

import pytest

from morello.codegen.forms import program_key
from morello.frontend.parser import parse_spec
from morello.ir.impl import Leaf, cost_and_peak, expand
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.search.kbest import cheapest
from morello.search.session import SearchSession
from morello.testing.textbook import expansions

COUNT = 25


def costs(target: Target, spec: Spec, known: dict[Spec, list[int]]) -> list[int]:
    """The COUNT least costs of programs, by taking every step on every Spec."""
    if spec not in known:
        found: list[int] = []
        for expansion in expansions(spec.logical, target):
            node = expand(spec, expansion, target.grids)
            if node is None:
                continue
            parts = [costs(target, leaf.spec, known) for leaf in node.children if isinstance(leaf, Leaf)]
            sums = (
                int(expansion.cost)
                + sum(int(part.times) * cost for part, cost in zip(expansion.parts, each, strict=True))
                for each in combinations(*parts)
            )
            found += sums
        known[spec] = sorted(found)[:COUNT]
    return known[spec]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("(Matmul(1×2×2×2, MEM, MEM, MEM, serial), [16, 32, 1048576])", marks=pytest.mark.slow),
        pytest.param("(Matmul(1×1×4×2, MEM, MEM, MEM, serial), [32, 64, 1048576])", marks=pytest.mark.slow),
        "(Move(3×4, MEM, MEM, serial), [16, 64, 1048576])",
    ],
)
def test_costs_are_those_of_the_recursion(text: str, target_named: Callable[[str], Target]) -> None:
    target = target_named("toy_cpu")
    spec = parse_spec(text, target)
    found = [*islice(cheapest(SearchSession(target), spec), COUNT)]
    assert [one.cost for one in found] == costs(target, spec, {})
    assert [one.cost for one in found] == [cost_and_peak(one.impl).cost for one in found]
    assert len({one.impl for one in found}) == len(found)
    assert all(one.impl.spec == spec for one in found)


def test_a_spec_without_programs_has_no_k_best(target_named: Callable[[str], Target]) -> None:
    target = target_named("toy_cpu")
    spec = parse_spec("(Matmul(1×2×2×2, MEM, MEM, MEM, serial), [0, 0, 0])", target)
    assert not [*cheapest(SearchSession(target), spec)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "(Matmul(1×6×4×16, (f32, GL), (f32, GL), (f32, GL), serial), [64, 512, 512, 4096, 0, 1048576])",
        "(Max(4×16, (f32, GL), (f32, GL), serial), [64, 512, 512, 4096, 0, 1048576])",
    ],
)
def test_programs_of_one_form_are_printed_alike(text: str, avx2: Target) -> None:
    """The k best by C are the same: one left out has the C of one that is there, and costs no less."""
    spec = parse_spec(text, avx2)
    search = SearchSession(avx2)

    def sources(printed: bool, count: int) -> dict[str, int]:
        found: dict[str, int] = {}
        for one in islice(cheapest(search, spec, printed=printed), count):
            found.setdefault(program_key(one.impl, avx2), one.cost)
        return found

    every = sources(printed=False, count=60)
    fewer = sources(printed=True, count=30)
    least = min([*every.values()][-1], [*fewer.values()][-1])
    assert {key: cost for key, cost in every.items() if cost < least} == {
        key: cost for key, cost in fewer.items() if cost < least
    }
    assert len(fewer) > 2
