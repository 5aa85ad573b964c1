"""Collects the declarations of plugins, and assembles targets from them.

A broken plugin among the installed ones is reported and skipped; in a registry of given plugins it is an error.
"""

from __future__ import annotations

import copyreg
import importlib.metadata
from collections.abc import Callable, Collection, Mapping
from functools import cache, cached_property
from itertools import combinations
from types import MappingProxyType
from typing import Any

import attrs
import pluggy

from morello.errors import MorelloError, PluginError, UnknownName, remedy, suggestion
from morello.ir.dtypes import BY_NAME as DTYPES
from morello.ir.dtypes import DType
from morello.ir.ops import BY_NAME, Operation
from morello.ir.ops.named_graphs import NAMED_GRAPHS
from morello.kernels.machine import TargetInfo
from morello.kernels.target import BASE, Target
from morello.plugins import plugin as hooks
from morello.plugins import rules
from morello.plugins.cpu import features_of, known_features
from morello.plugins.derivation import adapted, resolved
from morello.plugins.discovery import Disabled, PluginInfo, calls, items, load, manager_of, missing_requirements
from morello.plugins.plugin import PROJECT, TargetPlugin, assemble
from morello.plugins.profile import Profile, applied, parsed, read_profile
from morello.plugins.profile_choice import ProfileChoice, ProfileLike, choose, named


def _declared(target: str, shipped: Mapping[str, Profile], names: Callable[[], Collection[str]]) -> ProfileChoice:
    """Choose no profile, whatever the machine."""
    return ProfileChoice(None, "as declared")


@attrs.frozen
class _Declarations:
    """All declarations by target with their plugins, owners of targets, operations and data types with their
    plugins.

    Those of derived targets are whole; `derived` has what their plugins declared.
    """

    parts: dict[str, list[tuple[str, TargetPlugin]]] = attrs.field(factory=dict)
    derived: dict[str, TargetPlugin] = attrs.field(factory=dict)
    owners: dict[str, str] = attrs.field(factory=dict)
    operations: dict[str, tuple[str, Operation]] = attrs.field(factory=dict)
    dtypes: dict[str, tuple[str, DType]] = attrs.field(factory=dict)


