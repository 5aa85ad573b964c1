"""Write docs/primitives.md: which operations have kernels for which data types, asked of the installed targets.

    python -m tools.primitives [--check] [PAGE]

PAGE is docs/primitives.md by default. `--check` writes nothing, and fails if the page is not up to date.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from morello.errors import MorelloError, SpecError
from morello.frontend.parser import parse_spec
from morello.ir.dtypes import ALL, BY_NAME, INDICES, DType
from morello.ir.layout import Layout, chwn, col_major, nhwc, row_major
from morello.ir.numbers import Num, product
from morello.ir.ops import BY_NAME as OPERATIONS
from morello.ir.ops import Operation
from morello.ir.ops.base import Value
from morello.ir.ops.scan import Arg, TopK
from morello.ir.ops.windows import Windows
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import OperandState, TensorSpec
from morello.kernels.microkernel import Microkernel
from morello.kernels.pattern import Multiple
from morello.kernels.target import Target
from morello.plugins.registry import installed
from morello.rewrites.base import rewrites_of
from morello.rewrites.fit import ExactFit
from morello.rewrites.move import MoveStep
from morello.rewrites.select import Select
from morello.rewrites.split import Split
from morello.rewrites.tile import Tile
from morello.testing.draws import made_for

TARGETS = ("x86_avx2", "x86_avx512", "x86_amx", "aarch64_neon", "riscv_rvv128", "riscv_rvv256")

NONE, SCALAR, FUSED, VECTOR = "–", "scalar", "fused", "vector"
#: From worst to best.
ORDER = (NONE, SCALAR, FUSED, VECTOR)
#: Rewrites that lead to no other operation and no other data types.
SAME = (Select, Tile, Split, ExactFit)
#: Operations with other parameters than the usual ones, which kernels or rewrites may ask about.
CONFIGURED: dict[str, tuple[dict[str, Value], ...]] = {
    "Matmul": ({"saturating": True},),
    "Conv": ({"padding": 1}, {"stride": 2}, {"dilation": 2}),
    "GroupedConv": ({"padding": 1},),
    "Pad": ({"mode": "edge"},),
    "MaxPool": ({"padding": 1},),
    "AvgPool": ({"padding": 1},),
    "Resize": ({"mode": "linear"},),
    "Gelu": ({"form": "tanh"},),
    "Add": ({"over": (0,)},),
}
#: Inputs' data types and the output's. Operations with one input take the rows with one type of input.
MIXED = ("bf16 → f32", "f32 → bf16", "f32 · bf16 → f32", "bf16 · f32 → f32", "u8 · i8 → i16", "u8 · i8 → i32")
MIXED += ("i8 · i8 → i32", "u8 · u8 → i32", "i16 · i16 → i32", "u32 · u32 → f32")
MIXED += ("u32 · u32 · f32 → f32", "f16 → f32", "f32 → f16", "f16 · f16 → f32", "f64 → f32", "f32 → f64")
MIXED += (*(f"{one} → bool" for one in ALL), *(f"bool · {one} · {one} → {one}" for one in ALL))
#: The types of graphs.
FLOATS = ("f32", "bf16", "f16", "f64")
GRAPHS = {
    "LayerNorm": "LayerNorm(2×2×8, {0}, {0}, {0}, {0}, serial)",
    "RMSNorm": "RMSNorm(2×2×8, {0}, {0}, {0}, serial)",
    "Matmul, Matmul": "Compose([Matmul, Matmul], [(1×8×8, {1}), (1×8×8, {1}), (1×8×8, {1}), (1×8×8, {1})])",
    "Matmul, bias, Gelu": "Compose([y = Gelu(c), c = Add[over=[0, 1]](h, b), h = Matmul(x, w)], "
    "[x: (1×8×8, {1}), w: (1×8×8, {1}), b: (1×1×8, {1}), y: (1×8×8, {1})])",
    "Matmul, Relu": "Compose([Relu, Matmul], [(1×8×8, {1}), (1×8×8, {1}), (1×8×8, {1})])",
    "Conv, Relu": "Compose([Relu, Conv], [(1×4×5×5, {1}), (8×4×3×3, {1}), (1×8×3×3, {1})])",
    "Matmul, Scale, Softmax, Matmul": "Compose([Matmul, Softmax, Scale[by=0.5], Matmul], "
    "[(1×8×8, {1}), (1×8×8, {1}), (1×8×8, {1}), (1×8×8, {1})])",
}


class Survey:
    """Find out how well one target does operations: an answer for each combination of data types."""

    def __init__(self, target: Target):
        self._target = target
        self._known: dict[tuple[Operation, tuple[DType, ...]], str] = {}
        self._rewrites = [one for one in rewrites_of(target) if one not in SAME]
        #: Where operands are when rewrites are asked.
        self._far = target.levels[-1].name

    def best(self, op: Operation, dtypes: tuple[DType, ...], shape: tuple[Num, ...]) -> str:
        """Return the best there is: a kernel, or a rewrite to operations that have some."""
        key = op, dtypes
        if key not in self._known:
            # Set before rewrites are asked, since some lead back to the operation itself.
            self._known[key] = self._by_kernels(op, dtypes, len(shape))
            if self._known[key] != VECTOR:
                self._known[key] = max(self._known[key], self._by_rewrites(op, dtypes, shape), key=ORDER.index)
        return self._known[key]

    def graph(self, text: str, dtype: str) -> str:
        """Return the best there is for a graph whose operands have a data type."""
        far = f"{dtype}, {self._far}"
        logical = parse_spec(text.format(f"({far})", far), self._target).logical
        return self.best(logical.op, tuple(state.dtype for state in logical.states), logical.shape)

    def _by_kernels(self, op: Operation, dtypes: tuple[DType, ...], rank: int) -> str:
        found = NONE
        for kernel in self._target.kernels:
            if kernel.implements(op) and found != VECTOR:
                found = max(found, self._by_kernel(kernel, op, dtypes, rank), key=ORDER.index)
        return found

    def _by_kernel(self, kernel: Microkernel, op: Operation, dtypes: tuple[DType, ...], rank: int) -> str:
        """Return `vector` for a kernel that takes four values at a time or more, as the smallest vectors do."""
        named = [one.dtypes for one in kernel.operands]
        mixed = "dtype" in kernel.same and len(set(dtypes)) > 1
        if mixed or any(names and dtype.name not in names for names, dtype in zip(named, dtypes, strict=True)):
            return NONE
        best = NONE
        for shape in shapes(kernel, op, rank):
            declared = op.operands(len(shape))
            sizes = [product(one.shape(shape)) for one in declared]
            if op.refusal(shape, dtypes) or (best == SCALAR and max(sizes) < 4):
                continue
            choices = [
                [
                    state
                    for state in self._states(one.shape(shape), dtype, pattern.layouts)
                    if pattern.accepts(state, len(one.dims))
                ]
                for one, pattern, dtype in zip(declared, kernel.operands, dtypes, strict=True)
            ]
            if any(kernel.accepts(LogicalSpec(op, shape, each)) for each in itertools.product(*choices)):
                if max(sizes) >= 4:
                    return VECTOR
                best = SCALAR
        return best

    @cache  # noqa: B019
    def _states(self, shape: tuple[int, ...], dtype: DType, layouts: tuple[Layout, ...] = ()) -> list[OperandState]:
        """Return contiguous operands in every level: by rows, by columns, as images, and in `layouts` of a kernel."""
        target = self._target
        states: dict[OperandState, None] = {}
        for level in target.operand_levels:
            vectors = target.vector_sizes(level, dtype) if level.kind == "vector" else (None,)
            images = (nhwc(4), chwn(4)) if len(shape) == 4 else ()
            orders = dict.fromkeys((row_major(len(shape)), col_major(len(shape)), *images, *layouts))
            for layout, vector in itertools.product(orders, vectors):
                if layout.applies(shape):
                    tensor = TensorSpec(shape, target.state(level.name, dtype, layout, vector=vector)).canonical()
                    if tensor.has_whole_vectors():
                        states[tensor.state] = None
        return [*states]

    def _by_rewrites(self, op: Operation, dtypes: tuple[DType, ...], shape: tuple[Num, ...]) -> str:
        target = self._target
        declared = op.operands(len(shape))
        states = tuple(
            target.state(self._far, dtype, row_major(len(one.dims)))
            for one, dtype in zip(declared, dtypes, strict=True)
        )
        best = NONE
        try:
            logical = LogicalSpec(op, shape, states).canonical()
        except SpecError:
            # A cast on the way led to types that the language lacks.
            return best
        for part in self._tiles(logical):
            for rewrite in self._rewrites:
                for step in rewrite.steps(part, target):
                    if best in (FUSED, VECTOR):
                        return best
                    if isinstance(step, MoveStep) and step.dtype is None:
                        continue
                    try:
                        parts = step.expansion(part, target).parts
                    except MorelloError:
                        continue
                    best = max(best, self._of_parts(op, [one.logical for one in parts]), key=ORDER.index)
        return best

    def _tiles(self, logical: LogicalSpec) -> Iterator[LogicalSpec]:
        """Yield the Spec, and what loops leave of it in the end: rewrites of convolutions ask for small tiles."""
        yield logical
        rank = len(logical.shape)
        sizes = tuple(int(dim not in logical.op.untiled(rank)) for dim in range(rank))
        try:
            yield Tile(sizes).expansion(logical, self._target).parts[0].logical
        except MorelloError:
            return

    def _of_parts(self, op: Operation, parts: Sequence[LogicalSpec]) -> str:
        """Return the rank of a step: accumulating into an output set before counts as the same operation."""
        worth = [self.best(part.op, tuple(state.dtype for state in part.states), part.shape) for part in parts]
        if NONE in worth:
            return NONE
        for part, own in zip(parts, worth, strict=True):
            if part.op == op.accumulating():
                return own
        return SCALAR if SCALAR in worth else FUSED


def shapes(kernel: Microkernel, op: Operation, rank: int) -> Iterator[tuple[int, ...]]:
    """Yield a few that the kernel's size rules allow: one value, and as many in a row or square as fill vectors."""
    if kernel.shape is not None:
        rules = kernel.size_rules(rank) or ()
        # Tiles that search tries, windows that lie in small images and vectors of few filters, and else whole vectors.
        window = usual(op)[-2 * op.axes :] if isinstance(op, Windows) else ()
        free = [(8, 16) if window else (64,)] * (rank - len(window)) + [(size,) for size in window]
        free = [(min(tried),) if (tried := kernel.offered_sizes.get(dim)) else one for dim, one in enumerate(free)]
        yield from itertools.product(
            *(
                [one] if isinstance(one, int) else [one.of] if isinstance(one, Multiple) else [1, *sizes]
                for one, sizes in zip(rules, free, strict=True)
            )
        )
    elif op.rank is None:
        yield from ((1,) * rank, (*(1,) * (rank - 1), 64))
        if rank > 1:
            yield from ((*(1,) * (rank - 2), size, size) for size in (8, 16))
    else:
        # Padding needs an image that is larger.
        least = usual(op) if any(one.shrink for one in op.operands(rank)) else (1,) * rank
        yield from ((*(8 if dim == wide else least[dim] for dim in range(rank)),) for wide in range(-1, rank))


