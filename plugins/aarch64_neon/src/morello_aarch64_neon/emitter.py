"""C for AArch64: GNU vector types and NEON's intrinsics."""

from __future__ import annotations

from collections.abc import Iterable

from morello.codegen.emitter import CEmitter
from morello_aarch64_neon.instructions import NeonInstructions

#: Extensions by their names in `/proc/cpuinfo`: for compilers, their macro, and the entry and bit of Linux's HWCAP.
_EXTENSIONS = {
    "asimd": ("", "__ARM_NEON", 16, 1),
    # Without a flag and a macro: its instructions are in assembly.
    "asimdhp": ("", None, 16, 10),
    "asimddp": ("dotprod", "__ARM_FEATURE_DOTPROD", 16, 20),
    "i8mm": ("i8mm", "__ARM_FEATURE_MATMUL_INT8", 26, 13),
    "bf16": ("bf16", "__ARM_FEATURE_BF16_VECTOR_ARITHMETIC", 26, 14),
}


class NeonEmitter(CEmitter):
    """Prints C that a compiler turns into NEON instructions."""

    instructions = NeonInstructions()
    includes = ("arm_neon.h", "stddef.h", "stdint.h", "string.h")

    def flags_for(self, features: Iterable[str]) -> tuple[str, ...]:
        """Return one flag for all extensions, in the names of gcc, clang and zig: of several, the last one counts."""
        names = sorted(name for feature in features if (name := _EXTENSIONS[feature][0]))
        return (f"-mcpu={'+'.join(['generic', *names])}",)

    def feature_macro(self, feature: str) -> str | None:
        """Return the macro of gcc and clang for an extension."""
        return _EXTENSIONS[feature][1]

    def feature_test(self, feature: str) -> str:
        """Return the test of Linux for an extension."""
        _, _, entry, bit = _EXTENSIONS[feature]
        return f"({{ unsigned long getauxval(unsigned long); getauxval({entry}) >> {bit} & 1; }})"
