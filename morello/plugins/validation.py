"""Rules that what plugins hand in must obey; a violation names the plugin, the object and the rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from morello.errors import PluginError, remedy
from morello.ir.dtypes import BY_NAME
from morello.ir.limits import grid_rule
from morello.ir.ops.base import Operation
from morello.kernels import template
from morello.kernels.machine import MemoryLevel, Weights
from morello.kernels.microkernel import Microkernel, UnrollAndJam
from morello.kernels.pattern import Multiple, OperandPattern
from morello.kernels.target import Metric, Target
from morello.rewrites.base import Rewrite

#: What emitted code aligns its buffers and workspace to.
MAX_ALIGNMENT = 64


def check_target(target: Target, owner: str) -> None:
    """Check a target as assembled from all plugins. Raises PluginError for the first broken rule."""

    def broken(plugin: str, thing: str, rule: str) -> PluginError:
        return PluginError(f"plugin {plugin!r}, {thing} of target {target.name}: {rule}", remedy(plugin), plugin)

    def origin(label: str) -> str:
        return target.origins.get(label, owner)

    if not target.name.isidentifier():
        raise broken(owner, f"name {target.name!r}", "a target's name is an identifier")
    if not target.levels:
        raise broken(owner, "memory levels", "a target has at least one (hook morello_levels)")
    if target.emitter is None:
        raise broken(owner, "emitter", "a target has one (hook morello_emitter)")
    if not hasattr(target.emitter, "emit"):
        rule = "an emitter has a method emit(impl, target, name, signature)"
        raise broken(origin("emitter"), f"emitter {target.emitter!r}", rule)
    if not isinstance(target.weights, Weights):
        raise broken(origin("weights"), f"weights {target.weights!r}", "weights are a morello.plugins.Weights")
    if not _integers(target.weights.threads, target.weights.sync):
        raise broken(origin("weights"), "weights", "threads and sync are integers")
    if target.weights.threads < 1 or target.weights.sync < 0:
        raise broken(origin("weights"), "weights", "threads are at least 1 and sync is not negative")
    for name, rows in target.tables.items():
        rule = "its name is an identifier" if not str(name).isidentifier() else rows_rule(rows)
        if rule:
            raise broken(origin(f"table {name}"), f"table {name}", f"it must be {rule}")
    if not isinstance(target.info.cost_unit, str):
        raise broken(owner, "cost_unit", "it names the unit of costs")
    per_cycle = target.info.units_per_cycle
    if per_cycle is not None and (not is_integer(per_cycle) or per_cycle < 1):
        raise broken(owner, "units_per_cycle", "it is an integer of at least 1, or None")
    if not callable(target.info.layouts):
        raise broken(owner, "layouts", "layouts is a function of data type and rank")
    if target.info.offers is not None and not callable(target.info.offers):
        raise broken(owner, "offers", "offers is a function of a layout and a NewBuffer, or None")
    for name in (name for cast in sorted(target.info.casts) for name in cast):
        if name not in BY_NAME:
            raise broken(owner, "casts", f"unknown data type {name!r}: there are {', '.join(BY_NAME)}")
    rules: tuple[tuple[str, Sequence[Any], Callable[[Any, Target], str | None]], ...] = (
        ("level", target.levels, level_rule),
        ("rewrite", target.rewrites, _rewrite_rule),
        ("microkernel", target.kernels, _kernel_rule),
        ("metric", target.metrics, _metric_rule),
    )
    for kind, items, broken_rule in rules:
        for item in items:
            rule = broken_rule(item, target)
            if rule:
                label = label_of(kind, item)
                raise broken(origin(label), label, rule)


def _metric_rule(metric: object, target: Target) -> str | None:
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


def operation_rule(op: object) -> str | None:
    """Return the rule that an operation from a plugin breaks; None if it breaks none."""
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


def label_of(kind: str, item: Any) -> str:
    """Return the words for a contribution in messages and in `Target.origins`: kind and name."""
    return f"{kind} {getattr(item, 'keyword' if kind == 'rewrite' else 'name', item)}"


def rows_rule(rows: object) -> str | None:
    """Return what the rows of a table must be, if they are not."""
    if not isinstance(rows, tuple) or not rows or not all(isinstance(row, tuple) and row for row in rows):
        return "a list of rows, which are lists of integers"
    if not all(is_integer(value) for row in rows for value in row):
        return "rows of integers"
    if len({len(row) for row in rows}) > 1:
        return "rows with equally many integers"
    return None


def is_integer(value: object) -> bool:
    """Tell if a value is an integer and no truth value."""
    return isinstance(value, int) and not isinstance(value, bool)


def _integers(*values: object) -> bool:
    return all(isinstance(value, int) for value in values)


def _rewrite_rule(rewrite: object, target: Target) -> str | None:
    if not (isinstance(rewrite, type) and issubclass(rewrite, Rewrite)):
        return "a rewrite is a subclass of Rewrite"
    if not getattr(rewrite, "keyword", "").isidentifier():
        return "its keyword is an identifier"
    return None


def level_rule(level: object, target: Target) -> str | None:
    """Return the rule that a memory level of a target breaks; None if it breaks none."""
    if not isinstance(level, MemoryLevel):
        return "levels are morello.plugins.MemoryLevel"
    if not _integers(level.capacity, level.unit, level.hit_cost, level.miss_cost, level.alignment, *level.vectors):
        return "capacity, unit, hit and miss cost and alignment are integers, and so are vector sizes"
    if level.divisions is not None and not _integers(level.divisions):
        return "its divisions are an integer, or None for those of its kind"
    names = Counter(getattr(other, "name", "") for other in target.levels)
    if not level.name.isidentifier() or names[level.name] > 1:
        return "a level's name is an identifier that no other level has"
    if level.kind not in ("scalar", "vector", "cache", "memory"):
        return "its kind is scalar, vector, cache or memory"
    if level.unit < 1 or level.capacity < level.unit:
        return "its capacity holds at least one unit, and a unit at least one byte"
    if rule := grid_rule(level.grid):
        return rule
    if level.is_register and (level.hit_cost or level.miss_cost):
        return "registers have hit and miss cost 0: the cost model charges only cache lines"
    if min(level.hit_cost, level.miss_cost) < 0 or level.alignment < 1:
        return "its hit and miss cost are not negative and its alignment at least 1"
    if level.alignment & (level.alignment - 1) or level.alignment > MAX_ALIGNMENT:
        return f"its alignment is a power of two, at most {MAX_ALIGNMENT}: emitted code aligns no buffer to more"
    if (level.kind == "vector") != bool(level.vectors):
        return "vector levels, and no others, list vector sizes"
    if any(size < 1 or size & (size - 1) or size > level.unit for size in level.vectors):
        return "vector sizes are powers of two and fit into a register"
    unknown = [name for name in level.destinations if name not in names]
    if unknown:
        return f"its destination {unknown[0]} is no level of the target ({', '.join(names)})"
    return None


def _kernel_rule(kernel: object, target: Target) -> str | None:
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
        if len(kernel.operands) != len(op.operands(rank)):
            return f"{op} has {len(op.operands(rank))} operands, it lists {len(kernel.operands)}"
        if isinstance(kernel.shape, tuple) and op.rank not in (None, len(kernel.shape)):
            return f"{op} has {op.rank} dimensions, its shape lists {len(kernel.shape)}"
    names = {level.name for level in target.levels}
    jam = kernel.jam.registers if isinstance(kernel.jam, UnrollAndJam) else {}
    registers = [*kernel.registers.items(), *jam.items()]
    used = [name for pattern in kernel.operands for name in pattern.levels] + [name for name, _ in registers]
    unknown = [name for name in used if name not in names]
    if unknown:
        return f"it names the level {unknown[0]}, which is none of {', '.join(sorted(names))}"
    unknown = [name for pattern in kernel.operands for name in pattern.dtypes if name not in BY_NAME]
    if unknown:
        return f"unknown data type {unknown[0]!r}: there are {', '.join(BY_NAME)}"
    if any(pattern.layout not in ("any", "row_major", "col_major") for pattern in kernel.operands):
        return "an operand's layout is any, row_major or col_major"
    if any(field not in ("dtype", "layout", "vector", "lanes") for field in kernel.same):
        return "what is the same is dtype, layout, vector or lanes"
    if kernel.when is not None and not callable(kernel.when):
        return "`when` is a function"
    if any(not callable(count) and count < 0 for _, count in registers):
        return "register counts are not negative"
    if any(dim < 0 or any(size < 1 for size in sizes) for dim, sizes in kernel.tile_sizes.items()):
        return "tile_sizes are positive, by number of the dimension"
    printing = _printing_rule(kernel, operations)
    if printing:
        return printing
    if isinstance(kernel.cpu_features, str) or not all(isinstance(one, str) for one in kernel.cpu_features):
        return "its cpu_features are a tuple of names"
    return None


def _printing_rule(kernel: Microkernel, operations: Sequence[Operation]) -> str | None:
    if not callable(kernel.cost) or not (kernel.emit is None or callable(kernel.emit)):
        return "cost and emit are functions"
    if (kernel.template is None) == (kernel.emit is None):
        return "it has a template or an emit, either of which prints it, and not both"
    if not (kernel.template is None or isinstance(kernel.template, str) or callable(kernel.template)):
        return "its template is a line of C, or a function that returns one"
    if isinstance(kernel.template, str):
        for op in operations:
            rank = _rank(kernel, op)
            wrong = template.fault(kernel.template, [one.name for one in op.operands(rank)])
            if wrong:
                return wrong
    if kernel.jam is not None and not (
        isinstance(kernel.jam, UnrollAndJam) and kernel.jam.most > 1 and callable(kernel.jam.emit)
    ):
        return "its jam is a morello.plugins.UnrollAndJam of at least 2 calls, whose emit is a function"
    return None


def _rank(kernel: Microkernel, op: Operation) -> int:
    """Return the rank of an operation that a kernel implements; where both leave it open, 1."""
    return op.rank or (len(kernel.shape) if isinstance(kernel.shape, tuple) else 1)


def _is_size(size: object) -> bool:
    number = size.of if isinstance(size, Multiple) else size
    return size is None or (isinstance(number, int) and number > 0)
