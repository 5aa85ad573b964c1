"""Compose: operations that hand intermediates on, in a chain ([Kaufman2025] §2.1) or any graph without cycles."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cache
from typing import TypeVar, cast

import attrs
import numpy as np

from morello.errors import Inapplicable, SpecError
from morello.ir.dtypes import F32, F64, DType, widest
from morello.ir.numbers import NumT
from morello.ir.ops.base import Arrays, Operand, Operation, SearchHints, Shape, memoized
from morello.ir.ops.common import as_type
from morello.ir.ops.wiring import ComposeStage, Extent, Wiring, chained, extents, ranks_of, wire

__all__ = ["Arranged", "Compose", "ComposeStage", "Piece", "arranged"]

T = TypeVar("T")


def _check(_compose: object, _attribute: object, outputs: tuple[int, ...]) -> None:
    stages = cast(Compose, _compose).stages
    if len(stages) < 2:
        raise SpecError("Compose needs at least two operations", "write the operation alone")
    ops = [one.op for one in stages]
    for number, stage in enumerate(stages):
        _check_stage(number, stage, ops)
    if [*outputs] != sorted({*outputs}) or not {*outputs} <= {*range(1, len(stages))}:
        raise SpecError(f"{list(outputs)} are not stages in order", "list each stage after the first once")
    order, external = _order(stages, outputs)
    if order != [*range(len(stages))] or external != [*range(len(external))]:
        raise SpecError("the stages of this Compose are not in normal order", "morello.ir.ops.arranged puts them in it")
    _check_links(stages)


def _check_stage(number: int, stage: ComposeStage, ops: Sequence[Operation]) -> None:
    if isinstance(stage.op, Compose):
        raise SpecError("Compose cannot contain a Compose", "write its operations in its place")
    if stage.op.rank not in (None, stage.rank):
        raise SpecError(
            f"{stage.op} has {stage.op.rank} dimensions, not {stage.rank}",
            "compose it with operations on as many dimensions",
        )
    operands = stage.op.operands(stage.rank)
    used = {dim for one in operands for terms in one.dims for dim, _ in terms} | {*stage.op.untiled(stage.rank)}
    if used - {*range(stage.rank)}:
        raise SpecError(f"{stage.op} does not apply to {stage.rank} dimensions", "give it tensors of more dimensions")
    if len(operands) < 2 or sum(one.writes for one in operands) != 1 or not operands[-1].writes:
        raise SpecError(
            f"Compose cannot contain {stage.op}: it needs an input and exactly one output",
            "write it as a separate Spec",
        )
    if number and operands[-1].reads:
        raise SpecError(
            f"Compose: {stage.op} adds to its output, which only the first operation may do",
            f"the first of [{', '.join(map(str, ops))}] runs last",
        )
    if len(stage.inputs) != len(operands) - 1:
        names = ", ".join(one.name for one in operands[:-1])
        count = f"{len(operands) - 1} input{'s' if len(operands) > 2 else ''}"
        raise SpecError(f"{stage.op} has {count} ({names}), not {len(stage.inputs)}", "give it one tensor for each")


def _check_links(stages: Sequence[ComposeStage]) -> None:
    """Refuse an intermediate or external input that its users give different numbers of dimensions."""
    ranks: dict[int, tuple[int, Operation]] = {
        ~number: (len(stage.output.dims), stage.op) for number, stage in enumerate(stages)
    }
    for stage in stages:
        for entry, read in zip(stage.inputs, stage.reads, strict=True):
            rank, op = ranks.setdefault(entry, (len(read.dims), stage.op))
            if rank != len(read.dims) and entry < 0:
                raise SpecError(
                    f"{stage.op} reads {len(read.dims)} dimensions, but {op} before it makes {rank}",
                    "put an operation between them that changes the number of dimensions, or write separate Specs",
                )
            if rank != len(read.dims):
                raise SpecError(
                    f"{stage.op} reads {len(read.dims)} dimensions where {op} reads {rank}",
                    "use separate tensors, or write separate Specs",
                )


@attrs.frozen(cache_hash=True)
class Compose(Operation):
    """A graph of operations. `stages[0]` runs last; each stage may read the outputs of later ones.

    Operands are the external inputs, then the outputs: those of the stages `outputs`, and that of stage 0. Iteration
    dimensions are those of all stages, unified where one stage reads what another writes (`wiring`). Intermediates
    have no tensor spec until a rewrite gives them a buffer. Stages are in normal order (see `arranged`), so that equal
    graphs compare equal.
    """

    stages: tuple[ComposeStage, ...] = attrs.field(converter=tuple)
    outputs: tuple[int, ...] = attrs.field(default=(), converter=tuple, validator=_check)

    @classmethod
    def chain(cls, ops: Sequence[Operation], ranks: Sequence[int] | None = None) -> Compose:
        """Return a chain: each operation reads the output of the next. `ranks` may be omitted if one rank is fixed."""
        wires = chained(ops)
        found = ranks_of(ops, wires) if ranks is None else ranks
        return cls(tuple(ComposeStage(*each) for each in zip(ops, found, wires, strict=True)))

    @property
    def inputs(self) -> int:
        """Return the number of external inputs."""
        return 1 + max(entry for stage in self.stages for entry in stage.inputs)

    @property
    def wiring(self) -> Wiring:
        return _wiring(self)

    @property
    def is_chain(self) -> bool:
        """Return True if each stage's first input is the next one's output, and nothing is used twice."""
        entries = [entry for stage in self.stages for entry in stage.inputs if entry >= 0]
        first = [stage.inputs[0] for stage in self.stages[:-1]]
        return (
            not self.outputs
            and first == [~number for number in range(1, len(self.stages))]
            and len(set(entries)) == len(entries) == sum(len(stage.inputs) - 1 for stage in self.stages) + 1
        )

    @property
    def name(self) -> str:
        also = f", [{', '.join(self.names()[~one] for one in self.outputs)}]" if self.outputs else ""
        return f"Compose([{', '.join(self._written())}]{also})"

    def _written(self) -> list[str]:
        return [str(stage.op) for stage in self.stages] if self.is_chain else self.equations()

    def equations(self) -> list[str]:
        """Return an equation for each stage, with the names of operands and intermediates."""
        names = self.names()
        return [
            f"{names[~number]} = {stage.op}({', '.join(names[entry] for entry in stage.inputs)})"
            for number, stage in enumerate(self.stages)
        ]

    @memoized
    def names(self) -> dict[int, str]:
        """Return the names of external inputs (from 0) and of outputs of stages (from ~0)."""
        named = {entry: one.name for entry, one in enumerate(self._inputs())}
        taken = set(named.values())
        for number, stage in enumerate(self.stages):
            name = f"{stage.output.name}{number}" if number else stage.output.name
            while name in taken:
                name += "_"
            taken.add(name)
            named[~number] = name
        return named

    @property
    def rank(self) -> int:
        return len(self.wiring.origins)

    def dims(self, rank: int) -> tuple[str, ...]:
        stages = self.stages
        names = [(stages[at].op.dims(stages[at].rank)[dim], at) for at, dim in self.wiring.origins]
        return tuple(f"{name}_{at}" if name[-1:].isdigit() else f"{name}{at}" for name, at in names)

    @memoized
    def operands(self, rank: int) -> tuple[Operand, ...]:
        outputs = (
            _made_of([each.within(self.wiring.stages[one]) for each in extents(self.stages[one].output)], operand)
            for one in (*self.outputs, 0)
            for operand in [attrs.evolve(self.stages[one].output, name=self.names()[~one])]
        )
        return (*self._inputs(), *outputs)

    @memoized
    def _inputs(self) -> tuple[Operand, ...]:
        stages, wiring = self.stages, self.wiring
        inputs: dict[int, Operand] = {}
        for number, stage in enumerate(stages):
            for entry, one in zip(stage.inputs, stage.reads, strict=True):
                if entry >= 0 and entry not in inputs:
                    inputs[entry] = _made_of(wiring.inputs[entry], Operand(f"{one.name}{number}", ()))
        return tuple(inputs[entry] for entry in range(self.inputs))

    def untiled(self, rank: int) -> tuple[int, ...]:
        written = [one for one in self.operands(rank) if one.writes] if self.outputs else []
        # Tiles would write an output that lacks their dimension several times, or leave gaps in it.
        shared = {dim for dim in range(rank) if not all(((dim, 1),) in one.dims for one in written)}
        return tuple(sorted(self.wiring.whole | shared))

    @property
    def takes_bool(self) -> bool:
        # `check` calls `refusal` of each operation.
        return True

    @property
    def search_hints(self) -> SearchHints:
        # Microkernels of a Compose take operands in memory; those of its pieces go to registers once it is cut.
        return SearchHints(in_registers=())

    def tile_multiple(self, dim: int) -> int:
        return self.wiring.tile_multiple(self.stages, dim)

    def normal(self, rank: int) -> Operation:
        stages = tuple(attrs.evolve(one, op=one.op.normal(one.rank)) for one in self.stages)
        return self if stages == self.stages else Compose(stages, self.outputs)

    def accumulating(self) -> Operation | None:
        op = self.stages[0].op.accumulating()
        # With several outputs, the first stage accumulates once it is cut.
        if op is None or self.outputs:
            return None
        return Compose((attrs.evolve(self.stages[0], op=op), *self.stages[1:]))

    def initials(self) -> tuple[Operation | None, ...]:
        return self.stages[0].op.initials()

    def stage_shape(self, stage: int, shape: Sequence[NumT]) -> tuple[NumT, ...]:
        """Return the iteration shape of a stage of a Compose of `shape`."""
        return tuple(extent.size(shape) for extent in self.wiring.stages[stage])

    def intermediate_shape(self, stage: int, shape: Sequence[NumT]) -> tuple[NumT, ...]:
        """Return the shape of a stage's output."""
        return self.stages[stage].output.shape(self.stage_shape(stage, shape))

    def intermediate_dtype(self, stage: int, dtypes: Sequence[DType]) -> DType:
        """Return the data type of a stage's output: that of the operand, if it is an output of the Compose.

        Otherwise it is the one that its operation makes or a later stage reads, if there is only one. Else it is f64 or
        f32 if some operand is, f32 if some operation writes that alone, else the output's type. Numbers for an output
        of truth values or indices are floats, or of the first operand's type. Operations and operands are those of the
        piece.
        """
        if not stage or stage in self.outputs:
            return dtypes[self._result_of[~stage]]
        stages, operands = self._together(stage)
        dtypes = [dtypes[at] for at in operands]
        if made := self.stages[stage].op.makes:
            return made
        read_as = self._read_as(stage)
        output = read_as or dtypes[-1]
        if not read_as and (output.is_bool or self.stages[stages[0]].op.makes):
            numbers = [dtype for dtype in dtypes if not dtype.is_bool]
            floats = any(dtype.is_float for dtype in numbers)
            return widest(dtypes) if floats else numbers[0] if numbers else output
        kinds = [self.stages[one].op.only_types for one in stages]
        wide = any(kind is not None and kind[-1] == F32 for kind in kinds) or not {F32, F64}.isdisjoint(dtypes)
        return widest(dtypes) if output.is_float and wide else output

    @property
    def _result_of(self) -> dict[int, int]:
        """Return the number of the operand for each stage's output that is one, as an entry."""
        return {~one: self.inputs + at for at, one in enumerate((*self.outputs, 0))}

    @memoized
    def _together(self, stage: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the stages and the operands of the pieces that need a stage if outputs alone are cut."""
        ends, written = {0, *self.outputs}, self._result_of
        pieces = {end: mine for end in ends if stage in (mine := self._needed(end, ends))}
        stages = {one for mine in pieces.values() for one in mine}
        entries = {written.get(entry, entry) for one in stages for entry in self.stages[one].inputs}
        operands = {entry for entry in entries if entry >= 0} | {written[~end] for end in pieces}
        return tuple(sorted(stages)), tuple(sorted(operands))

    @memoized
    def _read_as(self, stage: int) -> DType | None:
        """Return the only type that the first stage to read a stage's output, or that stage's own, is read as."""
        for number, one in enumerate(self.stages[:stage]):
            if ~stage in one.inputs:
                types = one.op.reads_types
                own = types[one.inputs.index(~stage)] if types else None
                return own or (None if number in self.outputs or one.op.makes else self._read_as(number))
        return None

    def stage_dtypes(self, stage: int, dtypes: Sequence[DType]) -> tuple[DType, ...]:
        """Return the types of a stage's operands, from those of the Compose."""
        read = [
            dtypes[entry] if entry >= 0 else self.intermediate_dtype(~entry, dtypes)
            for entry in self.stages[stage].inputs
        ]
        return (*read, self.intermediate_dtype(stage, dtypes))

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        for dim, name in enumerate(self.dims(len(shape))):
            if not any(one.uses(dim) for one in self.operands(len(shape))):
                message = f"no operand has the dimension {name}, so its size is unknown"
                return SpecError(message, "write Specs of single operations, whose shapes give every size")
        for each in self.wiring.agreements:
            one, other = each.one.size(shape), each.other.size(shape)
            if one != other:
                message = f"{each.tensor} is needed with size {one} and with size {other}"
                return SpecError(message, "give all operands that share a dimension the same size along it")
        for number, stage in enumerate(self.stages):
            fault = stage.op.refusal(self.stage_shape(number, shape), self.stage_dtypes(number, dtypes))
            if fault:
                return SpecError(f"{stage.op}: {fault.message}", fault.hint)
        return None

    def run(self, inputs: Sequence[T], apply: Callable[[int, list[T]], T]) -> list[T]:
        """Return `apply(stage, its inputs)` for each stage; `inputs` are the operands that are read.

        A head that accumulates gets its output as its last input.
        """
        made: dict[int, T] = dict(enumerate(inputs[: self.inputs]))
        for number in reversed(range(len(self.stages))):
            given = [made[entry] for entry in self.stages[number].inputs]
            made[~number] = apply(number, given if number else [*given, *inputs[self.inputs :]])
        return [made[~number] for number in range(len(self.stages))]

    def values(self, shape: Sequence[int], inputs: Arrays, dtypes: Sequence[DType]) -> list[np.ndarray]:
        """Return the result of each stage. Integers wrap around in the type of the intermediate."""

        def one(number: int, given: list[np.ndarray]) -> np.ndarray:
            own = self.stage_dtypes(number, dtypes) if dtypes else ()
            made = self.stages[number].op.evaluate(self.stage_shape(number, shape), given, own)[0]
            return as_type(made, own[-1] if own else None)

        return self.run(inputs, one)

    def evaluate(self, shape: Shape, inputs: Arrays, dtypes: Sequence[DType]) -> list[np.ndarray]:
        values = self.values(shape, inputs, dtypes)
        return [values[one] for one in (*self.outputs, 0)]

    def implied(self, shape: Shape) -> str:
        """Return the implied sizes of each operation, counted from the one that runs last."""
        words = [stage.op.implied(self.stage_shape(at, shape)) for at, stage in enumerate(self.stages)]
        return "; ".join(
            f"operation {at}, {stage.op.name}: {each}"
            for at, (stage, each) in enumerate(zip(self.stages, words, strict=True))
            if each
        )

    def flops(self, shape: Shape) -> int:
        return sum(stage.op.flops(self.stage_shape(at, shape)) for at, stage in enumerate(self.stages))

    def cut(self, stages: Collection[int]) -> tuple[Piece, ...]:
        """Return the pieces that remain when the outputs of these stages become tensors, in execution order.

        Each computes the output of one of `stages`, or an output of the Compose, the last one that of stage 0. A stage
        that is not cut belongs to the piece that uses it. Raises Inapplicable if several would use it.
        """
        for stage in stages:
            if not 0 < stage < len(self.stages):
                raise Inapplicable(f"{self} has no intermediate {stage}", f"they are 1 to {len(self.stages) - 1}")
        ends = sorted({0, *stages, *self.outputs}, reverse=True)
        owner: dict[int, int] = {}
        pieces: list[Piece] = []
        for end in ends:
            mine = self._needed(end, set(ends))
            for stage in mine:
                if owner.setdefault(stage, end) != end:
                    raise Inapplicable(
                        f"{self.stages[stage].op} is needed both by {self.stages[owner[stage]].op} and by "
                        f"{self.stages[end].op}, which are in two pieces",
                        f"cut at intermediate {stage} too",
                    )
            pieces.append(self._piece(mine))
        return tuple(pieces)

    @memoized
    def pieces_at(self, end: int) -> tuple[tuple[tuple[int, ...], Operation], ...]:
        """Return the pieces that compute a stage's output, largest first, whose other stages nothing else uses.

        Each is its stages, and the operation or smaller Compose that they make.
        """
        users: dict[int, set[int]] = {}
        for number, stage in enumerate(self.stages):
            for entry in stage.inputs:
                users.setdefault(~entry, set()).add(number)
        found: dict[tuple[int, ...], Operation] = {}
        for after in range(len(self.stages), end, -1):
            mine = tuple(self._needed(end, {*range(after, len(self.stages)), *self.outputs}))
            if mine not in found and all(users[stage] <= {*mine} for stage in mine[1:]):
                found[mine] = self._piece([*mine]).op
        return tuple(found.items())

    def _needed(self, end: int, ends: Collection[int]) -> list[int]:
        """Return stage `end` and the stages it needs up to other ends, in order."""
        found = {end}
        for number in range(end, len(self.stages)):
            if number in found:
                found.update(~entry for entry in self.stages[number].inputs if entry < 0 and ~entry not in ends)
        return sorted(found)

    def _piece(self, mine: list[int]) -> Piece:
        """Return the piece of these stages, listed from the one that runs last."""
        written = self._result_of
        output = written.get(~mine[0], ~mine[0])
        first = self.stages[mine[0]]
        if len(mine) == 1:
            inputs = (written.get(entry, entry) for entry in first.inputs)
            return Piece(first.op, self.wiring.stages[mine[0]], (*inputs, output))
        entries = [entry for stage in mine for entry in self.stages[stage].inputs]
        external = sorted({entry for entry in entries if entry >= 0 or ~entry not in mine})
        local = {entry: number for number, entry in enumerate(external)}
        local |= {~stage: ~position for position, stage in enumerate(mine)}
        moved = [
            attrs.evolve(self.stages[stage], inputs=tuple(local[entry] for entry in self.stages[stage].inputs))
            for stage in mine
        ]
        found = arranged(moved)
        dims = tuple(self.wiring.stages[mine[found.order[at]]][dim] for at, dim in found.compose.wiring.origins)
        inputs = (written.get(external[entry], external[entry]) for entry in found.inputs)
        return Piece(found.compose, dims, (*inputs, output))


@attrs.frozen
class Piece:
    """Part of a Compose that was cut: an operation, or a smaller Compose.

    `dims` are its iteration dimensions, in terms of the whole's. `args` gives, for each of its operands, the operand
    of the whole, or ~j for the output of the whole's stage j; the last one is the output of the piece.
    """

    op: Operation
    dims: tuple[Extent, ...]
    args: tuple[int, ...]

    def shape(self, whole: Sequence[NumT]) -> tuple[NumT, ...]:
        """Return the iteration shape, from that of the whole."""
        return tuple(extent.size(whole) for extent in self.dims)


@attrs.frozen
class Arranged:
    """A Compose in normal order, and the given stage, external input or other output that each of its own is."""

    compose: Compose
    order: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...] = ()

    @property
    def operands(self) -> tuple[int, ...]:
        """Return the number of each operand among those given: inputs, other outputs, that of the head."""
        count = len(self.inputs)
        return (*self.inputs, *(count + at for at in self.outputs), count + len(self.outputs))


