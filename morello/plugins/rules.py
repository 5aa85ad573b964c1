"""Rules for the contributions of plugins: each function returns the first rule that one breaks, or None."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, get_args

from morello.ir.dtypes import NAME, DType
from morello.ir.limits import grid_rule
from morello.ir.ops.base import Operation
from morello.kernels import template
from morello.kernels.machine import LevelKind, MemoryLevel, Weights
from morello.kernels.microkernel import Microkernel, UnrollAndJam
from morello.kernels.pattern import Multiple, OperandPattern
from morello.kernels.target import Metric, Target
from morello.plugins.measure import Clock, Measurement
from morello.rewrites.base import Rewrite

#: The largest alignment of buffers and workspace in emitted code, in bytes.
MAX_ALIGNMENT = 64


def target(target: Target) -> str | None:
    """Return the rule that the owner's description of a target breaks."""
    info, per_cycle = target.info, target.info.units_per_cycle
    if not target.name.isidentifier():
        return f"the name of a target is an identifier, not {target.name!r}"
    if not target.levels:
        return "a target has at least one memory level (`levels`)"
    if target.emitter is None:
        return "a target has an emitter (`emitter`)"
    if not isinstance(info.cost_unit, str):
        return "cost_unit names the unit of costs"
    if per_cycle is not None and (not is_integer(per_cycle) or per_cycle < 1):
        return "units_per_cycle is an integer of at least 1, or None"
    if not callable(info.layouts):
        return "layouts is a function of data type and rank"
    if info.offers is not None and not callable(info.offers):
        return "offers is a function of a layout and a NewBuffer, or None"
    unknown = [name for cast in sorted(info.casts) for name in cast if name not in target.dtypes]
    return f"casts have an unknown data type {unknown[0]!r}: there are {', '.join(target.dtypes)}" if unknown else None


def dtype(dtype: object) -> str | None:
    """Return the rule that a data type breaks."""
    if not isinstance(dtype, DType):
        return f"data types are morello.plugins.DType objects, not {dtype!r}"
    if not NAME.fullmatch(dtype.name):
        return "the name of a data type begins with f, i, u or bf and a digit: f8e4m3"
    kind = dtype.numpy
    if kind.kind in "fV" and kind.itemsize <= 2 and kind.names is None:
        try:
            if dtype.info.bits == 8 * kind.itemsize and dtype.bits(-0.0) == 1 << (8 * kind.itemsize - 1):
                return None
        except (TypeError, ValueError):
            pass
    return f"data types of plugins are floats of 8 or 16 bits with zeros of both signs, unlike {kind.name}"


def emitter(emitter: object, target: Target) -> str | None:
    """Return the rule that an emitter breaks."""
    return None if hasattr(emitter, "emit") else "an emitter has a method emit(impl, target, name, signature)"


def weights(weights: object, target: Target) -> str | None:
    """Return the rule that weights break."""
    if not isinstance(weights, Weights):
        return f"weights are a morello.plugins.Weights, not {weights!r}"
    if not all(map(is_integer, (weights.threads, weights.sync))):
        return "threads and sync are integers"
    if weights.threads < 1 or weights.sync < 0:
        return "threads are at least 1 and sync is not negative"
    return None


def table(named: tuple[object, object], target: Target) -> str | None:
    """Return the rule that a name and the rows of a table break."""
    name, rows = named
    rule = rows_rule(rows) if str(name).isidentifier() else "a table whose name is an identifier"
    return rule and f"it must be {rule}"


def rows_rule(rows: object) -> str | None:
    """Return the requirement that the rows of a table break, worded to follow "must be"."""
    if not isinstance(rows, tuple) or not rows or not all(isinstance(row, tuple) and row for row in rows):
        return "a list of rows, which are lists of integers"
    if not all(in_range(value, -1 << 31) for row in rows for value in row):
        return "rows of integers from -2^31 to 2^31"
    if len({len(row) for row in rows}) > 1:
        return "rows with equally many integers"
    return None


def profile(profile: object, target: Target) -> str | None:
    """Return the rule that a profile, or its file, breaks. Its contents are checked when it is read."""
    if hasattr(profile, "text") or hasattr(profile, "read_text"):
        return None
    return f"profiles are morello.plugins.Profile objects or files, not {profile!r}"


def clock(clock: object, target: Target) -> str | None:
    """Return the rule that a clock breaks."""
    if isinstance(clock, Clock) and clock.units > 0 and "morello_clock" in clock.source:
        return None
    return "a clock is a morello.plugins.Clock of at least 1 unit, whose source defines morello_clock"


