"""Operations of plugins belong to their registry: those of two registries with one name are separate."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import attrs
import pytest

import morello
from morello.db import labels
from morello.db.fingerprint import fingerprint
from morello.db.store import SpecStore
from morello.errors import MorelloError, SpecError
from morello.frontend import SourceError, parse_spec
from morello.frontend.specfile import show_spec
from morello.ir.impl import cost_and_peak
from morello.ir.ops import BY_NAME
from morello.plugins import Target
from morello.plugins.registry import Registry
from morello.testing.draws import Draws
from tools.fuzz.specs import drawn_spec

TEXT = "Twist(1×2, (f32, L1), (f32, L1), serial)"
COMPOSE = "Compose([Relu, Twist], [(1×2, f32, L1), (1×2, f32, L1)], serial)"


@pytest.fixture(scope="module")
def plugins(third_party: Path) -> tuple[Any, Any]:
    """The plugin of `thirdparty/twisting.py`, at two costs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(third_party))
        plugin = importlib.import_module("twisting").Twisting
    return plugin(1), plugin(2)


@pytest.fixture(scope="module")
def targets(plugins: tuple[Any, Any], x86_plugin: Any) -> tuple[Target, Target]:
    one, other = (Registry.of(twisting=plugin, x86_avx2=x86_plugin).target("x86_avx2") for plugin in plugins)
    return one, other


@pytest.mark.parametrize("text", [TEXT, COMPOSE])
def test_each_registry_has_its_own(targets: tuple[Target, Target], plugins: tuple[Any, Any], text: str):
    read = [parse_spec(text, target) for target in targets]
    assert read[0].logical.op != read[1].logical.op
    for spec, target, plugin in zip(read, targets, plugins, strict=True):
        assert target.operations["Twist"] is plugin.op
        assert parse_spec(show_spec(spec, target), target) == spec
        written = labels.write(spec.logical)
        again = labels.read(written, target.operations, target.dtypes)
        assert attrs.evolve(again, shape=spec.shape) == spec.logical
        with pytest.raises(MorelloError, match="unknown operation 'Twist'"):
            labels.read(written, BY_NAME, target.dtypes)


@pytest.mark.slow
def test_answers_do_not_meet_in_a_database(targets: tuple[Target, Target], tmp_path: Path) -> None:
    assert fingerprint(targets[0]) != fingerprint(targets[1])
    store = SpecStore(tmp_path / "solved.db")
    for _ in range(2):
        solved = [morello.Goal.of(parse_spec(TEXT, target), target).synthesize(store) for target in targets]
        first, second = (cost_and_peak(one.impl).cost for one in solved)
        assert (first, second) == (2, 4)


def test_an_operation_counts_without_a_kernel(targets: tuple[Target, Target]) -> None:
    one, other = targets
    assert fingerprint(attrs.evolve(one, operations=other.operations)) != fingerprint(one)
    assert fingerprint(attrs.evolve(one, operations=BY_NAME)) != fingerprint(one)


def test_it_is_unknown_elsewhere(targets: tuple[Target, Target], plugins: tuple[Any, Any], unextended) -> None:
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
