"""Profiles: what the levels, threads and kernels of a target cost on one machine, as text that people may edit."""

from __future__ import annotations

import json
import os
import re
import reprlib
from collections.abc import Iterable, Mapping
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeAlias, cast

import attrs

from morello.errors import MorelloError, UnknownName
from morello.kernels.machine import MemoryLevel, Tables, Weights
from morello.kernels.target import BASE, Target
from morello.plugins import rules
from morello.plugins.rules import in_range, rows_rule
from morello.untrusted import parse_toml, read_file

#: The threads of a profile that stands for all machines with a CPU: as many as there are CPUs.
ALL_CPUS = "cpus"
#: What a profile may say of a level: all of its numbers but those that emitted code is made for.
MEASURED = tuple(
    field.name
    for field in attrs.fields(MemoryLevel)
    if field.type in (int, "int") and field.name not in ("unit", "alignment")
)

_WEIGHTS = tuple(field.name for field in attrs.fields(Weights))


class ProfileError(MorelloError):
    """A profile that breaks a rule."""


class UnknownProfile(ProfileError, UnknownName):
    """A name without a profile."""


#: A file with a profile, on disk or in a package.
ProfileFile: TypeAlias = Path | Traversable


@attrs.frozen(kw_only=True)
class Profile:
    """The costs of a machine, in place of what the plugins of `target` declare.

    `cpus` are its microarchitectures, in archspec's names. `mhz` is the clock of its cores, for costs to be shown as
    times. `levels` has numbers of memory levels by level and field, `weights` those of `Weights`, where threads may be
    "cpus", `tables` whole tables, and `kernels` costs of kernels that declare none (`Machine.kernel_costs`). Other
    values stay as declared. `place` is its origin. Raises ProfileError for an invalid profile.
    """

    name: str
    target: str
    description: str = ""
    cpus: tuple[str, ...] = ()
    mhz: int | None = None
    levels: Mapping[str, Mapping[str, int]] = attrs.field(factory=dict[str, Mapping[str, int]])
    weights: Mapping[str, int | Literal["cpus"]] = attrs.field(factory=dict[str, int | Literal["cpus"]])
    tables: Tables = attrs.field(factory=dict[str, tuple[tuple[int, ...], ...]])
    kernels: Mapping[str, tuple[int, ...]] = attrs.field(factory=dict[str, tuple[int, ...]])
    place: str = attrs.field(default="", eq=False)

    def __attrs_post_init__(self) -> None:
        for key in ("name", "target", "description"):
            if not isinstance(text := getattr(self, key), str) or not text.isprintable():
                self.broken(key, "a line of text", f'write {key} = "..."')
        if not re.fullmatch(r"[\w.-]+", self.name) or self.name == BASE or self.name.endswith(".toml"):
            rule = f"a word of letters, digits, `-`, `_` and `.`, not {BASE} and not with .toml at its end"
            self.broken("name", rule, "rename the profile")
        if not isinstance(self.cpus, tuple) or not all(isinstance(one, str) for one in self.cpus):
            self.broken("cpus", "a list of names", 'write cpus = ["zen5"], names as archspec has them')
        if self.mhz is not None and not in_range(self.mhz, 1):
            rule = f"an integer from 1 to 2^31, not {reprlib.repr(self.mhz)}"
            self.broken("mhz", rule, "write the megahertz of a core, or none")
        self._check_levels()
        self._check_weights()
        self._check_tables()
        for name, costs in self._mapping("kernels", self.kernels).items():
            if not isinstance(costs, tuple) or len(costs) != 3 or not all(in_range(one, 0) for one in costs):
                rule = "three integers from 0 to 2^31: for each vector, once per call, and at least"
                self.broken(f"kernels.{name}", rule, "measure again with `morello calibrate --kernels`")

    def _check_levels(self) -> None:
        for level, changed in self._mapping("levels", self.levels).items():
            for name, value in self._mapping(f"levels.{level}", changed).items():
                key = f"levels.{level}.{name}"
                if name not in MEASURED:
                    self.broken(key, f"one of {', '.join(MEASURED)}", "remove it")
                most = 62 if name == "capacity" else 31
                if not in_range(value, 0, 1 << most):
                    self.broken(key, f"an integer from 0 to 2^{most}, not {reprlib.repr(value)}", "correct the number")

    def _check_weights(self) -> None:
        for name, value in self._mapping("weights", self.weights).items():
            if name not in _WEIGHTS:
                self.broken(f"weights.{name}", f"one of {', '.join(_WEIGHTS)}", "remove it")
            if name == "threads" and value == ALL_CPUS:
                continue
            least = int(name == "threads")
            if not in_range(value, least):
                other = f', or "{ALL_CPUS}"' if least else ""
                rule = f"an integer from {least} to 2^31{other}, not {reprlib.repr(value)}"
                self.broken(f"weights.{name}", rule, "correct the number")

    def _check_tables(self) -> None:
        for name, rows in self._mapping("tables", self.tables).items():
            rule = rows_rule(rows)
            if rule:
                self.broken(f"tables.{name}", rule, "correct the rows, or measure again with `morello calibrate`")

    def _mapping(self, key: str, value: object) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            self.broken(key, "a table of keys and values", f"write [{key}], and a line for each key below it")
        return cast("Mapping[str, Any]", value)

    def broken(self, key: str, rule: str, hint: str) -> NoReturn:
        """Raise ProfileError for an invalid key of this profile."""
        raise ProfileError(f"{self.place or f'profile {self.name}'}: {key} must be {rule}", hint)

    def text(self) -> str:
        """Return the profile as TOML: a table's rows a line each. `parsed` reads it."""
        lines = [f"{key} = {json.dumps(getattr(self, key), ensure_ascii=False)}" for key in ("name", "target")]
        if self.description:
            lines.append(f"description = {json.dumps(self.description, ensure_ascii=False)}")
        lines.append(f"cpus = {json.dumps(self.cpus)}")
        if self.mhz is not None:
            lines.append(f"mhz = {self.mhz}")
        if self.weights:
            lines += ["", "[weights]", *_pairs(self.weights)]
        for name, changed in self.levels.items():
            lines += ["", f"[levels.{name}]", *_pairs(changed)]
        if self.tables:
            lines += ["", "[tables]"]
        for name, rows in self.tables.items():
            lines += [f"{name} = [", *(f"    {list(row)}," for row in rows), "]"]
        if self.kernels:
            lines += ["", "[kernels]", *(f"{name} = {list(costs)}" for name, costs in self.kernels.items())]
        return "\n".join(lines) + "\n"


