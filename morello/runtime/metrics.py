"""Measures programs by their target's metrics: what a call adds to counts that the library keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from morello.errors import EmitError, remedy
from morello.kernels.metric import Metric
from morello.runtime.timing import random_operands

if TYPE_CHECKING:
    from morello.runtime.kernel import Kernel


@attrs.frozen
class Reading:
    """What one call comes to by one metric."""

    metric: Metric
    value: int

    def __str__(self) -> str:
        return f"{self.metric.name} {self.value:,} {self.metric.unit}"


def readings(kernel: Kernel, seed: int = 0) -> tuple[Reading, ...]:
    """Call `kernel` on random data, on one thread, and return what that comes to by each metric of its target.

    There are none if the target has none. Raises what calling the kernel raises, and EmitError if the library lacks a
    metric's function.
    """
    metrics = kernel.target.metrics
    if not metrics:
        return ()
    arrays = random_operands(kernel, seed)
    # The first call builds the library.
    kernel(*arrays, threads=1)
    counts = [_function(kernel, metric) for metric in metrics]
    before = [int(count()) for count in counts]
    kernel(*arrays, threads=1)
    return tuple(
        Reading(metric, int(count()) - start) for metric, count, start in zip(metrics, counts, before, strict=True)
    )


def _function(kernel: Kernel, metric: Metric) -> Any:
    import cffi

    ffi = cffi.FFI()
    ffi.cdef(f"uint64_t {metric.symbol}(void);")
    try:
        return getattr(ffi.dlopen(str(kernel.library)), metric.symbol)
    except AttributeError as error:
        what = f"the C of {kernel.program.name} has no function {metric.symbol}, which metric {metric.name} asks for"
        origin = kernel.target.origins.get(f"metric {metric.name}", kernel.target.name)
        raise EmitError(what, remedy(origin)) from error
