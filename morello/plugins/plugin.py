"""The hooks of plugins, and their declarations: one `TargetPlugin` for each target that a plugin owns or extends.

A distribution names a `TargetPlugin`, or a module or object with hooks, in its entry points under the group `morello`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import attrs
import pluggy

from morello.errors import PluginError, remedy
from morello.ir.dtypes import DType
from morello.ir.ops import BY_NAME, Operation
from morello.kernels.machine import MemoryLevel, Tables, TargetInfo, Weights
from morello.kernels.microkernel import Microkernel
from morello.kernels.target import Emitter, Metric, Target
from morello.plugins import rules
from morello.plugins.measure import Clock, Measurement
from morello.plugins.profile import Profile, ProfileFile
from morello.rewrites.base import Rewrite

#: The entry point group, and the name under which hooks are marked.
PROJECT = "morello"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def morello_plugin() -> TargetPlugin | Iterable[TargetPlugin] | None:
    """Return the contributions of the plugin: one declaration for each target that it owns or extends."""


@hookspec
def morello_operations() -> Iterable[Operation] | None:
    """Return operations that the Spec language gets, for all targets of the registry."""


@hookspec
def morello_dtypes() -> Iterable[DType] | None:
    """Return data types that the Spec language gets, for all targets of the registry."""


@hookspec(firstresult=True)
def morello_recorded_program(goal: Any, db: Any, compiler: str | None, runner: str | None) -> Any:
    """Return a Goal with the program that was measured fastest on such a machine, or None.

    `compiler` and `runner` are the commands that the user chose. `db` is the SpecStore that the user chose, or None.
    """


def _contribution(kind: str, rule: Callable[[Any, Target], str | None], default: Any = ()) -> Any:
    """Return a field of contributions of a kind: several (), several by name {}, or one at most (None).

    `rule(item, target)` returns the rule that an item breaks, or None.
    """
    default = attrs.Factory(dict) if default == {} else default
    return attrs.field(default=default, metadata={"kind": kind, "rule": rule})


@attrs.frozen
class Derivation:
    """The changes that make a target of its `base`, see `derive`: to fields of `TargetInfo`, of levels, of weights."""

    base: str
    info: Mapping[str, Any]
    levels: Mapping[str, Mapping[str, Any]]
    weights: Mapping[str, int]
    without: frozenset[str]


@attrs.frozen(kw_only=True, eq=False)
class TargetPlugin:
    """The contributions of a plugin to one target: to its own, with `info`, or to another one that it `extends`.

    `derive` makes one for a target that is a variant of another, with `derives`.

    Contributions of all plugins to a target are merged field by field: those of its owner first, then by the names of
    the plugins. `rewrites` are in the order in which search breaks ties. Costs of kernels read `tables`; `clock` and
    `measurements` serve `morello calibrate`. Instances are plugins themselves.
    """

    info: TargetInfo | None = None
    extends: str | None = None
    derives: Derivation | None = None
    levels: Sequence[MemoryLevel] = _contribution("level", rules.level)
    rewrites: Sequence[type[Rewrite]] = _contribution("rewrite", rules.rewrite)
    kernels: Sequence[Microkernel] = _contribution("microkernel", rules.microkernel)
    metrics: Sequence[Metric] = _contribution("metric", rules.metric)
    tables: Tables = _contribution("table", rules.table, {})
    emitter: Emitter | None = _contribution("emitter", rules.emitter, None)
    weights: Weights | None = _contribution("weights", rules.weights, None)
    profiles: Sequence[Profile | ProfileFile] = _contribution("profile", rules.profile)
    clock: Clock | None = _contribution("clock", rules.clock, None)
    measurements: Sequence[Measurement] = _contribution("measurement", rules.measurement)

    @property
    def target(self) -> str:
        """Return the name of the target."""
        if self.derives:
            return str(self.derives.info["name"])
        return self.info.name if self.info else self.extends or ""

    @hookimpl
    def morello_plugin(self) -> TargetPlugin:
        return self


#: The fields that hold contributions.
FIELDS = [field for field in attrs.fields(TargetPlugin) if "kind" in field.metadata]


def assemble(
    parts: Sequence[tuple[str, TargetPlugin]],
    operations: Mapping[str, tuple[str, Operation]],
    dtypes: Mapping[str, DType],
) -> tuple[Target, TargetPlugin]:
    """Return a target, and all contributions to it, from the declarations of its owner, which is first, and others.

    Raises PluginError, with the plugin to blame, for a contribution that breaks a rule or has the name of another one.
    """
    owner, owned = parts[0]
    assert owned.info is not None
    origins = {f"operation {op}": plugin for op, (plugin, _) in operations.items()}
    fields: dict[str, Any] = {}
    for field in FIELDS:
        found: list[Any] = []
        for plugin, part in parts:
            for label, item in labelled(field, part, plugin):
                if label in origins:
                    both = f"by plugins {origins[label]!r} and {plugin!r}"
                    what = f"target {owned.target}: {label} is declared twice, {both}"
                    raise PluginError(what, "names are unique within a target: rename one", plugin)
                origins[label] = plugin
                found.append(item)
        if field.default is None:
            fields[field.name] = found[0] if found else None
        else:
            fields[field.name] = tuple(found) if field.default == () else dict(found)
    merged = attrs.evolve(owned, **fields)
    own = {field.name: fields[field.name] for field in attrs.fields(Target) if field.name in fields}
    own["weights"] = Weights() if merged.weights is None else merged.weights
    known = MappingProxyType({**BY_NAME, **{name: op for name, (_, op) in operations.items()}})
    target = Target(info=owned.info, operations=known, dtypes=dtypes, origins=origins, **own)
    if rule := rules.target(target):
        raise PluginError(f"plugin {owner!r}, target {target.name}: {rule}", remedy(owner), owner)
    for field in FIELDS:
        for label, item in labelled(field, merged, owner):
            if rule := field.metadata["rule"](item, target):
                plugin = origins[label]
                raise PluginError(f"plugin {plugin!r}, {label} of target {target.name}: {rule}", remedy(plugin), plugin)
    return target, merged


def labelled(field: attrs.Attribute[Any], part: TargetPlugin, plugin: str) -> Iterator[tuple[str, Any]]:
    """Yield the contributions of a field, each with its kind and name, such as "level L1"."""
    kind, value = field.metadata["kind"], getattr(part, field.name)
    if field.default is None:
        yield from [] if value is None else [(kind, value)]
        return
    try:
        items = list(dict(value).items() if kind == "table" else value)
    except (TypeError, ValueError) as error:
        what = f"plugin {plugin!r}, {field.name} of target {part.target}: several are expected, not {value!r}"
        raise PluginError(what, remedy(plugin), plugin) from error
    for item in items:
        name = item[0] if kind == "table" else getattr(item, _NAMES.get(kind, "name"), item)
        yield f"{kind} {name}", item


#: The attributes that name contributions, other than `name`.
_NAMES = {"rewrite": "keyword", "measurement": "table"}