def usual(op: Operation) -> tuple[int, ...]:
    """Return a shape for which rewrites are asked."""
    return {
        None: (4, 8),
        3: (1, 2, 8),
        4: (1, 2, 2, 8),
        5: (1, 2, 2, 4, 2),
        6: (1, 2, 4, 4, 2, 2),
        9: (1, 2, 2, 2, 4, 4, 1, 2, 2),
        7: (1, 2, 2, 4, 4, 2, 2),
        # Images with padding are narrower than outputs, and still fill vectors.
        8: (1, 2, 2, 2, 16, 16, 2, 2),
    }[op.rank]


def operations() -> list[Operation]:
    """Return Morello's own operations in the language's order, each followed by its parameters."""
    own = [made_for(op, usual(op)) for op in OPERATIONS.values()]
    accumulating = {op.accumulating() for op in own}
    found = []
    for op in own:
        if op not in accumulating:
            found += [op, *(op.configured(given) for given in CONFIGURED.get(op.name, ()))]
    return found


def kinds(op: Operation, mix: str) -> tuple[DType, ...] | None:
    """Return the operands' data types where inputs and output are as in `mix`; None if there are not as many inputs."""
    given, output = mix.split(" → ")
    inputs = given.split(" · ")
    declared = op.operands(len(usual(op)))
    read = sum(not one.writes for one in declared)
    if not read or len(inputs) not in (1, read):
        return None
    named = iter(itertools.cycle(inputs))
    return tuple(BY_NAME[output if one.writes else next(named)] for one in declared)


