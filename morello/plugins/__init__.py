"""What plugin authors use: hook marker, and targets, levels, weights and microkernels as data."""

from morello.kernels.microkernel import Jam, LayoutRule, Microkernel, Multiple, OperandPattern
from morello.kernels.target import MemoryLevel, Target, TargetInfo, Weights
from morello.plugins.bundle import TargetPlugin
from morello.plugins.hookspecs import hookimpl

__all__ = [
    "Jam",
    "LayoutRule",
    "MemoryLevel",
    "Microkernel",
    "Multiple",
    "OperandPattern",
    "Target",
    "TargetInfo",
    "TargetPlugin",
    "Weights",
    "hookimpl",
]