def parsed(text: str, place: str) -> Profile:
    """Read a profile. Raises ProfileError, which names place and key."""
    try:
        settings = parse_toml(text)
    except ValueError as error:
        raise ProfileError(
            f"{place}: not valid TOML: {error}", "`morello calibrate -o FILE` writes a profile"
        ) from error
    known = [field.name for field in attrs.fields(Profile) if field.name != "place"]
    for key in settings:
        if key not in known:
            raise ProfileError(f"{place}: {key} must be one of {', '.join(known)}", "remove it")
    for key in ("name", "target"):
        if key not in settings:
            raise ProfileError(f"{place}: {key} is missing", f'write {key} = "..." at the head of the file')
    if isinstance(settings.get("cpus"), list):
        settings["cpus"] = tuple(settings["cpus"])
    for key in ("tables", "kernels"):
        if isinstance(settings.get(key), Mapping):
            settings[key] = {name: _frozen(rows) for name, rows in settings[key].items()}
    return Profile(**settings, place=place)


def read_profile(file: ProfileFile) -> Profile:
    """Read a file with a profile. Raises ProfileError for one that cannot be read, or breaks a rule."""
    try:
        return parsed(read_file(file, "`morello calibrate -o FILE` writes a profile"), str(file))
    except ProfileError:
        raise
    except MorelloError as error:
        raise ProfileError(error.message, error.hint) from error


def applied(profile: Profile, base: Target) -> Target:
    """Return a target with the costs of a profile. Raises ProfileError for what the target does not have."""
    if profile.target != base.name:
        profile.broken("target", f"{base.name}, for which it is used", f"it is a profile of {profile.target}")
    return attrs.evolve(
        base, levels=_levels(profile, base), weights=_weights(profile, base), tables=_tables(profile, base),
        kernel_costs=_kernel_costs(profile, base), profile=profile.name, mhz=profile.mhz,
    )  # fmt: skip


def _levels(profile: Profile, base: Target) -> tuple[MemoryLevel, ...]:
    levels = {level.name: level for level in base.levels}
    for name, changed in profile.levels.items():
        if name not in levels or levels[name].is_register:
            known = [level.name for level in base.levels if not level.is_register]
            rule = f"a cache or memory of {base.name}: {' or '.join(known)}"
            profile.broken(f"levels.{name}", rule, "remove it; registers are as declared")
        levels[name] = attrs.evolve(levels[name], **changed)
    for name in profile.levels:
        rule = rules.level(levels[name], attrs.evolve(base, levels=tuple(levels.values())))
        if rule:
            profile.broken(f"levels.{name}", f"a level that a target may have: {rule}", "correct the numbers")
    return tuple(levels.values())


def _weights(profile: Profile, base: Target) -> Weights:
    changed = {
        name: (os.cpu_count() or 1) if value == ALL_CPUS else int(value) for name, value in profile.weights.items()
    }
    return attrs.evolve(base.weights, **changed)


def _tables(profile: Profile, base: Target) -> Tables:
    for name, rows in profile.tables.items():
        known = base.tables.get(name)
        if known is None:
            rule = f"a table of {base.name}: {' or '.join(base.tables) or 'it has none'}"
            profile.broken(f"tables.{name}", rule, "remove it")
        if (len(rows), len(rows[0])) != (len(known), len(known[0])):
            rule = f"{len(known)} rows of {len(known[0])} integers, as {base.name} has them"
            profile.broken(f"tables.{name}", rule, "measure again: `morello calibrate` writes all rows")
    return {**base.tables, **profile.tables}


def _kernel_costs(profile: Profile, base: Target) -> Mapping[str, tuple[int, ...]]:
    known = {one.name for one in base.kernels if one.cost is None}
    for name in profile.kernels:
        if name not in known:
            profile.broken(f"kernels.{name}", f"a microkernel of {base.name} that declares no cost", "remove it")
    return profile.kernels


def _frozen(rows: Any) -> Any:
    """Return lists of lists as tuples of tuples; anything else as it is."""
    return tuple(_frozen(one) for one in rows) if isinstance(rows, list) else rows


def _pairs(values: Mapping[str, int | str]) -> Iterable[str]:
    return (f"{key} = {json.dumps(value)}" for key, value in values.items())
