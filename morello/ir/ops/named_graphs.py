"""Graphs that have a name, which the Spec language reads as a Compose or as a part of one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Protocol

import attrs

from morello.errors import SpecError
from morello.ir.ops.base import KnownShapes, Operand, Operation, Parameters, Value
from morello.ir.ops.binary import Add, Mul, Sub
from morello.ir.ops.causal import CausalMask
from morello.ir.ops.compose import Arranged, Compose, ComposeStage, arranged
from morello.ir.ops.functions import Function
from morello.ir.ops.matmul import Matmul
from morello.ir.ops.max import Max
from morello.ir.ops.pool import AvgPool
from morello.ir.ops.reduce import Mean, Sum
from morello.ir.ops.softmax import Softmax
from morello.ir.ops.unary import Exp, Rsqrt, Scale, Shift


class Make(Protocol):
    """Adds a stage, of as many dimensions as the graph or of `rank`; returns the entry of its output."""

    def __call__(self, op: Operation, *inputs: int, rank: int = ...) -> int: ...


def _number(value: Value) -> float | None:
    return float(value) if not isinstance(value, (bool, str, tuple)) and math.isfinite(value) else None


def _no_negative(value: Value) -> float | None:
    return found if (found := _number(value)) is not None and found >= 0 else None


def _truth(value: Value) -> bool | None:
    return value if isinstance(value, bool) else None


def _size(value: Value) -> int | None:
    return value if type(value) is int and value > 0 else None


def _dimensions(value: Value) -> tuple[int, ...] | None:
    found = value if isinstance(value, tuple) else (value,) if type(value) is int else ()
    return found if found and min(found) >= 0 and [*found] == sorted({*found}) else None


#: For each parameter, the function that returns its value, None for one it does not take; in words; an example.
_PARAMETERS: dict[str, tuple[Callable[[Value], float | tuple[int, ...] | None], str, str]] = {
    "eps": (_no_negative, "a number of at least 0", "eps=1e-5"),
    "scale": (_number, "a number", "scale=0.125"),
    **dict.fromkeys(("alpha", "beta", "k"), (_number, "a number", "alpha=1e-4, beta=0.75, k=1")),
    "size": (_size, "a number of channels", "size=5"),
    **dict.fromkeys(("mask", "causal"), (_truth, "true where it is written", "causal")),
    "window": (_size, "a number of keys", "window=256"),
    "over": (_dimensions, "the dimensions that a mask lacks, ascending", "over=[0]"),
    "dim": (_dimensions, "a dimension, from 0, or an ascending list of them", "dim=1"),
}


@attrs.frozen
class NamedGraph:
    """A graph of operations; `names` are those of its inputs and its `outputs`, in the order of the text.

    `build` makes its stages in the order in which they run, from the number of iteration dimensions, the entries of the
    inputs and the parameters' `values`; it returns the outputs besides that of the last stage. `dim_names` are the
    iteration dimensions if their number is fixed; otherwise it is at least `least`.
    """

    name: str
    names: tuple[str, ...]
    build: Callable[..., tuple[int, ...] | None] = attrs.field(eq=False)
    values: tuple[tuple[str, float | tuple[int, ...] | None], ...] = ()
    dim_names: tuple[str, ...] = ()
    least: int = 1
    outputs: int = 1

    @property
    def parameters(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.values)

    @property
    def rank(self) -> int | None:
        """Return the number of iteration dimensions; None for any number."""
        return len(self.dim_names) or None

    def stages(self, rank: int) -> tuple[list[ComposeStage], list[int]]:
        """Return the stages for `rank` dimensions, the one that runs last first, and those that make other outputs."""
        if rank < self.least:
            raise SpecError(f"{self.name} has at least {self.least} dimensions, not {rank}", "write 1 for the others")
        made: list[ComposeStage] = []

        def make(op: Operation, *inputs: int, rank: int = rank) -> int:
            made.append(ComposeStage(op.normal(rank), rank, inputs))
            return -len(made)

        others = self.build(make, rank, *range(len(self.names) - self.outputs), **dict(self.values)) or ()
        # Stages are numbered from the last one on.
        number = {entry: -len(made) - 1 - entry for entry in range(-len(made), 0)}
        stages = [
            attrs.evolve(one, inputs=tuple(number.get(entry, entry) for entry in one.inputs)) for one in reversed(made)
        ]
        return stages, [~number[entry] for entry in others]

    def arranged(self, rank: int) -> Arranged:
        """Return the Compose. External inputs are numbered like `names`."""
        return _arranged(self, rank)

    def operands(self, rank: int) -> tuple[Operand, ...]:
        """Return inputs and output in the order of `names`."""
        return _operands(self, rank)

    def shape(self, sizes: tuple[int, ...]) -> tuple[int, ...]:
        """Return the sizes of the Compose's iteration dimensions, from those that a Spec lists."""
        return sizes

    def configured(
        self, given: Parameters, shape: Sequence[int] | None = None, operands: KnownShapes = ()
    ) -> NamedGraph:
        """Return the graph with these parameters. Raises SpecError for other values than a parameter takes."""
        values = dict(self.values)
        for name, value in given.items():
            read, words, example = _PARAMETERS[name]
            if (found := read(value)) is None:
                raise SpecError(f"{self.name}: {name} is {words}, not {value!r}", f"for example {example}")
            values[name] = found
        return attrs.evolve(self, values=tuple(values.items()))


