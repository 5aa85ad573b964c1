"""Draw the README's picture, docs/images/matmul.svg, where the cost of a program goes; and docs/images/bounds.svg.

    python docs/figures.py [--measure]

Search finds the program of examples/matmul.spec; each node is as wide as its share of the whole cost, below its parent.
The other picture has the bytes that the two examples of docs/bounds.md move over the size of fast memory: at least, in
tiles, and in programs. They are in docs/images/bounds.json, which takes a minute of search: `--measure` updates it.
Tests draw both again.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

import attrs
from morello_bounds.certificate import memory_inside
from morello_bounds.nest import nest_of
from morello_bounds.tiles import best_tiling
from morello_bounds.traffic import program_traffic, traffic

import morello
from morello.api.goals import Goal
from morello.codegen.loops import until
from morello.frontend.parser import parse_spec
from morello.ir.spec import Spec
from morello.plugins.registry import installed
from morello.report.tree import Branch, program_tree

ROOT = Path(__file__).parents[1]
SPEC = ROOT / "examples" / "matmul.spec"
PICTURE = ROOT / "docs" / "images" / "matmul.svg"

WIDTH, ROW, MARGIN, HEAD = 880, 22, 10, 54
#: Pixels of a character, and of the margin of a text.
CHARACTER, SPARE = 6.3, 8
#: Fills by what a node is.
KERNEL, MOVE, OTHER = "#f4a259", "#a8cfe8", "#dfe3e8"
FONT = "font-family='ui-monospace, Menlo, Consolas, monospace' font-size='11'"


@attrs.frozen
class Box:
    """A node as it is drawn: its place, as fractions of the whole cost from the left, and its depth."""

    branch: Branch
    label: str
    left: float
    share: float
    depth: int


def boxes(branch: Branch, total: int, left: float = 0, depth: int = 0) -> Iterator[Box]:
    """Yield a program's nodes, loops right inside one another over one dimension as one."""
    last = branch
    while last.continued:
        (last,) = last.children
    label = branch.label + (until(branch.step, last.step) if last is not branch else "")
    yield Box(branch, label, left, branch.cost * branch.runs / total, depth)
    for child in last.children:
        yield from boxes(child, total, left, depth + 1)
        left += child.cost * child.runs / total


def fill(branch: Branch) -> str:
    """Return the colour of a node: kernels, moves, and what takes Specs apart."""
    return KERNEL if branch.kernel else MOVE if branch.step.startswith("move") else OTHER


def svg(goal: str, tree: Branch) -> str:
    """Return a program as a picture."""
    drawn = [*boxes(tree, tree.cost)]
    height = HEAD + ROW * (max(box.depth for box in drawn) + 1) + MARGIN
    inner = WIDTH - 2 * MARGIN
    lines = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' width='{WIDTH}' {FONT}>",
        f"<rect width='{WIDTH}' height='{height}' rx='6' fill='#fbfbf8'/>",
        f"<text x='{MARGIN}' y='20' fill='#222' font-size='13'>{escape(goal)}: cost {tree.cost:,}, "
        "the least of all programs</text>",
        f"<text x='{MARGIN}' y='40' fill='#555'>From the outside in; as wide as its share of the cost.</text>",
    ]
    for x, colour, word in ((500, OTHER, "steps, loops"), (625, MOVE, "moves"), (700, KERNEL, "microkernels")):
        lines.append(f"<rect x='{x}' y='31' width='11' height='11' fill='{colour}'/>")
        lines.append(f"<text x='{x + 17}' y='40' fill='#555'>{word}</text>")
    for box in drawn:
        x, y, width = MARGIN + box.left * inner, HEAD + box.depth * ROW, box.share * inner
        place = f"x='{x:.1f}' y='{y}' width='{width:.1f}' height='{ROW - 2}' rx='2'"
        title = f"{box.label}: {100 * box.share:.1f} % of the cost, {box.branch.runs:,} runs"
        lines.append(f"<rect {place} fill='{fill(box.branch)}'><title>{escape(title)}</title></rect>")
        text = f"{box.label} · {100 * box.share:.0f} %" if box.branch.kernel else box.label
        if len(text) * CHARACTER + SPARE <= width:
            lines.append(f"<text x='{x + 5:.1f}' y='{y + 14}' fill='#222'>{escape(text)}</text>")
    return "\n".join([*lines, "</svg>", ""])


def picture() -> str:
    """Search for the program of SPEC, and return its picture."""
    (goal,) = morello.parse(SPEC.read_text(encoding="utf-8")).values()
    tree = program_tree(goal.synthesize(db=False).impl, goal.target)
    shape = "×".join(map(str, goal.spec.logical.shape))
    return svg(f"{goal.spec.op}({shape}) on {goal.target.name}", tree)


BOUNDS, MEASURED = PICTURE.with_name("bounds.svg"), PICTURE.with_name("bounds.json")
EXAMPLES = {
    "a product of 2048×2048 matrices": "Matmul(1×2048×2048×2048, (f32, GL), (f32, GL), (f32, GL), serial)",
    "conv2_x of ResNet": "Conv[padding=1](1×64×64×56×56×3×3, (f32, GL), (f32, GL), (f32, GL), serial)",
}
#: Bytes that programs may hold of L1 and L2, and those of fast memory for which there are bounds and tiles.
LIMITS = ((4 << 10, 64 << 10), (8 << 10, 128 << 10), (16 << 10, 256 << 10), (32 << 10, 512 << 10))
MEMORIES = tuple(1 << at for at in range(11, 22))
#: Names of the curves, and their colours.
CURVES = {"bound": "#222222", "tiles": "#3a7ca5", "program": "#d1495b"}
PLANE, LEFT, TOP = (360, 250), 62, 58


