"""The installed targets: their parts, their profiles, and the plugins that extend them."""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from morello.build.toolchain import architecture, is_foreign
from morello.errors import MorelloError, PluginDisabled, PluginError
from morello.host import missing_features
from morello.kernels.machine import MemoryLevel
from morello.kernels.target import BASE, Target
from morello.plugins.discovery import Disabled, PluginInfo
from morello.plugins.registry import Registry, installed
from morello.run.runner import find_runner


@attrs.frozen
class ProfileDescription:
    """A profile of a target, the CPUs that it is for, and its file, if any; `reason` is why it is the chosen one."""

    name: str
    description: str
    cpus: list[str]
    file: str | None
    chosen: bool
    reason: str | None


@attrs.frozen
class TargetDescription:
    """A target with the chosen profile. `missing` are features, or the architecture, that this machine lacks.

    `runner` is the command that runs its programs elsewhere, if any.

    `extended_by` counts the contributions of other plugins by kind. `base` is the target that it derives from.
    """

    target: Target
    plugin: PluginInfo
    profiles: list[ProfileDescription]
    missing: list[str]
    extended_by: Sequence[tuple[PluginInfo, Mapping[str, int]]]
    base: str | None = None
    runner: str | None = None

    @property
    def optional_features(self) -> dict[str, dict[str, Any]]:
        """Return the optional CPU features by name, and the kernels that need each."""
        every = (*self.target.kernels, *self.target.unavailable)
        return {
            feature: {
                "used": feature in self.target.features,
                "on_this_machine": not missing_features([feature]),
                "kernels": [one.name for one in every if feature in one.cpu_features],
            }
            for feature in self.target.optional_features
        }

    def as_dict(self) -> dict[str, Any]:
        """Return the description as plain data, as `morello targets --json` prints it."""
        target = self.target
        return {
            "name": target.full_name,
            "description": target.info.description,
            "plugin": attrs.asdict(self.plugin),
            "derived_from": self.base,
            "profiles": [attrs.asdict(one) for one in self.profiles],
            "cpu_features": list(target.info.cpu_features),
            "missing_on_this_machine": self.missing,
            "runner": self.runner,
            "optional_features": self.optional_features,
            "cost_unit": target.info.cost_unit or None,
            "units_per_cycle": target.info.units_per_cycle,
            "mhz": target.mhz,
            "weights": attrs.asdict(target.weights),
            "levels": [_level(level) for level in target.levels],
            "rewrites": list(target.rewrites_by_name),
            "microkernels": list(target.kernels_by_name),
            "extended_by": [
                {**attrs.asdict(plugin), "contributes": dict(counts)} for plugin, counts in self.extended_by
            ],
        }


@attrs.frozen
class TargetList:
    """All installed targets that work, plugins that are skipped, and other errors, such as an unknown profile."""

    plugins: list[PluginInfo]
    targets: list[TargetDescription]
    disabled: list[Disabled]
    errors: list[MorelloError]

    def as_dict(self) -> dict[str, Any]:
        """Return the list as plain data, as `morello targets --json` prints it."""
        return {
            "plugins": [attrs.asdict(one) for one in self.plugins],
            "targets": [one.as_dict() for one in self.targets],
            "disabled": [
                {**attrs.asdict(one.plugin), "target": one.target, "reason": one.error.message, "hint": one.error.hint}
                for one in self.disabled
            ],
        }


def list_targets(registry: Registry | None = None) -> TargetList:
    """Return the installed targets, or those of a registry. Errors of targets and plugins are part of the result."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PluginDisabled)  # they are in the result
        registry = registry or installed()
        targets, faulty, errors = list[TargetDescription](), list[Disabled](), list[MorelloError]()
        for name in registry.names:
            try:
                targets.append(describe_target(name, registry))
            except PluginError as error:
                owner = next(plugin for plugin in registry.plugins if plugin.name == registry.owner(name))
                faulty.append(Disabled(owner, name, error))
            except MorelloError as error:
                errors.append(error)
        return TargetList(registry.plugins, targets, [*registry.disabled, *faulty, *registry.idle()], errors)


def describe_target(name: str, registry: Registry | None = None) -> TargetDescription:
    """Return the description of a target. Raises MorelloError for an unknown or a faulty one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PluginDisabled)  # an error if it concerns this target
        registry = registry or installed()
        target = registry.target(name)
    name = target.name
    plugins, owner = {one.name: one for one in registry.plugins}, registry.owner(name)
    contributed: dict[str, Counter[str]] = defaultdict(Counter)
    for label, plugin in target.origins.items():
        kind = label.split()[0]
        # Operations are for all targets: they extend none.
        if plugin != owner and kind != "operation":
            contributed[plugin][kind] += 1
    extended_by = [(plugins[plugin], counts) for plugin, counts in sorted(contributed.items())]
    runner, missing = find_runner(target.info), list[str]()
    if runner is None:
        foreign = [architecture(target.info.triple)] if is_foreign(target.info) else []
        missing = foreign or missing_features(target.info.cpu_features)
    profiles, base = _profiles(name, registry), registry.base_of(name)
    return TargetDescription(target, plugins[owner], profiles, missing, extended_by, base, runner and str(runner))


def _profiles(target: str, registry: Registry) -> list[ProfileDescription]:
    choice = registry.choice(target)
    profiles = [*registry.profiles(target).values()]
    if choice.profile is not None and choice.profile not in profiles:
        profiles.append(choice.profile)
    reasons = {True: choice.reason, False: None}
    base = choice.profile is None
    return [ProfileDescription(BASE, "what the plugins declare", [], None, base, reasons[base])] + [
        ProfileDescription(
            one.name, one.description, list(one.cpus), one.place, one == choice.profile, reasons[one == choice.profile]
        )
        for one in profiles
    ]


def _level(level: MemoryLevel) -> dict[str, Any]:
    lists = {"vectors": list(level.vectors), "destinations": list(level.destinations)}
    return {**attrs.asdict(level), "divisions": level.grid.divisions, **lists}
