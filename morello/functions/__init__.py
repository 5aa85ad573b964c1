"""Functions on arrays that compile the kernel they need: matmul, einsum, softmax and others.

When arrays first come, each compiles a kernel for their shapes, types and layouts, and calls that from then on. What
search found is kept in the default database and what was built in the cache, so that another process need not search or
build. Arrays may be of any library, as for `Kernel`, and are not copied; results are new arrays, row by row, of the
library of the first one, or `out`, which is then returned. Functions may be called from several threads.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Unpack

import numpy as np

from morello.errors import ArgumentError
from morello.functions.calls import Options, Plan, call
from morello.functions.products import plan_product
from morello.functions.views import Seen, merged, result_like

__all__ = ["Options", "einsum", "matmul", "softmax"]

_einsum = partial(plan_product, "einsum")


def einsum(expression: str, /, *arrays: Any, out: Any = None, **options: Unpack[Options]) -> Any:
    """Return the product of two arrays that an expression such as `bmk,bkn->bmn` says, as numpy's `einsum` does.

    It is one product of matrices, a batch of them, or a product of values. Sizes are those of the arrays; axes of size
    1 are repeated. Raises ArgumentError for an expression that is none, or that needs copies of these arrays.
    """
    return call(_einsum, (expression,), arrays, out, options)


def matmul(a: Any, b: Any, /, *, out: Any = None, **options: Unpack[Options]) -> Any:
    """Return the product a · b of matrices …×m×k and …×k×n, as numpy's `matmul` does; a vector is a row or a column.

    Axes before the last two are a batch; where one operand lacks them, or has size 1 there, it is the same for all of
    the batch. Raises ArgumentError for shapes that do not fit, and for a batch that needs copies of these arrays.
    """
    return call(_plan_matmul, (), (a, b), out, options)


def softmax(x: Any, /, axis: int = -1, *, out: Any = None, **options: Unpack[Options]) -> Any:
    """Return e^(x − max) / Σ e^(x − max) along an axis, of f32 or bf16."""
    return call(_plan_softmax, (axis,), (x,), out, options)


def _plan_matmul(arrays: list[np.ndarray], out: np.ndarray | None) -> Plan:
    a, b = (array.ndim for array in arrays)
    if not a or not b:
        raise ArgumentError("matmul: an operand without axes", "multiply by it: it is a number")
    lhs, rhs = "k" if a == 1 else "...mk", "k" if b == 1 else "...kn"
    rows, columns = "m" if a > 1 else "", "n" if b > 1 else ""
    dots = "..." if max(a, b) > 2 else ""
    return plan_product("matmul", f"{lhs},{rhs}->{dots}{rows}{columns}", arrays, out)


def _plan_softmax(axis: int, arrays: list[np.ndarray], out: np.ndarray | None) -> Plan:
    x = Seen.of(arrays[0], "softmax: x")
    along = _axis("softmax", axis, x)
    y = result_like("softmax", x.dtype, x.shape, out)
    groups = merged([x, y], lambda one: one == along)
    src, made = x.grouped(groups), y.grouped(groups)
    head = f"Softmax[dim={groups.index([along])}]({'×'.join(map(str, made.shape))}"
    return Plan("softmax", head, ((0, src),), made, x.shape)


def _axis(what: str, axis: int, x: Seen) -> int:
    """Return the number of an axis, from 0. Raises ArgumentError where there is none."""
    if not isinstance(axis, int) or not -len(x.shape) <= axis < len(x.shape):
        raise ArgumentError(
            f"{what}: axis is {axis!r}, and the array has {len(x.shape)}", "count from 0, or from -1 down"
        )
    return axis % len(x.shape)
