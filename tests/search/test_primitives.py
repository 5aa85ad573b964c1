"""Search finds a program wherever docs/primitives.md says that there is one: for a small Spec of every cell."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from morello.frontend.parser import parse_spec
from morello.ir.impl import Impl, KernelCall, Node, walk
from morello.ir.numbers import product
from morello.ir.ops import by_name
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.plugins.registry import installed
from morello.search.session import SearchSession

PAGE = Path(__file__).parents[2] / "docs" / "primitives.md"
#: What cells can say besides nothing.
WORDS = ("vector", "fused", "scalar", "–")
#: CellIndices that say something: none may get lost on the way from the page to a Spec.
COUNT = 948
#: Sizes by the number of iteration dimensions that an operation has, None for any.
SHAPES = {None: "1×2", 3: "1×1×2", 4: "1×1×2×2", 7: "1×1×2×1×1×1×1", 8: "1×1×1×2×1×1×1×1"}
#: Outputs that padding leaves something of.
PADDED = {None: "3×3", 7: "1×1×1×3×3×1×1", 8: "1×1×1×1×3×3×1×1"}
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
class Row:
    """A row of a table of the page: its columns' heads and what its cells say."""

    target: str
    name: str
    cells: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return f"{self.target}-{self.name}"


def rows() -> Iterator[Row]:
    for section in PAGE.read_text(encoding="utf-8").split("\n## ")[1:]:
        target, *lines = section.splitlines()
        tables = [[*lines] for bar, lines in itertools.groupby(lines, lambda line: line.startswith("|")) if bar]
        for head, _, *body in tables:
            for line in body:
                name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
                heads = [cell.strip() for cell in head.strip("|").split("|")][1:]
                said = tuple((column, cell) for column, cell in zip(heads, cells, strict=True) if cell)
                yield Row(target, name.strip("`"), said)


ROWS = [*rows()]


def text_of(row: Row, column: str, level: str) -> str:
    """The Spec of a cell, with all operands in one level."""
    if row.name in GRAPHS:
        return GRAPHS[row.name].format(f"({column}, {level})", f"{column}, {level}")
    if row.name.startswith("from "):
        return f"Move(1×2, ({row.name[5:]}, {level}), ({column[3:]}, {level}), serial)"
    op = by_name(row.name.split("[")[0])
    padded = "padding" in row.name or op.name == "Pad"
    # Parts are as long as the last dimension.
    part = re.search(r"\[of=(\d+)\]", row.name)
    shape = f"1×{part[1]}" if part else (PADDED if padded else SHAPES)[op.rank]
    inputs, _, made = column.rpartition(" → ")
    named = itertools.cycle(inputs.split(" · ") if inputs else [made])
    dtypes = [made if one.writes else next(named) for one in op.operands(shape.count("×") + 1)]
    return f"{row.name}({shape}, {', '.join(f'({dtype}, {level})' for dtype in dtypes)}, serial)"


def small(row: Row, column: str, target: Target) -> Spec:
    """The Spec of a cell, with little memory, which keeps search short."""
    registers, vectors, cache = target.levels[:3]
    spec = parse_spec(text_of(row, column, cache.name), target)
    limits = (8 * registers.unit, vectors.unit, 4 * cache.unit, *(0 for _ in target.levels[3:]))
    return attrs.evolve(spec, limits=target.limits(limits))


def widest(impl: Impl, spec: Spec) -> int:
    """The most values of an operand that a kernel for the Spec's operation itself takes at once, in some program."""
    ops = spec.op, spec.op.accumulating()
    calls = [node for node in walk(impl) if isinstance(node, Node) and isinstance(node.expansion, KernelCall)]
    assert calls
    mine = [one.spec for one in calls if one.spec.op in ops and types(one.spec) == types(spec)]
    return max((int(product(tensor.shape)) for one in mine for tensor in one.operands), default=0)


def types(spec: Spec) -> list[str]:
    return [state.dtype.name for state in spec.logical.states]


def test_every_cell_of_the_page_is_searched_for() -> None:
    said = re.findall(rf"\|(?= (?:{'|'.join(WORDS)}) \|)", PAGE.read_text(encoding="utf-8").split("\n## ", 1)[1])
    cells = [cell for row in ROWS for _, cell in row.cells]
    assert len(cells) == len(said) == COUNT
    assert set(cells) <= set(WORDS)
    assert {row.target for row in ROWS} == {"x86_avx2", "x86_avx512"}


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_program_is_found_for_every_cell(row: Row) -> None:
    target = installed().target(row.target)
    specs = {column: small(row, column, target) for column, _ in row.cells}
    found = dict(zip(specs, SearchSession(target).programs([*specs.values()]), strict=True))
    for column, cell in row.cells:
        impl = found[column]
        assert (impl is None) == (cell == "–"), column
        if impl is not None and cell != "vector":
            # No kernel does it in one go: search had to take it apart.
            assert widest(impl, specs[column]) < 2, column
