"""The plugin makes its target alone, and all profiles in its package fit it."""

from __future__ import annotations

from morello_x86_avx512.kernels import KERNELS
from morello_x86_avx512.plugin import PLUGIN

from morello.plugins.registry import Registry


def test_the_target_needs_no_other_plugin() -> None:
    registry = Registry.of(x86_avx512=PLUGIN)
    base = registry.target("x86_avx512", "base")
    assert registry.names == ["x86_avx512"]
    for name in registry.profiles("x86_avx512"):
        assert registry.target("x86_avx512", name).level("VRF") == base.level("VRF")
    # Shared kernels come first: of those that cost the same, search takes the first.
    own = tuple(kernel for kernel in KERNELS if kernel in base.kernels)
    assert own
    assert base.kernels[-len(own) :] == own
