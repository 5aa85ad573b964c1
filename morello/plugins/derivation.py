"""Derived targets: variants of a CPU, as data. The registry derives them once all plugins are known."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias

import attrs

from morello.errors import PluginError, suggestion
from morello.kernels.machine import MemoryLevel, TargetInfo, Weights
from morello.plugins.plugin import FIELDS, Derivation, TargetPlugin, labelled
from morello.plugins.profile import Profile

#: The declarations for a target, each with its plugin; that of its owner is first.
Parts: TypeAlias = Sequence[tuple[str, TargetPlugin]]

_INFO = {field.name for field in attrs.fields(TargetInfo)}
_NUMBERS = {field.name for field in attrs.fields(MemoryLevel)} - {"name"}
_WEIGHTS = {field.name for field in attrs.fields(Weights)}


def derive(
    base: str,
    *,
    name: str,
    levels: Mapping[str, MemoryLevel | Mapping[str, Any]] | None = None,
    weights: Weights | Mapping[str, int] | None = None,
    without: Collection[str] = (),
    **fields: Any,
) -> TargetPlugin:
    """Return the plugin of a target that is a variant of another one, `base`, which any installed plugin may own.

    `levels` are changes by level, such as `{"L2": {"capacity": 1 << 20}}`, or whole levels; new registers come first,
    other new levels last. `weights` are whole, or some of them. `without` names kernels that the variant lacks. Other
    `fields` are those of `TargetInfo` and `TargetPlugin`: contributions such as `kernels` or `tables` replace those of
    the same name, and add others. Everything else comes from the base, with contributions of plugins that extend it.
    The base's profiles apply as well, except to costs that are given here. Raises PluginError for an unknown field.
    """
    known = sorted((_INFO | {field.name for field in FIELDS}) - {"name"})
    for field in fields:
        if field not in known:
            hint = suggestion(field, known, f"there are levels, weights, without, {', '.join(known)}")
            raise PluginError(f"derive({base!r}, name={name!r}): unknown field {field!r}", hint)
    whole = [level for level in (levels or {}).values() if isinstance(level, MemoryLevel)]
    changed = {level: change for level, change in (levels or {}).items() if not isinstance(change, MemoryLevel)}
    own: dict[str, Any] = {key: value for key, value in fields.items() if key not in _INFO}
    if isinstance(weights, Weights):
        own["weights"], weights = weights, None
    info = {"name": name, **{key: value for key, value in fields.items() if key in _INFO}}
    return TargetPlugin(derives=Derivation(base, info, changed, weights or {}, frozenset(without)), levels=whole, **own)


def resolved(target: str, declared: Mapping[str, Parts], above: Sequence[str] = ()) -> Parts:
    """Return the declarations for a target, those of a derived one made from its base's.

    `declared` are those of all targets that have an owner. Raises PluginError for a base that is missing or derived
    from the target, and for changes of something that the base lacks.
    """
    (plugin, own), *extensions = parts = declared[target]
    change = own.derives
    if change is None:
        return parts
    place = f"plugin {plugin!r}, target {target}, derived from {change.base}"
    path = (*above, target)
    if change.base in path:
        circle = " from ".join((*path, change.base))
        raise PluginError(f"{place}: a target is derived from itself: {circle}", "name another base", plugin)
    if change.base not in declared:
        hint = suggestion(change.base, declared, f"install its plugin; installed targets are {', '.join(declared)}")
        raise PluginError(f"{place}: no such target is installed", hint, plugin)
    base = resolved(change.base, declared, path)
    _check(place, plugin, change, base)
    (_, owned), *others = base
    gone = {label for field in FIELDS for label, _ in labelled(field, own, plugin)}
    gone |= {f"microkernel {kernel}" for kernel in change.without}
    merged = _combined(_kept(owned, change, gone, plugin), own, plugin)
    assert owned.info is not None
    order = [level.name for _, part in base for level in part.levels]
    levels = sorted(merged.levels, key=lambda level: _place(level, order))
    first = attrs.evolve(merged, info=attrs.evolve(owned.info, **change.info), levels=levels)
    following = [(name, attrs.evolve(_kept(one, change, gone, name), extends=target)) for name, one in others]
    return [(plugin, first), *following, *extensions]


def _place(level: MemoryLevel, order: Sequence[str]) -> int:
    """Return the place of a level: the base's, before all for new registers, and behind all for other new levels."""
    new = -1 if level.is_register else len(order)
    return order.index(level.name) if level.name in order else new


def _check(place: str, plugin: str, change: Derivation, base: Parts) -> None:
    """Raise PluginError for changes of levels, fields or kernels that the base lacks."""
    levels = [level.name for _, part in base for level in part.levels]
    kernels = [kernel.name for _, part in base for kernel in part.kernels]
    wrong = [("level", name, levels) for name in change.levels if name not in levels]
    wrong += [
        (f"field of level {level}", name, sorted(_NUMBERS))
        for level, fields in change.levels.items()
        for name in fields
        if name not in _NUMBERS
    ]
    wrong += [("weight", name, sorted(_WEIGHTS)) for name in change.weights if name not in _WEIGHTS]
    wrong += [("kernel", name, kernels) for name in sorted(change.without) if name not in kernels]
    for kind, name, known in wrong:
        raise PluginError(
            f"{place}: no {kind} {name!r}", suggestion(name, known, f"there are {', '.join(known)}"), plugin
        )


def _kept(part: TargetPlugin, change: Derivation, gone: Collection[str], plugin: str) -> TargetPlugin:
    """Return the contributions of a part without those whose labels are `gone`, with levels and weights changed."""
    fields: dict[str, Any] = {}
    for field in FIELDS:
        items = [item for label, item in labelled(field, part, plugin) if label not in gone]
        if field.default is None:
            fields[field.name] = items[0] if items else None
        else:
            fields[field.name] = items if field.default == () else dict(items)
    fields["levels"] = [attrs.evolve(level, **change.levels.get(level.name, {})) for level in fields["levels"]]
    if change.weights and (part.info or part.weights):
        fields["weights"] = attrs.evolve(fields["weights"] or Weights(), **change.weights)
    return attrs.evolve(part, **fields)


def _combined(base: TargetPlugin, own: TargetPlugin, plugin: str) -> TargetPlugin:
    fields: dict[str, Any] = {}
    for field in FIELDS:
        theirs, mine = getattr(base, field.name), getattr(own, field.name)
        if field.default is None:
            fields[field.name] = theirs if mine is None else mine
        elif field.default == ():
            # The first profile for a CPU is chosen.
            fields[field.name] = (*mine, *theirs) if field.name == "profiles" else (*theirs, *mine)
        else:
            fields[field.name] = {**theirs, **mine}
    return attrs.evolve(base, **fields)


def adapted(profile: Profile, own: TargetPlugin) -> Profile:
    """Return a profile of the base for the target that `own` derives, without costs that `own` gives."""
    change = own.derives
    assert change is not None
    whole = {level.name for level in own.levels}
    levels = {
        level: {name: value for name, value in numbers.items() if name not in change.levels.get(level, ())}
        for level, numbers in profile.levels.items()
        if level not in whole
    }
    weights = {} if own.weights else {name: one for name, one in profile.weights.items() if name not in change.weights}
    tables = {name: rows for name, rows in profile.tables.items() if name not in own.tables}
    gone = {*change.without, *(kernel.name for kernel in own.kernels)}
    kernels = {name: costs for name, costs in profile.kernels.items() if name not in gone}
    return attrs.evolve(profile, target=own.target, levels=levels, weights=weights, tables=tables, kernels=kernels)
