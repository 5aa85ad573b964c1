"""The target with AMX's instructions in plain C, for tests and for CPUs without AMX."""

from __future__ import annotations

from importlib.resources import files

import attrs
from morello_x86_avx512.plugin import PLUGIN as X86_AVX512

from morello.plugins import Registry
from morello_x86_amx.emitter import AmxEmitter
from morello_x86_amx.plugin import PLUGIN, WITHOUT_TILES


def emulated() -> Registry:
    """Return a registry with the target x86_amx whose C calls an emulation: it needs AVX-512 alone."""
    assert PLUGIN.derives is not None
    derives = attrs.evolve(PLUGIN.derives, info={**PLUGIN.derives.info, "cpu_features": WITHOUT_TILES})
    emitter = AmxEmitter(("-include", str(files("morello_x86_amx") / "emulation.h")))
    return Registry.of(x86_avx512=X86_AVX512, x86_amx=attrs.evolve(PLUGIN, derives=derives, emitter=emitter))
