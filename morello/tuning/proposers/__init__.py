"""Proposers: what plans the edits that `morello tune` measures; see docs/tuning.md."""

from __future__ import annotations

from collections.abc import Mapping

from morello.errors import MorelloError, suggestion
from morello.frontend.diagnostics import quoted
from morello.plugins.registry import Registry, with_standard
from morello.plugins.tuning import Proposer
from morello.tuning.proposers.command import COMMAND
from morello.tuning.proposers.ensemble import ensemble
from morello.tuning.proposers.evolution import EVOLUTION
from morello.tuning.proposers.kbest import KBEST
from morello.tuning.proposers.offline import OFFLINE
from morello.tuning.proposers.openai import openai

#: Those that every target has.
STANDARD = (OFFLINE, EVOLUTION, KBEST, openai(), COMMAND)
_ENSEMBLE, _MODEL = "ensemble:", "openai:"


def proposers_for(target: str, registry: Registry) -> Mapping[str, Proposer]:
    """Return the proposers for a target by name: the standard ones, then those of plugins.

    Raises PluginError for one of a plugin whose name is taken, or that is none.
    """
    return with_standard(target, "proposer", STANDARD, registry.proposers(target))


def proposer(name: str, target: str, registry: Registry) -> Proposer:
    """Return the proposer of a name, `ensemble:A,B` for several. Raises MorelloError for one that there is not."""
    known = {**proposers_for(target, registry)}
    names = name.removeprefix(_ENSEMBLE).split(",") if name.startswith(_ENSEMBLE) else [name]
    for one in names:
        if one.startswith(_MODEL) and (model := one.removeprefix(_MODEL)):
            known[one] = openai(model)
        if one not in known:
            hint = suggestion(one, known, f"there are {', '.join(known)}, and {_ENSEMBLE}A,B for several")
            raise MorelloError(f"{target} has no proposer {quoted(one)}", hint)
    if len({*names}) < len(names):
        raise MorelloError(f"{quoted(name)} names a proposer twice", "name each once")
    return known[name] if name in known else ensemble([known[one] for one in names])


__all__ = ["COMMAND", "EVOLUTION", "KBEST", "OFFLINE", "STANDARD", "ensemble", "openai", "proposer", "proposers_for"]
