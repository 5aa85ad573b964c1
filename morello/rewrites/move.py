"""move: an operand lives in another level or layout while the body runs ([Kaufman2025] §2, §2.4; [Hagedorn2020])."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Self

import attrs

from morello.errors import Inapplicable, SpecError
from morello.ir.dtypes import DType, by_name
from morello.ir.impl import Alloc, Part
from morello.ir.layout import NAMED, Layout, TileCode, canonical, named, row_major
from morello.ir.numbers import CellIndices, Num, is_batch, partition, take
from morello.ir.ops.base import Operand, Operation
from morello.ir.ops.compose import Compose
from morello.ir.ops.matmul import Matmul
from morello.ir.ops.move import Move
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import OperandState, TensorSpec
from morello.kernels.machine import Machine, MemoryLevel, NewBuffer
from morello.kernels.target import Target
from morello.rewrites.base import (
    Example,
    Rewrite,
    RewriteCase,
    Vector,
    Word,
    argument,
    largest,
    layout_name,
    masked,
    pending_dims,
    require,
    select_cells,
    skipping,
    within,
)


@attrs.frozen(cache_hash=True)
class MoveStep(Rewrite):
    """`move 2 to VRF as row_major v8`: operand 2 in a new buffer, loaded before and stored after as needed.

    A move into a hardware cache that keeps layout and data type is a view: nothing is copied.
    Without `as`, the operand's own layout is kept.
    """

    keyword: ClassVar[str] = "move"
    order: ClassVar[int] = 220
    example: ClassVar[Example] = Example(Matmul(), (1, 2, 4, 8))
    operand: int = argument(int)
    level: str = argument(Word, keyword="to")
    layout: Layout | str | None = argument(Layout, Word, keyword="as", default=None)
    vector: int | None = argument(Vector, default=None)
    dtype: str | None = argument(Word, keyword="cast", default=None)

    @classmethod
    def steps(cls, logical: LogicalSpec, target: Target) -> Iterator[Self]:
        if not is_moved(logical.op, target) or (target.cuts_all and isinstance(logical.op, Compose)):
            return
        declared = logical.op.operands(len(logical.shape))
        hints = logical.op.search_hints
        # Pieces of a Compose move single values after it is cut: each class of operands multiplies those of all others.
        registers = ("vector", "scalar") if isinstance(logical.op, Compose) else ("vector",)
        for index, operand in enumerate(declared):
            state = logical.states[index]
            for name in target.level(state.level).destinations:
                level = target.level(name)
                if level.kind in registers and not hints.to_registers(index):
                    continue
                for dtype in _dtypes(operand, state, target):
                    cast = None if dtype == state.dtype else dtype.name
                    vectors = target.vector_sizes(level, dtype) if level.kind == "vector" else (None,)
                    buffer = NewBuffer(logical.op, operand, cast is not None)
                    for layout in _layouts(level, buffer, dtype, operand.shape(logical.shape), target):
                        yield from (cls(index, name, layout, vector, cast) for vector in vectors)

    def cases(self, logical: LogicalSpec, target: Machine) -> Iterator[RewriteCase]:
        operand, tensor = self._operand(logical)
        self._level(tensor.state, target)
        if self.dtype is not None:
            self._cast(operand, tensor.state, target)
        for state, cells in self.fresh(operand.name, tensor, target):
            with skipping(cells):
                yield from self._alloc(logical, operand, tensor, state, cells, target)

    def fresh(self, name: str, tensor: TensorSpec, target: Machine) -> Iterator[tuple[OperandState, CellIndices]]:
        """Yield the state of the new tensor, for each group of cells of a batch that share one."""
        level = target.operand_level(self.level)
        dtype = tensor.state.dtype if self.dtype is None else by_name(self.dtype, target.dtypes)
        layout = self._layout(tensor, level)
        if layout is None:
            kept = tensor.state.layout
            state = attrs.evolve(seen_in(level, tensor.state, target), dtype=dtype)
            if level.kind == "scalar" or kept is None:
                state = OperandState(dtype, level.name, None)
            elif level.kind != "cache" or dtype != tensor.state.dtype:
                fresh, contig = kept.tiled(len(kept.dims), [TileCode.WHOLE] * len(kept.dims))
                state = OperandState(dtype, level.name, fresh, contig)
            yield attrs.evolve(state, vector=self._vector(level)), None
            return
        mask = require(
            layout.applies(tensor.shape),
            f"{layout} does not describe {name}, a tensor of shape {_sizes(tensor)}",
            "choose another layout, such as row_major",
        )
        if not is_batch(tensor.shape):
            known = canonical(layout, tuple(map(int, tensor.shape)))
            assert known is not None, "the layout applies"
            yield OperandState(dtype, level.name, *known, vector=self._vector(level)), None
            return
        inside = masked(None, mask)
        sizes = [take(size, inside) for size in tensor.shape]
        for codes, cells in partition(layout.tile_codes(sizes, sizes)):
            state = OperandState(dtype, level.name, *layout.tiled(len(layout.dims), codes), vector=self._vector(level))
            yield state, within(inside, cells)

    def _alloc(
        self,
        logical: LogicalSpec,
        operand: Operand,
        tensor: TensorSpec,
        state: OperandState,
        cells: CellIndices,
        target: Machine,
    ) -> Iterator[RewriteCase]:
        """Yield the node for one new operand state."""
        require(
            state != tensor.state,
            f"`{self}` leaves {operand.name} where and as it is",
            "choose another level, layout or vector, or leave it out",
        )
        shape = tuple(take(size, cells) for size in tensor.shape)
        fine = require(
            TensorSpec(shape, state).has_whole_vectors(),
            f"{operand.name} does not fill vectors of {state.vector}",
            "choose a smaller vector, or tile it to multiples of this one",
        )
        cells = masked(cells, fine)
        kept = select_cells(logical, cells)
        source = kept.operand(self.operand)
        yield RewriteCase(cells, self._expansion(kept, operand, source, TensorSpec(source.shape, state), target))

    def _expansion(
        self, logical: LogicalSpec, operand: Operand, source: TensorSpec, fresh: TensorSpec, target: Machine
    ) -> Alloc:
        level = target.level(fresh.state.level)
        view = is_view(level, source.state, fresh.state, target)
        live = target.footprint(fresh)
        count = len(logical.states)
        states = tuple(fresh.state if i == self.operand else state for i, state in enumerate(logical.states))
        args = tuple(count if i == self.operand else i for i in range(count))
        parts = [Part(attrs.evolve(logical, states=states), args, 1, live)]
        if not view and operand.reads:
            load = LogicalSpec(Move(), source.shape, (source.state, fresh.state), logical.serial)
            parts.insert(0, Part(load, (self.operand, count), 1, live, role="load"))
        if not view and operand.writes:
            store = LogicalSpec(Move(), source.shape, (fresh.state, source.state), logical.serial)
            parts.append(Part(store, (count, self.operand), 1, live, role="store"))
        cost = target.move_cost(source) + target.move_cost(fresh)
        return Alloc(self, cost, target.nothing(), tuple(parts), (fresh,), operand=self.operand, view=view)

    def _operand(self, logical: LogicalSpec) -> tuple[Operand, TensorSpec]:
        declared = logical.op.operands(len(logical.shape))
        if not 0 <= self.operand < len(declared):
            names = ", ".join(f"{i} is {one.name}" for i, one in enumerate(declared))
            raise Inapplicable(f"{logical.op} has no operand {self.operand}", names)
        return declared[self.operand], logical.operand(self.operand)

    def _level(self, state: OperandState, target: Machine) -> MemoryLevel:
        level = target.level(self.level)
        reachable = target.level(state.level).destinations
        if level.name not in reachable:
            raise Inapplicable(
                f"an operand in {state.level} cannot be moved to {level.name}",
                f"from {state.level} moves go to {', '.join(reachable) or 'no other level'}",
            )
        return level

    def _cast(self, operand: Operand, state: OperandState, target: Machine) -> DType:
        dtype = by_name(self.dtype or "", target.dtypes)
        if dtype not in _dtypes(operand, state, target):
            raise Inapplicable(
                f"{operand.name} cannot be cast from {state.dtype} to {dtype} on a move",
                "moves widen operands that are only read, by the casts the target declares",
            )
        return dtype

    def _layout(self, tensor: TensorSpec, level: MemoryLevel) -> Layout | None:
        """Return the new layout; None to keep the operand's own or to have none."""
        if level.kind == "scalar":
            return None
        if self.layout is None and tensor.state.layout is None:
            return row_major(len(tensor.shape))
        if isinstance(self.layout, str):
            build = named(self.layout)
            if build is None:
                raise Inapplicable(f"unknown layout {self.layout!r}", f"layouts are {', '.join(NAMED)}, layout[...]")
            try:
                return build(len(tensor.shape))
            except SpecError as error:
                # Intermediates that get one place may differ in rank.
                raise Inapplicable(error.message, error.hint) from None
        return self.layout

    def _vector(self, level: MemoryLevel) -> int | None:
        if level.kind == "vector" and self.vector is None:
            raise Inapplicable(f"a move to {level.name} needs a vector size", "add one, e.g. v8")
        if level.kind != "vector" and self.vector is not None:
            raise Inapplicable(f"{level.name} holds no vectors", f"drop v{self.vector}")
        return self.vector