def measurement(measurement: object, target: Target) -> str | None:
    """Return the rule that a measurement of a table breaks."""
    rows = target.tables.get(measurement.table, ()) if isinstance(measurement, Measurement) else ()
    if isinstance(measurement, Measurement) and rows and 0 <= measurement.keys < len(rows[0]):
        return None if callable(measurement.measure) else "its `measure` is a function"
    return "a measurement is a morello.plugins.Measurement of a table, with fewer keys than columns"


def metric(metric: object, target: Target) -> str | None:
    """Return the rule that a metric breaks."""
    if not isinstance(metric, Metric):
        return "metrics are morello.plugins.Metric objects"
    words = metric.name, metric.unit, metric.description
    if not (all(isinstance(word, str) for word in words) and metric.name and metric.unit):
        return "it has a name and a unit"
    if metric.measure is not None:
        return None if callable(metric.measure) and not metric.symbol else "it has a `symbol` or a function `measure`"
    if not (isinstance(metric.symbol, str) and metric.symbol.isascii() and metric.symbol.isidentifier()):
        return "`symbol` is the name of a C function"
    return None


def operation(op: object) -> str | None:
    """Return the rule that an operation breaks."""
    if not isinstance(op, Operation):
        return "operations are instances of morello.ir.ops.Operation"
    if not op.name.isidentifier():
        return "its name is an identifier"
    rank = 2 if op.rank is None else op.rank
    operands = op.operands(rank)
    if len(op.dims(rank)) != rank or any(dim >= rank for one in operands for terms in one.dims for dim, _ in terms):
        return f"its dimensions and operands are those of rank {rank}"
    order = [one.writes for one in operands]
    if not any(order) or order != sorted(order):
        return "inputs come first, and it writes at least one operand"
    return None


def rewrite(rewrite: object, target: Target) -> str | None:
    """Return the rule that a rewrite breaks."""
    if not (isinstance(rewrite, type) and issubclass(rewrite, Rewrite)):
        return "a rewrite is a subclass of Rewrite"
    return None if getattr(rewrite, "keyword", "").isidentifier() else "its keyword is an identifier"


def level(level: object, target: Target) -> str | None:
    """Return the rule that a memory level breaks."""
    if not isinstance(level, MemoryLevel):
        return "levels are morello.plugins.MemoryLevel"
    costs = level.hit_cost, level.miss_cost, level.start_cost
    numbers = level.capacity, level.unit, *costs, level.alignment, *level.vectors
    if not all(map(is_integer, numbers)):
        return "capacity, unit, hit, miss and start cost and alignment are integers, and so are vector sizes"
    if level.divisions is not None and not is_integer(level.divisions):
        return "its divisions are an integer, or None for those of its kind"
    names = Counter(getattr(other, "name", "") for other in target.levels)
    if not level.name.isidentifier() or names[level.name] > 1:
        return "a level's name is an identifier that no other level has"
    if level.kind not in get_args(LevelKind):
        return f"its kind is one of {', '.join(get_args(LevelKind))}"
    if level.unit < 1 or level.capacity < level.unit:
        return "its capacity holds at least one unit, and a unit at least one byte"
    if rule := grid_rule(level.grid):
        return rule
    if level.is_register and any(costs):
        return "registers have hit, miss and start cost 0: the cost model charges only cache lines"
    if min(costs) < 0 or level.alignment < 1:
        return "its hit, miss and start cost are not negative and its alignment at least 1"
    if level.alignment & (level.alignment - 1) or level.alignment > MAX_ALIGNMENT:
        return f"its alignment is a power of two, at most {MAX_ALIGNMENT}: emitted code aligns no buffer to more"
    if (level.kind == "vector") != bool(level.vectors):
        return "vector levels, and no others, list vector sizes"
    if any(size < 1 or size & (size - 1) or size > level.unit for size in level.vectors):
        return "vector sizes are powers of two and fit into a register"
    held = [other for other in target.levels if isinstance(other, MemoryLevel) and other.kind != "temporaries"]
    known = [other.name for other in held]
    unknown = [name for name in level.destinations if name not in known]
    return f"its destination {unknown[0]} is not a level for operands ({', '.join(known)})" if unknown else None


