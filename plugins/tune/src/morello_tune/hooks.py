"""The hooks of the entry point group `morello_tune`: menu items, descriptions of targets, and proposers.

An entry point names a `TuningPlugin`, or a module with hooks marked by `hookimpl`, that only morello_tune imports.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

import attrs
import pluggy

from morello.errors import PluginError
from morello.plugins.discovery import load
from morello_tune.interface import MenuItem, Proposer, TuningInfo

#: The entry point group, and the name under which hooks are marked.
GROUP = "morello_tune"
hookspec = pluggy.HookspecMarker(GROUP)
hookimpl = pluggy.HookimplMarker(GROUP)


@hookspec
def morello_optimization_menu(target: str) -> Iterable[MenuItem] | None:
    """Return items for the menu of the target of this name, besides those of all targets."""


@hookspec
def morello_tuning(target: str) -> TuningInfo | None:
    """Return the description of the target of this name for language models."""


@hookspec
def morello_proposers(target: str) -> Iterable[Proposer] | None:
    """Return proposers for the target of this name."""


@attrs.frozen(kw_only=True, eq=False)
class TuningPlugin:
    """All that a plugin adds for one target, as a single object that implements every hook."""

    target: str
    menu: Sequence[MenuItem] = ()
    info: TuningInfo | None = None
    proposers: Sequence[Proposer] = ()

    @hookimpl
    def morello_optimization_menu(self, target: str) -> Sequence[MenuItem]:
        return self.menu if target == self.target else ()

    @hookimpl
    def morello_tuning(self, target: str) -> TuningInfo | None:
        return self.info if target == self.target else None

    @hookimpl
    def morello_proposers(self, target: str) -> Sequence[Proposer]:
        return self.proposers if target == self.target else ()


@cache
def installed_plugins() -> pluggy.PluginManager:
    """Return the plugins of all installed distributions."""
    import morello_tune.hooks as hooks

    return load(GROUP, hooks)


def tuning_info(target: str, plugins: pluggy.PluginManager | None = None) -> TuningInfo:
    """Return the description of a target by plugins (default: installed), an empty one without a plugin.

    Raises PluginError if several plugins describe it, or one returns something else.
    """
    found = (plugins or installed_plugins()).hook.morello_tuning(target=target)
    if len(found) > 1 or not all(isinstance(one, TuningInfo) for one in found):
        rule = f"morello_tuning returns one morello_tune.TuningInfo for target {target}, not {found!r}"
        raise PluginError(rule, "uninstall or correct one of the plugins")
    return found[0] if found else TuningInfo()
