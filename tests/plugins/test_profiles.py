"""Profiles: their files, the choice of one for a target, and their effects."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import archspec.cpu
import attrs
import pytest

import morello
from morello.db.fingerprint import fingerprint
from morello.errors import MorelloError, PluginError
from morello.ir.impl import cost_and_peak
from morello.kernels.target import Target
from morello.plugins import MemoryLevel, Profile, TargetPlugin, profile_choice
from morello.plugins.profile import ProfileError, parsed, read_profile
from morello.plugins.profile_choice import by_cpu, choose, microarchitectures
from morello.plugins.registry import Registry, installed

#: A profile that changes something of every kind.
TEXT = """\
name = "fast"
target = "toy_cpu"
description = "a \\"fast\\" toy"
cpus = ["zen5", "a64fx"]
mhz = 250

[weights]
threads = 4
sync = 77

[levels.C]
hit_cost = 2
capacity = 4096

[tables]
rows = [
    [1, 30],
    [2, 50],
]
"""
ROWS = ((1, 40), (2, 60))


def cost_of_rows(spec: Any, machine: Any) -> int:
    """Cost as the table has it for one row."""
    return machine.tables["rows"][0][1]


@pytest.fixture(scope="module")
def plugin(toy_plugin: TargetPlugin) -> TargetPlugin:
    """toy_cpu with a table, which one of its kernels costs by, and two profiles."""
    kernels = tuple(
        attrs.evolve(one, cost=cost_of_rows) if one.name == "MultAdd" else one for one in toy_plugin.kernels
    )
    slow = Profile(name="slow", target="toy_cpu", cpus=("x86_64",), weights={"sync": 9_999})
    return attrs.evolve(
        toy_plugin, kernels=kernels, tables={"rows": ROWS}, profiles=(slow, parsed(TEXT, "fast.toml"))
    )  # fmt: skip


@pytest.fixture(scope="module")
def toys(plugin: TargetPlugin) -> Registry:
    return Registry.of(toy_cpu=plugin)


def level(target: Target, name: str) -> MemoryLevel:
    return target.level(name)


def test_a_profile_replaces_its_numbers_only(toys: Registry) -> None:
    base, fast = toys.target("toy_cpu"), toys.target("toy_cpu", "fast")
    assert (base.profile, fast.profile) == ("base", "fast")
    assert (base.label, fast.label) == ("toy_cpu", "toy_cpu (profile fast)")
    assert (level(fast, "C").hit_cost, level(fast, "C").capacity) == (2, 4096)
    assert attrs.evolve(level(fast, "C"), hit_cost=level(base, "C").hit_cost, capacity=8 << 10) == level(base, "C")
    assert [one for one in fast.levels if one.name != "C"] == [one for one in base.levels if one.name != "C"]
    assert (fast.weights.threads, fast.weights.sync) == (4, 77)
    assert (base.mhz, fast.mhz) == (None, 250)
    assert base.tables == {"rows": ROWS}
    assert fast.tables == {"rows": ((1, 30), (2, 50))}
    assert toys.target("toy_cpu", "base") is base
    assert toys.target("toy_cpu", "slow").weights == attrs.evolve(base.weights, sync=9_999)
    assert [one.profile for one in toys.variants("toy_cpu")] == ["base", "slow", "fast"]


def test_kernels_cost_the_numbers_of_the_profile(toys: Registry) -> None:
    text = "MatmulAccum(1×1×1×1, (f32, R), (f32, C), (f32, C), serial)"
    costs = [
        cost_and_peak(morello.goal(text, target="toy_cpu", registry=toys, profile=name).select("MultAdd").impl).cost
        for name in ("base", "fast")
    ]
    assert costs == [40, 30]


def test_text_is_read_back_as_written(tmp_path: Path) -> None:
    found = parsed(TEXT, "here")
    assert parsed(found.text(), "there") == found
    (tmp_path / "own.toml").write_text(found.text(), encoding="utf-8")
    assert read_profile(tmp_path / "own.toml") == found
    plain = Profile(name="n", target="t")
    assert parsed(plain.text(), "there") == plain


def test_threads_may_be_those_of_the_machine(toys: Registry) -> None:
    target = toys.target("toy_cpu", Profile(name="all", target="toy_cpu", weights={"threads": "cpus"}))
    assert target.weights.threads == os.cpu_count()


#: Faults of a file: a part of TEXT, its replacement, and the key and the rule in the message.
FAULTS = [
    ('name = "fast"', "name =", "not valid TOML"),
    ('name = "fast"', "", "name is missing"),
    ('name = "fast"', "name = 3", "name must be a line of text"),
    ('name = "fast"', 'name = "base"', "name must be a word"),
    ('name = "fast"', 'name = "a/b"', "name must be a word"),
    ('target = "toy_cpu"', "", "target is missing"),
    ('target = "toy_cpu"', 'target = "x86_avx2"', "target must be toy_cpu"),
    ("cpus = [", "cpu = [", "cpu must be one of name, target, description, cpus, mhz, levels,"),
    ('["zen5", "a64fx"]', '"zen5"', "cpus must be a list of names"),
    ("mhz = 250", "mhz = 0", "mhz must be an integer from 1 to 2^31, not 0"),
    ("mhz = 250", "mhz = 2.5", "mhz must be an integer from 1 to 2^31, not 2.5"),
    ("threads = 4", "threads = 0", "weights.threads must be an integer from 1 to 2^31"),
    ("threads = 4", "threads = true", "weights.threads must be an integer"),
    ("threads = 4", 'threads = "many"', "weights.threads must be an integer"),
    ("sync = 77", "sync = -1", "weights.sync must be an integer from 0 to 2^31"),
    ("sync = 77", "snyc = 77", "weights.snyc must be one of threads, sync"),
    ("[levels.C]", "[levels.L9]", "levels.L9 must be a cache or memory of toy_cpu: C or MEM"),
    ("[levels.C]", "[levels.R]", "levels.R must be a cache or memory"),
    ("capacity = 4096", "capacity = 0", "levels.C must be a level that a target may have: its capacity"),
    ("capacity = 4096", "capacity = -64", "levels.C.capacity must be an integer from 0 to 2^62, not -64"),
    ("hit_cost = 2", "hit_cost = 2.5", "levels.C.hit_cost must be an integer from 0 to 2^31, not 2.5"),
    ("hit_cost = 2", "unit = 32", "levels.C.unit must be one of capacity, hit_cost"),
    ("[levels.C]", "[levels]\nC = 3\n[other]", "other must be one of"),
    ("rows = [", "columns = [", "tables.columns must be a table of toy_cpu: rows"),
    ("[2, 50]", "[2]", "tables.rows must be rows with equally many integers"),
    ("[2, 50]", "[2, 5.5]", "tables.rows must be rows of integers"),
    ("[2, 50]", "7", "tables.rows must be a list of rows"),
    ("mhz = 250", f"mhz = {10**4000}", "mhz must be an integer from 1 to 2^31, not 1000"),
    ("sync = 77", f"sync = {1 << 60}", "weights.sync must be an integer from 0 to 2^31"),
    ("hit_cost = 2", f"hit_cost = {10**400}", "levels.C.hit_cost must be an integer from 0 to 2^31"),
    ("[2, 50]", f"[2, {1 << 60}]", "tables.rows must be rows of integers from -2^31 to 2^31"),
    ("mhz = 250", f"mhz = {'[' * 10**5}", "not valid TOML: it is nested deeper than 50"),
    ("mhz = 250", f"{'a.' * 10**5}a = 1", "not valid TOML: it is nested deeper than 50"),
    ('description = "', r'description = "\u001b[31m', "description must be a line of text"),
    ("    [2, 50],\n", "", "tables.rows must be 2 rows of 2 integers"),
]


@pytest.mark.parametrize(("part", "other", "words"), FAULTS, ids=[words[:40] for *_, words in FAULTS])
def test_faults_name_file_key_and_rule(part: str, other: str, words: str, tmp_path: Path, toys: Registry) -> None:
    assert TEXT.count(part) == 1
    path = tmp_path / "own.toml"
    path.write_text(TEXT.replace(part, other), encoding="utf-8")
    with pytest.raises(ProfileError) as raised:
        toys.target("toy_cpu", str(path))
    assert f"{path}: {words}" in raised.value.message
    assert raised.value.hint


def test_unknown_profiles(tmp_path: Path, toys: Registry) -> None:
    with pytest.raises(ProfileError, match=r"unknown profile 'fest' of toy_cpu\n  hint: profiles are base, fast"):
        toys.target("toy_cpu", "fest")
    with pytest.raises(ProfileError, match=r"cannot read .*none.toml: No such file"):
        toys.target("toy_cpu", tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff")
    with pytest.raises(ProfileError, match=r"bytes.toml is not UTF-8"):
        toys.target("toy_cpu", tmp_path / "bytes.toml")
    with pytest.raises(ProfileError, match="cannot read /dev/zero: it is larger than 64 MiB"):
        toys.target("toy_cpu", "/dev/zero")


def test_plugins_are_blamed_for_their_profiles(plugin: TargetPlugin) -> None:
    twice = attrs.evolve(plugin, profiles=(plugin.profiles[0], plugin.profiles[0]))
    with pytest.raises(PluginError, match="target toy_cpu: profile slow is declared twice, by plugins 'toy_cpu'"):
        Registry.of(toy_cpu=twice).target("toy_cpu")
    other = Profile(name="odd", target="toy_cpu", levels={"L9": {"hit_cost": 1}})
    with pytest.raises(ProfileError, match=r"profile odd: levels.L9 must be a cache or memory of toy_cpu"):
        Registry.of(toy_cpu=attrs.evolve(plugin, profiles=(other,))).target("toy_cpu")
    with pytest.raises(PluginError, match="table rows of target toy_cpu: it must be rows with equally many integers"):
        Registry.of(toy_cpu=attrs.evolve(plugin, tables={"rows": ((1, 2), (1,))}, profiles=())).target("toy_cpu")


def test_a_goal_has_its_costs(toys: Registry) -> None:
    goal = morello.goal("MatmulAccum(1×1×1×1, (f32, R), (f32, C), (f32, C), serial)", target="toy_cpu", registry=toys)
    with pytest.raises(MorelloError, match="a goal has a target, which profile= cannot change"):
        morello.compile(goal, profile="fast")
    with pytest.raises(MorelloError, match="a Target has costs and features, which profile= cannot change"):
        morello.synthesize(goal.spec, target=goal.target, profile="fast")


#: Each changes one number of the profile.
CHANGES: list[Callable[[str], str]] = [
    lambda text: text.replace("[2, 50]", "[2, 51]"),
    lambda text: text.replace("hit_cost = 2", "hit_cost = 4"),
    lambda text: text.replace("capacity = 4096", "capacity = 2048"),
    lambda text: text.replace("threads = 4", "threads = 5"),
    lambda text: text.replace("sync = 77", "sync = 78"),
]


def test_the_fingerprint_sees_every_number(toys: Registry) -> None:
    prints = [fingerprint(toys.target("toy_cpu", parsed(change(TEXT), ""))) for change in (str, *CHANGES)]
    prints += [fingerprint(toys.target("toy_cpu", name)) for name in ("base", "slow")]
    assert len({*prints}) == len(prints)


def test_the_fingerprint_sees_numbers_only(toys: Registry) -> None:
    renamed = attrs.evolve(parsed(TEXT, ""), name="other", description="", cpus=())
    assert fingerprint(toys.target("toy_cpu", renamed)) == fingerprint(toys.target("toy_cpu", "fast"))


def host(monkeypatch: pytest.MonkeyPatch, name: str, found: Any = None) -> None:
    """Let archspec take this machine for another one."""
    target = archspec.cpu.TARGETS[name]
    monkeypatch.setattr("archspec.cpu.host", lambda: target)
    monkeypatch.setattr("archspec.cpu.detect.detected_info", lambda: found or target)
    microarchitectures.cache_clear()


@pytest.fixture
def any_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A user without settings, and a machine that tests may change."""
    monkeypatch.delenv("MORELLO_PROFILE", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    yield
    microarchitectures.cache_clear()


def chosen(registry: Registry) -> tuple[str | None, str]:
    """The name of the profile that the usual choice of a registry is, and the reason."""
    found = choose("toy_cpu", registry.profiles("toy_cpu"), lambda: {*registry.profiles("toy_cpu"), "elsewhere"})
    return found.profile.name if found.profile else None, found.reason


CPUS = [
    ("zen5", "fast", "this CPU is zen5"),
    ("zen4", "slow", "this CPU is zen4, like x86_64"),
    ("x86_64", "slow", "this CPU is x86_64"),
    ("power9", None, "no profile is for power9, this CPU"),
]


@pytest.mark.usefixtures("any_machine")
@pytest.mark.parametrize(("cpu", "name", "reason"), CPUS)
def test_the_profile_is_that_of_the_nearest_cpu(
    cpu: str, name: str | None, reason: str, toys: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    host(monkeypatch, cpu)
    assert chosen(toys) == (name, reason)


@pytest.mark.usefixtures("any_machine")
@pytest.mark.parametrize("target", ["x86_avx2", "x86_avx512"])
@pytest.mark.parametrize(
    ("cpu", "name"),
    [
        ("zen4", "zen4"),
        ("zen5", "zen5"),
        ("zen3", "x86_64"),
        ("sapphirerapids", "sapphire_rapids"),
        ("icelake", "sapphire_rapids"),
    ],
)
def test_x86_targets_bring_profiles_of_machines(
    target: str, cpu: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    host(monkeypatch, cpu)
    registry = installed()
    assert registry.choice(target).profile == registry.profiles(target)[name]
    assert registry.target(target).profile == name


@pytest.mark.usefixtures("any_machine")
def test_a_cpu_is_recognized_if_a_hypervisor_hides_features(monkeypatch: pytest.MonkeyPatch) -> None:
    zen5 = archspec.cpu.TARGETS["zen5"]
    seen = SimpleNamespace(vendor=zen5.vendor, features=zen5.features - {"pku", "rdseed", "flush_l1d"})
    host(monkeypatch, "x86_64_v4", seen)
    assert microarchitectures()[:2] == ("zen5", "zen4")
    host(monkeypatch, "x86_64_v3", SimpleNamespace(vendor=zen5.vendor, features=archspec.cpu.TARGETS["zen3"].features))
    assert microarchitectures()[0] == "zen3"
    host(monkeypatch, "x86_64_v4", SimpleNamespace(vendor="unknown", features=zen5.features))
    assert microarchitectures()[0] == "x86_64_v4"


def test_of_several_profiles_for_a_cpu_the_first_is_chosen() -> None:
    both = [Profile(name=name, target="t", cpus=("zen5",)) for name in ("one", "two")]
    assert by_cpu(both, ("zen5", "x86_64")).profile == both[0]
    assert by_cpu((), ("zen5",)).reason == "no other profile"


@pytest.mark.usefixtures("any_machine")
def test_choices_of_the_user_override_the_cpu(toys: Registry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    host(monkeypatch, "x86_64")
    file = profile_choice.config_file()
    file.parent.mkdir(parents=True)
    file.write_text('[profiles]\ntoy_cpu = "fast"\n')
    assert chosen(toys) == ("fast", str(file))
    # Paths are relative to the file's folder.
    file.write_text('[profiles]\nx86_avx2 = "none"\ntoy_cpu = "own.toml"\n')
    (file.parent / "own.toml").write_text(TEXT.replace("fast", "own"))
    assert chosen(toys) == ("own", str(file))
    monkeypatch.setenv("MORELLO_PROFILE", "base")
    assert chosen(toys) == (None, "MORELLO_PROFILE")
    monkeypatch.setenv("MORELLO_PROFILE", str(file.parent / "own.toml"))
    assert chosen(toys) == ("own", "MORELLO_PROFILE")
    # A profile of another target leaves this one alone.
    (file.parent / "own.toml").write_text('name = "far"\ntarget = "far_cpu"')
    file.unlink()
    assert chosen(toys) == ("slow", "this CPU is x86_64")
    monkeypatch.setenv("MORELLO_PROFILE", "elsewhere")
    assert chosen(toys) == ("slow", "this CPU is x86_64")
    monkeypatch.setenv("MORELLO_PROFILE", "nowhere")
    with pytest.raises(ProfileError, match=r"unknown profile 'nowhere' \(MORELLO_PROFILE\)"):
        chosen(toys)


CONFIGURATIONS = [
    ("profiles = ", "not valid TOML"),
    ("profile = 3", "unknown key profile"),
    ("profiles = 3", "must be a table of targets and texts"),
    ("[profiles]\ntoy_cpu = 3", "must be a table of targets and texts"),
    ('[profiles]\ntoy_cpu = "fest"', "unknown profile 'fest' of toy_cpu"),
    ('[profiles]\ntoy_cpu = "fest.toml"', "cannot read "),
]


@pytest.mark.usefixtures("any_machine")
@pytest.mark.parametrize(("text", "words"), CONFIGURATIONS)
def test_faults_of_the_configuration(text: str, words: str, toys: Registry) -> None:
    profile_choice.config_file().parent.mkdir(parents=True)
    profile_choice.config_file().write_text(text)
    with pytest.raises(ProfileError, match=words):
        chosen(toys)