def microkernel(kernel: object, target: Target) -> str | None:
    """Return the rule that a microkernel breaks."""
    if not isinstance(kernel, Microkernel):
        return "microkernels are morello.plugins.Microkernel"
    if not kernel.name.isidentifier():
        return "its name is an identifier"
    if not isinstance(kernel.op, Operation) and not (isinstance(kernel.op, type) and issubclass(kernel.op, Operation)):
        return "its op is an operation, e.g. from morello.ir.ops, or a class of them"
    if not all(isinstance(pattern, OperandPattern) for pattern in kernel.operands):
        return "its operands are morello.plugins.OperandPattern"
    if not (kernel.shape in (None, 1) or (isinstance(kernel.shape, tuple) and all(map(_is_size, kernel.shape)))):
        return "sizes in its shape are positive integers, Multiple or None; for all dimensions, 1 or None"
    operations = kernel.operations(target)
    if not operations:
        return f"no operation is a {kernel.op_name}: give the language one with the hook morello_operations"
    for op in operations:
        rank = _rank(kernel, op)
        if not op.variadic and len(kernel.operands) != len(op.operands(rank)):
            return f"{op} has {len(op.operands(rank))} operands, it lists {len(kernel.operands)}"
        if isinstance(kernel.shape, tuple) and op.rank not in (None, len(kernel.shape)):
            return f"{op} has {op.rank} dimensions, its shape lists {len(kernel.shape)}"
    return _names_rule(kernel, target) or _printing_rule(kernel, operations)


def _names_rule(kernel: Microkernel, target: Target) -> str | None:
    """Return the rule on names and numbers that a microkernel breaks."""
    levels = {level.name for level in target.levels}
    jam = kernel.jam.registers if isinstance(kernel.jam, UnrollAndJam) else {}
    registers = [*(kernel.registers or {}).items(), *jam.items()]
    used = [name for pattern in kernel.operands for name in pattern.levels] + [name for name, _ in registers]
    if unknown := [name for name in used if name not in levels]:
        return f"it names the level {unknown[0]}, not one of {', '.join(sorted(levels))}"
    known = target.dtypes
    if unknown := [name for pattern in kernel.operands for name in pattern.dtypes if name not in known]:
        return f"unknown data type {unknown[0]!r}: there are {', '.join(known)}"
    if any(pattern.layout not in ("any", "row_major", "col_major") for pattern in kernel.operands):
        return "an operand's layout is any, row_major or col_major"
    if any(field not in ("dtype", "layout", "vector", "lanes") for field in kernel.same):
        return "`same` lists dtype, layout, vector or lanes"
    if kernel.when is not None and not callable(kernel.when):
        return "`when` is a function"
    if any(not callable(count) and count < 0 for _, count in registers):
        return "register counts are not negative"
    if any(dim < 0 or any(size < 1 for size in sizes) for dim, sizes in kernel.offered_sizes.items()):
        return "tile_sizes are positive, by number of the dimension"
    if isinstance(kernel.cpu_features, str) or not all(isinstance(one, str) for one in kernel.cpu_features):
        return "its cpu_features are a tuple of names"
    return None


def _printing_rule(kernel: Microkernel, operations: Sequence[Operation]) -> str | None:
    """Return the rule on functions and templates that a microkernel breaks."""
    if not callable(kernel.call_cost) or not (kernel.emit is None or callable(kernel.emit)):
        return "cost and emit are functions"
    if (kernel.template is None) == (kernel.emit is None):
        return "it has either a template or an emit"
    if not (kernel.template is None or isinstance(kernel.template, str) or callable(kernel.template)):
        return "its template is a line of C, or a function that returns one"
    if isinstance(kernel.template, str):
        for op in operations:
            if wrong := template.fault(kernel.template, [one.name for one in op.operands(_rank(kernel, op))]):
                return wrong
    jam: Any = kernel.jam
    if jam is not None and not (isinstance(jam, UnrollAndJam) and jam.most > 1 and callable(jam.emit)):
        return "its jam is a morello.plugins.UnrollAndJam of at least 2 calls, whose emit is a function"
    return None


def _rank(kernel: Microkernel, op: Operation) -> int:
    """Return the rank of an operation that a kernel implements; where both leave it open, 1."""
    return op.rank or (len(kernel.shape) if isinstance(kernel.shape, tuple) else 1)


def _is_size(size: object) -> bool:
    number = size.of if isinstance(size, Multiple) else size
    return size is None or (isinstance(number, int) and number > 0)


def is_integer(value: object) -> bool:
    """Return True for an integer other than a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def in_range(value: object, least: int, most: int = 1 << 31) -> bool:
    """Return True for an integer other than a bool, from `least` to `most`."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