def arranged(stages: Sequence[ComposeStage], outputs: Sequence[int] = ()) -> Arranged:
    """Return the Compose of these stages, the head first; any may read the output of any other.

    `outputs` are the stages besides the head whose outputs are those of the Compose, too.
    In normal order each stage precedes those that it needs, and the needs of its first input precede those of the
    others. External inputs are numbered in order of appearance.
    """
    order, external = _order(stages, outputs)
    number = {~old: ~new for new, old in enumerate(order)} | {old: new for new, old in enumerate(external)}
    moved = tuple(
        attrs.evolve(stages[old], inputs=tuple(number[entry] for entry in stages[old].inputs)) for old in order
    )
    also = sorted((~number[~one], at) for at, one in enumerate(outputs))
    compose = Compose(moved, tuple(one for one, _ in also))
    return Arranged(compose, tuple(order), tuple(external), tuple(at for _, at in also))


def _order(stages: Sequence[ComposeStage], outputs: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return stages and external inputs in normal order."""
    done: dict[int, bool] = {}
    order: list[int] = []
    used = {~entry for stage in stages for entry in stage.inputs}
    waiting = [(0, False), *((one, False) for one in sorted(outputs) if one not in used)]
    while waiting:
        number, seen = waiting.pop()
        if seen:
            done[number] = True
            order.append(number)
        elif number not in done:
            done[number] = False
            waiting.append((number, True))
            for entry in (entry for entry in stages[number].inputs if entry < 0):
                if not done.get(~entry, True):
                    raise SpecError(f"{stages[number].op} depends on its own output", "let it use an operand instead")
                waiting.append((~entry, False))
    unused = [number for number in range(len(stages)) if number not in done]
    if unused:
        raise SpecError(f"nothing uses the output of {stages[unused[0]].op}", "the first operation makes the output")
    order.reverse()
    if order[0]:
        raise SpecError(
            f"{stages[order[0]].op} makes an output from that of {stages[0].op}, which comes first",
            "let an operation whose output nothing uses come first",
        )
    return order, list(dict.fromkeys(entry for number in order for entry in stages[number].inputs if entry >= 0))


@cache
def _wiring(compose: Compose) -> Wiring:
    return wire(compose.stages, compose.inputs)


def _made_of(dims: Sequence[Extent], operand: Operand) -> Operand:
    """Return an operand like `operand`, with these dimensions."""
    shrink = tuple(each.less for each in dims)
    return attrs.evolve(operand, dims=tuple(each.terms for each in dims), shrink=shrink if any(shrink) else ())
