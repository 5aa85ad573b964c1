"""From text to kernels: parse, synthesize and compile."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from morello.api.goals import Goal, Layouts, prepare
from morello.api.kernel import Kernel
from morello.api.sizes import SizedGoal, SizedKernel
from morello.db.default import DatabaseLike, database
from morello.db.searches import Searches
from morello.db.store import SpecStore
from morello.errors import MorelloError
from morello.frontend.parser import parse as parse_file
from morello.frontend.parser import parse_sized
from morello.ir.impl import Impl, Leaf, leaves
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.plugins.profile_choice import ProfileLike
from morello.plugins.registry import Registry, installed
from morello.progress import Listener
from morello.schedule import Position, apply
from morello.search.budget import SearchBudget
from morello.untrusted import read_file

_UNNAMED = "<text>"
#: The start of a Spec file and of a single Spec, after comments.
_HEAD = r"\ufeff?(?:\s|#[^\n]*\n)*"
_FILE = re.compile(_HEAD + r"(target|let|spec|schedule)\s+\w")
_SPEC = re.compile(_HEAD + r"\(?\s*\w+\s*[\[(]")


def parse(
    text: str | os.PathLike[str],
    *,
    target: str | None = None,
    filename: str = _UNNAMED,
    registry: Registry | None = None,
    profile: ProfileLike | None = None,
    cpu: str | None = None,
) -> Mapping[str, Goal]:
    """Return the goals of a Spec file by name, with their schedules applied.

    `text` is the file's text, or its Path. `target` overrides the file's target, `profile` its costs (a name, the path
    of a file, or a Profile), and `cpu` its optional CPU features: "native" for those of this machine, a name of
    archspec's, or "+FEATURE,+FEATURE". Raises SourceError with the place of an error, and MorelloError for a file that
    cannot be read.
    """
    if isinstance(text, os.PathLike):
        filename = os.fspath(text) if filename == _UNNAMED else filename
        text = read_file(Path(text))
    elif filename == _UNNAMED:
        _check_no_path(text)
    file = parse_file(text, filename=filename, target=target, registry=registry, profile=profile, cpu=cpu)
    searches = Searches(file.target)
    goals = {}
    for one in file.goals:
        with one.located():
            position = apply(Position(Leaf(one.spec)), one.schedule, file.target, Leaf)
        made = Goal(one.name, one.spec, file.target, position, searches, signature=one.signature)
        goals[one.name] = SizedGoal.of_sizes(made, one.sizes) if one.sizes else made
    return goals


def goal(
    text: str,
    *,
    target: str,
    registry: Registry | None = None,
    profile: ProfileLike | None = None,
    cpu: str | None = None,
) -> Goal:
    """Return the goal of a single Spec such as `Matmul(1×64×64×64, GL, GL, GL, serial)`."""
    found = (registry or installed()).target(target, profile, cpu)
    return _single(text, found)


def synthesize(
    what: str | os.PathLike[str] | Spec | Goal,
    *,
    target: str | Target | None = None,
    profile: ProfileLike | None = None,
    cpu: str | None = None,
    db: DatabaseLike = None,
    progress: Listener = None,
    budget: SearchBudget | None = None,
    using: Sequence[str] = (),
    without: Sequence[str] = (),
    layouts: Layouts = "offered",
) -> Impl:
    """Return the best program of a Spec, or the best completion of a goal that is scheduled in part.

    `what` may be the text of a Spec file with a single Spec, its Path, or, with `target`, the text of a Spec. `profile`
    and `cpu` are those of `parse`, `using`, `without` and `layouts` those of `Goal.allowing`, the others those of
    `Goal.synthesize`. Raises NoImplementation without a program, and the errors of `parse`.
    """
    return goal_from(what, target, profile, cpu).synthesize(db, progress, budget, using, without, layouts).impl


def compile(
    what: str | os.PathLike[str] | Spec | Goal,
    *,
    target: str | Target | None = None,
    profile: ProfileLike | None = None,
    cpu: str | None = None,
    db: DatabaseLike = None,
    cc: str | None = None,
    progress: Listener = None,
    budget: SearchBudget | None = None,
    measured: bool = True,
    using: Sequence[str] = (),
    without: Sequence[str] = (),
    layouts: Layouts = "offered",
    runner: str | None = None,
) -> Kernel:
    """Return the kernel of a goal: synthesize open Specs, then emit C, which is built at the first call.

    If `measured`, a program that `tune` measured to be the fastest on such a machine replaces the search, unless steps
    are excluded. `runner` is a command that runs the program elsewhere, by default that in MORELLO_RUNNER, or the
    target's on machines of another architecture. Raises what `synthesize` raises, and ToolchainError without a C
    compiler.
    """
    start = goal_from(what, target, profile, cpu).allowing(using, without, layouts)
    done = tuned(start, database(db), cc, runner) if measured else start
    done = done.synthesize(db, progress, budget) if next(leaves(done.impl), None) else done
    return kernel_of(done, cc, runner)


def kernel_of(goal: Goal, cc: str | None = None, runner: str | None = None) -> Kernel:
    """Return the kernel of a finished goal, with `cc` and `runner` as for `compile`."""
    return (SizedKernel if isinstance(goal, SizedGoal) else Kernel)(goal, goal.program, cc, runner)


def tuned(goal: Goal, db: SpecStore | None, cc: str | None = None, runner: str | None = None) -> Goal:
    """Return a goal with the program that `tune` measured to be the fastest on such a machine, if there is one."""
    prepare([goal], db)
    if isinstance(goal, SizedGoal):
        return goal
    return installed().recorded_program(goal, db, cc, runner) or goal


def goal_from(
    what: str | os.PathLike[str] | Spec | Goal,
    target: str | Target | None = None,
    profile: ProfileLike | None = None,
    cpu: str | None = None,
) -> Goal:
    """Return the single goal of an argument of `synthesize`. Raises MorelloError for several goals, or none."""
    for word, given in (("profile", profile), ("cpu", cpu)):
        if given is not None and (isinstance(what, Goal) or isinstance(target, Target)):
            has = "goal has a target" if isinstance(what, Goal) else "Target has costs and features"
            raise MorelloError(f"a {has}, which {word}= cannot change", f"pass {word}= where you get it")
    if isinstance(what, Goal):
        return what
    if isinstance(what, os.PathLike) or (isinstance(what, str) and not _is_single(what, target is not None)):
        goals = parse(what, target=target.full_name if isinstance(target, Target) else target, profile=profile, cpu=cpu)
        if len(goals) != 1:
            raise MorelloError(
                f"the text has {len(goals)} Specs: {', '.join(goals)}", "pass one of the goals that `parse` returns"
            )
        return next(iter(goals.values()))
    if target is None:
        raise MorelloError("a Spec needs a target", "pass target=, e.g. the name of an installed one")
    chosen = installed().target(target, profile, cpu) if isinstance(target, str) else target
    return _single(what, chosen) if isinstance(what, str) else Goal.of(what, chosen)


def _single(text: str, target: Target) -> Goal:
    """Return the goal of the text of a Spec."""
    spec, signature, sizes = parse_sized(text, target)
    made = Goal.of(spec, target, signature=signature)
    return SizedGoal.of_sizes(made, sizes) if sizes else made


def _is_single(text: str, has_target: bool) -> bool:
    """Return True for the text of a Spec, False for that of a file. Raises MorelloError for the name of one."""
    _check_no_path(text)
    return not _FILE.match(text) if has_target else bool(_SPEC.match(text))


def _check_no_path(text: str) -> None:
    """Raise MorelloError for the name of a file where its text is expected."""
    if "\n" not in text and (text.endswith(".spec") or os.path.isfile(text)):
        raise MorelloError(f"{text!r} is the name of a file, not a Spec", f"pass its Path: pathlib.Path({text!r})")
