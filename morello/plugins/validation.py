"""Rules that what plugins hand in must obey; a violation names the plugin, the object and the rule."""

from __future__ import annotations

from collections import Counter

from morello.errors import PluginError
from morello.plugins.microkernel import Microkernel
from morello.plugins.target import MemoryLevel, Target, Weights
from morello.rewrites.base import Rewrite


def check_target(target: Target, owner: str) -> None:
    """Check a target as assembled from all plugins. Raises PluginError for the first broken rule."""

    def broken(plugin: str, thing: str, rule: str) -> PluginError:
        return PluginError(f"plugin {plugin!r}, {thing} of target {target.name}: {rule}")

    def origin(kind: str, name: str) -> str:
        return target.origins.get(f"{kind} {name}", owner)

    if not target.name.isidentifier():
        raise broken(owner, f"name {target.name!r}", "a target's name is an identifier")
    if not target.levels:
        raise broken(owner, "memory levels", "a target has at least one (hook morello_levels)")
    if target.emitter is None:
        raise broken(owner, "emitter", "a target has one (hook morello_emitter)")
    if not hasattr(target.emitter, "emit"):
        raise broken(owner, f"emitter {target.emitter!r}", "an emitter has a method emit(impl, target, name)")
    if not isinstance(target.weights, Weights):
        raise broken(owner, f"weights {target.weights!r}", "weights are a morello.plugins.Weights")
    if target.weights.threads < 1 or target.weights.sync < 0:
        raise broken(owner, "weights", "threads are at least 1 and sync is not negative")
    for level in target.levels:
        rule = _level_rule(level, target)
        if rule:
            raise broken(origin("level", getattr(level, "name", str(level))), f"level {level}", rule)
    for rewrite in target.rewrites:
        if not (isinstance(rewrite, type) and issubclass(rewrite, Rewrite)):
            raise broken(origin("rewrite", str(rewrite)), f"rewrite {rewrite!r}", "a rewrite is a subclass of Rewrite")
        if not getattr(rewrite, "keyword", "").isidentifier():
            raise broken(origin("rewrite", rewrite.keyword), f"rewrite {rewrite!r}", "its keyword is an identifier")
    for kernel in target.kernels:
        rule = _kernel_rule(kernel, target)
        if rule:
            name = getattr(kernel, "name", str(kernel))
            raise broken(origin("microkernel", name), f"microkernel {name}", rule)


def _level_rule(level: object, target: Target) -> str | None:
    if not isinstance(level, MemoryLevel):
        return "levels are morello.plugins.MemoryLevel"
    names = Counter(other.name for other in target.levels)
    if not level.name.isidentifier() or names[level.name] > 1:
        return "a level's name is an identifier that no other level has"
    if level.kind not in ("scalar", "vector", "cache", "memory"):
        return "its kind is scalar, vector, cache or memory"
    if level.unit < 1 or level.capacity < level.unit:
        return "its capacity holds at least one unit, and a unit at least one byte"
    if level.is_register:
        if level.capacity % level.unit:
            return "a register file holds whole registers: its capacity is a multiple of its unit"
        if level.hit_cost:
            return "registers have hit cost 0: the cost model charges only cache lines"
    elif level.capacity & (level.capacity - 1) or level.unit & (level.unit - 1):
        return "capacity and line size of caches and memories are powers of two"
    if level.hit_cost < 0 or level.alignment < 1:
        return "its hit cost is not negative and its alignment at least 1"
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
    rank = kernel.op.rank if kernel.op.rank is not None else len(kernel.shape or (0,))
    if len(kernel.operands) != len(kernel.op.operands(rank)):
        return f"{kernel.op} has {len(kernel.op.operands(rank))} operands, it lists {len(kernel.operands)}"
    if kernel.op.rank is not None and kernel.shape is not None and len(kernel.shape) != kernel.op.rank:
        return f"{kernel.op} has {kernel.op.rank} dimensions, its shape lists {len(kernel.shape)}"
    names = {level.name for level in target.levels}
    used = [name for pattern in kernel.operands for name in pattern.levels] + list(kernel.registers)
    unknown = [name for name in used if name not in names]
    if unknown:
        return f"it names the level {unknown[0]}, which is none of {', '.join(sorted(names))}"
    if not callable(kernel.cost) or not callable(kernel.emit):
        return "cost and emit are functions"
    if any(count < 0 for count in kernel.registers.values()):
        return "register counts are not negative"
    return None
