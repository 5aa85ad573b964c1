"""What programs for an array are measured by: the counts of its model, and no time."""

from __future__ import annotations

from morello.plugins import Metric

_COUNTS = (
    ("work", "bytes", "bytes moved, and 16 for each instruction that moves or computes: what the cost says"),
    ("traffic", "bytes", "from and to memory"),
    ("issued", "instructions", "that move or compute"),
    ("zeros", "issued", "mvin of zeros"),
    ("mvins", "issued", "mvin, but for zeros"),
    ("mvin2s", "issued", "mvin2"),
    ("mvin3s", "issued", "mvin3"),
    ("preloads", "issued", "preload"),
    ("computes", "issued", "compute_preloaded and compute_accumulated"),
    ("mvouts", "issued", "mvout"),
    ("config", "issued", "config_ex, config_ld and config_st"),
    ("fences", "issued", "fence"),
    ("read", "bytes", "read by mvin"),
    ("read2", "bytes", "read by mvin2"),
    ("read3", "bytes", "read by mvin3"),
    ("written", "bytes", "written by mvout"),
)

METRICS = tuple(
    Metric(name=name, unit=unit, symbol=f"gemmini_{name}", description=about) for name, unit, about in _COUNTS
)
