"""Operations of plugins belong to their registry: those of two registries with one name are separate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

import morello
from morello.db import labels
from morello.db.fingerprint import fingerprint
from morello.db.store import SpecStore
from morello.errors import MorelloError, SpecError
from morello.frontend import SourceError, parse_spec
from morello.frontend.specfile import show_spec
from morello.ir.impl import cost_and_peak
from morello.ir.ops import BY_NAME, Operation
from morello.ir.ops.unary import Unary, UnaryErrors
from morello.plugins import Microkernel, Target, TargetPlugin, hookimpl
from morello.plugins.registry import Registry
from tools.fuzz.programs import Draws
from tools.fuzz.specs import drawn_spec

TEXT = "Twist(1×2, (f32, L1), (f32, L1), serial)"
COMPOSE = "Compose([Relu, Twist], [(1×2, f32, L1), (1×2, f32, L1)], serial)"


class Twisting:
    """A plugin with an operation Twist, of its own class, that costs `cost` per value on x86_avx2."""

    def __init__(self, cost: int):
        class TwistErrors(UnaryErrors[Unary]):
            def error_bound(self, values: np.ndarray, errors: np.ndarray) -> np.ndarray:
                return errors * cost

        @attrs.frozen
        class Twist(Unary):
            """out = cost · x."""

            def function(self, values: np.ndarray) -> np.ndarray:
                return values * cost

            @property
            def error_analysis(self) -> TwistErrors:
                return TwistErrors(self)

            def flops(self, shape: tuple[int, ...]) -> int:
                return self.volume(shape)

        self.op, self._cost = Twist(), cost

    @hookimpl
    def morello_operations(self) -> list[Operation]:
        return [self.op]

    @hookimpl
    def morello_plugin(self) -> TargetPlugin:
        cost = self._cost
        kernel = Microkernel(
            name="TwistOne",
            op=type(self.op),
            takes="1, f32 RF/L1, f32 RF/L1",
            cost=lambda spec, target: cost,
            template="{out} = {src};",
        )
        return TargetPlugin(extends="x86_avx2", kernels=[kernel])


@pytest.fixture(scope="module")
def plugins() -> tuple[Twisting, Twisting]:
    return Twisting(1), Twisting(2)


@pytest.fixture(scope="module")
def targets(plugins: tuple[Twisting, Twisting], x86_plugin: Any) -> tuple[Target, Target]:
    one, other = (Registry.of(twisting=plugin, x86_avx2=x86_plugin).target("x86_avx2") for plugin in plugins)
    return one, other


@pytest.mark.parametrize("text", [TEXT, COMPOSE])
def test_each_registry_has_its_own(targets: tuple[Target, Target], plugins: tuple[Twisting, Twisting], text: str):
    read = [parse_spec(text, target) for target in targets]
    assert read[0].logical.op != read[1].logical.op
    for spec, target, plugin in zip(read, targets, plugins, strict=True):
        assert target.operations["Twist"] is plugin.op
        assert parse_spec(show_spec(spec, target), target) == spec
        written = labels.write(spec.logical)
        again = labels.read(written, target.operations)
        assert attrs.evolve(again, shape=spec.shape) == spec.logical
        with pytest.raises(MorelloError, match="unknown operation 'Twist'"):
            labels.read(written, BY_NAME)


@pytest.mark.slow
def test_answers_do_not_meet_in_a_database(targets: tuple[Target, Target], tmp_path: Path) -> None:
    assert fingerprint(targets[0]) != fingerprint(targets[1])
    store = SpecStore(tmp_path / "solved.db")
    for _ in range(2):
        solved = [morello.Goal.of(parse_spec(TEXT, target), target).synthesize(store) for target in targets]
        first, second = (cost_and_peak(one.impl).cost for one in solved)
        assert (first, second) == (2, 4)


@pytest.mark.slow
def test_an_operation_counts_without_a_kernel(targets: tuple[Target, Target]) -> None:
    one, other = targets
    assert fingerprint(attrs.evolve(one, operations=other.operations)) != fingerprint(one)
    assert fingerprint(attrs.evolve(one, operations=BY_NAME)) != fingerprint(one)


def test_it_is_unknown_elsewhere(
    targets: tuple[Target, Target], plugins: tuple[Twisting, Twisting], unextended
) -> None:
    target = unextended.target("x86_avx2")
    assert unextended.operations == BY_NAME == target.operations
    for text in (TEXT, COMPOSE):
        with pytest.raises(SourceError, match="unknown operation 'Twist'"):
            parse_spec(text, target)
        logical = parse_spec(text, targets[0]).logical
        for other in (target, targets[1]):
            with pytest.raises(SpecError, match="x86_avx2 does not have this operation Twist"):
                other.spec(logical)


@pytest.mark.slow
def test_random_draws_have_it(targets: tuple[Target, Target], unextended: Registry) -> None:
    (drawn,) = Draws(targets[0], names=["Twist"]).programs(1)
    assert drawn.kernels >= {"TwistOne"}
    with pytest.raises(SpecError, match="no programs"):
        next(Draws(unextended.target("x86_avx2"), names=["Twist"]).programs(1))
    only = attrs.evolve(targets[1], operations={"Twist": targets[1].operations["Twist"]})
    names = {drawn_spec(only, 0, number).logical.op.name for number in range(8)}
    assert names == {"Twist"}


def test_own_operations_cannot_be_changed(targets: tuple[Target, Target]) -> None:
    changed: Any = targets[0].operations
    with pytest.raises(TypeError):
        changed["Twist"] = BY_NAME["Relu"]
    assert "Twist" not in BY_NAME