#: Data types of a Spec of an operation, by the words of a row.
Types = dict[str, tuple[DType, ...]]


def types_of(op: Operation) -> Types:
    """Return the data types that operands may have: all the same, and those in which inputs differ from the output."""
    found: Types = {str(one): (one,) * len(op.operands(len(usual(op)))) for one in ALL}
    if op.name == "Gather":
        found |= {f"{one} · {index} → {one}": (one, index, one) for one in ALL for index in INDICES}
    elif isinstance(op, TopK):
        found |= {f"{one} → {one} · {index}": (one, one, index) for one in ALL for index in INDICES if one != index}
    elif isinstance(op, Arg):
        found |= {f"{one} → {index}": (one, index) for one in ALL for index in INDICES if one != index}
    elif op.name == "Move":
        found |= {f"{one} → {other}": (one, other) for one, other in itertools.permutations(ALL, 2)}
    else:
        found |= {mix: dtypes for mix in MIXED if (dtypes := kinds(op, mix))}
    shape = usual(op)
    return {words: dtypes for words, dtypes in found.items() if not op.refusal(shape, dtypes)}


def grouped(name: str, answers: Mapping[str, tuple[str, ...]]) -> Iterator[list[str]]:
    """Yield the rows of an operation: one for all types with the same answers."""
    for found in dict.fromkeys(answers.values()):
        yield [name, ", ".join(words for words, own in answers.items() if own == found), *found]


