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
    parts = [_text((left + right) / 2, _HEIGHT - 6, "FLOP per byte"), _text(12, _HEIGHT / 2, roof.unit, turned=True)]
    for at in range(low, high + 1):
        parts += [_path("grid", f"M{x(10**at):.0f} 8V{floor_:.0f}"), _text(x(10**at), floor_ + 15, f"{10.0**at:g}")]
    for at in range(bottom, top + 1):
        parts += [_path("grid", f"M{left:.0f} {y(10**at):.0f}H{right:.0f}")]
        parts += [_text(left - 6, y(10**at) + 4, f"{10.0**at:g}", "end")]
    for number, (level, slope) in enumerate(roof.slopes.items(), 1):
        start, knee = max(10**low, 10**bottom / slope / roof.scale), peak.rate / slope
        (x1, y1), (x2, y2) = (x(start), y(start * slope * roof.scale)), (x(knee), ceiling)
        # Labels of neighbouring lines are at different heights.
        part = number / (len(roof.slopes) + 1)
        parts += [_path("roof", f"M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}H{right:.0f}")]
        parts += [_text(x1 + part * (x2 - x1) + 6, y1 + part * (y2 - y1) + 8, level, "start")]
    near = defaultdict[tuple[int, int], list[str]](list)
    for number, one in enumerate(roof.points, 1):
        cx, cy = x(one.intensity), y(one.rate * roof.scale)
        near[round(cx / 12), round(cy / 12)].append(str(number))
        circle = f'<circle class="point" cx="{cx:.1f}" cy="{cy:.1f}" r="5"/>'
        parts += [circle if one.is_kernel else _path("point", f"M{cx - 5:.1f} {cy - 5:.1f}h10v10h-10z")]
    parts += [_text(12 * column, 12 * row + 20, ", ".join(numbers)) for (column, row), numbers in near.items()]
    return _svg(_WIDTH, _HEIGHT, "Roofline; the table below lists its points", parts)


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
        _path("grid", "".join(line for line, *_ in lines)),
        _path("strip", edges),
        _path("jump", "".join(steps[False])),
        _path("order", "".join(steps[True])),
        f'<circle cx="{path[0][0]:.1f}" cy="{path[0][1]:.0f}" r="4"/>',
        _text(left, 16, f"{extent(across)} →", "start"),
    ]
    if down:
        parts.append(_text(18, (top + bottom) / 2, f"← {extent(down[0])}", turned=True))
    return _svg(right + 8, max(bottom + 8, 90 if down else 0), "Order in memory; the table below lists it", parts)


def _path(kind: str, steps: str) -> str:
    return f'<path class="{kind}" d="{steps}"/>'


def _text(x: float, y: float, words: str, anchor: str = "middle", turned: bool = False) -> str:
    at = f'transform="translate({x:.0f} {y:.0f}) rotate(-90)"' if turned else f'x="{x:.0f}" y="{y:.0f}"'
    return f'<text {at} text-anchor="{anchor}">{escape(words)}</text>'


def _svg(width: float, height: float, label: str, parts: Sequence[str]) -> str:
    box = f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}"'
    return f'<svg {box} role="img" aria-label="{escape(label)}">{"".join(parts)}</svg>'
