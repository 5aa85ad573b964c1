"""Checks a whole target: the conformance of its kernels, then random programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any, Literal, TypeAlias

import attrs

from morello.build.toolchain import Compiler
from morello.errors import MorelloError, SpecError, UnknownName, VerificationError, suggestion
from morello.kernels.microkernel import Microkernel
from morello.kernels.target import Target
from morello.run.runner import find_runner, missing_here
from morello.testing.conformance import kernel_checks
from morello.testing.draws import Draws
from morello.testing.trials import Trials

#: The runner on this machine: programs that crash end a process of their own.
_SEPARATE = "env"
#: Programs that are built together.
_BATCH = 50

Kind: TypeAlias = Literal["kernel", "program"]


@attrs.frozen
class Outcome:
    """The result of one check: of a kernel, or of a random program. `detail` is the error, or why it was skipped."""

    kind: Kind
    name: str
    operation: str
    status: Literal["passed", "failed", "skipped"]
    detail: str = ""


@attrs.frozen
class TargetCheck:
    """The results of all checks of a target."""

    target: str
    outcomes: tuple[Outcome, ...]

    @property
    def passed(self) -> bool:
        """Return True if something was executed, and nothing failed."""
        return self.count("passed") > 0 and not self.count("failed")

    def count(self, status: str = "", kind: str = "") -> int:
        """Return the number of checks, with a status and of a kind if given."""
        return sum(status in ("", one.status) and kind in ("", one.kind) for one in self.outcomes)

    def as_dict(self) -> dict[str, Any]:
        """Return the results as plain data, as `morello targets test --json` prints them."""
        return {"target": self.target, "passed": self.passed, "checks": [attrs.asdict(one) for one in self.outcomes]}


def check_target(
    target: Target,
    kernels: Sequence[str] = (),
    programs: int = 0,
    *,
    compiler: Compiler | None = None,
    runner: str | None = None,
    listener: Callable[[Outcome], None] = lambda outcome: None,
) -> TargetCheck:
    """Check the conformance of kernels, all without names, and random programs. `listener` is called after each.

    Raises UnknownName for a kernel that the target does not have, and MorelloError if its programs cannot run here.
    """
    if missing := missing_here(target.info, (), runner):
        what = f"no code of {target.name} was executed: this CPU lacks {', '.join(missing)}"
        raise VerificationError(what, "use a machine that has them, by --runner if need be")
    every = (*target.kernels, *target.unavailable)
    names = [kernel.name for kernel in every]
    for name in kernels:
        if name not in names:
            hint = suggestion(name, names, f"`morello targets {target.name}` lists its kernels")
            raise UnknownName(f"{target.name} has no kernel {name!r}", hint)
    chosen = tuple(one for one in every if not kernels or one.name in kernels)
    found, tools = [], {"compiler": compiler, "runner": runner if find_runner(target.info, runner) else _SEPARATE}
    skipped = {one.name: lacking for one in chosen if (lacking := missing_here(target.info, one.cpu_features, runner))}
    for outcome in chain(_kernels(target, chosen, skipped, tools), _programs(target, programs, tools)):
        found.append(outcome)
        listener(outcome)
    return TargetCheck(target.full_name, tuple(found))


def _kernels(
    target: Target, kernels: tuple[Microkernel, ...], skipped: Mapping[str, list[str]], tools: dict[str, Any]
) -> Iterator[Outcome]:
    """Yield the outcome of each kernel. Those that are skipped need CPU features that this machine lacks."""
    # Kernels of all optional features are checked.
    only = attrs.evolve(target, kernels=kernels, unavailable=(), features=target.optional_features)
    for check in kernel_checks(only, **tools):
        name, operation = check.kernel.name, check.kernel.op_name
        if name in skipped:
            yield Outcome("kernel", name, operation, "skipped", f"this CPU lacks {', '.join(skipped[name])}")
        else:
            yield _outcome("kernel", name, operation, check)


def _programs(target: Target, count: int, tools: dict[str, Any]) -> Iterator[Outcome]:
    """Yield the outcome of each random program; a single one if there are none."""
    stream = Draws(target).programs(count)
    try:
        while drawn := [*islice(stream, _BATCH)]:
            trials = Trials([one.impl for one in drawn], target, **tools)
            for number, one in enumerate(drawn):
                operation = one.op.name.partition("(")[0]
                yield _outcome("program", f"program {one.index}", operation, partial(trials.check, number))
    except SpecError as error:
        yield Outcome("program", "random programs", "", "failed", str(error))


def _outcome(kind: Kind, name: str, operation: str, check: Callable[[], None]) -> Outcome:
    try:
        check()
    except MorelloError as error:
        return Outcome(kind, name, operation, "failed", str(error))
    return Outcome(kind, name, operation, "passed")
