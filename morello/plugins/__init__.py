"""The interface of plugin authors: hook marker, and targets, levels, weights and microkernels as data."""

from morello.kernels.machine import Machine, MemoryLevel, NewBuffer, Tables, TargetInfo, Weights
from morello.kernels.microkernel import Combined, Microkernel, UnrollAndJam, per_vector, touching
from morello.kernels.pattern import LayoutRule, Multiple, OperandPattern
from morello.kernels.target import Metric, Target
from morello.plugins.bundle import TargetPlugin
from morello.plugins.hookspecs import hookimpl
from morello.plugins.measure import Clock, Measurement, Meter, Peak
from morello.plugins.profile import Profile
from morello.plugins.tuning import (
    Candidate,
    Feedback,
    MenuItem,
    Outcome,
    Proposal,
    Proposer,
    Request,
    Session,
    Task,
    TuningInfo,
)

__all__ = [
    "Candidate",
    "Clock",
    "Combined",
    "Feedback",
    "LayoutRule",
    "Machine",
    "Measurement",
    "MemoryLevel",
    "MenuItem",
    "Meter",
    "Metric",
    "Microkernel",
    "Multiple",
    "NewBuffer",
    "OperandPattern",
    "Outcome",
    "Peak",
    "Profile",
    "Proposal",
    "Proposer",
    "Request",
    "Session",
    "Tables",
    "Target",
    "TargetInfo",
    "TargetPlugin",
    "Task",
    "TuningInfo",
    "UnrollAndJam",
    "Weights",
    "hookimpl",
    "per_vector",
    "touching",
]
