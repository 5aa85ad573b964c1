"""Hooks of distributions that build on Morello: each has an entry point group of its own, named after its package."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Collection
from types import ModuleType
from typing import Any, Protocol, TypeVar

import pluggy

from morello.errors import PluginError, remedy
from morello.plugins.disabled import Disabled, PluginInfo, load


class Named(Protocol):
    """A contribution with a name that is unique for its target."""

    @property
    def name(self) -> str: ...


_N = TypeVar("_N", bound=Named)


def extensions_of(group: str, hooks: ModuleType, plugins: dict[str, Any]) -> pluggy.PluginManager:
    """Return a manager with these plugins, by name. Raises PluginError for one that does not fit `hooks`."""
    manager = pluggy.PluginManager(group)
    manager.add_hookspecs(hooks)
    for name, plugin in plugins.items():
        try:
            manager.register(plugin, name)
            manager.check_pending()
        except (pluggy.PluginValidationError, ValueError) as error:
            if manager.is_registered(plugin):
                manager.unregister(plugin)
            hint = f"{hooks.__name__} lists the hooks and their arguments"
            raise PluginError(f"plugin {name!r} of {group}: {error}", hint, name) from error
    return manager


def installed_extensions(group: str, hooks: ModuleType) -> pluggy.PluginManager:
    """Return a manager with the installed plugins of an entry point group. Broken ones are skipped with a warning."""
    found: dict[str, Any] = {}
    for entry in sorted(importlib.metadata.entry_points(group=group), key=lambda one: (one.name, one.value)):
        try:
            plugin = load(entry)
            extensions_of(group, hooks, {entry.name: plugin})
            found[entry.name] = plugin
        except PluginError as error:
            Disabled(PluginInfo.of(entry.name, entry.dist), None, error).warn()
    return extensions_of(group, hooks, found)


def contributions(
    manager: pluggy.PluginManager, hook: str, target: str, kind: type[_N], taken: Collection[str] = ()
) -> dict[str, _N]:
    """Return the answers of plugins to a hook for a target, by name.

    Raises PluginError where a hook fails, or gives something else than a `kind` whose name is new and not `taken`.
    """
    found: dict[str, _N] = {}
    what = kind.__name__.lower()
    for impl in sorted(getattr(manager.hook, hook).get_hookimpls(), key=lambda one: one.plugin_name):
        place = f"plugin {impl.plugin_name!r}, {what}s for target {target}"
        try:
            given = list(impl.function(*[target for _ in impl.argnames]) or ())
        except Exception as error:
            raise PluginError(f"{place}: {type(error).__name__}: {error}", remedy(impl.plugin_name)) from error
        for one in given:
            if not isinstance(one, kind) or not one.name:
                rule = f"{hook} gives {kind.__module__}.{kind.__name__} objects with names, not {one!r}"
                raise PluginError(f"{place}: {rule}", remedy(impl.plugin_name), impl.plugin_name)
            if one.name in found or one.name in taken:
                raise PluginError(f"{place}: the name {one.name} is taken", "rename it", impl.plugin_name)
            found[one.name] = one
    return found
