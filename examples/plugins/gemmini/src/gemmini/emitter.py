"""C that calls the model of an array."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from morello.plugins import CEmitter, EmitError, Impl, Program, Signature, Target


class GemminiEmitter(CEmitter):
    """Tensors in scratchpad and accumulator have places there."""

    includes = ("math.h", "stddef.h", "stdint.h", "stdio.h", "stdlib.h", "string.h")
    memories = MappingProxyType({"SPAD": "gemmini.scratchpad", "ACC": "gemmini.accumulator"})

    def emit(
        self,
        impl: Impl,
        target: Target,
        name: str,
        signature: Signature | None = None,
        packs: Mapping[int, Impl] = MappingProxyType({}),
    ) -> Program:
        program = super().emit(impl, target, name, signature, packs)
        if program.parallel:
            raise EmitError(f"{name} has parallel loops, and there is one array", "tile without `parallel`")
        return program
