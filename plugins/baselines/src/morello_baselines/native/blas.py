"""Libraries with `cblas_sgemm`, called from C: OpenBLAS, MKL, BLIS."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import numpy as np

from morello_baselines.native import timer
from morello_baselines.native.base import NotInstalled, NotOffered, Prepared
from morello_baselines.native.problems import Problem


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
        if problem.what != "matmul" or not problem.f32:
            raise NotOffered("only products of f32")
        c = problem.output()
        context = timer.Gemm(self._function, *problem.product, *map(timer.address, (*inputs, c)))
        return Prepared(timer.timer(self._call, context, wall=threads > 1), lambda: c)


def installed_files(pattern: str) -> list[str]:
    """Yield the matching libraries of Python packages, then of the system."""
    prefix = Path(sys.prefix) / "lib"
    places = (prefix, *prefix.glob("python3*/site-packages/numpy.libs"), Path("/usr/lib/x86_64-linux-gnu"))
    return [str(file) for place in places for file in sorted(place.glob(pattern))]