@cache
def _arranged(graph: NamedGraph, rank: int) -> Arranged:
    return arranged(*graph.stages(rank))


@cache
def _operands(graph: NamedGraph, rank: int) -> tuple[Operand, ...]:
    found = graph.arranged(rank)
    declared = dict(zip(found.operands, found.compose.operands(rank), strict=True))
    return tuple(attrs.evolve(declared[at], name=name) for at, name in enumerate(graph.names))


@attrs.frozen
class _Attention(NamedGraph):
    """Attention, whose scale is 1/√d by default.

    With `mask`, a further input is added to the scores, repeated along the dimensions `over`; with `causal`, positions
    of rows and columns mask them as CausalMask does.
    """

    def configured(
        self, given: Parameters, shape: Sequence[int] | None = None, operands: KnownShapes = ()
    ) -> NamedGraph:
        if "scale" not in given:
            q, k, *_ = (*operands, None, None)
            depth = shape[-1] if shape else q[-1] if q else k[-2] if k and len(k) > 1 else None
            if depth is None:
                raise SpecError(
                    f"{self.name}: scale is 1/√d, and no operand gives d, the length of a row of q",
                    "write it, for example scale=0.125",
                )
            given = {**given, "scale": 1 / math.sqrt(depth)}
        mask = operands[3] if given.get("mask") and len(operands) > 3 else None
        if "over" not in given and mask:
            q, v = operands[0] or (), operands[2] or ()
            scores = (*q[:2], *v[1:2]) if len(q) == len(v) == 3 else (0, 0, 0)
            over = (dim for dim, (own, size) in enumerate(zip(mask, scores, strict=False)) if own == 1 != size)
            given = {**given, **({"over": found} if (found := tuple(over)) else {})}
        made = super().configured(given, shape, operands)
        chosen = dict(made.values)
        if chosen["window"] and not chosen["causal"]:
            raise SpecError(f"{self.name}: a window of rows that are not causal", "write [causal, window=256]")
        if "over" in given and not chosen["mask"]:
            raise SpecError(f"{self.name}: over is for a mask, and there is none", "write [mask, over=[0]]")
        further = (*["mask"] * bool(chosen["mask"]), *["rows", "columns"] * bool(chosen["causal"]))
        return attrs.evolve(made, names=("q", "k", "v", *further, "out"))


@attrs.frozen
class _OfAll(NamedGraph):
    """One value of all those along `dim`, from x. The Compose has the dimensions of x, in another order."""

    def shape(self, sizes: tuple[int, ...]) -> tuple[int, ...]:
        dims = (terms[0][0] for terms in self.operands(len(sizes))[0].dims)
        return tuple(size for _, size in sorted(zip(dims, sizes, strict=True)))


