"""A plugin that owns one target, as a single object: the short way to write one."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from morello.kernels.machine import MemoryLevel, Tables, TargetInfo, Weights
from morello.kernels.microkernel import Microkernel
from morello.kernels.target import Emitter, Metric
from morello.plugins.hookspecs import hookimpl
from morello.plugins.measure import Clock, Measurement
from morello.plugins.profile import Profile, ProfileFile
from morello.rewrites.base import Rewrite


@attrs.frozen(kw_only=True, eq=False)
class TargetPlugin:
    """Answers every hook for its own target. Name an instance in the entry point: `package.module:instance`."""

    info: TargetInfo
    levels: Sequence[MemoryLevel]
    rewrites: Sequence[type[Rewrite]]
    kernels: Sequence[Microkernel]
    emitter: Emitter
    weights: Weights = attrs.field(factory=Weights)
    tables: Tables = attrs.field(factory=dict[str, tuple[tuple[int, ...], ...]])
    profiles: Sequence[Profile | ProfileFile] = ()
    clock: Clock | None = None
    measurements: Sequence[Measurement] = ()
    metrics: Sequence[Metric] = ()

    @hookimpl
    def morello_targets(self) -> list[TargetInfo]:
        return [self.info]

    @hookimpl
    def morello_levels(self, target: str) -> Sequence[MemoryLevel]:
        return self.levels if target == self.info.name else ()

    @hookimpl
    def morello_rewrites(self, target: str) -> Sequence[type[Rewrite]]:
        return self.rewrites if target == self.info.name else ()

    @hookimpl
    def morello_microkernels(self, target: str) -> Sequence[Microkernel]:
        return self.kernels if target == self.info.name else ()

    @hookimpl
    def morello_weights(self, target: str) -> Weights | None:
        return self.weights if target == self.info.name else None

    @hookimpl
    def morello_tables(self, target: str) -> Tables:
        return self.tables if target == self.info.name else {}

    @hookimpl
    def morello_profiles(self, target: str) -> Sequence[Profile | ProfileFile]:
        return self.profiles if target == self.info.name else ()

    @hookimpl
    def morello_clock(self, target: str) -> Clock | None:
        return self.clock if target == self.info.name else None

    @hookimpl
    def morello_measurements(self, target: str) -> Sequence[Measurement]:
        return self.measurements if target == self.info.name else ()

    @hookimpl
    def morello_metrics(self, target: str) -> Sequence[Metric]:
        return self.metrics if target == self.info.name else ()

    @hookimpl
    def morello_emitter(self, target: str) -> Emitter | None:
        return self.emitter if target == self.info.name else None
