"""C for the toy CPU."""

from __future__ import annotations

from morello.plugins import CEmitter


class ToyEmitter(CEmitter):
    """Plain C. The CPU has no fused multiply-add, so the compiler must not make one."""

    flags = ("-ffp-contract=off",)
    includes = ("stddef.h", "stdint.h", "string.h")
