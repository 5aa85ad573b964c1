"""What plugin authors use: hook marker, and targets, levels, weights and microkernels as data."""

from morello.plugins.bundle import TargetPlugin
from morello.plugins.hookspecs import hookimpl
from morello.plugins.microkernel import Jam, LayoutRule, Microkernel, Multiple, OperandPattern
from morello.plugins.target import MemoryLevel, Target, TargetInfo, Weights

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
