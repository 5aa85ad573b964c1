"""Kinds of step: rewrites that third parties derive from Move and Select are as fast as those, and right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
import pytest

from morello.errors import PluginError
from morello.frontend.parser import parse_spec
from morello.ir.impl import Impl, Node, cost_and_peak, walk
from morello.ir.layout import Dynamic, Layout, Packed, row_major
from morello.ir.spec import LogicalSpec
from morello.kernels.machine import Machine, NewBuffer
from morello.kernels.target import Target
from morello.plugins.registry import Registry
from morello.rewrites import STANDARD, Rewrite
from morello.rewrites.base import RewriteCase
from morello.rewrites.move import MoveStep
from morello.rewrites.select import Select
from morello.search.session import SearchSession
from morello.search.solve.generic_rewrites import GenericRewrites
from morello.testing.textbook import Textbook, differences
from tools.fuzz.sweep import toy_plugin

TEXTS = (
    "(Matmul(1×2×2×4, MEM, (f32, MEM, col_major), MEM, serial), [8, 256, 0])",
    "(Move(4×3, (f32, MEM), (f32, MEM, col_major)), [8, 256, 64])",
    "(FillZero(1×8, (f32, MEM), serial), [8, 64, 0])",
)


@attrs.frozen(cache_hash=True)
class OtherMove(MoveStep):
    """The same as MoveStep."""


@attrs.frozen(cache_hash=True)
class OtherSelect(Select):
    """The same as Select."""


@attrs.frozen(cache_hash=True)
class PlainMove(MoveStep):
    """Move without layouts other than row-major ones."""

    @classmethod
    def steps(cls, logical: LogicalSpec, target: Target) -> Iterator[PlainMove]:
        yield from (step for step in super().steps(logical, target) if step.layout in (None, "row_major"))


@attrs.frozen(cache_hash=True)
class DearSelect(Select):
    """Select, at three times the cost."""

    def cases(self, logical: LogicalSpec, target: Target) -> Iterator[RewriteCase]:
        for case in super().cases(logical, target):
            yield RewriteCase(case.cells, attrs.evolve(case.expansion, cost=3 * case.expansion.cost))


@attrs.frozen(cache_hash=True)
class DearMove(MoveStep):
    """Move, which costs ten more."""

    def cases(self, logical: LogicalSpec, target: Machine) -> Iterator[RewriteCase]:
        for case in super().cases(logical, target):
            yield RewriteCase(case.cells, attrs.evolve(case.expansion, cost=10 + case.expansion.cost))


@attrs.frozen(cache_hash=True)
class LessSelect(Select):
    """Select without one of the kernels."""

    @classmethod
    def steps(cls, logical: LogicalSpec, target: Target) -> Iterator[LessSelect]:
        yield from (step for step in super().steps(logical, target) if step.kernel != "AddScaledRow")


@attrs.frozen(cache_hash=True)
class FickleMove(MoveStep):
    """Move, with strips for operands in vector registers only."""

    @classmethod
    def steps(cls, logical: LogicalSpec, target: Target) -> Iterator[MoveStep]:
        for step in super().steps(logical, target):
            yield step
            if step.vector and logical.states[step.operand].vector:
                yield attrs.evolve(step, layout=Layout((Dynamic(0), Dynamic(1), Packed(0, 2))))


def toy_with(*instead: type[Rewrite]) -> Target:
    """Return the toy CPU with other rewrites in place of those of the same keyword."""
    by_keyword = {rewrite.keyword: rewrite for rewrite in instead}
    rewrites = tuple(by_keyword.get(rewrite.keyword, rewrite) for rewrite in STANDARD)
    assert {*instead} < {*rewrites}
    return Registry.of(toy_cpu=attrs.evolve(toy_plugin(), rewrites=rewrites)).target("toy_cpu")


def found(target: Target, texts: Sequence[str] = TEXTS) -> list[tuple[int, list[str]]]:
    """Return the cost and the steps of the cheapest program of each Spec."""
    programs = SearchSession(target).programs([parse_spec(text, target) for text in texts])
    return [(cost_and_peak(impl).cost, steps_of(impl)) for impl in programs if impl]


def steps_of(impl: Impl) -> list[str]:
    return [str(node.expansion.step) for node in walk(impl) if isinstance(node, Node)]


def test_derived_rewrites_give_the_same_programs_on_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = found(toy_with())
    assert len(expected) == len(TEXTS)
    assert {step.split()[0] for _, steps in expected for step in steps} >= {"move", "select"}

    def fail(*args: object) -> None:
        raise AssertionError("nodes were expanded one by one")

    monkeypatch.setattr(GenericRewrites, "expand", fail)
    target = toy_with(OtherMove, OtherSelect)
    assert found(target) == expected
    assert SearchSession(target).generic_rewrites == ()


@pytest.mark.parametrize(
    ("instead", "slow", "text"),
    [
        ((PlainMove, DearSelect), (), "(MatmulAccum(1×1×2×4, C, (f32, MEM, col_major), C, serial), [8, 64, 0])"),
        ((DearMove,), ("move",), "(MatmulAccum(1×1×1×2, C, (f32, MEM, col_major), C, serial), [4, 32, 0])"),
        ((LessSelect,), ("select",), "(MatmulAccum(1×1×2×4, C, C, C, serial), [8, 0, 0])"),
    ],
    ids=["memoized", "generic_move", "generic_select"],
)
def test_derived_rewrites_that_differ_are_right(
    instead: tuple[type[Rewrite], ...], slow: tuple[str, ...], text: str
) -> None:
    """Apply them to one Spec at a time if the tables of search do not cover the difference."""
    target = toy_with(*instead)
    textbook, search = Textbook(target), SearchSession(target)
    textbook.solve(parse_spec(text, target))
    assert len(textbook.seen) > 20
    assert not [*differences(textbook.seen, search.programs)]
    assert search.generic_rewrites == slow
    ((cost, _),), ((plain, _),) = found(target, [text]), found(toy_with(), [text])
    assert cost > plain


@pytest.mark.slow
def test_layouts_that_only_some_operations_offer_are_searched() -> None:
    """Search equals the recursion if a layout is offered for operands of products only, not for Moves."""

    def offers(layout: Layout, buffer: NewBuffer) -> bool:
        return layout == row_major(3) or (buffer.operand.name == "rhs" and not buffer.cast)

    plugin = toy_plugin()
    info = attrs.evolve(plugin.info, offers=offers)
    target = Registry.of(toy_cpu=attrs.evolve(plugin, info=info)).target("toy_cpu")
    goal = parse_spec("(MatmulAccum(1×2×2×2, C, (f32, MEM), C, serial), [8, 192, 128])", target)
    laid_out = [(step.operand, step.layout) for step in MoveStep.steps(goal.logical, target)]
    assert (1, "col_major") in laid_out
    assert (2, "col_major") not in laid_out
    textbook, search = Textbook(target), SearchSession(target)
    textbook.solve(goal)
    assert len(textbook.seen) > 20
    assert not [*differences(textbook.seen, search.programs)]


def test_moves_that_depend_on_a_register_are_an_error(avx2: Target) -> None:
    rewrites = tuple(FickleMove if rewrite is MoveStep else rewrite for rewrite in avx2.rewrites)
    target = attrs.evolve(avx2, rewrites=rewrites)
    with pytest.raises(PluginError, match=r"no table of search has: layout\[0, 1, 0p2\] in VRF"):
        SearchSession(target).programs([parse_spec("Move(8×8, (f32, VRF, v8), (f32, L1), serial)", target)])


def test_operands_of_a_compose_do_not_move_to_registers(avx2: Target) -> None:
    operands = "(1×8×8, f32, GL), (1×8×8, f32, GL), (1×8×8, f32, GL)"
    spec = parse_spec(f"Compose([Relu, Matmul], [{operands}], serial)", avx2)
    moves = [step for step in MoveStep.steps(spec.logical, avx2) if isinstance(step, MoveStep)]
    assert {avx2.level(step.level).kind for step in moves} == {"cache", "memory"}
