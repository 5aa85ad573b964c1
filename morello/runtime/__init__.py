"""Builds, loads, verifies and times what emitters print."""

from morello.runtime.arrays import empty, pack, unpack
from morello.runtime.build import build
from morello.runtime.cache import cache_directory
from morello.runtime.compiled import CompiledKernel
from morello.runtime.kernel import Kernel
from morello.runtime.timing import BenchReport
from morello.runtime.toolchain import Compiler, available_compilers, find_compiler
from morello.runtime.verify import CheckReport, DataSetResult

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
