"""Graphs that have a name, which the Spec language reads as a Compose or as a part of one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache

import attrs

from morello.errors import SpecError
from morello.ir.ops.base import Operand, Operation, Value
from morello.ir.ops.compose import Arranged, ComposeStage, arranged
from morello.ir.ops.matmul import Matmul
from morello.ir.ops.norms import layer_norm_stages, rms_norm_stages
from morello.ir.ops.softmax import Softmax
from morello.ir.ops.unary import Scale


def _number(value: Value) -> float | None:
    return float(value) if not isinstance(value, (bool, str, tuple)) and math.isfinite(value) else None


def _no_negative(value: Value) -> float | None:
    return found if (found := _number(value)) is not None and found >= 0 else None


#: For each parameter, the function that returns its value, None for one it does not take; in words; an example.
_PARAMETERS: dict[str, tuple[Callable[[Value], float | None], str, str]] = {
    "eps": (_no_negative, "a number of at least 0", "eps=1e-5"),
    "scale": (_number, "a number", "scale=0.125"),
}


@attrs.frozen
class NamedGraph:
    """A graph of operations; `names` are those of its inputs and its output, in the order of the text.

    `build` returns its stages for the number of iteration dimensions and the parameters' `values`; external inputs are
    numbered like the names. `dim_names` are the iteration dimensions of a graph with a fixed number of them.
    """

    name: str
    names: tuple[str, ...]
    build: Callable[..., list[ComposeStage]] = attrs.field(eq=False)
    values: tuple[tuple[str, float], ...] = ()
    dim_names: tuple[str, ...] = ()

    @property
    def parameters(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.values)

    @property
    def rank(self) -> int | None:
        """Return the number of iteration dimensions; None for any number."""
        return len(self.dim_names) or None

    def stages(self, rank: int) -> list[ComposeStage]:
        """Return the stages for this number of iteration dimensions, the one that runs last first."""
        return self.build(rank, **dict(self.values))

    def arranged(self, rank: int) -> Arranged:
        """Return the Compose. External inputs are numbered like `names`."""
        return arranged(self.stages(rank))

    def operands(self, rank: int) -> tuple[Operand, ...]:
        """Return inputs and output in the order of `names`."""
        return _operands(self, rank)

    def configured(
        self,
        given: Mapping[str, Value],
        shape: Sequence[int] | None = None,
        operands: Sequence[Sequence[int] | None] = (),
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
def _operands(graph: NamedGraph, rank: int) -> tuple[Operand, ...]:
    found = graph.arranged(rank)
    declared = found.compose.operands(rank)
    order = [*map(found.inputs.index, range(len(graph.names) - 1)), -1]
    return tuple(attrs.evolve(declared[at], name=name) for at, name in zip(order, graph.names, strict=True))


@attrs.frozen
class _Attention(NamedGraph):
    """Attention, whose scale is 1/√d by default."""

    def configured(
        self,
        given: Mapping[str, Value],
        shape: Sequence[int] | None = None,
        operands: Sequence[Sequence[int] | None] = (),
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
        return super().configured(given, shape, operands)


def _attention_stages(rank: int, scale: float) -> list[ComposeStage]:
    q, k, v = range(3)
    return [
        ComposeStage(Matmul(), 4, (~1, v)),
        ComposeStage(Softmax(), 3, (~2,)),
        ComposeStage(Scale(by=scale), 3, (~3,)),
        ComposeStage(Matmul(), 4, (q, k)),
    ]


NAMED_GRAPHS: Mapping[str, NamedGraph] = {
    graph.name: graph
    for graph in (
        NamedGraph("LayerNorm", ("x", "gamma", "beta", "out"), layer_norm_stages, (("eps", 1e-5),)),
        NamedGraph("RMSNorm", ("x", "gamma", "out"), rms_norm_stages, (("eps", 1e-5),)),
        _Attention("Attention", ("q", "k", "v", "out"), _attention_stages, (("scale", 1.0),), (*"bmned",)),
    )
}


def expanded(
    parts: Sequence[Operation | NamedGraph], ranks: Sequence[int], wires: Sequence[Sequence[int]]
) -> list[ComposeStage]:
    """Return the stages of a graph of operations and named graphs.

    Entry e ≥ 0 of `wires` is external input e, ~j the output of part j; part 0 runs last.
    """
    groups = [
        part.stages(rank) if isinstance(part, NamedGraph) else [ComposeStage(part, rank, tuple(range(len(wire))))]
        for part, rank, wire in zip(parts, ranks, wires, strict=True)
    ]
    starts = [sum(map(len, groups[:number])) for number in range(len(groups))]
    return [
        attrs.evolve(
            stage,
            inputs=tuple(_entry(wire[entry], starts) if entry >= 0 else entry - start for entry in stage.inputs),
        )
        for group, start, wire in zip(groups, starts, wires, strict=True)
        for stage in group
    ]


def _entry(entry: int, starts: Sequence[int]) -> int:
    return entry if entry >= 0 else ~starts[~entry]
