"""Libraries with products of f32, called from C: OpenBLAS, MKL and BLIS by `cblas_sgemm`, and libxsmm."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import numpy as np

from morello.errors import ToolchainError
from morello_baselines.native import timer
from morello_baselines.native.base import NotInstalled, NotOffered, Prepared
from morello_baselines.native.problems import Problem

#: Libraries that are static only, with their own stand-in for a BLAS; they come first, and so are asked for by symbol.
_FLAGS = ("-Wl,-u,libxsmm_smmdispatch", "-l:libxsmm.a", "-l:libxsmmnoblas.a", "-ldl", "-lpthread")
_SOURCE = """\
#include <libxsmm.h>
void *kernel(int m, int k, int n) {
    float one = 1, zero = 0;
    return (void *)libxsmm_smmdispatch(n, m, k, &n, &k, &n, &one, &zero, NULL, NULL);
}
"""
#: What kernels without blocking are made for.
_MOST = 512**3


class Blas:
    """A BLAS: `library` is a pattern of file names, `symbol` its cblas_sgemm, `integers` their width."""

    def __init__(self, library: str, symbol: str = "cblas_sgemm", integers: str = "32"):
        files = [*installed_files(library)]
        if not files:
            raise NotInstalled(f"{library} is not installed")
        try:
            self._library = ctypes.CDLL(files[0])
            self._function = ctypes.cast(getattr(self._library, symbol), ctypes.c_void_p).value
        except (OSError, AttributeError) as error:
            raise NotInstalled(str(error)) from error
        self._call = getattr(timer.library(), f"run_cblas{integers}")

    def prepare(self, problem: Problem, inputs: list[np.ndarray], threads: int) -> Prepared:
        return timer.product(problem, inputs, self._function, self._call, threads > 1)


class Xsmm:
    """libxsmm: a kernel made for the sizes at hand."""

    def __init__(self) -> None:
        try:
            self._kernel = timer.compiled(_SOURCE, *_FLAGS).kernel
        except (ToolchainError, OSError) as error:
            raise NotInstalled("libxsmm does not link (libxsmm-dev of Debian)") from error
        self._kernel.restype = ctypes.c_void_p

    def prepare(self, problem: Problem, inputs: list[np.ndarray], threads: int) -> Prepared:
        if problem.what != "matmul" or threads > 1:
            raise NotOffered("only products of f32 on one thread")
        _, m, k, n = problem.product
        if m * k * n > _MOST:
            raise NotOffered("only up to 512³")
        function = self._kernel(m, k, n)
        if not function:
            raise NotOffered("no kernel for these sizes")
        return timer.product(problem, inputs, function, timer.library().run_xsmm, wall=False)


def installed_files(pattern: str) -> list[str]:
    """Yield the matching libraries of Python packages, then of the system."""
    prefix = Path(sys.prefix) / "lib"
    places = (prefix, *prefix.glob("python3*/site-packages/numpy.libs"), Path("/usr/lib/x86_64-linux-gnu"))
    return [str(file) for place in places for file in sorted(place.glob(pattern))]
