"""A target: a machine, the kernels and rewrites that programs for it are made of, and what prints them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import islice
from typing import Any, Protocol

import attrs

from morello.errors import PluginError, remedy
from morello.ir.dtypes import DType
from morello.ir.impl import ANY_STEPS, AllowedSteps, Impl, StepLike
from morello.ir.layout import Layout, every_layout
from morello.ir.ops import Operation
from morello.ir.program import Program
from morello.ir.signature import Signature
from morello.kernels.machine import Machine
from morello.kernels.microkernel import Microkernel

#: The name for a target's costs as plugins declare them, without a profile.
BASE = "base"


class Emitter(Protocol):
    """Turns an implementation into C; each target's plugin supplies one."""

    def emit(self, impl: Impl, target: Target, name: str, signature: Signature | None = None) -> Program:
        """Print `impl` as a C function called `name`, with these parameters for its operands if they are given.

        Holes become comments, or raise EmitError.
        """
        ...


@attrs.frozen(kw_only=True)
class Metric:
    """A measure of programs for targets where time is meaningless, such as models of machines; less is better.

    Either `symbol` names a function `uint64_t symbol(void)` of the program's library that returns a running count: the
    metric is its increase by a call, in the calling thread. Or `measure` returns the metric of a
    `morello.api.kernel.Kernel`, always the same. `unit` is a plural noun.
    """

    name: str
    unit: str
    symbol: str = ""
    measure: Callable[[Any], float] | None = None
    description: str = ""


