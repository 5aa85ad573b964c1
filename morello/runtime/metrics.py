"""Measures programs by their target's metrics: what a call adds to counts of the library, and what plugins ask for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import attrs

from morello.errors import EmitError, MorelloError, PluginError, remedy
from morello.kernels.target import Metric
from morello.runtime.timing import random_operands

if TYPE_CHECKING:
    from morello.runtime.kernel import Kernel


@attrs.frozen
class Reading:
    """One call of a program, by one metric."""

    metric: Metric
    value: float

    @property
    def amount(self) -> str:
        """Return the value in digits."""
        return f"{self.value:,}" if isinstance(self.value, int) else f"{self.value:,.6g}"

    def __str__(self) -> str:
        return f"{self.metric.name} {self.amount} {self.metric.unit}"


def readings(kernel: Kernel, seed: int = 0) -> tuple[Reading, ...]:
    """Return what one call of `kernel`, on random data and one thread, comes to by each metric of its target.

    There are none if the target has none. Raises what calling the kernel raises, EmitError if the library lacks a
    metric's function, and PluginError if a metric's `measure` fails.
    """
    metrics = kernel.target.metrics
    counted = _counted(kernel, [metric for metric in metrics if metric.measure is None], seed)
    return tuple(
        Reading(metric, counted[metric.name] if metric.measure is None else _measured(kernel, metric))
        for metric in metrics
    )


def _counted(kernel: Kernel, metrics: Sequence[Metric], seed: int) -> dict[str, int]:
    """Return what a call adds to each count."""
    if not metrics:
        return {}
    arrays = random_operands(kernel, seed)
    # The first call builds the library.
    kernel(*arrays, threads=1)
    counts = [_function(kernel, metric) for metric in metrics]
    before = [int(count()) for count in counts]
    kernel(*arrays, threads=1)
    after = [int(count()) for count in counts]
    return {metric.name: end - start for metric, start, end in zip(metrics, before, after, strict=True)}


def _function(kernel: Kernel, metric: Metric) -> Any:
    import cffi

    ffi = cffi.FFI()
    ffi.cdef(f"uint64_t {metric.symbol}(void);")
    try:
        return getattr(ffi.dlopen(str(kernel.library)), metric.symbol)
    except AttributeError as error:
        what = f"the C of {kernel.program.name} has no function {metric.symbol}, which metric {metric.name} asks for"
        raise EmitError(what, remedy(_plugin(kernel, metric))) from error


def _measured(kernel: Kernel, metric: Metric) -> float:
    assert metric.measure is not None
    plugin = _plugin(kernel, metric)
    head = f"plugin {plugin!r}, metric {metric.name} of target {kernel.target.name}"
    try:
        value = metric.measure(kernel)
    except MorelloError:
        raise
    except Exception as error:
        what = f"{head}: its `measure` failed: {type(error).__name__}: {error}"
        raise PluginError(what, remedy(plugin), plugin) from error
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise PluginError(f"{head}: its `measure` gives {value!r}, which is no finite number", remedy(plugin), plugin)
    return value


def _plugin(kernel: Kernel, metric: Metric) -> str:
    return kernel.target.origins.get(f"metric {metric.name}", kernel.target.name)
