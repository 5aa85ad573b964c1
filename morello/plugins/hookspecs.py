"""The hooks through which plugins contribute. Implement those you need in a module or object, mark them with
`morello.plugins.hookimpl`, and name it in your distribution's entry points under the group `morello`.

Hooks with an argument `target` are called once per target, with its name: answer for targets of your own and for
targets of others that you extend, and return None or nothing for all the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pluggy

from morello.ir.ops import Operation
from morello.kernels.machine import MemoryLevel, Tables, TargetInfo, Weights
from morello.kernels.microkernel import Microkernel
from morello.kernels.target import Emitter, Metric
from morello.plugins.measure import Clock, Measurement
from morello.plugins.profile import Profile, ProfileFile
from morello.rewrites.base import Rewrite

#: The entry point group and the name under which hooks are marked.
PROJECT = "morello"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def morello_targets() -> Iterable[TargetInfo] | None:
    """Return the targets this plugin owns."""


@hookspec
def morello_operations() -> Iterable[Operation] | None:
    """Operations that become part of the Spec language, for all targets of the registry."""


@hookspec
def morello_levels(target: str) -> Iterable[MemoryLevel] | None:
    """Return the memory levels of `target`, fastest first."""


@hookspec
def morello_rewrites(target: str) -> Iterable[type[Rewrite]] | None:
    """Rewrites for `target`, in the order in which search breaks ties; `morello.rewrites.STANDARD` to start with."""


@hookspec
def morello_microkernels(target: str, operations: Mapping[str, Operation]) -> Iterable[Microkernel] | None:
    """Microkernels for `target`. `operations`, which may be left out, are all that the Spec language has."""


@hookspec
def morello_weights(target: str) -> Weights | None:
    """Return the cost weights of `target`."""


@hookspec
def morello_tables(target: str) -> Tables | None:
    """Return what kernels for `target` cost, by a table's name: their cost functions find it in `machine.tables`."""


@hookspec
def morello_profiles(target: str) -> Iterable[Profile | ProfileFile] | None:
    """Profiles of `target`, or files with them: what machines cost in place of what is declared."""


@hookspec
def morello_clock(target: str) -> Clock | None:
    """Return what tells how long a unit of what `target` costs is, for `morello calibrate`."""


@hookspec
def morello_measurements(target: str) -> Iterable[Measurement] | None:
    """Return how the tables of `target` are measured, for `morello calibrate`."""


@hookspec
def morello_metrics(target: str) -> Iterable[Metric] | None:
    """Metrics by which programs for `target` are measured in place of time, the most telling one first."""


@hookspec
def morello_emitter(target: str) -> Emitter | None:
    """Return the emitter that prints C for `target`."""


@hookspec(firstresult=True)
def morello_recorded_program(goal: Any, db: Any, compiler: str | None) -> Any:
    """Return a Goal with the program that was measured fastest on such a machine with `compiler`; None without one.

    `db` is the SpecStore that the user chose, or None.
    """