def is_moved(op: Operation, target: Target) -> bool:
    """Return whether search moves the operands of an operation; in restricted spaces none before a pending rewrite."""
    return op.search_hints.moved and (target.size_bits == 1 or pending_dims(op, target) is None)


def seen_in(level: MemoryLevel, state: OperandState, target: Machine) -> OperandState:
    """Return the state of the same memory in another level, whose alignment may be stricter."""
    aligned = state.aligned and target.level(state.level).alignment % level.alignment == 0
    return attrs.evolve(state, level=level.name, aligned=aligned)


def is_view(level: MemoryLevel, source: OperandState, fresh: OperandState, target: Machine) -> bool:
    """Return True if a move to `fresh`, in `level`, copies nothing because both are the same memory."""
    return level.kind == "cache" and seen_in(level, source, target) == fresh


def _sizes(tensor: TensorSpec) -> str:
    # The message of a batch is never shown, and its arrays are slow to print.
    return "×".join(str(size) if isinstance(size, int) else "n" for size in tensor.shape)


def _dtypes(operand: Operand, state: OperandState, target: Machine) -> list[DType]:
    """Return the operand's own type, then those it may be widened to if it is only read."""
    wider = [by_name(to, target.dtypes) for start, to in sorted(target.info.casts) if start == state.dtype.name]
    return [state.dtype, *([] if operand.writes else wider)]


def _layouts(
    level: MemoryLevel, buffer: NewBuffer, dtype: DType, shape: tuple[Num, ...], target: Target
) -> list[Layout | str | None]:
    """Return the layouts that search tries for a new buffer; None keeps the operand's own.

    Of layouts that coincide for a single Spec's shape, only the first is listed.
    """
    if level.kind == "scalar":
        return [None]
    if target.allowed.all_layouts:
        offered = [*target.every_layout(dtype, [largest(size) for size in shape])]
    else:
        offered = list(target.layouts_of(buffer, dtype))
        if not buffer.op.search_hints.all_to_registers:
            # Operations that are rewritten before most vector kernels apply are packed for their own kernels alone.
            own = target.declared_strips(dtype, buffer.op)
            offered = [layout for layout in offered if not layout.has_strips or layout in own]
    if not is_batch(shape):
        distinct: dict[tuple[Layout, int] | None, Layout] = {}
        for layout in offered:
            distinct.setdefault(canonical(layout, tuple(map(int, shape))), layout)
        distinct.pop(None, None)
        offered = distinct.values()
    known = [layout_name(layout, len(shape)) or layout for layout in offered]
    return [*([None] if level.kind == "cache" else []), *known]
