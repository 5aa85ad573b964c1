"""Chooses the profile of a target: what the user asks for, else one that was made for this machine's CPU."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TypeAlias

import archspec.cpu
import archspec.cpu.detect
import attrs

from morello.kernels.target import BASE
from morello.paths import config_file
from morello.plugins.profile import Profile, ProfileError, read_profile

#: A profile, its name, or the path of its file.
ProfileLike: TypeAlias = Profile | str | os.PathLike[str]

#: How the names of instructions begin that kernels are made of. Hypervisors hide others from a machine.
_KERNELS = ("avx", "fma", "f16c", "sse", "ssse", "amx")


@attrs.frozen
class Choice:
    """The profile of a target, None for what its plugins declare, and why it is this one."""

    profile: Profile | None
    reason: str


def usual(target: str, shipped: Mapping[str, Profile], names: Callable[[], Collection[str]]) -> Choice:
    """Choose by MORELLO_PROFILE, by the user's configuration, or by the CPU. `names` are of all profiles.

    Raises ProfileError for a profile asked for that there is not.
    """
    asked = os.environ.get("MORELLO_PROFILE", "")
    if asked:
        if is_file(asked):
            profile = read_profile(Path(asked).expanduser())
            if profile.target == target:
                return Choice(profile, "MORELLO_PROFILE")
        elif asked in (BASE, *shipped):
            return Choice(shipped.get(asked), "MORELLO_PROFILE")
        elif asked not in names():
            raise unknown(f"{asked!r} (MORELLO_PROFILE)", names())
    configured = _configured().get(target)
    if configured is not None:
        return Choice(named(configured, target, shipped), f"{config_file()}")
    return by_cpu(shipped.values(), machine())


def named(asked: ProfileLike, target: str, shipped: Mapping[str, Profile]) -> Profile | None:
    """Return the profile of a target that is asked for, None for `base`. Raises ProfileError if there is none."""
    if isinstance(asked, Profile):
        return asked
    if is_file(asked):
        return read_profile(Path(asked).expanduser())
    if asked not in (BASE, *shipped):
        raise unknown(f"{asked!r}", shipped, f" of {target}")
    return shipped.get(str(asked))


def is_file(asked: ProfileLike) -> bool:
    """Tell if what is asked for is a path, and no name."""
    return not isinstance(asked, str) or asked.endswith(".toml") or os.sep in asked


def unknown(what: str, names: Collection[str], of: str = "") -> ProfileError:
    """Return the error for a name that no profile has."""
    known = ", ".join(sorted({BASE, *names}))
    return ProfileError(
        f"{what} is no profile{of}",
        f"profiles are {known}; a file is given by a path that ends in .toml or has a {os.sep}",
    )


def by_cpu(shipped: Collection[Profile], lineage: Sequence[str]) -> Choice:
    """Choose the profile for the nearest of a CPU's microarchitectures, itself first; of several, the first."""
    for cpu in lineage:
        for profile in shipped:
            if cpu in profile.cpus:
                return Choice(profile, f"this CPU is {lineage[0]}" + ("" if cpu == lineage[0] else f", like {cpu}"))
    return Choice(None, f"no profile is for {lineage[0]}, this CPU" if shipped and lineage else "there is no other")


@cache
def machine() -> tuple[str, ...]:
    """Return the names of this machine's microarchitecture and of what it is descended from, nearest first.

    Virtual machines hide features that no kernel uses, by which archspec takes them for something older: then it is
    the youngest microarchitecture of the vendor all of whose vector instructions are there.
    """
    host = archspec.cpu.host()
    detected = archspec.cpu.detect.detected_info()
    if host.vendor == "generic" and detected.vendor:
        young = [
            one
            for one in archspec.cpu.TARGETS.values()
            if one.vendor == detected.vendor
            and one.family == host.family
            and all(name in detected.features for name in one.features if name.startswith(_KERNELS))
        ]
        host = max(young, key=lambda one: (len(one.ancestors), one.name), default=host)
    return (host.name, *(one.name for one in host.ancestors))


def _configured() -> dict[str, str | Path]:
    """Return the profiles that the user's configuration names, by target; paths are taken from its folder."""
    file = config_file()
    try:
        settings = tomllib.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise ProfileError(
            f"cannot read {file}: {error.strerror or error}", "make it readable, or remove it"
        ) from error
    except ValueError as error:
        raise ProfileError(
            f"{file}: this is no TOML: {error}", 'write [profiles], and x86_avx2 = "FILE" below'
        ) from error
    profiles = settings.get("profiles", {})
    for key in settings:
        if key != "profiles":
            raise ProfileError(f"{file}: {key} must be profiles", "remove it")
    if not isinstance(profiles, dict) or not all(isinstance(one, str) for one in profiles.values()):
        rule = "[profiles] must be a table of targets and texts"
        raise ProfileError(f"{file}: {rule}", 'write a line such as x86_avx2 = "FILE" below [profiles]')
    return {
        target: file.parent / Path(asked).expanduser() if is_file(asked) else asked
        for target, asked in profiles.items()
    }
