"""Drawings for the page of a program, as SVG: rooflines, and the order of a tensor's values in memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise
from math import ceil, floor, log10, prod

from morello.ir.tensor import TensorSpec
from morello.report.rooflines import Roofline

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 640, 300, 52, 40
#: Values along a dimension that are drawn, without strips.
_MOST = 8


def roofline_svg(roof: Roofline) -> str:
    """Return a roofline: the bandwidth of each level up to the fastest kernel, and points with their numbers."""
    peak = max(roof.points, key=lambda one: (one.is_kernel, one.rate))
    xs = [one.intensity for one in roof.points] + [peak.rate / slope for slope in roof.slopes.values()]
    rates = [one.rate for one in roof.points]
    low, high = floor(log10(min(xs) / 2)), ceil(log10(max(xs) * 2))
    bottom, top = floor(log10(min(rates) * roof.scale / 5)), ceil(log10(max(rates) * roof.scale * 1.2))

    def x(intensity: float) -> float:
        return _LEFT + (log10(intensity) - low) / (high - low) * (_WIDTH - _LEFT - 20)

    def y(rate: float) -> float:
        return 8 + (top - log10(rate)) / (top - bottom) * (_HEIGHT - _BOTTOM - 8)

    left, right, floor_, ceiling = x(10**low), x(10**high), y(10**bottom), y(peak.rate * roof.scale)
    parts = [
        f'<path class="grid" d="M{x(10**at):.0f} 8V{floor_:.0f}"/>'
        f'<text x="{x(10**at):.0f}" y="{floor_ + 15:.0f}" text-anchor="middle">{10.0**at:g}</text>'
        for at in range(low, high + 1)
    ]
    parts += [
        f'<path class="grid" d="M{left:.0f} {y(10**at):.0f}H{right:.0f}"/>'
        f'<text x="{left - 6:.0f}" y="{y(10**at) + 4:.0f}" text-anchor="end">{10.0**at:g}</text>'
        for at in range(bottom, top + 1)
    ]
    for number, (level, slope) in enumerate(roof.slopes.items(), 1):
        start, knee = max(10**low, 10**bottom / slope / roof.scale), peak.rate / slope
        (x1, y1), (x2, y2) = (x(start), y(start * slope * roof.scale)), (x(knee), ceiling)
        parts.append(f'<path class="roof" d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}H{right:.0f}"/>')
        # Labels of neighbouring lines are at different heights.
        part = number / (len(roof.slopes) + 1)
        at = f'x="{x1 + part * (x2 - x1) + 6:.1f}" y="{y1 + part * (y2 - y1) + 8:.1f}"'
        parts.append(f'<text class="level" {at}>{escape(level)}</text>')
    near = defaultdict[tuple[int, int], list[int]](list)
    for number, one in enumerate(roof.points, 1):
        cx, cy = x(one.intensity), y(one.rate * roof.scale)
        near[round(cx / 12), round(cy / 12)].append(number)
        square = f'<path class="point" d="M{cx - 5:.1f} {cy - 5:.1f}h10v10h-10z"/>'
        parts.append(f'<circle class="point" cx="{cx:.1f}" cy="{cy:.1f}" r="5"/>' if one.is_kernel else square)
    for (column, row), numbers in near.items():
        listed = ", ".join(map(str, numbers))
        parts.append(f'<text x="{12 * column}" y="{12 * row + 20}" text-anchor="middle">{listed}</text>')
    words = f'<text x="{(left + right) / 2:.0f}" y="{_HEIGHT - 6}" text-anchor="middle">FLOP per byte</text>'
    unit = (
        f'<text transform="translate(12 {_HEIGHT / 2:.0f}) rotate(-90)" text-anchor="middle">{escape(roof.unit)}</text>'
    )
    return _svg(_WIDTH, _HEIGHT, "Roofline; the table below lists its points", [*parts, words, unit])


def order_in_memory(tensor: TensorSpec, dims: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield the physical dimensions of a tensor, slowest first: name, extent, and distance of neighbours."""
    state, layout = tensor.state, tensor.state.layout
    if layout is None:
        return
    shape = [int(size) for size in tensor.shape]
    outside = len(layout.dims) - state.contig
    distances = zip(layout.dims, layout.physical_shape(shape), layout.strides(shape), strict=True)
    for number, (physical, size, stride) in enumerate(distances):
        strip = "" if physical.size is None else ", even values first" if physical.odd_even else ", within a strip"
        distance = "a parameter" if number < outside else f"{stride * state.dtype.bytes} B"
        yield f"{dims[physical.dim]}{strip}", str(size), distance


