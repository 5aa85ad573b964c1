"""Derived targets: changes of a base by data, with its extensions and profiles, and a clear error for wrong ones."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import attrs
import pytest

from morello import api
from morello.api.functions.calls import host_target
from morello.build.toolchain import architecture
from morello.db.fingerprint import fingerprint
from morello.errors import MorelloError, PluginError
from morello.ir.impl import cost_and_peak
from morello.plugins import MemoryLevel, Microkernel, Profile, TargetPlugin, Weights
from morello.plugins.derivation import derive
from morello.plugins.registry import Registry

from .test_discovery import discovered, install


def registry_of(toy: Any, **plugins: Any) -> Registry:
    return Registry.of(toy_cpu=toy, **plugins)


def small(**changes: Any) -> TargetPlugin:
    return derive("toy_cpu", name="small", **changes)


def test_other_fields_come_from_the_base(toy_plugin: Any) -> None:
    registry = registry_of(toy_plugin, a_plugin=small())
    base, target = registry.target("toy_cpu"), registry.target("small")
    assert registry.names == ["small", "toy_cpu"]
    assert (target.levels, target.weights, target.kernels) == (base.levels, base.weights, base.kernels)
    assert (target.rewrites, target.emitter, target.info.description) == (
        base.rewrites,
        base.emitter,
        base.info.description,
    )
    assert registry.owner("small") == "a_plugin"
    assert (registry.base_of("small"), registry.base_of("toy_cpu")) == ("toy_cpu", None)
    assert fingerprint(target) != fingerprint(base)


def test_changes_by_level_weight_and_field(toy_plugin: Any) -> None:
    memory = MemoryLevel(name="MEM", kind="memory", capacity=1 << 20, unit=32, destinations=("C",))
    levels = {"C": {"capacity": 4 << 10, "hit_cost": 5}, "MEM": memory}
    plugin = small(levels=levels, weights={"threads": 3}, description="half a toy", cpu_features=("avx2",))
    target = registry_of(toy_plugin, small=plugin).target("small")
    assert [level.name for level in target.levels] == ["R", "C", "MEM"]
    assert (target.level("C").capacity, target.level("C").hit_cost, target.level("C").unit) == (4096, 5, 32)
    assert target.level("MEM") == memory
    tiles = MemoryLevel(name="T", kind="temporaries", capacity=64, unit=32)
    whole = registry_of(toy_plugin, small=small(levels={"C": toy_plugin.levels[1], "T": tiles})).target("small")
    assert [level.name for level in whole.levels] == ["T", "R", "C", "MEM"]
    assert target.weights == Weights(threads=3, sync=5_000)
    assert (target.info.description, target.info.cpu_features) == ("half a toy", ("avx2",))


def test_kernels_are_removed_replaced_and_added(toy_plugin: Any) -> None:
    copy, zero = (next(one for one in toy_plugin.kernels if one.name == name) for name in ("Copy", "Zero"))
    kernels = [attrs.evolve(copy, cost=zero.cost), attrs.evolve(zero, name="Clear")]
    target = registry_of(toy_plugin, small=small(kernels=kernels, without=["ZeroBytes"])).target("small")
    assert sorted(target.kernels_by_name) == ["AddScaledRow", "Clear", "Copy", "MultAdd", "Zero"]
    assert target.kernels_by_name["Copy"].cost is zero.cost


def test_extensions_follow(toy_plugin: Any) -> None:
    level = MemoryLevel(name="DISK", kind="memory", capacity=1 << 30, unit=32)
    both = TargetPlugin(extends="toy_cpu", levels=[level])
    table = TargetPlugin(extends="small", tables={"rows": ((1, 2),)})
    registry = registry_of(toy_plugin, disk=both, small=small(levels={"DISK": {"capacity": 64}}), more=table)
    target = registry.target("small")
    assert target.origins["level DISK"] == "disk"
    assert (target.level("DISK").capacity, target.tables) == (64, {"rows": ((1, 2),)})
    assert registry.target("toy_cpu").level("DISK").capacity == 1 << 30
    assert not registry.target("toy_cpu").tables


def test_a_derived_target_may_be_a_base(toy_plugin: Any) -> None:
    tiny = derive("small", name="tiny", levels={"C": {"hit_cost": 7}})
    target = registry_of(toy_plugin, a=tiny, small=small(levels={"C": {"capacity": 2048}})).target("tiny")
    assert (target.level("C").capacity, target.level("C").hit_cost) == (2048, 7)


def test_profiles_of_the_base_apply_except_to_what_is_given(toy_plugin: Any) -> None:
    levels = {"C": {"capacity": 1024, "hit_cost": 9}}
    measured = {"Twice": (1, 2, 3), "Thrice": (1, 2, 3)}
    fast = Profile(name="fast", target="toy_cpu", levels=levels, weights={"threads": 8, "sync": 1}, kernels=measured)
    kernels = [Microkernel(name=name, takes="Move(1, R/C, R/C)", template="{out} = {src};") for name in measured]
    extension = TargetPlugin(extends="toy_cpu", profiles=[fast], kernels=kernels)
    plugin = small(levels={"C": {"capacity": 4096}}, weights={"threads": 2}, without=["Thrice"])
    tiny = derive("small", name="tiny")
    registry = registry_of(toy_plugin, fast=extension, small=plugin, tiny=tiny)
    for name in ("small", "tiny"):
        target = registry.target(name, "fast")
        assert (target.level("C").capacity, target.level("C").hit_cost) == (4096, 9)
        assert target.weights == Weights(threads=2, sync=1)
        assert (target.profile, target.kernel_costs) == ("fast", {"Twice": (1, 2, 3)})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"levels": {"L2": {"capacity": 1}}}, "no level 'L2'\n  hint: there are R, C, MEM"),
        ({"levels": {"C": {"capacityy": 1}}}, "no field of level C 'capacityy'\n  hint: did you mean 'capacity'?"),
        ({"weights": {"thread": 1}}, "no weight 'thread'\n  hint: did you mean 'threads'?"),
        ({"without": ["Cpoy"]}, "no kernel 'Cpoy'\n  hint: did you mean 'Copy'?"),
    ],
    ids=["level", "field", "weight", "kernel"],
)
def test_changes_of_what_the_base_lacks(toy_plugin: Any, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(PluginError, match=re.escape(message)) as caught:
        _ = registry_of(toy_plugin, variant=small(**changes)).names
    assert caught.value.message.startswith("plugin 'variant', target small, derived from toy_cpu: ")


def test_functions_on_arrays_use_a_derived_target_by_name_only(monkeypatch: pytest.MonkeyPatch) -> None:
    from morello_reference_c import plugin as reference_c

    registry = Registry.of(reference_c=reference_c, a_variant=derive("reference_c", name="a_variant"))
    monkeypatch.setattr("morello.api.functions.calls.installed", lambda: registry)
    assert registry.names == ["a_variant", "reference_c"]
    assert host_target.__wrapped__().name == "reference_c"


def test_functions_on_arrays_use_no_target_of_another_architecture(monkeypatch: pytest.MonkeyPatch) -> None:
    from morello_reference_c import plugin as reference_c

    triple = "riscv64-linux-musl" if architecture("") != "riscv64" else "aarch64-linux-musl"
    own = reference_c.morello_plugin()
    foreign = attrs.evolve(own, info=attrs.evolve(own.info, name="a_foreign", triple=triple))
    registry = Registry.of(reference_c=reference_c, a_foreign=foreign)
    monkeypatch.setattr("morello.api.functions.calls.installed", lambda: registry)
    assert registry.names == ["a_foreign", "reference_c"]
    assert host_target.__wrapped__().name == "reference_c"


def test_an_unknown_base_and_a_circle(toy_plugin: Any) -> None:
    with pytest.raises(PluginError, match=r"derived from toycpu: no such target .*\n  hint: did you mean 'toy_cpu'?"):
        _ = registry_of(toy_plugin, small=derive("toycpu", name="small")).names
    with pytest.raises(PluginError, match="derived from itself: a from b from a"):
        _ = registry_of(toy_plugin, a=derive("b", name="a"), b=derive("a", name="b")).names


def test_an_installed_target_without_its_base_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "from morello.plugins import derive\nPLUGIN = derive('no_such_cpu', name='variant')"
    install(tmp_path, "variant = variant_plugin:PLUGIN", source)
    registry, skipped = discovered(tmp_path, monkeypatch)
    assert registry.target("reference_c").name == "reference_c"
    assert "variant" not in registry.names
    (broken,) = skipped
    assert (broken.plugin.name, broken.target) == ("variant", "variant")
    with pytest.raises(MorelloError, match=r"target 'variant' is disabled: .*no such target(?s:.*)hint: install its"):
        registry.target("variant")
    listed = api.list_targets(registry)
    assert [one.plugin.name for one in listed.disabled] == ["variant"]


def test_an_unknown_field() -> None:
    with pytest.raises(PluginError, match=r"unknown field 'kernel'\n  hint: did you mean 'kernels'?"):
        small(kernel=[])


def test_a_broken_rule_is_blamed_on_the_derivation(toy_plugin: Any) -> None:
    with pytest.raises(PluginError, match=r"plugin 'variant', level C of target small: its capacity holds"):
        registry_of(toy_plugin, variant=small(levels={"C": {"capacity": 1}})).target("small")


def test_programs_of_a_derived_target(toy_plugin: Any) -> None:
    registry = registry_of(toy_plugin, small=small(levels={"C": {"hit_cost": 6}}))
    text = "MatmulAccum(1×2×1×6, (i32, C), (i32, C), (i32, C), serial)"
    done, base = (api.goal(text, target=name, registry=registry).synthesize() for name in ("small", "toy_cpu"))
    assert cost_and_peak(done.impl).cost > cost_and_peak(base.impl).cost
    api.compile(done).check()
