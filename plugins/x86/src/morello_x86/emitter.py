"""C for x86-64: GNU vector types and Intel intrinsics."""

from __future__ import annotations

from morello.codegen.emitter import CEmitter
from morello_x86.instructions import X86Instructions


class X86Emitter(CEmitter):
    """Prints C that a compiler turns into instructions of the given extensions."""

    instructions = X86Instructions()
    includes = ("immintrin.h", "stddef.h", "stdint.h", "string.h")

    def __init__(self, *flags: str):
        # Otherwise clang spills vectors to a stack that is aligned to 16 bytes, where most of them lie across lines.
        self.flags = (*flags, "-mstackrealign")

    def feature_flags(self, feature: str) -> tuple[str, ...]:
        """Return the compilers' flag for an extension: its name in `/proc/cpuinfo` without underscores."""
        return (f"-m{feature.replace('_', '')}",)

    def feature_macro(self, feature: str) -> str | None:
        """Return the macro of gcc and clang for an extension."""
        return f"__{feature.replace('_', '').upper()}__"

    def feature_test(self, feature: str) -> str:
        """Return the test of gcc and clang for an extension that the CPU and the system have.

        Clang 14 has none for AVX-VNNI: bit 4 of cpuid's leaf 7, part 1. The tests before it are for AVX2.
        """
        if feature == "avx_vnni":
            registers = '"+a"(leaf), "=b"(b), "+c"(part), "=d"(d)'
            asks = f'unsigned leaf = 7, part = 1, b, d; __asm__("cpuid" : {registers})'
            return f"({{ {asks}; leaf >> 4 & 1; }})"
        return f'__builtin_cpu_supports("{feature.replace("_", "")}")'
