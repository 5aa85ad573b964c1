"""Bases of pipeline rewrites: whole Specs run one after another and hand new tensors on ([Kaufman2025] §2.4.4).

Each part uses the node's operands or new tensors whole, perhaps under other dimensions. The node costs what moving its
new tensors costs, and holds each from the first to the last part that uses it. Only the data types of the operands'
states matter; where new tensors live affects only their own states. Search on blocks relies on all of this.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar, Generic, Self, TypeAlias, TypeVar, cast

import attrs

from morello.ir.dtypes import F32, DType
from morello.ir.impl import Expansion, Part, Pipeline, Sequential
from morello.ir.layout import Layout
from morello.ir.numbers import CellIndices, Num, take
from morello.ir.ops.base import Operation
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import DimMap, OperandState, TensorSpec
from morello.kernels.machine import Machine
from morello.kernels.target import Target
from morello.rewrites.base import (
    Rewrite,
    RewriteCase,
    Vector,
    Word,
    argument,
    layout_name,
    masked,
    require,
    select_cells,
    skipping,
    within,
    wrong_operation,
)
from morello.rewrites.move import MoveStep

OpT = TypeVar("OpT", bound=Operation)
#: Where a new tensor lives: level, layout, and vector size in vector levels.
TensorPlace: TypeAlias = tuple[str, Layout | str, int | None]


@attrs.frozen
class NewTensor:
    """A new tensor of a step; its state follows from where the step puts new tensors."""

    name: str
    shape: tuple[Num, ...]
    dtype: DType


@attrs.frozen
class Stage:
    """One part of a pipeline: an operation and its operands; `args` and `dim_maps` as in `Part`."""

    op: Operation
    shape: tuple[Num, ...]
    args: tuple[int, ...]
    dim_maps: tuple[DimMap, ...] | None = None


@attrs.frozen
class PipelinePlan:
    """A pipeline on some cells of a batch (None: all, or a single Spec): its parts and new tensors.

    `free` tensors are those of callers: they cost nothing and take no memory.
    """

    stages: Sequence[Stage]
    tensors: Sequence[NewTensor] = ()
    cells: CellIndices = None
    free: bool = False

    def held(self, operands: int) -> list[tuple[int, ...]]:
        """Return, for each part, the new tensors that it holds memory for."""
        return [() for _ in self.stages] if self.free else lifetimes([one.args for one in self.stages], operands)


@attrs.frozen(cache_hash=True)
class PipelineRewrite(Rewrite, Generic[OpT]):
    """A rewrite of Specs to pipelines without new tensors. Subclasses define its operations and its `pipelines`."""

    #: The operation that the rewrite is for.
    takes: ClassVar[type[Operation]] = Operation
    #: The same for messages, where it is not just the name of the class.
    subject: ClassVar[str] = ""

    @classmethod
    def accepts(cls, logical: LogicalSpec) -> bool:
        """Return True if the rewrite is for Specs with these labels."""
        return isinstance(logical.op, cls.takes)

    @classmethod
    def steps(cls, logical: LogicalSpec, target: Target) -> Iterator[Self]:
        if cls.accepts(logical):
            yield cls()

    @abstractmethod
    def pipelines(self, op: OpT, logical: LogicalSpec, target: Machine) -> Iterator[PipelinePlan]:
        """Yield the pipeline for an accepted Spec, or those for a batch. Raises Inapplicable if none exists."""

    def plans(self, logical: LogicalSpec, target: Machine) -> Iterator[PipelinePlan]:
        """Yield the pipeline for a Spec, or those for a batch. Raises Inapplicable if none exists."""
        if not self.accepts(logical):
            raise wrong_operation(self, self.subject or self.takes.__name__, logical.op)
        yield from self.pipelines(cast(OpT, logical.op), logical, target)

    def without_buffers(self) -> Self:
        """Return the step without the place of new tensors, on which plans do not depend."""
        return self

    def new_states(
        self, tensors: Sequence[NewTensor], target: Machine
    ) -> Iterator[tuple[tuple[OperandState, ...], CellIndices]]:
        """Yield the states of all new tensors, for each group of cells of a plan that share them.

        A batch leaves out groups for which the place is unsuitable. Raises Inapplicable if it suits none.
        """
        assert not tensors, "new tensors have a place"
        yield (), None

    def cases(self, logical: LogicalSpec, target: Machine) -> Iterator[RewriteCase]:
        for plan in self.plans(logical, target):
            with skipping(plan.cells):
                yield from self._cases(plan, logical, target)

    def _cases(self, plan: PipelinePlan, logical: LogicalSpec, target: Machine) -> Iterator[RewriteCase]:
        for states, inner in self.new_states(plan.tensors, target):
            cells = within(plan.cells, inner)
            fresh = [
                TensorSpec(tuple(take(size, inner) for size in one.shape), state)
                for one, state in zip(plan.tensors, states, strict=True)
            ]
            stages = [attrs.evolve(one, shape=tuple(take(size, inner) for size in one.shape)) for one in plan.stages]
            own = attrs.evolve(plan, stages=stages)
            yield RewriteCase(cells, _pipeline(self, select_cells(logical, cells), fresh, own, target))


@attrs.frozen(cache_hash=True)
class BufferedPipelineRewrite(PipelineRewrite[OpT], Generic[OpT]):
    """A pipeline rewrite whose new tensors all go to one level: `NAME to L1 as row_major v8`."""

    level: str = argument(Word, keyword="to")
    layout: Layout | str = argument(Layout, Word, keyword="as", default="row_major")
    vector: int | None = argument(Vector, default=None)

    @classmethod
    def places(cls, logical: LogicalSpec, target: Machine) -> Iterator[TensorPlace]:
        """Yield the places that search tries for the new tensors of an accepted Spec."""
        return row_major_places(target, F32, len(logical.shape))

    @classmethod
    def steps(cls, logical: LogicalSpec, target: Target) -> Iterator[Self]:
        if cls.accepts(logical):
            yield from (cls(*place) for place in cls.places(logical, target))

    def without_buffers(self) -> Self:
        return attrs.evolve(self, level="", layout="row_major", vector=None)

    def new_states(
        self, tensors: Sequence[NewTensor], target: Machine
    ) -> Iterator[tuple[tuple[OperandState, ...], CellIndices]]:
        groups: list[tuple[tuple[OperandState, ...], CellIndices]] = [((), None)]
        for new in tensors:
            grown: list[tuple[tuple[OperandState, ...], CellIndices]] = []
            for states, cells in groups:
                with skipping(cells):
                    grown += [((*states, state), inner) for state, inner in self._grown(new, cells, target)]
            groups = grown
        yield from groups

    def _grown(self, new: NewTensor, cells: CellIndices, target: Machine) -> Iterator[tuple[OperandState, CellIndices]]:
        """Yield the states of one new tensor, for each group of these cells that share one."""
        shape = tuple(take(size, cells) for size in new.shape)
        tensor = TensorSpec(shape, OperandState(new.dtype, self.level, None))
        move = MoveStep(0, self.level, self.layout, self.vector)
        for state, inner in move.fresh(new.name, tensor, target):
            made = TensorSpec(tuple(take(size, inner) for size in shape), state)
            with skipping(inner):
                valid = require(
                    made.has_whole_vectors(),
                    f"{new.name} does not fill vectors of {state.vector}",
                    "choose a smaller vector, or tile it to multiples of this one",
                )
                yield state, within(cells, masked(inner, valid))


def _pipeline(
    step: Rewrite, logical: LogicalSpec, fresh: Sequence[TensorSpec], plan: PipelinePlan, target: Machine
) -> Expansion:
    """Return the node of a pipeline rewrite: a Pipeline, or a Sequential without new tensors."""
    states = [*logical.states, *(tensor.state for tensor in fresh)]
    needed = [target.footprint(tensor) for tensor in fresh]
    parts: list[Part] = []
    for stage, held in zip(plan.stages, plan.held(len(logical.states)), strict=True):
        live = tuple(sum((needed[one][level] for one in held), 0) for level in range(len(target.levels)))
        below = tuple(states[arg] for arg in stage.args)
        if stage.dim_maps is not None:
            below = tuple(state.under(dim_map) for state, dim_map in zip(below, stage.dim_maps, strict=True))
        made = LogicalSpec(stage.op, stage.shape, below, logical.serial)
        parts.append(Part(made, stage.args, 1, live, dim_maps=stage.dim_maps))
    if not fresh:
        return Sequential(step, 0, target.nothing(), tuple(parts))
    cost = 0 if plan.free else sum((target.move_cost(tensor) for tensor in fresh), 0)
    return Pipeline(step, cost, target.nothing(), tuple(parts), tuple(fresh))


def lifetimes(args: Sequence[tuple[int, ...]], operands: int) -> list[tuple[int, ...]]:
    """Return, for each part, the new tensors held while it runs: from the first part that uses one to the last."""
    spans: dict[int, list[int]] = {}
    for at, part in enumerate(args):
        for arg in part:
            spans.setdefault(arg - operands, []).append(at)
    return [
        tuple(sorted(new for new, at in spans.items() if new >= 0 and at[0] <= index <= at[-1]))
        for index in range(len(args))
    ]


def places(target: Machine, dtype: DType, rank: int) -> Iterator[TensorPlace]:
    """Yield the places that search tries for a new tensor: levels, vector sizes, and layouts without strips."""
    for level in target.operand_levels:
        if level.kind == "scalar":
            yield level.name, "row_major", None
            continue
        vectors = target.vector_sizes(level, dtype) if level.kind == "vector" else (None,)
        for layout in target.layouts(dtype, rank):
            for vector in vectors if not layout.has_strips else ():
                yield level.name, layout_name(layout, rank) or layout, vector


def row_major_places(target: Machine, dtype: DType, rank: int) -> Iterator[TensorPlace]:
    """Yield the row-major ones of `places`: with one value per row, no order of dimensions is better."""
    return (place for place in places(target, dtype, rank) if place[1] == "row_major")
