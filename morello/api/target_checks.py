"""The check of a whole target, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from morello.build.toolchain import find_compiler
from morello.plugins.registry import Registry, installed
from morello.run.runner import missing_here
from morello.testing import target_check
from morello.testing.target_check import Outcome, TargetCheck


def check_target(
    name: str,
    kernels: Sequence[str] = (),
    programs: int = 0,
    *,
    registry: Registry | None = None,
    cc: str | None = None,
    runner: str | None = None,
    listener: Callable[[Outcome], None] = lambda outcome: None,
) -> TargetCheck:
    """Check the kernels of a target, all without names, and random programs; `listener` is called after each.

    Programs use the optional CPU features that this machine has, or all of them through a `runner`. Raises MorelloError
    for an unknown target or kernel, a faulty plugin, and a target of another architecture without a runner.
    """
    registry = registry or installed()
    target = registry.target(name)
    able = [one for one in target.optional_features if not missing_here(target.info, [one], runner)]
    target = registry.target(" + ".join((target.name, *able)))
    compiler = find_compiler(cc, target.info)
    return target_check.check_target(target, kernels, programs, compiler=compiler, runner=runner, listener=listener)