def _attention(
    make: Make,
    _rank: int,
    q: int,
    k: int,
    v: int,
    *more: int,
    scale: float,
    mask: bool,
    over: tuple[int, ...],
    causal: bool,
    window: int,
) -> None:
    scores = make(Scale(by=scale), make(Matmul(), q, k, rank=4), rank=3)
    if mask:
        scores = make(Add(over=over), scores, more[0], rank=3)
    if causal:
        scores = make(CausalMask(window=window), scores, *more[-2:], rank=3)
    make(Matmul(), make(Softmax(), scores, rank=3), v, rank=4)


def _others(rank: int, *dims: int) -> tuple[int, ...]:
    return tuple(dim for dim in range(rank) if dim not in dims)


def _normalized(make: Make, x: int, along: tuple[int, ...], eps: float) -> int:
    """Return (x − mean) / √(variance + eps), of the values along some dimensions."""
    centred = make(Sub(over=along), x, make(Mean(dim=along), x))
    variance = make(Mean(dim=along), make(Mul(), centred, centred))
    return make(Mul(over=along), centred, make(Rsqrt(), make(Shift(by=eps), variance)))


def _scaled(make: Make, rank: int, x: int, gamma: int, beta: int, of: tuple[int, ...]) -> int:
    """Return x · gamma + beta; both have the dimensions `of`, and size 1 in the others."""
    over = _others(rank, *of)
    return make(Add(over=over), make(Mul(over=over), x, gamma), beta)


def _layer_norm(make: Make, rank: int, x: int, gamma: int, beta: int, eps: float) -> None:
    _scaled(make, rank, _normalized(make, x, (rank - 1,), eps), gamma, beta, (rank - 1,))


def _instance_norm(make: Make, rank: int, x: int, gamma: int, beta: int, eps: float) -> None:
    _scaled(make, rank, _normalized(make, x, _others(rank, 0, 1), eps), gamma, beta, (1,))


def _group_norm(make: Make, rank: int, x: int, gamma: int, beta: int, eps: float) -> None:
    _scaled(make, rank, _normalized(make, x, _others(rank, 0, 1), eps), gamma, beta, (1, 2))


def _rms_norm(make: Make, rank: int, x: int, gamma: int, eps: float) -> None:
    root = make(Rsqrt(), make(Shift(by=eps), make(Mean(), make(Mul(), x, x))))
    make(Mul(over=_others(rank, rank - 1)), make(Mul(over=(rank - 1,)), x, root), gamma)


def _l1_norm(make: Make, rank: int, x: int, dim: tuple[int, ...] | None) -> None:
    make(Sum(dim=dim), make(Function("Abs"), x))


def _l2_norm(make: Make, rank: int, x: int, dim: tuple[int, ...] | None) -> None:
    make(Function("Sqrt"), make(Sum(dim=dim), make(Mul(), x, x)))


def _l2_normalize(make: Make, rank: int, x: int, eps: float, dim: tuple[int, ...] | None) -> None:
    over = dim or (rank - 1,)
    make(Mul(over=over), x, make(Rsqrt(), make(Shift(by=eps), make(Sum(dim=dim), make(Mul(), x, x)))))


def _log_total(make: Make, rank: int, x: int, dim: tuple[int, ...] | None) -> tuple[int, int, int]:
    """Return max, x − max and log Σ e^(x − max)."""
    most = make(Max(dim=dim), x)
    below = make(Sub(over=dim or (rank - 1,)), x, most)
    return most, below, make(Function("Log"), make(Sum(dim=dim), make(Exp(), below)))


def _log_sum_exp(make: Make, rank: int, x: int, dim: tuple[int, ...] | None) -> None:
    most, _, log = _log_total(make, rank, x, dim)
    make(Add(), log, most)


def _log_softmax(make: Make, rank: int, x: int, dim: tuple[int, ...] | None) -> None:
    _, below, log = _log_total(make, rank, x, dim)
    make(Sub(over=dim or (rank - 1,)), below, log)


def _batch_norm(make: Make, rank: int, x: int, gamma: int, beta: int, mean: int, variance: int, eps: float) -> None:
    over = _others(rank, 1)
    factor = make(Mul(), make(Rsqrt(), make(Shift(by=eps), variance)), gamma)
    make(Add(over=over), make(Mul(over=over), make(Sub(over=over), x, mean), factor), beta)


