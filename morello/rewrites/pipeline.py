"""Bases of pipeline rewrites: pipelines of whole Specs that hand new tensors on ([Kaufman2025] §2.4.4).

A pipeline rewrite makes nodes whose parts use the node's operands or new tensors whole, perhaps under other dimensions.
The node costs what moving its new tensors costs; each is held while the parts from the first to the last that use
it run. Operand states matter to it in no way but their data types, and the place of new tensors to nothing but their
own states. Search on blocks relies on all of this.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Self

import attrs

from morello.errors import Inapplicable
from morello.ir.dtypes import DType
from morello.ir.impl import Expansion, Part, Pipeline, Sequential
from morello.ir.layout import Layout
from morello.ir.numbers import CellIndices, Num, take
from morello.ir.ops.base import Operation
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import DimMap, OperandState, TensorSpec
from morello.kernels.machine import Machine
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
    within,
)
from morello.rewrites.move import MoveStep


@attrs.frozen
class NewTensor:
    """A new tensor that a step asks for; its state follows from the step's place for new tensors."""

    name: str
    shape: tuple[Num, ...]
    dtype: DType


@attrs.frozen
class Stage:
    """One part of a pipeline: an operation, and what its operands are; `dim_maps` as in `Part`."""

    op: Operation
    shape: tuple[Num, ...]
    args: tuple[int, ...]
    dim_maps: tuple[DimMap, ...] | None = None
    role: str = "body"


@attrs.frozen
class PipelinePlan:
    """A pipeline on some cells of a batch (None: all, or a single Spec): its parts, and what they hand on."""

    stages: Sequence[Stage]
    tensors: Sequence[NewTensor] = ()
    cells: CellIndices = None


@attrs.frozen(cache_hash=True)
class PipelineRewrite(Rewrite):
    """A rewrite of Specs to pipelines, by their `plans`."""

    @abstractmethod
    def plans(self, logical: LogicalSpec, target: Machine) -> Iterator[PipelinePlan]:
        """Yield the pipeline for a Spec, or those for a batch. Raises Inapplicable where there is none."""

    def without_buffers(self) -> Self:
        """Return the step without the place of new tensors, which plans do not depend on."""
        return self

    def new_states(
        self, tensors: Sequence[NewTensor], target: Machine
    ) -> Iterator[tuple[tuple[OperandState, ...], CellIndices]]:
        """Yield states of all new tensors, for each group of cells of a plan that have them in common.

        In a batch, groups whose tensors cannot be so are left out. Raises Inapplicable where they cannot be so at all.
        """
        assert not tensors, "new tensors have a place"
        yield (), None

    def cases(self, logical: LogicalSpec, target: Machine) -> Iterator[RewriteCase]:
        for plan in self.plans(logical, target):
            try:
                yield from self._cases(plan, logical, target)
            except Inapplicable:
                # Of a batch, the other plans may do.
                if plan.cells is None:
                    raise

    def _cases(self, plan: PipelinePlan, logical: LogicalSpec, target: Machine) -> Iterator[RewriteCase]:
        for states, inner in self.new_states(plan.tensors, target):
            cells = within(plan.cells, inner)
            fresh = [
                TensorSpec(tuple(take(size, inner) for size in one.shape), state)
                for one, state in zip(plan.tensors, states, strict=True)
            ]
            stages = [
                attrs.evolve(stage, shape=tuple(take(size, inner) for size in stage.shape)) for stage in plan.stages
            ]
            yield RewriteCase(cells, _pipeline(self, select_cells(logical, cells), fresh, stages, target))


