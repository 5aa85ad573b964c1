"""Plugins that are left out because they fail: why, and what to do about it."""

from __future__ import annotations

import importlib.metadata
import re
import warnings
from typing import Any

import attrs

from morello.errors import MorelloError, PluginDisabled, PluginError, remedy


@attrs.frozen
class PluginInfo:
    """A plugin and the distribution it comes from."""

    name: str
    distribution: str
    version: str

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}" if self.distribution else self.name

    @classmethod
    def of(cls, name: str, dist: importlib.metadata.Distribution | None) -> PluginInfo:
        """Return what is known of a plugin; `dist` is None for one that is not installed."""
        return cls(name, dist.name if dist else "", dist.version if dist else "")


@attrs.frozen
class Disabled:
    """A plugin that is left out of a target, or altogether where `target` is None, and the reason."""

    plugin: PluginInfo
    target: str | None
    error: MorelloError

    def warn(self) -> None:
        """Tell that things go on without it."""
        without = f"target {self.target} goes on" if self.target else "going on"
        said = MorelloError(f"{self.error.message}; {without} without it", self.error.hint)
        warnings.warn(str(said), PluginDisabled, stacklevel=2)


def load(entry: importlib.metadata.EntryPoint) -> Any:
    """Import what an entry point names. Raises PluginError, whose hint says what is missing."""
    try:
        return entry.load()
    except (Exception, SystemExit) as error:
        raise PluginError(
            f"plugin {entry.name!r} ({entry.value}) cannot be loaded: {type(error).__name__}: {error}",
            _hint(entry, error),
            entry.name,
        ) from error


def missing_requirements(dist: importlib.metadata.Distribution | None) -> list[str]:
    """Return the distributions that one needs and that are not installed."""
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
        return f"install what it needs: pip install {' '.join(missing)}"
    package = (error.name or "").partition(".")[0]
    if isinstance(error, ModuleNotFoundError) and package == entry.module.partition(".")[0]:
        return f"its files are missing: pip install --force-reinstall {name}, or pip uninstall {name}"
    if isinstance(error, ModuleNotFoundError) and package.startswith("morello_"):
        return f"install what it needs: pip install {package.replace('_', '-')}"
    if package == "morello":
        return f"it is for another version of Morello: pip install --upgrade morello {name}"
    return remedy(name)
