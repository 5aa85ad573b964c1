"""Programs of Specs with schedules, to be verified."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import cycle

import pytest

from morello import api
from morello.build.toolchain import Compiler
from morello.host import missing_features
from morello.ir.impl import Node
from morello.plugins.registry import Registry
from morello.testing import Trials
from tools.fixtures import COMPILERS


def in_turns(parameter: str, values: Iterable[object]) -> pytest.MarkDecorator:
    """Parametrize a test with `values` and `compiler`: values take turns with two compilers."""
    compilers = COMPILERS[::-1]
    cases = [
        pytest.param(value, compiler, id=f"{getattr(getattr(value, 'info', None), 'name', value)}-{compiler.name}")
        for value, compiler in zip(values, cycle(compilers), strict=False)
    ]
    return pytest.mark.parametrize((parameter, "compiler"), cases)


def require_features(features: Iterable[str]) -> None:
    """Skip a test on a machine without these CPU features."""
    if missing := missing_features(features):
        pytest.skip(f"this CPU lacks {', '.join(missing)}")


def trials(registry: Registry, target: str, specs: Mapping[str, str], compiler: Compiler | None = None) -> Trials:
    """Return the programs of Specs with their schedules, whose steps are ` ; ` apart, to be checked with sanitizers.

    A test is skipped where this machine cannot run them.
    """
    require_features(registry.target(target).info.cpu_features)
    text = f"target {target}\n" + "\n".join(f"spec p{i} = {one}" for i, one in enumerate(specs))
    text += "".join(f"\nschedule p{i} {{ ; {one} ; }}".replace(" ; ", "\n") for i, one in enumerate(specs.values()))
    impls = [goal.impl for goal in api.parse(text, registry=registry).values() if isinstance(goal.impl, Node)]
    assert len(impls) == len(specs), "a Spec without a schedule has no program"
    return Trials(impls, registry.target(target), sanitize=True, compiler=compiler)


def check(registry: Registry, target: str, specs: Mapping[str, str], compiler: Compiler | None = None) -> None:
    """Verify the programs of Specs with their schedules. Raises VerificationError."""
    found = trials(registry, target, specs, compiler)
    for number in range(len(specs)):
        found.check(number)
