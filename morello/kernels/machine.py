"""CPUs as data: memory levels, weights, and what follows from them for tensors and Specs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Literal, TypeAlias

import attrs

from morello.errors import SpecError
from morello.ir.dtypes import DType
from morello.ir.layout import Layout
from morello.ir.limits import LimitGrid, Limits
from morello.ir.numbers import Num, choose
from morello.ir.ops import Compose, Operation
from morello.ir.ops.base import Operand
from morello.ir.spec import LogicalSpec, Spec
from morello.ir.tensor import OperandState, TensorSpec

LevelKind = Literal["scalar", "vector", "temporaries", "cache", "memory"]
#: What kernels cost, for their cost functions to read: rows of integers by a table's name.
Tables: TypeAlias = Mapping[str, tuple[tuple[int, ...], ...]]


@attrs.frozen(kw_only=True)
class MemoryLevel:
    """One level of the memory hierarchy.

    `scalar` and `vector` levels are registers; one of `temporaries` holds those of kernels and no operands, such as the
    tiles of a matrix unit; a `cache` is managed by the hardware; a `memory` holds buffers. `unit` is the granularity of
    allocations in bytes: a register or a cache line. `hit_cost` is the cost of touching one line,
    `miss_cost` the additional cost of each run of adjacent lines, and `start_cost` that of each tensor: the latency of
    its first line, which nothing hides. `vectors` are the sizes in bytes of the vectors a vector level holds.
    `destinations` are the levels an operand that lives here can be moved to. Tensors here that a Spec calls aligned
    start at a multiple of `alignment` bytes. Search's bounds take the limit of a level as full that is not `tracked`:
    that saves it time and memory, and loosens the bounds of Specs that run out of it. With `conflicts`, runs of lines
    whose distance is a multiple of a tensor's `spacing` take as many bytes as that: they share sets.

    Its limits are multiples of 1/`divisions` of the capacity, and below the first of these its halves. By default
    registers are counted one by one, caches in eighths, memories in halves: what has more values costs search more.
    """

    name: str
    kind: LevelKind
    capacity: int
    unit: int
    hit_cost: int = 0
    miss_cost: int = 0
    start_cost: int = 0
    vectors: tuple[int, ...] = ()
    destinations: tuple[str, ...] = ()
    alignment: int = 1
    tracked: bool = True
    divisions: int | None = None
    conflicts: bool = False

    @property
    def is_register(self) -> bool:
        return self.kind in ("scalar", "vector", "temporaries")

    @property
    def grid(self) -> LimitGrid:
        """Return the values that its limits can have."""
        own = self.capacity // self.unit if self.is_register else 8 if self.kind == "cache" else 1
        return LimitGrid(self.capacity, self.unit, own if self.divisions is None else self.divisions)


@attrs.frozen(kw_only=True)
class Weights:
    """Cost weights besides the levels' own: threads that share a parallel loop, and what starting it costs."""

    threads: int = 1
    sync: int = 0


@attrs.frozen
class NewBuffer:
    """A buffer that a move makes for an operand of an operation; `cast` says if values change their type on the way."""

    op: Operation
    operand: Operand
    cast: bool


@attrs.frozen(kw_only=True)
class TargetInfo:
    """The declarations of a target by the plugin that owns it.

    `layouts(dtype, rank)` lists the layouts that search may give to new buffers, and `offers(layout, buffer)` says to
    which of those that moves make: to all, if it is None. `constants(dtype, rank)` lists more layouts, for constants
    alone. `casts` are the conversions that search may make on a move; `cpu_features` what a machine must have to run
    the code, in the names that `/proc/cpuinfo` uses on x86.
    `cost_unit` is the name of the unit of costs, such as "tenths of a cycle", and `units_per_cycle` their number in a
    cycle, 10; both are for display, and optional if costs are not times.

    `triple` names the platform of its programs, such as "aarch64-linux-musl": this machine's, if it is empty.
    `compilers` are commands that compile for it, and `runners` command prefixes that run its programs on machines of
    another architecture, such as "qemu-aarch64 -cpu max"; of both, the first installed one is the default. A compiler
    `zig` may also be the one of the package ziglang.
    """

    name: str
    description: str
    layouts: Callable[[DType, int], Sequence[Layout]]
    offers: Callable[[Layout, NewBuffer], bool] | None = None
    constants: Callable[[DType, int], Sequence[Layout]] | None = None
    casts: frozenset[tuple[str, str]] = frozenset()
    cpu_features: tuple[str, ...] = ()
    cost_unit: str = ""
    units_per_cycle: int | None = None
    triple: str = ""
    compilers: tuple[str, ...] = ()
    runners: tuple[str, ...] = ()