class Registry:
    """The operations and targets of a set of plugins.

    `choose_profile` returns the profile of a target where none is asked for. `report` receives each broken plugin,
    which is skipped; without it, a broken plugin is an error.
    """

    def __init__(
        self,
        manager: pluggy.PluginManager,
        choose_profile: Callable[..., ProfileChoice] = _declared,
        report: Callable[[Disabled], None] | None = None,
    ):
        self._manager = manager
        self._choose = choose_profile
        self._report = report
        #: Skipped plugins, in the order of discovery.
        self.disabled: list[Disabled] = []
        self._faulty: set[str] = set()
        self._assembled: dict[str, tuple[Target, TargetPlugin]] = {}
        self._profiles: dict[str, Mapping[str, Profile]] = {}
        #: Targets by their full names and the texts of their profiles, None without one.
        self._targets: dict[tuple[str, str | None], Target] = {}

    @classmethod
    def discover(cls, report: Callable[[Disabled], None] = Disabled.warn) -> Registry:
        """Return the registry of all installed plugins; targets have the profiles that user and machine choose."""
        broken: list[Disabled] = []
        registry = cls(load(PROJECT, hooks, broken.append), choose, report)
        for one in broken:
            registry._disable(one)
        return registry

    @classmethod
    def of(cls, **plugins: Any) -> Registry:
        """Return a registry of just these plugins, by name; targets have no profiles."""
        return cls(manager_of(PROJECT, hooks, plugins))

    @property
    def plugins(self) -> list[PluginInfo]:
        """Return the plugins that are not skipped."""
        return [_info(name) for name, _ in self._manager.list_name_plugin() if name not in self._faulty]

    def idle(self) -> list[Disabled]:
        """Return plugins without effect, such as those that extend only targets that are not installed."""
        declared = self._declarations
        used = {name for name, _ in (*declared.operations.values(), *declared.dtypes.values())}
        used |= {name for target in self.names for name, _ in declared.parts[target]}
        used |= {one.plugin.name for one in self.disabled}
        used |= {one.plugin_name for one in self._manager.hook.morello_recorded_program.get_hookimpls()}
        entries = {entry.name: entry.dist for entry in importlib.metadata.entry_points(group=PROJECT)}
        found = []
        for plugin in (one for one in self.plugins if one.name not in used):
            missing = missing_requirements(entries.get(plugin.name))
            hint = f"install its requirements: pip install {' '.join(missing)}" if missing else remedy(plugin.name)
            what = f"plugin {plugin.name!r} contributes to no target that is installed"
            found.append(Disabled(plugin, None, PluginError(what, hint)))
        return found

    @property
    def names(self) -> list[str]:
        """Return the names of the targets, by the names of their plugins."""
        return list(self._declarations.owners)

    @cached_property
    def operations(self) -> Mapping[str, Operation]:
        """Return the operations of the Spec language by name: Morello's own, and those of plugins."""
        return MappingProxyType({**BY_NAME, **{name: op for name, (_, op) in self._declarations.operations.items()}})

    @cached_property
    def dtypes(self) -> Mapping[str, DType]:
        """Return the data types of the Spec language by name: Morello's own, and those of plugins."""
        return MappingProxyType({**DTYPES, **{name: one for name, (_, one) in self._declarations.dtypes.items()}})

    def owner(self, target: str) -> str:
        """Return the plugin that owns a target."""
        return self._declarations.owners[target]

    def base_of(self, target: str) -> str | None:
        """Return the target that a target is derived from, None for others."""
        own = self._declarations.derived.get(target)
        return own.derives.base if own and own.derives else None

    def lineage(self, target: str) -> list[str]:
        """Return a target, and the targets that it derives from, nearest first."""
        base = self.base_of(target)
        return [target] if base is None else [target, *self.lineage(base)]

    def target(self, name: str, profile: ProfileLike | None = None, cpu: str | None = None) -> Target:
        """Return the target with a profile: a Profile, its name, its file, or "base" for costs as declared.

        By default it is the profile that is chosen for the machine. The name may have optional CPU features, as in
        `x86_avx2 + avx_vnni`; `cpu` replaces them by those of a CPU (`cpu.features_of`). Raises MorelloError for an
        unknown target, profile, CPU or feature, PluginError for a faulty plugin.
        """
        name, *features = (part.strip() for part in name.split("+"))
        base = self._base(name)
        wanted = known_features(features, base) if cpu is None else features_of(cpu, base)
        found = self.choice(name).profile if profile is None else named(profile, name, self.profiles(name))
        key = " + ".join((name, *wanted)), found and found.text()
        if key not in self._targets:
            self._targets[key] = (base if found is None else applied(found, base)).with_features(wanted)
        return self._targets[key]

    def variants(self, name: str) -> list[Target]:
        """Return a target with each of its profiles (as declared, those of plugins, the chosen one) and features."""
        optional = self._base(name).optional_features
        names = [" + ".join((name, *some)) for n in range(len(optional) + 1) for some in combinations(optional, n)]
        found = [self.target(one, profile) for one in names for profile in (BASE, *self.profiles(name), None)]
        return list(dict.fromkeys(found))

    def with_threads(self, target: Target, threads: int) -> Target:
        """Return a target of this registry with the costs of parallel loops on so many threads.

        Raises what `recipe` raises.
        """
        if target.weights.threads == threads:
            return target
        name, text = self.recipe(target)
        profile = parsed(text, name) if text else Profile(name="declared", target=target.name)
        weights = {**profile.weights, "threads": threads}
        return self.target(name, attrs.evolve(profile, name=f"{profile.name}-{threads}-threads", weights=weights))

    def recipe(self, target: Target) -> tuple[str, str | None]:
        """Return the full name of a target of this registry, and the text of its profile, if it has one.

        Raises MorelloError for a target of another registry, or a changed one.
        """
        for recipe, one in self._targets.items():
            if one is target:
                return recipe
        raise MorelloError(
            f"target {target.name} cannot be pickled: it is not an installed target, so no other process has it",
            "install its plugins, and leave registry= out; profiles are for what a machine costs",
        )

    def choice(self, name: str) -> ProfileChoice:
        """Return the profile that a target has if none is asked for, and why."""
        return self._choose(name, self.profiles(name), self._profile_names)

    def profiles(self, name: str) -> Mapping[str, Profile]:
        """Return the profiles that plugins have for a target, by name. Raises MorelloError for a faulty one."""
        if name not in self._profiles:
            base, by_name = self._base(name), dict[str, Profile]()
            for item in self.contributions(name).profiles:
                profile = self._adapted(item if isinstance(item, Profile) else read_profile(item), name)
                if profile.name in by_name:
                    rule = f"target {name} has another profile {profile.name}"
                    raise PluginError(f"profile {profile.name}: {rule}", "rename one of them")
                applied(profile, base)  # raises ProfileError for a profile that does not fit
                by_name[profile.name] = profile
            self._profiles[name] = MappingProxyType(by_name)
        return self._profiles[name]

    def _adapted(self, profile: Profile, name: str) -> Profile:
        """Return a profile for a target, where it is one of its base."""
        base = self.base_of(name)
        if base is None or profile.target == name:
            return profile
        return adapted(self._adapted(profile, base), self._declarations.derived[name])

    def contributions(self, name: str) -> TargetPlugin:
        """Return the contributions of all plugins to a target, merged: also its clock, and how tables are measured."""
        self._base(name)
        return self._assembled[name][1]

    def recorded_program(self, goal: Any, db: Any, compiler: str | None, runner: str | None) -> Any:
        """Return a Goal with the program that was measured fastest on such a machine, or None."""
        return self._manager.hook.morello_recorded_program(goal=goal, db=db, compiler=compiler, runner=runner)

    def reason(self, target: str) -> MorelloError | None:
        """Return why a target is missing, if the plugin of its name is skipped."""
        if target in self.names:
            return None
        for one in self.disabled:
            if target == (one.target or one.plugin.name):
                return MorelloError(f"target {target!r} is disabled: {one.error.message}", one.error.hint)
        return None

    def _profile_names(self) -> Collection[str]:
        return {profile for target in self.names for profile in self.profiles(target)}

    @cached_property
    def _declarations(self) -> _Declarations:
        """Collect the declarations, plugin by plugin. A plugin with a faulty one is skipped altogether."""
        found = _Declarations()
        for name, _ in sorted(self._manager.list_name_plugin()):
            try:
                parts, operations = self._parts_of(name, found), self._operations_of(name, found)
                dtypes = self._dtypes_of(name, found)
            except PluginError as error:
                self._disable(Disabled(_info(name), None, error))
                self._faulty.add(name)
                continue
            found.operations.update({op.name: (name, op) for op in operations})
            found.dtypes.update({dtype.name: (name, dtype) for dtype in dtypes})
            for part in parts:
                found.parts.setdefault(part.target, []).append((name, part))
                if part.extends is None:
                    found.owners[part.target] = name
                if part.derives:
                    found.derived[part.target] = part
        for target, owner in found.owners.items():
            found.parts[target].sort(key=lambda one: one[0] != owner)
        self._derive(found)
        return found

    def _derive(self, found: _Declarations) -> None:
        """Complete the declarations of derived targets. One that cannot be derived is skipped."""
        declared = {target: found.parts[target] for target in found.owners}
        for target in found.derived:
            try:
                found.parts[target] = [*resolved(target, declared)]
            except PluginError as error:
                self._disable(Disabled(_info(found.owners.pop(target)), target, error))

    def _parts_of(self, plugin: str, found: _Declarations) -> list[TargetPlugin]:
        """Return the declarations of a plugin. Raises PluginError for a faulty one."""
        parts = self._answer("morello_plugin", plugin)
        for part in parts:
            if not isinstance(part, TargetPlugin):
                raise _fault(plugin, f"morello_plugin returns morello.plugins.TargetPlugin objects, not {part!r}")
            if sum(one is not None for one in (part.info, part.extends, part.derives)) != 1:
                raise _fault(plugin, "a TargetPlugin has one of `info`, for its own target, `extends` and `derives`")
            if part.extends is not None:
                continue
            if part.info is not None and not isinstance(part.info, TargetInfo):
                raise _fault(plugin, f"`info` is a morello.plugins.TargetInfo, not {part.info!r}")
            if owner := found.owners.get(part.target):
                what = f"plugins {owner!r} and {plugin!r} both own a target {part.target!r}"
                raise PluginError(what, "uninstall one of them, or rename its target", plugin)
        return parts

    def _operations_of(self, plugin: str, found: _Declarations) -> list[Operation]:
        """Return the operations of a plugin. Raises PluginError for a faulty one, or one whose name is in use."""
        operations = self._answer("morello_operations", plugin)
        for op in operations:
            if rule := rules.operation(op):
                raise _fault(plugin, rule, f", operation {getattr(op, 'name', op)}")
            if op.name in found.operations or op.name in (*BY_NAME, *NAMED_GRAPHS, "Compose"):
                owner = found.operations[op.name][0] if op.name in found.operations else "Morello"
                what = f"plugin {plugin!r}, operation {op.name}: the name is in use by an operation of {owner}"
                raise PluginError(what, "give it another name", plugin)
        return operations

    def _dtypes_of(self, plugin: str, found: _Declarations) -> list[DType]:
        """Return the data types of a plugin. Raises PluginError for a faulty one, or one that exists."""
        dtypes = self._answer("morello_dtypes", plugin)
        known = [*(("Morello", one) for one in DTYPES.values()), *found.dtypes.values()]
        for dtype in dtypes:
            if rule := rules.dtype(dtype):
                raise _fault(plugin, rule, f", data type {getattr(dtype, 'name', dtype)}")
            for owner, one in known:
                if one.name == dtype.name or one.numpy == dtype.numpy:
                    what = f"plugin {plugin!r}, data type {dtype.name}: {owner} has {one.name}, of {one.numpy.name}"
                    raise PluginError(what, "use that one, or give it another name and another type of numpy", plugin)
        return dtypes

    def _answer(self, hook: str, plugin: str) -> list[Any]:
        """Return the answer of a plugin to a hook."""
        call = calls(self._manager, hook).get(plugin)
        return items(call()) if call else []

    def _base(self, name: str) -> Target:
        """Return a target without a profile, merged from all plugins but broken extensions, which are skipped."""
        if name in self._assembled:
            return self._assembled[name][0]
        if name not in self._declarations.owners:
            listing = f"installed targets are {', '.join(self.names) or 'none'}; `morello targets` lists them"
            unknown = UnknownName(f"unknown target {name!r}", suggestion(name, self.names, listing))
            raise self.reason(name) or unknown
        owner, parts = self.owner(name), self._declarations.parts[name]
        while name not in self._assembled:
            try:
                self._assembled[name] = assemble(parts, self._declarations.operations, self.dtypes)
            except PluginError as error:
                if error.plugin in (None, owner):
                    raise
                self._disable(Disabled(_info(error.plugin), name, error))
                parts = [part for part in parts if part[0] != error.plugin]
        return self._assembled[name][0]

    def _disable(self, broken: Disabled) -> None:
        """Report a broken plugin; raise its error where none may be skipped."""
        if self._report is None:
            raise broken.error
        self.disabled.append(broken)
        self._report(broken)


