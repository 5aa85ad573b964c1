"""The interface of plugin authors: hook marker, and targets, levels, weights and microkernels as data."""

from morello.kernels.machine import Machine, MemoryLevel, NewBuffer, Tables, TargetInfo, Weights
from morello.kernels.microkernel import Combined, Microkernel, UnrollAndJam, per_vector, touching
from morello.kernels.pattern import LayoutRule, Multiple, OperandPattern
from morello.kernels.target import Metric, Target
from morello.plugins.derive import derive
from morello.plugins.measure import Clock, Measurement, Meter, Peak
from morello.plugins.plugin import TargetPlugin, hookimpl
from morello.plugins.profile import Profile

__all__ = [
    "Clock",
    "Combined",
    "LayoutRule",
    "Machine",
    "Measurement",
    "MemoryLevel",
    "Meter",
    "Metric",
    "Microkernel",
    "Multiple",
    "NewBuffer",
    "OperandPattern",
    "Peak",
    "Profile",
    "Tables",
    "Target",
    "TargetInfo",
    "TargetPlugin",
    "UnrollAndJam",
    "Weights",
    "derive",
    "hookimpl",
    "per_vector",
    "touching",
]
