"""The plugin makes its target alone, and all profiles in its package fit it."""

from __future__ import annotations

from morello_x86_avx2.plugin import PLUGIN

from morello.plugins.registry import Registry


def test_the_target_needs_no_other_plugin() -> None:
    registry = Registry.of(x86_avx2=PLUGIN)
    base = registry.target("x86_avx2", "base")
    assert registry.names == ["x86_avx2"]
    assert {"zen5", "x86_64"} <= {*registry.profiles("x86_avx2")}
    # Profiles change no registers.
    for name in registry.profiles("x86_avx2"):
        assert registry.target("x86_avx2", name).level("VRF") == base.level("VRF")
