"""Search for a small program of every cell of docs/primitives.md, and compare its kind with the cell.

    python -m tools.fuzz.cells [--target NAME]

Exit code 1 if anything differs. tests/search runs the same on every fifteenth cell.
"""

from __future__ import annotations

import argparse
import itertools
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs

from morello.frontend.parser import parse_spec
from morello.ir.impl import Impl, KernelCall, Node, walk
from morello.ir.numbers import product
from morello.ir.ops import by_name
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.plugins.registry import installed
from morello.search.session import SearchSession
from tools.primitives import NONE, TARGETS, VECTOR

PAGE = Path(__file__).parents[2] / "docs" / "primitives.md"
#: Sizes by the number of iteration dimensions that an operation has, None for any.
SHAPES = {
    None: "1×2",
    3: "1×1×2",
    4: "1×1×2×2",
    5: "1×1×2×1×1",
    6: "1×2×1×1×1×1",
    9: "1×1×2×1×1×1×1×1×1",
    7: "1×1×2×1×1×1×1",
    8: "1×1×1×2×1×1×1×1",
}
#: Outputs that are not only padding.
PADDED = {
    None: "3×3",
    5: "1×1×1×3×1",
    6: "1×1×3×3×2×2",
    9: "1×1×1×3×3×3×1×1×1",
    7: "1×1×1×3×3×1×1",
    8: "1×1×1×1×3×3×1×1",
}
#: Graphs by their rows on the page.
GRAPHS = {
    "LayerNorm": "LayerNorm(1×1, {0}, {0}, {0}, {0}, serial)",
    "RMSNorm": "RMSNorm(1×1, {0}, {0}, {0}, serial)",
    "Matmul, Matmul": "Compose([Matmul, Matmul], [(1×1×1, {1}), (1×1×2, {1}), (1×2×1, {1}), (1×1×1, {1})], serial)",
    "Matmul, bias, Gelu": "Compose([y = Gelu(c), c = Add[over=[0, 1]](h, b), h = Matmul(x, w)], "
    "[x: (1×1×2, {1}), w: (1×2×1, {1}), b: (1×1×1, {1}), y: (1×1×1, {1})], serial)",
    "Matmul, Relu": "Compose([Relu, Matmul], [(1×1×2, {1}), (1×2×2, {1}), (1×1×2, {1})], serial)",
    "Conv, Relu": "Compose([Relu, Conv], [(1×1×2×2, {1}), (1×1×2×2, {1}), (1×1×1×1, {1})], serial)",
    "Matmul, Scale, Softmax, Matmul": "Compose([Matmul, Softmax, Scale[by=0.5], Matmul], "
    "[(1×1×1, {1}), (1×1×2, {1}), (1×2×1, {1}), (1×1×1, {1})], serial)",
}


@attrs.frozen
class PageRow:
    """A row of a table of the page for one target: data types, and the word of their cell."""

    target: str
    name: str
    cells: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return f"{self.target}-{self.name}"


def rows() -> Iterator[PageRow]:
    """Yield the rows of the page, each target's for itself."""
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    for line in lines:
        name, *rest = (cell.strip() for cell in line.strip("|").split("|"))
        if len(rest) == 1 + len(TARGETS) and rest[0] not in ("data types", "---"):
            for target, cell in zip(TARGETS, rest[1:], strict=True):
                yield PageRow(target, name.strip("`"), tuple((types, cell) for types in rest[0].split(", ")))


def sample(every: int) -> Iterator[PageRow]:
    """Yield the rows with only each `every`-th cell, other ones for each target."""
    count = itertools.count()
    for row in rows():
        kept = tuple(cell for cell in row.cells if (next(count) + TARGETS.index(row.target)) % every == 0)
        if kept:
            yield attrs.evolve(row, cells=kept)


def text_of(row: PageRow, column: str, level: str) -> str:
    """Return the Spec of a cell, with all operands in one level."""
    if row.name in GRAPHS:
        return GRAPHS[row.name].format(f"({column}, {level})", f"{column}, {level}")
    op = by_name(row.name.split("[")[0])
    padded = "padding" in row.name or op.name == "Pad"
    # Parts are as long as the last dimension, and inputs together.
    part = re.search(r"\[of=(\d+)\]", row.name)
    sizes = re.search(r"sizes=\[(\d+), (\d+)\]", row.name)
    whole = part[1] if part else str(int(sizes[1]) + int(sizes[2])) if sizes else None
    shape = f"1×{whole}" if whole else (PADDED if padded else SHAPES)[op.rank]
    inputs, _, output = column.rpartition(" → ")
    named = itertools.cycle(inputs.split(" · ") if inputs else [output])
    made = itertools.cycle(output.split(" · "))
    dtypes = [next(made) if one.writes else next(named) for one in op.operands(shape.count("×") + 1)]
    return f"{row.name}({shape}, {', '.join(f'({dtype}, {level})' for dtype in dtypes)}, serial)"


def small(row: PageRow, column: str, target: Target) -> Spec:
    """Return the Spec of a cell, with little memory, which keeps search short."""
    registers, vectors, cache = target.operand_levels[:3]
    spec = parse_spec(text_of(row, column, cache.name), target)
    given = {registers: 8 * registers.unit, vectors: vectors.unit, cache: 4 * cache.unit}
    limits = [given.get(level, level.capacity * (level not in target.operand_levels)) for level in target.levels]
    return attrs.evolve(spec, limits=target.limits(limits))


def widest(impl: Impl, spec: Spec) -> int:
    """Return the largest operand, in values, of a program's calls of kernels for the Spec's own operation."""
    ops = spec.op, spec.op.accumulating()
    calls = [node for node in walk(impl) if isinstance(node, Node) and isinstance(node.expansion, KernelCall)]
    own = [one.spec for one in calls if one.spec.op in ops and types(one.spec) == types(spec)]
    return max((int(product(tensor.shape)) for one in own for tensor in one.operands), default=0)


def types(spec: Spec) -> list[str]:
    return [state.dtype.name for state in spec.logical.states]


def mistakes(row: PageRow) -> list[str]:
    """Return a line on each cell of a row that search contradicts."""
    target = installed().target(row.target)
    specs = [small(row, column, target) for column, _ in row.cells]
    wrong = []
    for (column, cell), spec, impl in zip(row.cells, specs, SearchSession(target).programs(specs), strict=True):
        if (impl is None) != (cell == NONE):
            wrong.append(f"{row}, {column}: the page says {cell}, search finds {'no' if impl is None else 'a'} program")
        # Where no kernel takes vectors, the program has smaller parts only.
        elif impl is not None and cell != VECTOR and widest(impl, spec) >= 2:
            wrong.append(f"{row}, {column}: the page says {cell}, but a kernel takes {widest(impl, spec)} values")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--target", choices=TARGETS, action="append", help="by default all, in turn")
    options = parser.parse_args()
    found = False
    for row in rows():
        if row.target in (options.target or TARGETS):
            wrong = mistakes(row)
            found = found or bool(wrong)
            print("\n".join(wrong) or f"{row}: {len(row.cells)} cells are right", flush=True)
    return int(found)


if __name__ == "__main__":
    sys.exit(main())