def table(head: str, rows: Iterable[Sequence[str]]) -> list[str]:
    heads = [head, "data types", *TARGETS]
    return [f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *rows)] + [""]


def of_operation(surveys: Sequence[Survey], op: Operation) -> Iterator[list[str]]:
    best = {words: tuple(one.best(op, dtypes, usual(op)) for one in surveys) for words, dtypes in types_of(op).items()}
    return grouped(f"`{op}`", best)


def of_graph(surveys: Sequence[Survey], name: str, text: str) -> Iterator[list[str]]:
    return grouped(name, {dtype: tuple(one.graph(text, dtype) for one in surveys) for dtype in FLOATS})


INTRODUCTION = """\
# Primitives

The kernels and rewrites of each target, by operation and data type: that of all operands, or of inputs → output. This
page is written by `python -m tools.primitives`, from the patterns of the kernels and the steps of the rewrites.

| cell | means |
|---|---|
| vector | a kernel takes vector registers, or runs of four values and more in memory |
| fused | no kernel, but rewrites lead to operations that have one or are fused themselves |
| scalar | a kernel takes single values, or rewrites lead to one that does |
| – | not supported |

An operation's accumulating variant, such as `MatmulAccum`, is in its row: `to_accum` leads to it. See
[the language](language.md#operations) for their meaning.
"""


def page() -> str:
    surveys = [Survey(installed().target(name)) for name in TARGETS]
    return "\n".join(
        [
            INTRODUCTION,
            *table("operation", itertools.chain.from_iterable(of_operation(surveys, op) for op in operations())),
            "Graphs of operations, the one that runs first first:\n",
            *table("operations", itertools.chain.from_iterable(of_graph(surveys, *one) for one in GRAPHS.items())),
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if the page is not up to date")
    parser.add_argument("page", type=Path, nargs="?", default=Path("docs") / "primitives.md", metavar="PAGE")
    options = parser.parse_args()
    text = page()
    if not options.check:
        options.page.write_text(text, encoding="utf-8")
    elif not options.page.exists() or options.page.read_text(encoding="utf-8") != text:
        remedy = "python -m tools.primitives"
        print(f"{options.page} is not what the targets have: run {remedy}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
