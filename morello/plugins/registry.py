"""Finds plugins, collects what they contribute and assembles targets from it.

Of what is installed, plugins that fail are left out, and told of; in a registry of given plugins they are errors.
"""

from __future__ import annotations

import copyreg
import importlib.metadata
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from functools import cache, cached_property
from types import MappingProxyType
from typing import Any, TypeVar

import pluggy

from morello.errors import MorelloError, PluginError, remedy, suggestion
from morello.ir.ops import BY_NAME, Operation
from morello.ir.ops.norms import NORMS
from morello.kernels.machine import Tables, TargetInfo, Weights
from morello.kernels.target import BASE, Target
from morello.plugins import hookspecs
from morello.plugins.choice import Choice, ProfileLike, named, usual
from morello.plugins.disabled import Disabled, PluginInfo, load, missing_requirements
from morello.plugins.measure import Clock, Measurement
from morello.plugins.profile import Profile, applied, parsed, read_profile
from morello.plugins.validation import check_target, label_of, operation_rule

_T = TypeVar("_T")


def _declared(target: str, shipped: Mapping[str, Profile], names: Callable[[], Collection[str]]) -> Choice:
    """Choose no profile, whatever the machine."""
    return Choice(None, "as declared")


class Registry:
    """The operations and targets that a set of plugins makes up. Plugins are asked once, when one is first needed.

    `choose` says which profile a target has if none is asked for: the usual one depends on user and machine. `tell`
    hears of plugins that fail and are left out; without it, what fails is an error.
    """

    def __init__(
        self,
        manager: pluggy.PluginManager,
        choose: Callable[..., Choice] = _declared,
        tell: Callable[[Disabled], None] | None = None,
    ):
        self._manager = manager
        self._choose = choose
        self._tell = tell
        #: Plugins that are left out, in the order in which that turned out.
        self.disabled: list[Disabled] = []
        #: Plugins that are not asked, of a target or (None) at all; and those that had an answer.
        self._silent: set[tuple[str | None, str]] = set()
        self._useful: set[str] = set()
        self._infos: dict[str, tuple[TargetInfo, str]] | None = None
        self._bases: dict[str, Target] = {}
        self._profiles: dict[str, Mapping[str, Profile]] = {}
        #: Targets with profiles, by their names and the profiles' texts.
        self._profiled: dict[tuple[str, str], Target] = {}

    @classmethod
    def discover(cls, tell: Callable[[Disabled], None] = Disabled.warn) -> Registry:
        """Return all plugins that installed distributions name under the entry point group `morello`.

        Targets have the profiles that user and machine choose. `tell` hears of plugins that fail and are left out.
        """
        manager = pluggy.PluginManager(hookspecs.PROJECT)
        manager.add_hookspecs(hookspecs)
        registry = cls(manager, usual, tell)
        entries = importlib.metadata.entry_points(group=hookspecs.PROJECT)
        for entry in sorted(entries, key=lambda one: (one.name, one.value)):
            try:
                cls._register(manager, load(entry), entry.name)
            except PluginError as error:
                registry._disable(PluginInfo.of(entry.name, entry.dist), None, error)
        return registry

    @classmethod
    def of(cls, **plugins: Any) -> Registry:
        """Return a registry of just these plugins, by name, whose targets cost what is declared."""
        manager = pluggy.PluginManager(hookspecs.PROJECT)
        manager.add_hookspecs(hookspecs)
        for name, plugin in plugins.items():
            cls._register(manager, plugin, name)
        return cls(manager)

    @staticmethod
    def _register(manager: pluggy.PluginManager, plugin: Any, name: str) -> None:
        try:
            manager.register(plugin, name=name)
        except pluggy.PluginValidationError as error:
            if manager.is_registered(plugin):
                manager.unregister(plugin)
            raise PluginError(
                f"plugin {name!r} implements a hook with other arguments: {error}",
                "morello.plugins.hookspecs lists the hooks and their arguments",
            ) from error
        except ValueError as error:
            what = "there is another one of this name" if manager.has_plugin(name) else "it has another name too"
            raise PluginError(f"plugin {name!r} is registered twice: {what}", "uninstall one of them") from error
        try:
            manager.check_pending()
        except pluggy.PluginValidationError as error:
            hooks = [hook for hook in vars(hookspecs) if hook.startswith(hookspecs.PROJECT)]
            unknown = [hook for hook in dir(plugin) if hook.startswith(hookspecs.PROJECT) and hook not in hooks]
            manager.unregister(plugin)
            raise PluginError(
                f"plugin {name!r} implements a hook that does not exist: {error}",
                suggestion(
                    " ".join(unknown[:1]), hooks, "morello.plugins.hookspecs lists the hooks and their arguments"
                ),
            ) from error

    @property
    def plugins(self) -> list[PluginInfo]:
        """Return the plugins that were found and are not disabled."""
        names = [name for name, _ in self._manager.list_name_plugin()]
        return [self._info(name) for name in names if (None, name) not in self._silent]

    def idle(self) -> list[Disabled]:
        """Return the plugins that have nothing for any target, such as those that extend one that is not installed."""
        for name in self.names:
            for ask in (self.target, self.clock, self.measurements):
                with suppress(MorelloError):
                    ask(name)
        useful = self._useful | {one.plugin_name for one in self._manager.hook.morello_recorded_program.get_hookimpls()}
        idle = [one for one in self.plugins if one.name not in useful]
        entries = {entry.name: entry for entry in importlib.metadata.entry_points(group=hookspecs.PROJECT)}
        found = []
        for plugin in idle:
            missing = missing_requirements(entries[plugin.name].dist) if plugin.name in entries else []
            hint = f"install what it needs: pip install {' '.join(missing)}" if missing else remedy(plugin.name)
            what = f"plugin {plugin.name!r} has nothing for any target that is installed"
            found.append(Disabled(plugin, None, PluginError(what, hint)))
        return found

    @property
    def names(self) -> list[str]:
        return list(self._known())

    @cached_property
    def operations(self) -> Mapping[str, Operation]:
        """Return the operations of the Spec language by name: Morello's own, and those of plugins. Raises PluginError
        for one that breaks a rule."""
        self._known()
        return MappingProxyType({**BY_NAME, **{name: op for name, (_, op) in self._added.items()}})

    def owner(self, target: str) -> str:
        """Return the plugin that owns a target."""
        return self._known()[target][1]

    def target(self, name: str, profile: ProfileLike | None = None) -> Target:
        """Return the checked target with a profile, by default the one that is chosen for it.

        A profile is asked for by its name, "base" for what plugins declare, or the path of its file. Raises
        MorelloError for an unknown target or profile, PluginError for a faulty plugin.
        """
        base = self._base(name)
        found = self.choice(name).profile if profile is None else named(profile, name, self.profiles(name))
        if found is None:
            return base
        key = name, found.text()
        if key not in self._profiled:
            self._profiled[key] = applied(found, base)
        return self._profiled[key]

    def recipe(self, target: Target) -> tuple[str, str | None]:
        """Return the name of a target of this registry, and its profile as text, if it has one.

        Raises MorelloError for a target of another registry, or one that was changed.
        """
        if self._bases.get(target.name) is target:
            return target.name, None
        for (name, text), one in self._profiled.items():
            if one is target:
                return name, text
        raise MorelloError(
            f"target {target.name} cannot be pickled: it is not one that is installed, so no other process has it",
            "install its plugins, and leave registry= out; profiles are for what a machine costs",
        )

    def choice(self, name: str) -> Choice:
        """Return the profile that a target has if none is asked for, and why."""
        return self._choose(name, self.profiles(name), self._profile_names)

    def profiles(self, name: str) -> Mapping[str, Profile]:
        """Return the profiles that plugins have for a target, by name. Raises MorelloError for one that is faulty."""
        if name not in self._profiles:
            by_name: dict[str, Profile] = {}
            for plugin, item in self._ask("morello_profiles", target=name):
                profile = item if isinstance(item, Profile) else read_profile(item)
                if profile.name in by_name:
                    rule = f"target {name} has another profile {profile.name}"
                    raise PluginError(f"plugin {plugin!r}, profile {profile.name}: {rule}", "rename one of them")
                # One that does not fit its target is told of here.
                applied(profile, self._base(name))
                by_name[profile.name] = profile
            self._profiles[name] = MappingProxyType(by_name)
        return self._profiles[name]

    def clock(self, name: str) -> Clock | None:
        """Return what tells how long a unit of cost is, None if no plugin has it. Raises PluginError."""
        plugin, found = self._one("morello_clock", name) or ("", None)
        if found is None or (isinstance(found, Clock) and found.units > 0 and "morello_clock" in found.source):
            return found
        rule = "a clock is a morello.plugins.Clock of at least 1 unit, whose source defines morello_clock"
        raise PluginError(f"plugin {plugin!r}, clock of target {name}: {rule}", remedy(plugin))

    def measurements(self, name: str) -> list[Measurement]:
        """Return how the tables of a target are measured. Raises PluginError for tables that it lacks."""
        tables, given = self._base(name).tables, [*self._ask("morello_measurements", target=name)]
        for plugin, measurement in given:
            rows = tables.get(measurement.table, ()) if isinstance(measurement, Measurement) else ()
            if not (rows and 0 <= measurement.keys < len(rows[0]) and callable(measurement.measure)):
                rule = "a measurement is a morello.plugins.Measurement of a table, with fewer keys than columns"
                rule = f"{rule}: {measurement!r}"
                raise PluginError(f"plugin {plugin!r}, target {name}: {rule}", remedy(plugin))
        return [measurement for _, measurement in given]

    def recorded_program(self, goal: Any, db: Any, compiler: str | None) -> Any:
        """Return a Goal with the program that was measured fastest on such a machine; None without one."""
        return self._manager.hook.morello_recorded_program(goal=goal, db=db, compiler=compiler)

    def variants(self, name: str) -> list[Target]:
        """Return a target with each of its profiles: as declared, those of plugins, and the one that is chosen."""
        found = [self.target(name, profile) for profile in (BASE, *self.profiles(name))]
        return list(dict.fromkeys([*found, self.target(name)]))

    def _profile_names(self) -> Collection[str]:
        return {profile for target in self.names for profile in self.profiles(target)}

    def _base(self, name: str) -> Target:
        if name not in self._bases:
            targets = self._known()
            if name not in targets:
                listing = f"installed targets are {', '.join(targets) or 'none'}; `morello targets` lists them"
                unknown = MorelloError(f"unknown target {name!r}", suggestion(name, targets, listing))
                raise self.reason(name) or unknown
            info, owner = targets[name]
            self._bases[name] = self._without_faulty(lambda: self._assemble(info, owner), info)
        return self._bases[name]

    def reason(self, target: str) -> MorelloError | None:
        """Return why a target is not there, if the plugin of this name is disabled."""
        if target in self.names:
            return None
        for one in self.disabled:
            if one.target is None and one.plugin.name == target:
                return MorelloError(f"target {target!r} is disabled: {one.error.message}", one.error.hint)
        return None

    def _known(self) -> dict[str, tuple[TargetInfo, str]]:
        if self._infos is None:
            self._infos = self._without_faulty(self._asked_for_targets)
        return self._infos

    def _asked_for_targets(self) -> dict[str, tuple[TargetInfo, str]]:
        # What is wrong with operations is told of all targets.
        _ = self._added
        infos: dict[str, tuple[TargetInfo, str]] = {}
        for plugin, info in self._ask("morello_targets"):
            if not isinstance(info, TargetInfo):
                raise PluginError(
                    f"plugin {plugin!r}: morello_targets must give TargetInfo, not {info!r}", remedy(plugin), plugin
                )
            if info.name in infos:
                raise PluginError(
                    f"plugins {infos[info.name][1]!r} and {plugin!r} both own a target {info.name!r}",
                    "uninstall one of them, or rename its target",
                    plugin,
                )
            infos[info.name] = (info, plugin)
        return infos

    def _without_faulty(self, ask: Callable[[], _T], info: TargetInfo | None = None) -> _T:
        """Return what `ask` comes to, of a target or of all, without the plugins that fail in it.

        Raises what it raises where nothing may be left out, and where the target's owner fails.
        """
        while True:
            try:
                return ask()
            except PluginError as error:
                name, target = error.plugin, info and info.name
                if self._tell is None or name is None or (target, name) in self._silent:
                    raise
                if target is not None and self.owner(target) == name:
                    raise
                self.__dict__.pop("_added", None)
                self._silent.add((target, name))
                self._disable(self._info(name), target, error)

    def _disable(self, plugin: PluginInfo, target: str | None, error: PluginError) -> None:
        self.disabled.append(Disabled(plugin, target, error))
        if self._tell is not None:
            self._tell(self.disabled[-1])

    def _info(self, plugin: str) -> PluginInfo:
        entries = importlib.metadata.entry_points(group=hookspecs.PROJECT)
        return PluginInfo.of(plugin, next((entry.dist for entry in entries if entry.name == plugin), None))

    @cached_property
    def _added(self) -> dict[str, tuple[str, Operation]]:
        """Return the operations that plugins add, each with its plugin."""
        operations: dict[str, tuple[str, Operation]] = {}
        for plugin, op in self._ask("morello_operations"):
            rule = operation_rule(op)
            if rule:
                raise PluginError(
                    f"plugin {plugin!r}, operation {getattr(op, 'name', op)}: {rule}", remedy(plugin), plugin
                )
            if op.name in operations or op.name in (*BY_NAME, *NORMS, "Compose"):
                owner = operations[op.name][0] if op.name in operations else "Morello"
                rule = f"the name {op.name} is taken by an operation of {owner}"
                raise PluginError(f"plugin {plugin!r}, operation {op.name}: {rule}", "give it another name", plugin)
            operations[op.name] = plugin, op
        return operations

    def _assemble(self, info: TargetInfo, owner: str) -> Target:
        origins = {label_of("operation", op): plugin for plugin, op in self._added.values()}

        def collect(hook: str, kind: str) -> tuple[Any, ...]:
            items = []
            for plugin, item in self._ask(hook, target=info.name, operations=self.operations):
                label = label_of(kind, item)
                if label in origins:
                    raise PluginError(
                        f"target {info.name}: {label} comes twice, from plugin {origins[label]!r} and from {plugin!r}",
                        "names are unique within a target: rename one",
                        origins[label] if plugin == owner else plugin,
                    )
                origins[label] = plugin
                items.append((plugin != owner, item))
            # What the owner gives comes first, whatever the order of installation.
            return tuple(item for _, item in sorted(items, key=lambda pair: pair[0]))

        def single(hook: str, kind: str, default: Any) -> Any:
            plugin, answer = self._one(hook, info.name, owner) or (owner, default)
            origins[kind] = plugin
            return answer

        target = Target(
            info=info,
            levels=collect("morello_levels", "level"),
            weights=single("morello_weights", "weights", Weights()),
            tables=self._tables(info.name, owner, origins),
            rewrites=collect("morello_rewrites", "rewrite"),
            kernels=collect("morello_microkernels", "microkernel"),
            emitter=single("morello_emitter", "emitter", None),
            metrics=collect("morello_metrics", "metric"),
            operations=self.operations,
            origins=origins,
        )
        check_target(target, owner)
        return target

    def _tables(self, target: str, owner: str, origins: dict[str, str]) -> Tables:
        by_name: dict[str, tuple[tuple[int, ...], ...]] = {}
        for plugin, tables in self._answers("morello_tables", lambda given: dict(given or {}), target=target):
            for name, rows in tables.items():
                label = f"table {name}"
                if label in origins:
                    what = f"{label} comes twice, from plugin {origins[label]!r} and from {plugin!r}"
                    guilty = origins[label] if plugin == owner else plugin
                    raise PluginError(
                        f"target {target}: {what}", "names are unique within a target: rename one", guilty
                    )
                origins[label] = plugin
                by_name[name] = rows
        return by_name

    def _ask(self, hook: str, **arguments: Any) -> Iterator[tuple[str, Any]]:
        """Yield the answers of each plugin, item by item, with the plugin's name; in order of the names."""
        for plugin, answer in self._answers(hook, lambda given: list(given or ()), **arguments):
            yield from ((plugin, item) for item in answer)

    def _answers(
        self, hook: str, convert: Callable[[Any], Any] = lambda given: given, **arguments: Any
    ) -> Iterator[tuple[str, Any]]:
        """Yield the answer of each plugin, with the plugin's name; in order of the names."""
        for impl in sorted(getattr(self._manager.hook, hook).get_hookimpls(), key=lambda impl: impl.plugin_name):
            if not self._silent.isdisjoint({(None, impl.plugin_name), (arguments.get("target"), impl.plugin_name)}):
                continue
            try:
                answer = convert(impl.function(**{name: arguments[name] for name in impl.argnames}))
            except PluginError as error:
                error.plugin = error.plugin or impl.plugin_name
                raise
            except Exception as error:
                failed = isinstance(error, MorelloError)
                raise PluginError(
                    f"plugin {impl.plugin_name!r} failed in {hook}: {type(error).__name__}: "
                    f"{error.message if failed else error}",
                    (failed and error.hint) or remedy(impl.plugin_name),
                    impl.plugin_name,
                ) from error
            if answer is not None and not (isinstance(answer, list | dict) and not answer):
                self._useful.add(impl.plugin_name)
            yield impl.plugin_name, answer

    def _one(self, hook: str, target: str, owner: str = "") -> tuple[str, Any] | None:
        """Return the answer of a hook that gives a single object, with the plugin's name; None if no plugin answers."""
        given = [(plugin, answer) for plugin, answer in self._answers(hook, target=target) if answer is not None]
        if len(given) > 1:
            names = " and ".join(repr(plugin) for plugin, _ in given)
            guilty = next((plugin for plugin, _ in reversed(given) if plugin != owner), None)
            raise PluginError(f"target {target}: {names} both answer {hook}", "only one plugin may", guilty)
        return given[0] if given else None


@cache
def installed() -> Registry:
    """Return the registry of what is installed in this Python environment."""
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
            f"what was pickled needs target {name} with the plugins {', '.join(missing)}, which are not installed here",
            f"install {', '.join(plugins[one] for one in missing)} in this Python environment, too",
        )
    return registry.target(name, BASE if profile is None else parsed(profile, f"the profile pickled for {name}"))


# Targets hold functions of plugins: other processes have them from their own plugins, by name.
copyreg.pickle(Target, _pickled)
