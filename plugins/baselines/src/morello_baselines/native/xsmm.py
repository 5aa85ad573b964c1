"""libxsmm: a kernel made for the sizes at hand."""

from __future__ import annotations

import ctypes

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


class Xsmm:
    def __init__(self) -> None:
        try:
            self._kernel = timer.compiled(_SOURCE, *_FLAGS).kernel
        except (ToolchainError, OSError) as error:
            raise NotInstalled("libxsmm does not link (libxsmm-dev of Debian)") from error
        self._kernel.restype = ctypes.c_void_p

    def prepare(self, problem: Problem, inputs: list[np.ndarray], threads: int) -> Prepared:
        if problem.what != "matmul" or not problem.f32 or threads > 1:
            raise NotOffered("only products of f32 on one thread")
        batch, m, k, n = problem.product
        if m * k * n > _MOST:
            raise NotOffered("only up to 512³")
        function = self._kernel(m, k, n)
        if not function:
            raise NotOffered("no kernel for these sizes")
        c = problem.output()
        context = timer.Gemm(function, batch, m, k, n, *map(timer.address, (*inputs, c)))
        return Prepared(timer.timer(timer.library().run_xsmm, context, wall=False), lambda: c)
