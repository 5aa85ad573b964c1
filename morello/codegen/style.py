"""The style of C for a target, which its emitter declares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from morello.ir.dtypes import DType


class CStyle:
    """The style of C for a target: the compiler flags, includes and vector types.

    `memories` are C expressions, by level, for the starts of software-managed memories.
    """

    #: A table of the CPU's primitives, of a type that its kernels define: they read it by `KernelSite.instructions`.
    instructions: object = None
    flags: tuple[str, ...] = ()
    includes: tuple[str, ...] = ("stddef.h", "stdint.h", "string.h")
    memories: Mapping[str, str] = MappingProxyType({})

    def flags_for(self, features: Iterable[str]) -> tuple[str, ...]:
        """Return the compiler flags of a program that needs these CPU features besides the target's."""
        return (*self.flags, *(flag for feature in features for flag in self.feature_flags(feature)))

    def feature_flags(self, feature: str) -> tuple[str, ...]:
        """Return the compiler flags that enable a CPU feature."""
        return ()

    def feature_macro(self, feature: str) -> str | None:
        """Return the macro that compilers define if a CPU feature is enabled, or None."""
        return None

    def feature_test(self, feature: str) -> str | None:
        """Return a condition in C that tests for a CPU feature at run time, or None."""
        return None

    def vector_type(self, dtype: DType, values: int) -> str:
        """Return the name of the C type of a vector register; the file defines it as a GNU vector type."""
        return f"{dtype.name}x{values}"
