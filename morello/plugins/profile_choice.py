"""Chooses the profile of a target: by environment variable, by configuration file, else by the CPU."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TypeAlias

import archspec.cpu
import archspec.cpu.detect
import attrs

from morello.kernels.target import BASE
from morello.paths import config_file
from morello.plugins.profile import Profile, ProfileError, UnknownProfile, read_profile
from morello.untrusted import parse_toml

#: A profile, its name, or the path of its file.
ProfileLike: TypeAlias = Profile | str | os.PathLike[str]

#: Prefixes of the CPU features that kernels use; hypervisors hide others.
_USED = ("avx", "fma", "f16c", "sse", "ssse", "amx")


@attrs.frozen
class ProfileChoice:
    """The profile of a target, None for costs as declared, and the reason for the choice."""

    profile: Profile | None
    reason: str


def choose(target: str, shipped: Mapping[str, Profile], names: Callable[[], Collection[str]]) -> ProfileChoice:
    """Choose among the profiles `shipped` with a target; `names` returns those of all targets.

    MORELLO_PROFILE comes first, then the user's configuration, then the CPU. Raises ProfileError for an unknown name.
    """
    asked = os.environ.get("MORELLO_PROFILE", "")
    if asked:
        if is_file(asked):
            profile = read_profile(Path(asked).expanduser())
            if profile.target == target:
                return ProfileChoice(profile, "MORELLO_PROFILE")
        elif asked in (BASE, *shipped):
            return ProfileChoice(shipped.get(asked), "MORELLO_PROFILE")
        elif asked not in names():
            raise _unknown(f"{asked!r} (MORELLO_PROFILE)", names())
    configured = _configured().get(target)
    if configured is not None:
        return ProfileChoice(named(configured, target, shipped), f"{config_file()}")
    return by_cpu(shipped.values(), microarchitectures())


def named(asked: ProfileLike, target: str, shipped: Mapping[str, Profile]) -> Profile | None:
    """Return a profile by name or file, None for `base`. Raises ProfileError for an unknown one."""
    if isinstance(asked, Profile):
        return asked
    if is_file(asked):
        return read_profile(Path(asked).expanduser())
    if asked not in (BASE, *shipped):
        raise _unknown(f"{asked!r}", shipped, f" of {target}")
    return shipped.get(str(asked))


def is_file(asked: ProfileLike) -> bool:
    """Return True for the path of a profile, False for a name."""
    return not isinstance(asked, str) or asked.endswith(".toml") or os.sep in asked


def _unknown(asked: str, names: Collection[str], of: str = "") -> UnknownProfile:
    known = ", ".join(sorted({BASE, *names}))
    return UnknownProfile(
        f"unknown profile {asked}{of}",
        f"profiles are {known}; a file is given by a path that ends in .toml or has a {os.sep}",
    )


def by_cpu(shipped: Collection[Profile], lineage: Sequence[str]) -> ProfileChoice:
    """Choose the first profile for the nearest microarchitecture of a CPU's lineage, which starts with itself."""
    for cpu in lineage:
        for profile in shipped:
            if cpu in profile.cpus:
                like = "" if cpu == lineage[0] else f", like {cpu}"
                return ProfileChoice(profile, f"this CPU is {lineage[0]}{like}")
    return ProfileChoice(
        None, f"no profile is for {lineage[0]}, this CPU" if shipped and lineage else "no other profile"
    )


@cache
def microarchitectures() -> tuple[str, ...]:
    """Return the names of this CPU's microarchitecture and its ancestors, nearest first.

    Virtual machines hide features that no kernel uses, so that archspec detects too old a CPU. In that case, return
    the youngest microarchitecture of the vendor whose vector instructions are all present.
    """
    host = archspec.cpu.host()
    detected = archspec.cpu.detect.detected_info()
    if host.vendor == "generic" and detected.vendor:
        young = [
            one
            for one in archspec.cpu.TARGETS.values()
            if one.vendor == detected.vendor
            and one.family == host.family
            and all(name in detected.features for name in one.features if name.startswith(_USED))
        ]
        host = max(young, key=lambda one: (len(one.ancestors), one.name), default=host)
    return (host.name, *(one.name for one in host.ancestors))


def _configured() -> dict[str, str | Path]:
    """Return the profiles of the user's configuration by target. Relative paths start at its folder."""
    file = config_file()
    try:
        settings = parse_toml(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise ProfileError(
            f"cannot read {file}: {error.strerror or error}", "make it readable, or remove it"
        ) from error
    except ValueError as error:
        raise ProfileError(
            f"{file}: not valid TOML: {error}", 'write [profiles], and x86_avx2 = "FILE" below'
        ) from error
    profiles = settings.get("profiles", {})
    for key in settings:
        if key != "profiles":
            raise ProfileError(f"{file}: unknown key {key}: only profiles is known", "remove it")
    if not isinstance(profiles, dict) or not all(isinstance(one, str) for one in profiles.values()):
        rule = "[profiles] must be a table of targets and texts"
        raise ProfileError(f"{file}: {rule}", 'write a line such as x86_avx2 = "FILE" below [profiles]')
    return {
        target: file.parent / Path(asked).expanduser() if is_file(asked) else asked
        for target, asked in profiles.items()
    }
