"""Proposers: what plans the edits that `morello tune` measures; see docs/tuning.md."""

from __future__ import annotations

from collections.abc import Mapping

import pluggy

from morello.errors import MorelloError, suggestion
from morello.frontend.diagnostics import quoted
from morello.plugins.discovery import contributions
from morello_tune.hooks import installed_plugins
from morello_tune.interface import Proposer
from morello_tune.proposers.command import COMMAND
from morello_tune.proposers.ensemble import ensemble
from morello_tune.proposers.evolution import EVOLUTION
from morello_tune.proposers.kbest import KBEST
from morello_tune.proposers.offline import OFFLINE
from morello_tune.proposers.openai import openai

#: Those that every target has.
STANDARD = (OFFLINE, EVOLUTION, KBEST, openai(), COMMAND)
_ENSEMBLE, _MODEL = "ensemble:", "openai:"


def proposers_for(target: str, plugins: pluggy.PluginManager | None = None) -> Mapping[str, Proposer]:
    """Return the proposers for a target by name: the standard ones, then those of plugins (default: installed).

    Raises PluginError for a plugin whose proposer has a name that is taken, or is not a Proposer.
    """
    own = {one.name: one for one in STANDARD}
    return {**own, **contributions(plugins or installed_plugins(), "morello_proposers", target, Proposer, own)}


def proposer(name: str, target: str) -> Proposer:
    """Return the proposer of a name, `ensemble:A,B` for several. Raises MorelloError for one that there is not."""
    known = {**proposers_for(target)}
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
