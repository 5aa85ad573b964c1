"""Draw the README's picture, docs/images/matmul.svg: where the cost of a program goes.

    python docs/figures.py

Search finds the program of examples/matmul.spec; each node is as wide as its share of the whole cost, below its parent.
A test draws it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path

import attrs

import morello
from morello.codegen.loops import until
from morello.report.tree import Branch, program_tree

ROOT = Path(__file__).parents[1]
SPEC = ROOT / "examples" / "matmul.spec"
PICTURE = ROOT / "docs" / "images" / "matmul.svg"

WIDTH, ROW, MARGIN, HEAD = 880, 22, 10, 54
#: Pixels that a character takes, and those left free beside a text.
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
        told = f"{box.label}: {100 * box.share:.1f} % of the cost, {box.branch.runs:,} runs"
        lines.append(f"<rect {place} fill='{fill(box.branch)}'><title>{escape(told)}</title></rect>")
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


if __name__ == "__main__":
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(picture(), encoding="utf-8")