def parsed(text: str) -> Spec:
    """Return an example's Spec, on the target as it is declared."""
    return parse_spec(text, installed().target("x86_avx2", "base"))


def measured(text: str) -> dict[str, list[list[int]]]:
    """Return memory and bytes moved for an example: bounds, tiles, and the programs that search finds."""
    nest = nest_of(parsed(text))
    curves: dict[str, list[list[int]]] = {
        "bound": [[memory, traffic(nest, memory).bytes] for memory in MEMORIES],
        "tiles": [[memory, tiling.bytes] for memory in MEMORIES if (tiling := best_tiling(nest, memory))],
        "program": [point for limits in LIMITS for point in programs(text, limits)],
    }
    return {name: sorted(points) for name, points in curves.items()}


def programs(text: str, limits: tuple[int, int]) -> Iterator[list[int]]:
    """Yield memory and bytes moved behind L1 and behind L2 by the program that search finds within these limits."""
    target, spec = installed().target("x86_avx2", "base"), parsed(text)
    given: dict[str, int] = dict(zip(("L1", "L2"), limits, strict=True))
    chosen = [given.get(one.name, one.capacity) for one in target.levels]
    spec = attrs.evolve(spec, limits=target.limits(chosen))
    impl = Goal.of(spec, target).synthesize(db=False, budget=morello.SearchBudget(expansions=200_000)).impl
    for level in (3, 4):
        yield [memory_inside(spec, target, level), program_traffic(impl, target, level)]


def bounds_picture(data: dict[str, dict[str, list[list[int]]]]) -> str:
    """Return the bytes of all examples over memory, both in powers of two, side by side."""
    height = TOP + PLANE[1] + 44
    lines = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' width='{WIDTH}' {FONT}>",
        f"<rect width='{WIDTH}' height='{height}' rx='6' fill='#fbfbf8'/>",
        f"<text x='{MARGIN}' y='20' fill='#222' font-size='13'>Bytes moved, over bytes of fast memory</text>",
    ]
    for number, (name, color) in enumerate(CURVES.items()):
        x = 560 + 100 * number
        lines.append(f"<rect x='{x}' y='10' width='11' height='11' fill='{color}'/>")
        lines.append(f"<text x='{x + 17}' y='20' fill='#555'>{name}</text>")
    for number, (title, curves) in enumerate(data.items()):
        lines += plane(title, curves, LEFT + number * (PLANE[0] + LEFT + 8))
    return "\n".join([*lines, "</svg>", ""])


def plane(title: str, curves: dict[str, list[list[int]]], left: int) -> Iterator[str]:
    """Yield one example's curves, with a line for each power of two that has a label."""
    points = [point for each in curves.values() for point in each]
    spans = [
        (math.floor(min(ends)), math.ceil(max(ends)))
        for ends in zip(*[[math.log2(value) for value in point] for point in points], strict=True)
    ]

    def place(point: Sequence[float]) -> tuple[float, float]:
        x, y = ((math.log2(one) - low) / (high - low) for one, (low, high) in zip(point, spans, strict=True))
        return left + x * PLANE[0], TOP + (1 - y) * PLANE[1]

    yield f"<text x='{left}' y='{TOP - 14}' fill='#222'>{escape(title)}</text>"
    for power in range(spans[0][0], spans[0][1] + 1, 2):
        x, y = place((2**power, 2 ** spans[1][0]))
        yield f"<line x1='{x:.1f}' y1='{TOP}' x2='{x:.1f}' y2='{y:.1f}' stroke='#e4e4e0'/>"
        yield f"<text x='{x:.1f}' y='{y + 18:.1f}' fill='#555' text-anchor='middle'>{power_of_two(power)}</text>"
    for power in range(spans[1][0], spans[1][1] + 1):
        x, y = place((2 ** spans[0][0], 2**power))
        yield f"<line x1='{x:.1f}' y1='{y:.1f}' x2='{x + PLANE[0]:.1f}' y2='{y:.1f}' stroke='#e4e4e0'/>"
        yield f"<text x='{x - 6:.1f}' y='{y + 4:.1f}' fill='#555' text-anchor='end'>{power_of_two(power)}</text>"
    for name, own in curves.items():
        placed = [place(point) for point in own]
        if name != "program":
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
            yield f"<polyline points='{path}' fill='none' stroke='{CURVES[name]}' stroke-width='1.5'/>"
        for (memory, amount), (x, y) in zip(own, placed, strict=True):
            title = f"{name}: {amount:,} bytes with {memory:,} of memory"
            radius = 4 if name == "program" else 2.5
            dot = f"<circle cx='{x:.1f}' cy='{y:.1f}' r='{radius}' fill='{CURVES[name]}'>"
            yield f"{dot}<title>{title}</title></circle>"


def power_of_two(power: int) -> str:
    """Return a number of bytes in words."""
    return f"{2 ** (power % 10)} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[power // 10]}"


def data() -> dict[str, Any]:
    """Return what was measured."""
    return json.loads(MEASURED.read_text(encoding="utf-8"))


if __name__ == "__main__":
    PICTURE.parent.mkdir(exist_ok=True)
    if "--measure" in sys.argv[1:]:
        found = {title: measured(text) for title, text in EXAMPLES.items()}
        MEASURED.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PICTURE.write_text(picture(), encoding="utf-8")
    BOUNDS.write_text(bounds_picture(data()), encoding="utf-8")
