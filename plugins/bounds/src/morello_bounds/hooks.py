"""Mappers, and the hook through which other distributions add them, under the entry point group `morello_bounds`.

Implement the hook in a module or object, mark it with `hookimpl`, and name that in your entry points.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any

import attrs
import pluggy

from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.schedule import Schedule

#: The entry point group, and the name under which hooks are marked.
GROUP = "morello_bounds"
hookspec = pluggy.HookspecMarker(GROUP)
hookimpl = pluggy.HookimplMarker(GROUP)


@attrs.frozen
class Mapper:
    """Proposes schedules: `propose(spec, target, seed)` returns any number of them, the most promising first.

    A schedule consists of statements as in a Spec file. Statements that do not apply are skipped, and search completes
    the rest, so that every program is correct. The same seed gives the same proposals.

    If `propose` is a generator, each `yield` returns the objective's value for the program of that proposal (less is
    better), or None if it has no program. A mapper that needs these values is `adaptive`.
    """

    name: str
    propose: Callable[[Spec, Target, int], Iterable[Schedule]]
    description: str = ""
    adaptive: bool = False


def with_feedback(proposals: Iterable[Schedule]) -> Generator[Schedule, Any, None]:
    """Return proposals as a generator. Values sent to it are passed on if the mapper's proposals are one."""
    return proposals if isinstance(proposals, Generator) else (one for one in proposals)


@hookspec
def morello_mappers(target: str) -> Iterable[Mapper] | None:
    """Return mappers for the target of this name. It is called once per target: return None for others."""