@attrs.frozen(kw_only=True, eq=False)
class Target(Machine):
    """A target assembled from the contributions of all plugins; made by the registry, which checks it."""

    rewrites: tuple[type[StepLike], ...]
    kernels: tuple[Microkernel, ...]
    emitter: Emitter
    #: Metrics of programs instead of time, the most important first; empty if programs are timed.
    metrics: tuple[Metric, ...] = ()
    #: Which plugin contributed each object, by "kind name", e.g. "microkernel Assign".
    origins: dict[str, str] = attrs.field(factory=dict[str, str])
    #: The name of the profile with the costs.
    profile: str = BASE
    #: The megahertz of the profile's machine, if known: with them, costs are times.
    mhz: int | None = None
    #: Neighbouring tile sizes of search differ by this many factors of two, in addition to sizes that kernels require.
    size_bits: int = 1
    #: Whether search cuts Composes into single operations, or around pieces with kernels, after tiling at most: for
    #: graphs with too many parts.
    cuts_all: bool = False
    #: The optional CPU features that programs may use, in order.
    features: tuple[str, ...] = ()
    #: Kernels that need other optional features.
    unavailable: tuple[Microkernel, ...] = ()
    #: The target with all kernels and rewrites, if this one has only those `allowed` (`rewrites/allowed.py`).
    whole: Target | None = None
    allowed: AllowedSteps = ANY_STEPS

    @property
    def full_name(self) -> str:
        """Return the name with its features, as the language has it: `x86_avx2 + avx_vnni`."""
        return " + ".join((self.name, *self.features))

    @property
    def c_name(self) -> str:
        """Return the name with its features as a part of names in C."""
        return "_".join((self.name, *self.features))

    @property
    def label(self) -> str:
        """Return the full name, with the profile if there is one."""
        return self.full_name if self.profile == BASE else f"{self.full_name} (profile {self.profile})"

    @cached_property
    def optional_features(self) -> tuple[str, ...]:
        """Return the CPU features that some kernels need besides those of the target, in order."""
        needed = {feature for one in (*self.kernels, *self.unavailable) for feature in one.cpu_features}
        return tuple(sorted(needed - {*self.info.cpu_features}))

    def lacking(self, kernel: Microkernel) -> tuple[str, ...]:
        """Return the CPU features that a kernel needs and programs may not use."""
        return tuple(one for one in kernel.cpu_features if one not in (*self.info.cpu_features, *self.features))

    def with_features(self, features: Iterable[str]) -> Target:
        """Return this target, which has all kernels, without those that need other optional features."""
        wanted = attrs.evolve(self, features=tuple(features))
        kernels = tuple(one for one in self.kernels if not wanted.lacking(one))
        unavailable = tuple(one for one in self.kernels if wanted.lacking(one))
        return attrs.evolve(wanted, kernels=kernels, unavailable=unavailable)

    @property
    def unit_seconds(self) -> float | None:
        """Return the seconds of a unit of cost, None if unknown."""
        per_cycle = self.info.units_per_cycle
        return 1e-6 / (self.mhz * per_cycle) if self.mhz and per_cycle else None

    @cached_property
    def kernels_by_name(self) -> dict[str, Microkernel]:
        return {kernel.name: kernel for kernel in self.kernels}

    def in_place(self, kernel: str) -> bool:
        """Return True if the output of a kernel may be the memory of an input."""
        return self.kernels_by_name[kernel].in_place

    def every_layout(self, dtype: DType, extents: Sequence[int], most: int | None = None) -> tuple[Layout, ...]:
        """Return all layouts of tensors of at most these extents, or `most` of them, those that search offers first.

        Strips are of 2 values or a vector, and odd-even ones of two vectors.
        """
        vectors = {size for level in self.levels for size in self.vector_sizes(level, dtype)}
        found = every_layout(extents, sorted({2, *vectors}), sorted(2 * size for size in vectors))
        return tuple(dict.fromkeys((*self.layouts(dtype, len(extents)), *islice(found, most))))

    @property
    def excluded(self) -> tuple[str, ...]:
        """Return the names of the kernels and rewrites of the whole target that this one lacks."""
        whole = self.whole or self
        kernels = (name for name in whole.kernels_by_name if name not in self.kernels_by_name)
        return (*kernels, *(name for name in whole.rewrites_by_name if name not in self.rewrites_by_name))

    @property
    def stored_name(self) -> str:
        """Return the full name, with the steps that are excluded and all layouts, as databases have it."""
        allowed = AllowedSteps(without=self.excluded, all_layouts=self.allowed.all_layouts)
        return f"{self.full_name} {allowed}".rstrip()

    def tile_sizes(self, op: Operation) -> dict[int, frozenset[int]]:
        """Return the sizes of tiles that kernels for `op` ask for, by dimension; also kernels that are excluded."""
        if op not in self._tile_sizes:
            asked: dict[int, frozenset[int]] = {}
            for kernel in (self.whole or self).kernels:
                if kernel.implements(op):
                    for dim, sizes in kernel.offered_sizes.items():
                        asked[dim] = asked.get(dim, frozenset()) | frozenset(sizes)
            self._tile_sizes[op] = asked
        return self._tile_sizes[op]

    @cached_property
    def _tile_sizes(self) -> dict[Operation, dict[int, frozenset[int]]]:
        return {}

    def declared_strips(self, dtype: DType, op: Operation | None = None) -> frozenset[Layout]:
        """Return the layouts with strips that kernels, those for `op` if it is given, declare for a data type."""
        if (dtype, op) not in self._declared_strips:
            self._declared_strips[dtype, op] = frozenset(
                layout
                for kernel in self.kernels
                if op is None or kernel.implements(op)
                for pattern in kernel.operands
                if dtype.name in pattern.dtypes
                for layout in pattern.layouts
                if layout.has_strips
            )
        return self._declared_strips[dtype, op]

    @cached_property
    def _declared_strips(self) -> dict[tuple[DType, Operation | None], frozenset[Layout]]:
        return {}

    @cached_property
    def rewrites_by_name(self) -> dict[str, type[StepLike]]:
        return {rewrite.keyword: rewrite for rewrite in self.rewrites}

    def fault(self, kernel: Microkernel, rule: str) -> PluginError:
        """Return the error for a rule that a microkernel breaks, blamed on the plugin it comes from."""
        plugin = self.origins.get(f"microkernel {kernel.name}", self.name)
        return PluginError(
            f"plugin {plugin!r}, microkernel {kernel.name} of target {self.name}: {rule}", remedy(plugin)
        )
