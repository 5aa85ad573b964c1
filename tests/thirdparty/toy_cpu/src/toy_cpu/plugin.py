"""The plugin that hands Morello the target toy_cpu."""

from __future__ import annotations

from morello.plugins import STANDARD, TargetPlugin

from .emitter import ToyEmitter
from .kernels import KERNELS
from .target import INFO, LEVELS, WEIGHTS

PLUGIN = TargetPlugin(
    info=INFO,
    levels=LEVELS,
    rewrites=STANDARD,
    kernels=KERNELS,
    weights=WEIGHTS,
    emitter=ToyEmitter(),
)
