"""Builds, loads, verifies and times what emitters print."""

# A function that is called as its module is has to come before anybody looks for it.
from morello.runtime.build import build

# Nothing else is imported before it is asked for: who only wants C has no use for most of it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from morello.runtime.arrays import empty, pack, unpack
    from morello.runtime.cache import cache_directory
    from morello.runtime.compiled import CompiledKernel
    from morello.runtime.kernel import Kernel
    from morello.runtime.timing import BenchReport
    from morello.runtime.toolchain import Compiler, available_compilers, find_compiler
    from morello.runtime.verify import CheckReport, DataSetResult

_PLACES = {
    "arrays": ("empty", "pack", "unpack"),
    "cache": ("cache_directory",),
    "compiled": ("CompiledKernel",),
    "kernel": ("Kernel",),
    "timing": ("BenchReport",),
    "toolchain": ("Compiler", "available_compilers", "find_compiler"),
    "verify": ("CheckReport", "DataSetResult"),
}

__all__ = [
    "BenchReport",
    "CheckReport",
    "CompiledKernel",
    "Compiler",
    "DataSetResult",
    "Kernel",
    "available_compilers",
    "build",
    "cache_directory",
    "empty",
    "find_compiler",
    "pack",
    "unpack",
]


def __getattr__(name: str) -> object:
    from importlib import import_module

    place = next((place for place, names in _PLACES.items() if name in names), None)
    if place is None:
        raise AttributeError(f"module 'morello.runtime' has no attribute {name!r}")
    value = getattr(import_module(f"morello.runtime.{place}"), name)
    globals()[name] = value
    return value
