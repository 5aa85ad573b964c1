"""Text for memory, cost and the space of a search."""

from __future__ import annotations

from morello.ir.spec import LogicalSpec
from morello.kernels.target import Target
from morello.run.timing import duration


def memory(amounts: dict[str, int]) -> str:
    """Return bytes per level as text, without zeros."""
    return ", ".join(f"{level} {size(amount)}" for level, amount in amounts.items() if amount) or "–"


def size(amount: int) -> str:
    """Return the exact number of bytes, in the largest unit that divides it."""
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while amount and amount % 1024 == 0 and len(units) > 1:
        amount //= 1024
        units.pop(0)
    return f"{amount} {units[0]}"


def cost_words(cost: int, target: Target) -> str:
    """Return a cost with its time if the clock is known, else its cycles, else its unit."""
    seconds, info = target.unit_seconds, target.info
    if seconds is not None:
        return f"{cost:,} {info.cost_unit}: {duration(cost * seconds)} at {target.mhz:,} MHz"
    if info.units_per_cycle and info.units_per_cycle > 1:
        return f"{cost:,} {info.cost_unit}: {cost // info.units_per_cycle:,} cycles"
    return f"{cost:,} {info.cost_unit}".rstrip()


def space_words(logical: LogicalSpec, target: Target) -> str:
    """Return the tiles that search makes of a Spec besides near-equal ones, and the number of layouts it tries."""
    asked = sorted(target.tile_sizes(logical.op).items())
    tiles = [f"{', '.join(map(str, sorted(sizes)))} along {logical.dims[dim]}" for dim, sizes in asked]
    sizes = [(one.state.dtype, [int(size) for size in one.shape]) for one in logical.operands]
    if target.allowed.all_layouts:
        most = max(len(target.every_layout(*one)) for one in sizes)
    else:
        most = max(len(target.layouts(dtype, len(extents))) for dtype, extents in sizes)
    return f"tiles of powers of two{''.join(f'; of {one}' for one in tiles)}; up to {most} layouts of a tensor"