def _local_response_norm(make: Make, _rank: int, x: int, size: int, alpha: float, beta: float, k: float) -> None:
    padding = (size // 2, 0, (size - 1) // 2, 0)
    means = make(AvgPool(padding=padding, count_include_pad=True), make(Mul(), x, x), rank=6)
    base = make(Shift(by=k), make(Scale(by=alpha), means))
    make(Mul(), x, make(Exp(), make(Scale(by=-beta), make(Function("Log"), base))))


def _rotary(make: Make, _rank: int, x0: int, x1: int, cos: int, sin: int) -> tuple[int, ...]:
    by = Mul(over=(0,))
    y0 = make(Sub(), make(by, x0, cos), make(by, x1, sin))
    make(Add(), make(by, x1, cos), make(by, x0, sin))
    return (y0,)


_EPS, _DIM = (("eps", 1e-5),), (("dim", None),)
_OF_ATTENTION = (("scale", 1.0), ("mask", False), ("over", ()), ("causal", False), ("window", 0))
_SCALED = ("x", "gamma", "beta", "out")
NAMED_GRAPHS: Mapping[str, NamedGraph] = {
    graph.name: graph
    for graph in (
        NamedGraph("LayerNorm", _SCALED, _layer_norm, _EPS),
        NamedGraph("RMSNorm", ("x", "gamma", "out"), _rms_norm, _EPS),
        NamedGraph("InstanceNorm", _SCALED, _instance_norm, _EPS, least=3),
        NamedGraph("GroupNorm", _SCALED, _group_norm, _EPS, least=3),
        NamedGraph("BatchNorm", ("x", "gamma", "beta", "mean", "variance", "out"), _batch_norm, _EPS, least=2),
        NamedGraph("L2Normalize", ("x", "out"), _l2_normalize, (("eps", 1e-12), *_DIM)),
        NamedGraph("Rotary", ("x0", "x1", "cos", "sin", "y0", "y1"), _rotary, (), (*"bmn",), outputs=2),
        NamedGraph("LogSoftmax", ("x", "out"), _log_softmax, _DIM),
        NamedGraph("L1Norm", ("x", "out"), _l1_norm, _DIM),
        _OfAll("L2Norm", ("x", "out"), _l2_norm, _DIM),
        _OfAll("LogSumExp", ("x", "out"), _log_sum_exp, _DIM),
        NamedGraph(
            "LocalResponseNorm",
            ("x", "out"),
            _local_response_norm,
            (("size", 5), ("alpha", 1e-4), ("beta", 0.75), ("k", 1.0)),
            (*"bgcp",),
        ),
        _Attention("Attention", ("q", "k", "v", "out"), _attention, _OF_ATTENTION, (*"bmned",)),
    )
}


def named_graph(name: str, rank: int, **values: Value) -> Compose:
    """Return the Compose of a named graph with these parameters, on `rank` iteration dimensions."""
    return NAMED_GRAPHS[name].configured(values).arranged(rank).compose


def expanded(
    parts: Sequence[Operation | NamedGraph],
    ranks: Sequence[int],
    wires: Sequence[Sequence[int]],
    outputs: Sequence[int] = (),
) -> tuple[list[ComposeStage], list[int]]:
    """Return the stages of a graph of operations and named graphs, and those with the outputs of the parts `outputs`.

    Entry e ≥ 0 of `wires` is external input e, ~j the output of part j; part 0 runs last.
    """
    if several := next((part.name for part in parts if isinstance(part, NamedGraph) and part.outputs > 1), None):
        raise SpecError(f"{several} has several outputs, so it is no operation of a Compose", "write its equations")
    groups = [
        part.stages(rank)[0] if isinstance(part, NamedGraph) else [ComposeStage(part, rank, tuple(range(len(wire))))]
        for part, rank, wire in zip(parts, ranks, wires, strict=True)
    ]
    starts = [sum(map(len, groups[:number])) for number in range(len(groups))]
    stages: list[ComposeStage] = []
    for group, start, wire in zip(groups, starts, wires, strict=True):
        entries = [entry if entry >= 0 else ~starts[~entry] for entry in wire]
        for stage in group:
            inputs = (entries[entry] if entry >= 0 else entry - start for entry in stage.inputs)
            stages.append(attrs.evolve(stage, inputs=tuple(inputs)))
    return stages, [starts[number] for number in outputs]
