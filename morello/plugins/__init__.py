"""The interface of plugin authors: hook marker, and targets, levels, weights and microkernels as data."""

from morello.kernels.machine import Machine, MemoryLevel, TargetInfo, Weights
from morello.kernels.microkernel import Jam, LayoutRule, Microkernel, Multiple, OperandPattern
from morello.kernels.target import Target
from morello.plugins.bundle import TargetPlugin
from morello.plugins.hookspecs import hookimpl

__all__ = [
    "Jam",
    "LayoutRule",
    "Machine",
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