def layout_svg(tensor: TensorSpec, dims: Sequence[str]) -> str:
    """Return a drawing of the first values along the two fastest dimensions; a line joins them in memory order."""
    layout, shape = tensor.state.layout, [int(size) for size in tensor.shape]
    if layout is None or not layout.dims:
        return ""
    strips = [prod(one.size or 1 for one in layout.dims if one.dim == dim) for dim in range(len(shape))]
    fastest = dict.fromkeys(one.dim for one in reversed(layout.dims) if shape[one.dim] > 1)
    across, *down = sorted([*fastest][:2], reverse=True) or [len(shape) - 1]
    shown = [
        min(size, 2 * strip if strip > 1 else _MOST if dim in (across, *down) else 1)
        for dim, (size, strip) in enumerate(zip(shape, strips, strict=True))
    ]
    columns, rows = shown[across], shown[down[0]] if down else 1
    cell, tall, left, top = min(24.0, 256 / columns), 18, 34 if down else 8, 26

    def place(point: Sequence[int]) -> tuple[float, float]:
        return left + cell * (point[across] + 0.5), top + tall * ((point[down[0]] if down else 0) + 0.5)

    points = [layout.point(offset, shown) for offset in range(prod(shown))]
    path = [place(one) for one in points if not any(at for dim, at in enumerate(one) if dim not in (across, *down))]
    steps = defaultdict[bool, list[str]](list)
    for (x, y), (x2, y2) in pairwise(path):
        near = (y2 == y and abs(x2 - x) < 1.5 * cell) or (x2 == x and abs(y2 - y) < 1.5 * tall)
        steps[near].append(f"M{x:.1f} {y:.0f}L{x2:.1f} {y2:.0f}")
    right, bottom = left + cell * columns, top + tall * rows
    across_strip, down_strip = strips[across], strips[down[0]] if down else 1
    lines = [(f"M{left + cell * at:.1f} {top}V{bottom}", at, across_strip) for at in range(columns + 1)]
    lines += [(f"M{left} {top + tall * at}H{right:.1f}", at, down_strip) for at in range(rows + 1)]
    edges = "".join(line for line, at, strip in lines if strip > 1 and at % strip == 0)

    def extent(dim: int) -> str:
        return f"{dims[dim]}: {'' if shown[dim] == shape[dim] else f'{shown[dim]} of '}{shape[dim]}"

    parts = [
        f'<path class="grid" d="{"".join(line for line, *_ in lines)}"/><path class="strip" d="{edges}"/>',
        f'<path class="jump" d="{"".join(steps[False])}"/><path class="order" d="{"".join(steps[True])}"/>',
        f'<circle cx="{path[0][0]:.1f}" cy="{path[0][1]:.0f}" r="4"/>',
        f'<text x="{left}" y="16">{escape(extent(across))} →</text>',
    ]
    if down:
        middle = (top + bottom) / 2
        words = f"← {extent(down[0])}"
        parts.append(
            f'<text transform="translate(18 {middle}) rotate(-90)" text-anchor="middle">{escape(words)}</text>'
        )
    return _svg(right + 8, max(bottom + 8, 90 if down else 0), "Order in memory; the table below lists it", parts)


def _svg(width: float, height: float, label: str, parts: Sequence[str]) -> str:
    box = f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}"'
    return f'<svg {box} role="img" aria-label="{escape(label)}">{"".join(parts)}</svg>'
