"""Metrics that programs for an array are measured by: the counts of its model, and no time."""

from __future__ import annotations

from morello.plugins import Metric

_COUNTS = (
    ("work", "bytes", "bytes moved, and 16 for each instruction that moves or computes: what the cost says"),
    ("traffic", "bytes", "from and to memory"),
    ("issued", "instructions", "that move or compute"),
    ("mvin", "instructions", "mvin"),
    ("mvin2", "instructions", "mvin2"),
    ("mvin3", "instructions", "mvin3"),
    ("zero", "instructions", "of all these, those that fill with zeros"),
    ("preload", "instructions", "preload"),
    ("compute", "instructions", "compute_preloaded and compute_accumulated"),
    ("mvout", "instructions", "mvout"),
    ("config", "instructions", "config_ex, config_ld and config_st"),
    ("fence", "instructions", "fence"),
    ("read", "bytes", "read by mvin"),
    ("read2", "bytes", "read by mvin2"),
    ("read3", "bytes", "read by mvin3"),
    ("written", "bytes", "written by mvout"),
)

METRICS = tuple(
    Metric(name=name, unit=unit, symbol=f"gemmini_count_{name}", description=about) for name, unit, about in _COUNTS
)
