"""The peak that programs are held against: what the fastest kernel of one does on this machine."""

from __future__ import annotations

import time

import attrs

from morello.calibration.meter import Timer
from morello.ir.impl import Impl, KernelCall, walk
from morello.kernels.target import Target
from morello.plugins.measure import Clock
from morello.runtime.toolchain import Compiler

#: Seconds that the clock is timed for at most.
_SECONDS = 2.0


def unit_seconds(target: Target, clock: Clock, compiler: Compiler) -> float:
    """Return the seconds of a unit of cost on this machine, as fast as its core runs now. Raises ToolchainError."""
    timer = Timer(compiler, getattr(target.emitter, "flags", ()), 1 << 16, True, time.monotonic() + _SECONDS)
    (seconds,) = timer.seconds(clock.source, ["morello_clock"])
    return seconds / clock.units


def peak_rate(impl: Impl, target: Target) -> float:
    """Return the most FLOPs per unit of cost of a program's kernels that sum, with all operands near; 0 without any."""
    return max((_rate(node, target) for node in walk(impl)), default=0.0)


def _rate(node: Impl, target: Target) -> float:
    expansion = getattr(node, "expansion", None)
    if not isinstance(expansion, KernelCall):
        return 0.0
    logical = node.spec.logical
    if not logical.op.reductions(len(logical.shape)) or not logical.flops:
        # Functions of each value are bound by memory: they have no peak.
        return 0.0
    near = next(level.name for level in target.levels if not level.is_register)
    states = tuple(
        state if target.level(state.level).is_register else attrs.evolve(state, level=near) for state in logical.states
    )
    kernel = target.kernels_by_name[expansion.kernel]
    return logical.flops / int(kernel.cost(attrs.evolve(logical, states=states), target))
