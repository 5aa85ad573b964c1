"""The peak that programs are held against: the multiply-adds that a core does when nothing else keeps it."""

from __future__ import annotations

import time

import attrs

from morello.build.toolchain import Compiler
from morello.calibration.meter import Timer
from morello.ir.impl import Impl, KernelCall, walk
from morello.kernels.target import Target
from morello.plugins.measure import Clock
from morello.run.paired import pinned

#: Seconds that a peak is timed for at most, and bytes of the memory that it is handed.
_SECONDS, _MEMORY = 1.0, 1 << 16


@attrs.frozen
class PeakMeter:
    """Times the peaks of a target, on the core that programs are timed on."""

    target: Target
    clock: Clock
    compiler: Compiler

    def rate(self, impl: Impl) -> float:
        """Return the FLOPs per second that one core does now, of the types whose peak is the highest of a program's.

        It is 0 where no peak is known of any: functions of each value, say, are bound by memory. Raises ToolchainError.
        """
        return max(map(self._rate, _types(impl)), default=0.0)

    def _rate(self, types: tuple[str, ...]) -> float:
        peak = self.clock.peak(types)
        if peak is None:
            return 0.0
        flags = getattr(self.target.emitter, "flags", ())
        with pinned():
            timer = Timer(self.compiler, flags, _MEMORY, True, time.monotonic() + _SECONDS)
            (seconds,) = timer.seconds(peak.source, ["morello_peak"], peak.flags)
        return peak.flops / seconds


def _types(impl: Impl) -> set[tuple[str, ...]]:
    """Return the types of operands of all kernels that sum."""
    calls = (node.spec.logical for node in walk(impl) if isinstance(getattr(node, "expansion", None), KernelCall))
    return {
        tuple(state.dtype.name for state in logical.states)
        for logical in calls
        if logical.op.reductions(len(logical.shape))
    }
