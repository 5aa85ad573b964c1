"""Measure programs by the target's metrics: counters of the library, and functions of plugins."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import attrs

from morello.errors import EmitError, MorelloError, PluginError, remedy
from morello.kernels.target import Metric, Target
from morello.run.counting import counting_plugin
from morello.run.elsewhere import RunnerFunction
from morello.run.function import NativeFunction
from morello.run.runner import Runner
from morello.run.timing import random_operands

#: The metric of emulated programs.
INSTRUCTIONS = "instructions"


@attrs.frozen
class Reading:
    """The value of a metric for one call."""

    metric: Metric
    value: float

    @property
    def amount(self) -> str:
        """Return the value as text."""
        return f"{self.value:,}" if isinstance(self.value, int) else f"{self.value:,.6g}"

    def __str__(self) -> str:
        return f"{self.metric.name} {self.amount} {self.metric.unit}"


def metrics_of(target: Target, runner: Runner | None) -> tuple[Metric, ...]:
    """Return the target's metrics, or else the instructions of a program if its runner counts them."""
    if target.metrics or runner is None or counting_plugin(runner) is None:
        return tuple(target.metrics)
    return (Metric(name=INSTRUCTIONS, unit=f"emulated by {runner.emulator}"),)


def readings(function: NativeFunction, kernel: Any, seed: int = 0) -> tuple[Reading, ...]:
    """Return the metrics of the target for one call on random data and one thread; `measure` is given `kernel`.

    An emulated program of a target without metrics has the number of its instructions. Raises what calls raise,
    EmitError if the library lacks a metric's function, and PluginError if `measure` fails.
    """
    metrics = metrics_of(function.target, function.runner)
    if isinstance(function, RunnerFunction) and not function.target.metrics:
        arrays = random_operands(function, seed) if metrics else []
        return tuple(Reading(metric, function.instructions(arrays) or 0) for metric in metrics)
    counted = _counted(function, [metric for metric in metrics if metric.measure is None], seed)
    return tuple(
        Reading(metric, counted[metric.name] if metric.measure is None else _measured(function, metric, kernel))
        for metric in metrics
    )


def _counted(function: NativeFunction, metrics: Sequence[Metric], seed: int) -> dict[str, int]:
    """Return the increments of counters by one call."""
    if not metrics:
        return {}
    if function.runner:
        raise MorelloError(
            f"{metrics[0].name} is counted in this process, and the program runs through `{function.runner}`",
            "leave out the runner",
        )
    arrays = random_operands(function, seed)
    function(arrays)  # builds the library
    counts = [_counter(function, metric) for metric in metrics]
    before = [int(count()) for count in counts]
    function(arrays)
    after = [int(count()) for count in counts]
    return {metric.name: end - start for metric, start, end in zip(metrics, before, after, strict=True)}


def _counter(function: NativeFunction, metric: Metric) -> Any:
    import cffi

    ffi = cffi.FFI()
    ffi.cdef(f"uint64_t {metric.symbol}(void);")
    try:
        return getattr(ffi.dlopen(str(function.library)), metric.symbol)
    except AttributeError as error:
        what = f"the C of {function.program.name} has no function {metric.symbol}, which metric {metric.name} requires"
        raise EmitError(what, remedy(_plugin(function, metric))) from error


def _measured(function: NativeFunction, metric: Metric, kernel: Any) -> float:
    assert metric.measure is not None
    plugin = _plugin(function, metric)
    head = f"plugin {plugin!r}, metric {metric.name} of target {function.target.name}"
    try:
        value = metric.measure(kernel)
    except MorelloError:
        raise
    except Exception as error:
        what = f"{head}: its `measure` failed: {type(error).__name__}: {error}"
        raise PluginError(what, remedy(plugin), plugin) from error
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise PluginError(
            f"{head}: its `measure` gives {value!r}, which is not a finite number", remedy(plugin), plugin
        )
    return value


def _plugin(function: NativeFunction, metric: Metric) -> str:
    return function.target.origins.get(f"metric {metric.name}", function.target.name)