@attrs.frozen(cache_hash=True)
class BufferedPipelineRewrite(PipelineRewrite):
    """A pipeline rewrite whose new tensors all go to one level: `NAME to L1 as row_major v8`."""

    level: str = argument(Word, keyword="to")
    layout: Layout | str = argument(Layout, Word, keyword="as", default="row_major")
    vector: int | None = argument(Vector, default=None)

    def without_buffers(self) -> Self:
        return attrs.evolve(self, level="", layout="row_major", vector=None)

    def new_states(
        self, tensors: Sequence[NewTensor], target: Machine
    ) -> Iterator[tuple[tuple[OperandState, ...], CellIndices]]:
        groups: list[tuple[tuple[OperandState, ...], CellIndices]] = [((), None)]
        for new in tensors:
            grown: list[tuple[tuple[OperandState, ...], CellIndices]] = []
            for states, cells in groups:
                try:
                    grown += [((*states, state), inner) for state, inner in self._grown(new, cells, target)]
                except Inapplicable:
                    if cells is None:
                        raise
            groups = grown
        yield from groups

    def _grown(self, new: NewTensor, cells: CellIndices, target: Machine) -> Iterator[tuple[OperandState, CellIndices]]:
        """Yield states of one new tensor, for each group of these cells for which it is the same."""
        shape = tuple(take(size, cells) for size in new.shape)
        tensor = TensorSpec(shape, OperandState(new.dtype, self.level, None))
        move = MoveStep(0, self.level, self.layout, self.vector)
        for state, inner in move.fresh(new.name, tensor, target):
            made = TensorSpec(tuple(take(size, inner) for size in shape), state)
            try:
                valid = require(
                    made.has_whole_vectors(),
                    f"{new.name} does not fill vectors of {state.vector}",
                    "choose a smaller vector, or tile it to multiples of this one",
                )
            except Inapplicable:
                if inner is None:
                    raise
                continue
            yield state, within(cells, masked(inner, valid))


def _pipeline(
    step: Rewrite, logical: LogicalSpec, fresh: Sequence[TensorSpec], stages: Sequence[Stage], target: Machine
) -> Expansion:
    """Return the node of a pipeline rewrite: a Pipeline, or a Sequential where it has no new tensors."""
    states = [*logical.states, *(tensor.state for tensor in fresh)]
    needed = [target.footprint(tensor) for tensor in fresh]
    parts: list[Part] = []
    for stage, held in zip(stages, lifetimes([stage.args for stage in stages], len(logical.states)), strict=True):
        live = tuple(sum((needed[one][level] for one in held), 0) for level in range(len(target.levels)))
        below = tuple(states[arg] for arg in stage.args)
        if stage.dim_maps is not None:
            below = tuple(state.under(dim_map) for state, dim_map in zip(below, stage.dim_maps, strict=True))
        made = LogicalSpec(stage.op, stage.shape, below, logical.serial)
        parts.append(Part(made, stage.args, 1, live, role=stage.role, dim_maps=stage.dim_maps))
    if not fresh:
        return Sequential(step, 0, target.nothing(), tuple(parts))
    cost = sum((target.move_cost(tensor) for tensor in fresh), 0)
    return Pipeline(step, cost, target.nothing(), tuple(parts), tuple(fresh))


def lifetimes(args: Sequence[tuple[int, ...]], operands: int) -> list[tuple[int, ...]]:
    """Per part, the new tensors that are held while it runs: from the first part that uses them to the last."""
    uses = [{arg - operands for arg in part if arg >= operands} for part in args]
    tensors = sorted({one for used in uses for one in used})
    return [
        tuple(
            one
            for one in tensors
            if any(one in used for used in uses[: index + 1]) and any(one in used for used in uses[index:])
        )
        for index in range(len(args))
    ]


def places(target: Machine, dtype: DType, rank: int) -> Iterator[tuple[str, Layout | str, int | None]]:
    """Yield the places that search tries for a new tensor: levels, vector sizes, and layouts without strips."""
    for level in target.levels:
        if level.kind == "scalar":
            yield level.name, "row_major", None
            continue
        vectors = target.vector_sizes(level, dtype) if level.kind == "vector" else (None,)
        for layout in target.layouts(dtype, rank):
            for vector in vectors if not layout.has_strips else ():
                yield level.name, layout_name(layout, rank) or layout, vector
