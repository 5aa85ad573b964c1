"""C for x86-64 with AMX."""

from __future__ import annotations

from morello_x86.emitter import X86Emitter

#: Bits of what cpuid's leaf 7 returns in edx.
_BITS = {"amx_bf16": 22, "amx_tile": 24, "amx_int8": 25}
_CPU = '__asm__("cpuid" : "+a"(leaf), "=b"(b), "+c"(part), "=d"(d))'
#: Ask Linux for the tiles: arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA). Other calls with that number fail.
_ASK = '__asm__ volatile("syscall" : "+a"(refused) : "D"(0x1023L), "S"(18L) : "rcx", "r11", "memory")'
_AVX512 = ("-mavx512f", "-mavx512vl", "-mavx512bw", "-mavx512vnni", "-mavx512bf16", "-mfma")


class AmxEmitter(X86Emitter):
    """Prints C for AVX-512 and AMX; `tiles` are the flags that make its intrinsics available."""

    includes = (*X86Emitter.includes, "stdio.h", "stdlib.h")

    def __init__(self, tiles: tuple[str, ...] = ("-mamx-tile", "-mamx-bf16", "-mamx-int8")):
        super().__init__(*_AVX512, *tiles)

    def feature_macro(self, feature: str) -> str | None:
        """Return the macro of gcc and clang for an extension; None for AMX, whose macros differ by compiler."""
        return None if feature in _BITS else super().feature_macro(feature)

    def feature_test(self, feature: str) -> str:
        """Return the test for an extension; that for tiles asks the system to grant them."""
        if feature not in _BITS:
            return super().feature_test(feature)
        asks = f"long refused = 158; if (d >> 24 & 1) {_ASK};" if feature == "amx_tile" else "long refused = 0;"
        return f"({{ unsigned leaf = 7, part = 0, b, d; {_CPU}; {asks} d >> {_BITS[feature]} & 1 && !refused; }})"