def _fault(plugin: str, rule: str, thing: str = "") -> PluginError:
    return PluginError(f"plugin {plugin!r}{thing}: {rule}", remedy(plugin), plugin)


def _info(plugin: str) -> PluginInfo:
    entries = importlib.metadata.entry_points(group=PROJECT)
    return PluginInfo.of(plugin, next((entry.dist for entry in entries if entry.name == plugin), None))


@cache
def installed() -> Registry:
    """Return the registry of the plugins installed in this Python environment."""
    return Registry.discover()


def _pickled(target: Target) -> tuple[Callable[..., Target], tuple[str, str | None, dict[str, str]]]:
    registry, origins = installed(), {*target.origins.values()}
    plugins = {one.name: one.distribution or one.name for one in registry.plugins if one.name in origins}
    return _unpickled, (*registry.recipe(target), plugins)


def _unpickled(name: str, profile: str | None, plugins: Mapping[str, str]) -> Target:
    """Return the target of this name here. Raises PluginError where `plugins` that it was made of are missing."""
    registry = installed()
    missing = sorted({*plugins} - {one.name for one in registry.plugins})
    if missing:
        raise PluginError(
            f"the pickled target {name} needs the plugins {', '.join(missing)}, which are not installed here",
            f"install {', '.join(plugins[one] for one in missing)} in this Python environment, too",
        )
    return registry.target(name, BASE if profile is None else parsed(profile, f"the profile pickled for {name}"))


# Targets hold functions of plugins: another process gets them from its own plugins, by name.
copyreg.pickle(Target, _pickled)
