"""Loads plugins through entry points and registers them with pluggy; a broken one is reported and skipped.

Distributions that build on Morello have hooks, and an entry point group, of their own.
"""

from __future__ import annotations

import importlib.metadata
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from types import ModuleType
from typing import Any, Protocol, TypeVar

import attrs
import pluggy

from morello.errors import MorelloError, PluginDisabled, PluginError, remedy, suggestion


@attrs.frozen
class PluginInfo:
    """A plugin and its distribution; both texts are empty for one that is not installed."""

    name: str
    distribution: str
    version: str

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}" if self.distribution else self.name

    @classmethod
    def of(cls, name: str, dist: importlib.metadata.Distribution | None) -> PluginInfo:
        """Return the description of a plugin of a distribution."""
        return cls(name, dist.name if dist else "", dist.version if dist else "")


@attrs.frozen
class Disabled:
    """A plugin that is skipped for a target, or for all targets where `target` is None, and the reason."""

    plugin: PluginInfo
    target: str | None
    error: MorelloError

    def warn(self) -> None:
        """Issue a warning that the plugin is skipped."""
        scope = f" for target {self.target}" if self.target else ""
        text = MorelloError(f"{self.error.message}; plugin {self.plugin.name} is skipped{scope}", self.error.hint)
        warnings.warn(str(text), PluginDisabled, stacklevel=2)


def load(group: str, hooks: ModuleType, report: Callable[[Disabled], None] = Disabled.warn) -> pluggy.PluginManager:
    """Return a manager with the installed plugins of an entry point group. Report broken ones, and skip them."""
    manager = _manager(group, hooks)
    for entry in sorted(importlib.metadata.entry_points(group=group), key=lambda one: (one.name, one.value)):
        try:
            register(manager, hooks, _imported(entry), entry.name)
        except PluginError as error:
            report(Disabled(PluginInfo.of(entry.name, entry.dist), None, error))
    return manager


def manager_of(group: str, hooks: ModuleType, plugins: dict[str, Any]) -> pluggy.PluginManager:
    """Return a manager with just these plugins, by name. Raises PluginError for one that does not fit `hooks`."""
    manager = _manager(group, hooks)
    for name, plugin in plugins.items():
        register(manager, hooks, plugin, name)
    return manager


def _manager(group: str, hooks: ModuleType) -> pluggy.PluginManager:
    manager = pluggy.PluginManager(group)
    manager.add_hookspecs(hooks)
    return manager


def register(manager: pluggy.PluginManager, hooks: ModuleType, plugin: Any, name: str) -> None:
    """Register a plugin. Raises PluginError for a name that is in use, and for hooks that `hooks` does not specify."""
    if manager.has_plugin(name):
        raise PluginError(f"plugin {name!r} is registered twice", "uninstall one of the two", name)
    try:
        manager.register(plugin, name=name)
        manager.check_pending()
    except (pluggy.PluginValidationError, ValueError) as error:
        if manager.get_name(plugin) == name:
            manager.unregister(plugin)
        known = [hook for hook in vars(hooks) if hook.startswith("morello_")]
        unknown = [hook for hook in dir(plugin) if hook.startswith("morello_")]
        listing = f"{hooks.__name__} lists the hooks and their arguments"
        hint = suggestion(" ".join({*unknown} - {*known}), known, listing)
        raise PluginError(f"plugin {name!r} does not fit the hooks: {error}", hint, name) from error


def calls(manager: pluggy.PluginManager, hook: str) -> dict[str, Callable[..., Any]]:
    """Return the implementations of a hook by plugin, sorted by name. Each raises PluginError if the plugin fails."""
    impls = getattr(manager.hook, hook).get_hookimpls()
    return {impl.plugin_name: partial(_call, impl, hook) for impl in sorted(impls, key=lambda one: one.plugin_name)}


def _call(impl: pluggy.HookImpl, hook: str, **arguments: Any) -> Any:
    plugin = impl.plugin_name
    try:
        answer = impl.function(**{name: arguments[name] for name in impl.argnames})
        return list(answer) if isinstance(answer, Iterable) else answer
    except Exception as error:
        message = error.message if isinstance(error, MorelloError) else str(error)
        hint = error.hint if isinstance(error, MorelloError) else None
        what = f"plugin {plugin!r} failed in {hook}: {type(error).__name__}: {message}"
        raise PluginError(what, hint or remedy(plugin), plugin) from error


def items(answer: Any) -> list[Any]:
    """Return the answer of a hook as a list: of several objects, of one, or of none for None."""
    return answer if isinstance(answer, list) else [] if answer is None else [answer]


class Named(Protocol):
    """A contribution with a name that is unique for its target."""

    @property
    def name(self) -> str: ...


_N = TypeVar("_N", bound=Named)


def contributions(
    manager: pluggy.PluginManager, hook: str, lineage: Sequence[str], kind: type[_N], taken: Collection[str] = ()
) -> dict[str, _N]:
    """Return the answers of plugins to a hook for a target and those it derives from, by name.

    Raises PluginError where a hook fails, or returns something other than `kind` objects with unique names not in
    `taken`.
    """
    found: dict[str, _N] = {}
    for plugin, call in calls(manager, hook).items():
        place = f"plugin {plugin!r}, {kind.__name__.lower()}s for target {lineage[0]}"
        for one in (one for target in lineage for one in items(call(target=target))):
            if not isinstance(one, kind) or not one.name:
                rule = f"they are {kind.__module__}.{kind.__name__} objects with names, not {one!r}"
                raise PluginError(f"{place}: {rule}", remedy(plugin), plugin)
            if one.name in found or one.name in taken:
                raise PluginError(f"{place}: the name {one.name} is taken", "rename it", plugin)
            found[one.name] = one
    return found


def _imported(entry: importlib.metadata.EntryPoint) -> Any:
    """Import the object that an entry point names. Raises PluginError, whose hint names missing requirements."""
    try:
        return entry.load()
    except (Exception, SystemExit) as error:
        raise PluginError(
            f"plugin {entry.name!r} ({entry.value}) cannot be loaded: {type(error).__name__}: {error}",
            _hint(entry, error),
            entry.name,
        ) from error


def missing_requirements(dist: importlib.metadata.Distribution | None) -> list[str]:
    """Return the requirements of a distribution that are not installed."""
    missing = []
    for requirement in (dist and dist.requires) or ():
        name = re.match(r"[\w.-]+", requirement)
        if name is None or "extra ==" in requirement:
            continue
        try:
            importlib.metadata.distribution(name[0])
        except importlib.metadata.PackageNotFoundError:
            missing.append(name[0])
    return missing


def _hint(entry: importlib.metadata.EntryPoint, error: BaseException) -> str:
    name = entry.dist.name if entry.dist else entry.name
    if not isinstance(error, ImportError):
        return remedy(name)
    if missing := missing_requirements(entry.dist):
        return f"install its requirements: pip install {' '.join(missing)}"
    package = (error.name or "").partition(".")[0]
    if isinstance(error, ModuleNotFoundError) and package == entry.module.partition(".")[0]:
        return f"its files are missing: pip install --force-reinstall {name}, or pip uninstall {name}"
    if isinstance(error, ModuleNotFoundError) and package.startswith("morello_"):
        return f"install its requirements: pip install {package.replace('_', '-')}"
    if package == "morello":
        return f"it is for another version of Morello: pip install --upgrade morello {name}"
    return remedy(name)