@attrs.frozen(kw_only=True, eq=False)
class Machine:
    """The memory of a target, its weights and the operations of its Specs: what costs and rewrites need to know."""

    info: TargetInfo
    levels: tuple[MemoryLevel, ...]
    weights: Weights
    #: The operations of the Spec language, by name: Morello's own, and those that the registry's plugins add.
    operations: Mapping[str, Operation]
    #: Its data types, by name: Morello's own, and those that the registry's plugins add.
    dtypes: Mapping[str, DType]
    #: What kernels cost on the machine at hand; their plugins say what rows mean.
    tables: Tables = attrs.field(factory=dict[str, tuple[tuple[int, ...], ...]])
    #: Measured costs of kernels that declare none, by name: for each vector, once per call, and the least (latency).
    kernel_costs: Mapping[str, tuple[int, ...]] = attrs.field(factory=dict[str, tuple[int, ...]])

    @property
    def name(self) -> str:
        return self.info.name

    @cached_property
    def _levels(self) -> dict[str, MemoryLevel]:
        return {level.name: level for level in self.levels}

    @cached_property
    def operand_levels(self) -> tuple[MemoryLevel, ...]:
        """Return the levels that hold operands, not only temporaries."""
        return tuple(level for level in self.levels if level.kind != "temporaries")

    @cached_property
    def grids(self) -> tuple[LimitGrid, ...]:
        """Return the values that limits of each level can have."""
        return tuple(level.grid for level in self.levels)

    def level(self, name: str) -> MemoryLevel:
        """Return the level called `name`. Raises SpecError for a name this target does not have."""
        try:
            return self._levels[name]
        except KeyError:
            names = ", ".join(level.name for level in self.levels)
            raise SpecError(f"unknown memory level {name!r}", f"{self.name} has the levels {names}") from None

    def operand_level(self, name: str) -> MemoryLevel:
        """Return a level that holds operands. Raises SpecError for others."""
        level = self.level(name)
        if level not in self.operand_levels:
            names = ", ".join(one.name for one in self.operand_levels)
            raise SpecError(f"{name} holds temporaries of kernels, and no operands", f"operands are in {names}")
        return level

    def check_operation(self, op: Operation) -> None:
        """Raise SpecError for an operation that the target does not have: it may be one of another registry."""
        op = op.without_constants
        for one in [stage.op for stage in op.stages] if isinstance(op, Compose) else [op]:
            if type(self.operations.get(one.name)) is not type(one):
                hint = "there are Morello's and those that plugins of the same registry add (hook morello_operations)"
                raise SpecError(f"{self.name} does not have this operation {one.name}", hint)

    def move_cost(self, tensor: TensorSpec) -> Num:
        """Return what a touch of all lines costs, 0 in registers: start cost + lines · hit cost + runs · miss cost.

        m(t) of [Kaufman2025] §3 doubles the cost of lines that are not contiguous; long runs stream like one.
        """
        level = self.level(tensor.state.level)
        if level.is_register:
            return 0
        return level.start_cost + tensor.lines(level.unit) * level.hit_cost + tensor.runs * level.miss_cost

    def footprint(self, tensor: TensorSpec) -> tuple[Num, ...]:
        """Return bytes that a new tensor takes of each level."""
        own = self.level(tensor.state.level)
        units = tensor.vectors if own.is_register else tensor.lines(own.unit)
        if own.conflicts and tensor.state.spacing:
            least = tensor.state.spacing // own.unit
            lines = tensor.lines_of_run(own.unit)
            units = tensor.runs * choose(lines > least, lines, least)
        return tuple(units * own.unit if level is own else 0 for level in self.levels)

    def nothing(self) -> tuple[int, ...]:
        return (0,) * len(self.levels)

    def full_limits(self) -> Limits:
        return tuple(level.capacity for level in self.levels)

    def limits(self, limits: Sequence[int]) -> Limits:
        """Limits in normal form: rounded down to values that limits of their levels can have.

        Raises SpecError unless there is one limit per level, none of them negative.
        """
        names = ", ".join(level.name for level in self.levels)
        if len(limits) != len(self.levels):
            raise SpecError(
                f"{len(limits)} memory limits for the {len(self.levels)} levels of {self.name}",
                f"give bytes for {names}, in this order",
            )
        if any(limit < 0 for limit in limits):
            raise SpecError("memory limits are not negative", f"give bytes for {names}, in this order")
        return tuple(grid.floor(limit) for limit, grid in zip(limits, self.grids, strict=True))

    @cached_property
    def _offered(self) -> dict[tuple[DType, int], tuple[Layout, ...]]:
        return {}

    def layouts(self, dtype: DType, rank: int) -> tuple[Layout, ...]:
        """Return the layouts that search may give to new buffers."""
        if (dtype, rank) not in self._offered:
            self._offered[dtype, rank] = tuple(self.info.layouts(dtype, rank))
        return self._offered[dtype, rank]

    def layouts_of(self, buffer: NewBuffer, dtype: DType) -> tuple[Layout, ...]:
        """Return the layouts that search may give to a buffer that a move makes."""
        offers, layouts = self.info.offers, self.layouts(dtype, len(buffer.operand.dims))
        return layouts if offers is None else tuple(layout for layout in layouts if offers(layout, buffer))

    def vector_sizes(self, level: MemoryLevel, dtype: DType) -> tuple[int, ...]:
        """Return values per register, for each vector size of a vector level."""
        return tuple(size // dtype.bytes for size in level.vectors)

    def state(
        self,
        level: str,
        dtype: DType,
        layout: Layout,
        *,
        contig: int | None = None,
        aligned: bool = True,
        vector: int | None = None,
    ) -> OperandState:
        """Return an operand state as this level has it, without a layout in scalar registers.

        Raises SpecError for a level without operands, and for a vector size in one that holds no vectors.
        """
        kind = self.operand_level(level).kind
        if vector is not None and kind != "vector":
            raise SpecError(f"v{vector} in {level}, which holds no vectors", f"drop v{vector}")
        if kind == "scalar":
            return OperandState(dtype, level, None)
        run = len(layout.dims) if contig is None else contig
        return OperandState(dtype, level, layout, run, aligned, vector)

    def spec(self, logical: LogicalSpec, limits: Sequence[int] | None = None) -> Spec:
        """Return the Spec in normal form for this target. Raises SpecError where it makes no sense here."""
        self.check_operation(logical.op)
        logical = logical.canonical()
        for one, tensor in zip(logical.op.operands(len(logical.shape)), logical.operands, strict=True):
            self._check_vector(one.name, tensor)
        return Spec(logical, self.full_limits() if limits is None else self.limits(limits))

    def _check_vector(self, name: str, tensor: TensorSpec) -> None:
        level, vector = self.level(tensor.state.level), tensor.state.vector
        if level.kind != "vector":
            if vector is not None:
                raise SpecError(f"{name}: v{vector} in {level.name}, which holds no vectors", f"drop v{vector}")
            return
        sizes = self.vector_sizes(level, tensor.state.dtype)
        allowed = ", ".join(f"v{size}" for size in sizes)
        if vector not in sizes:
            wrong = "no vector size" if vector is None else f"v{vector}"
            raise SpecError(f"{name}: {wrong} for {tensor.state.dtype} in {level.name}", f"vectors are {allowed}")
        if not tensor.has_whole_vectors():
            raise SpecError(
                f"{name}: {tensor.run} adjacent values do not fill vectors of {vector}",
                f"vectors are {allowed}; the values of one lie next to each other",
            )


def widest_vector(machine: Machine, level: MemoryLevel, dtype: DType, volume: int) -> int | None:
    """Return the widest vector size that divides `volume`, else None."""
    return max((size for size in machine.vector_sizes(level, dtype) if volume % size == 0), default=None)
