"""The functions that `import morello` offers: parse, synthesize and compile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from morello.db.searches import Searches
from morello.db.store import SpecStore
from morello.errors import MorelloError
from morello.frontend.parser import parse as parse_file
from morello.frontend.parser import parse_signed
from morello.goals import Goal
from morello.ir.impl import Impl, Leaf, leaves
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.plugins.choice import ProfileLike
from morello.plugins.registry import Registry, installed
from morello.runtime.compiled import CompiledKernel
from morello.schedule import Position, apply
from morello.search.progress import Progress
from morello.search.solve.solver import Effort


def parse(
    text: str,
    *,
    target: str | None = None,
    filename: str = "<text>",
    registry: Registry | None = None,
    profile: ProfileLike | None = None,
) -> Mapping[str, Goal]:
    """Return the goals of a Spec file by name, with their schedules applied; Specs that these leave stay open.

    `target` overrides the file's, and `profile` the costs of its target: a name, the path of a file, or a Profile.
    Raises SourceError for text that is wrong, at the place where it is.
    """
    file = parse_file(text, filename=filename, target=target, registry=registry, profile=profile)
    searches = Searches(file.target)
    goals = {}
    for one in file.goals:
        with one.located():
            position = apply(Position(Leaf(one.spec)), one.schedule, file.target, Leaf)
        goals[one.name] = Goal(one.name, one.spec, file.target, position, searches, signature=one.signature)
    return MappingProxyType(goals)


def goal(text: str, *, target: str, registry: Registry | None = None, profile: ProfileLike | None = None) -> Goal:
    """Return a goal to schedule, from a single Spec such as `Matmul(1×64×64×64, GL, GL, GL, serial)`."""
    found = (registry or installed()).target(target, profile)
    spec, signature = parse_signed(text, found)
    return Goal.of(spec, found, signature=signature)


def synthesize(
    what: str | Spec | Goal,
    *,
    target: str | Target | None = None,
    profile: ProfileLike | None = None,
    db: SpecStore | None = None,
    progress: Callable[[Progress], None] | None = None,
    effort: Effort | None = None,
) -> Impl:
    """Return the cheapest program of a Spec, or the cheapest completion of a goal that is scheduled in part.

    With `effort`, it is the best program that comes of it; `Goal.low` tells how good that is.

    `what` may be the text of a Spec file with a single Spec. `profile` says what its target costs: see `parse`. Raises
    NoImplementation if there is no program.
    """
    return _goal(what, target, profile).synthesize(db, progress, effort).impl


def compile(
    what: str | Spec | Goal,
    *,
    target: str | Target | None = None,
    profile: ProfileLike | None = None,
    db: SpecStore | None = None,
    cc: str | None = None,
    progress: Callable[[Progress], None] | None = None,
    effort: Effort | None = None,
) -> CompiledKernel:
    """Return a callable kernel: synthesize what is not scheduled, then emit C; it is built when first called.

    Raises what `synthesize` raises, and ToolchainError without a C compiler.
    """
    start = _goal(what, target, profile)
    done = start.synthesize(db, progress, effort) if next(leaves(start.impl), None) else start
    program = done.target.emitter.emit(done.impl, done.target, done.name, done.signature)
    return CompiledKernel(done.impl, done.target, program, cc)


def _goal(what: str | Spec | Goal, target: str | Target | None, profile: ProfileLike | None) -> Goal:
    if profile is not None and (isinstance(what, Goal) or isinstance(target, Target)):
        given = "goal has a target" if isinstance(what, Goal) else "Target has costs"
        raise MorelloError(f"a {given}, which a profile cannot change", "name the profile where you get it")
    if isinstance(what, Goal):
        return what
    if isinstance(what, str):
        goals = parse(what, target=target.name if isinstance(target, Target) else target, profile=profile)
        if len(goals) != 1:
            raise MorelloError(
                f"the text has {len(goals)} Specs: {', '.join(goals)}", "pass one of the goals that `parse` returns"
            )
        return next(iter(goals.values()))
    if target is None:
        raise MorelloError("a Spec needs a target", "pass target=, e.g. the name of an installed one")
    return Goal.of(what, installed().target(target, profile) if isinstance(target, str) else target)
