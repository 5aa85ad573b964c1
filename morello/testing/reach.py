"""Rule out Specs that cannot become a program whatever their sizes and layouts, so that draws leave them alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from morello.ir.dtypes import by_name
from morello.ir.ops.base import Operation
from morello.ir.ops.move import Move
from morello.ir.spec import LogicalSpec
from morello.kernels.microkernel import Microkernel
from morello.kernels.target import Target
from morello.rewrites.base import rewrites_of
from morello.rewrites.fit import ExactFit
from morello.rewrites.move import MoveStep
from morello.rewrites.select import Select
from morello.rewrites.split import Split
from morello.rewrites.tile import Tile
from morello.rewrites.to_accum import ToAccum

#: Rewrites whose ways are known here: those that change nothing but sizes have none.
_KNOWN = (Select, ToAccum, Tile, Split, ExactFit, MoveStep)

#: The relevant part of an operand's state: data type, level, and values per vector register.
StateClass: TypeAlias = tuple[str, str, int | None]
#: The relevant part of a Spec.
OperationClass: TypeAlias = tuple[Operation, tuple[StateClass, ...]]


class Reach:
    """Finds Specs that no sequence of moves and accumulating variants leads to a microkernel."""

    def __init__(self, target: Target):
        self._target = target
        self._alive: dict[OperationClass, bool] = {}
        self._kernels: dict[Operation, list[Microkernel]] = {}
        #: Rewrites that this knows nothing of: where one applies, there is hope.
        self._others = [rewrite for rewrite in rewrites_of(target) if rewrite not in _KNOWN]

    def hopeless(self, logical: LogicalSpec) -> bool:
        kinds = (logical.op, tuple((one.dtype.name, one.level, one.vector) for one in logical.states))
        if kinds not in self._alive:
            self._solve(kinds, len(logical.shape))
        if self._alive[kinds]:
            return False
        return not any(next(rewrite.steps(logical, self._target), None) for rewrite in self._others)

    def _solve(self, start: OperationClass, rank: int) -> None:
        """Find out about `start` and all it leads to: the least set that is closed under `_ways`."""
        ways: dict[OperationClass, list[tuple[OperationClass, ...]]] = {}
        waiting = [start]
        while waiting:
            kinds = waiting.pop()
            if kinds in ways:
                continue
            ways[kinds] = [*self._ways(kinds, rank)] if kinds not in self._alive else []
            waiting += [part for way in ways[kinds] for part in way]
        alive = {kinds for kinds in ways if self._alive.get(kinds) or self._has_kernel(kinds)}
        grown = True
        while grown:
            more = {kinds for kinds in ways if kinds not in alive and any(alive.issuperset(one) for one in ways[kinds])}
            alive |= more
            grown = bool(more)
        self._alive.update({kinds: kinds in alive for kinds in ways})

    def _has_kernel(self, kinds: OperationClass) -> bool:
        op, states = kinds
        if op not in self._kernels:
            self._kernels[op] = [kernel for kernel in self._target.kernels if kernel.implements(op)]
        return any(_takes(kernel, states) for kernel in self._kernels[op])

    def _ways(self, kinds: OperationClass, rank: int) -> Iterator[tuple[OperationClass, ...]]:
        """Yield the parts that are left after one step, for each step."""
        op, states = kinds
        operands = op.operands(op.rank or rank)
        accumulating = op.accumulating()
        if accumulating:
            written = [state for state, one in zip(states, operands, strict=True) if one.writes]
            fills = [(fill, (state,)) for fill, state in zip(op.initials(), written, strict=True) if fill]
            yield ((accumulating, states), *fills)
        for index, (operand, state) in enumerate(zip(operands, states, strict=True)):
            for moved in self._moved(state, widens=not operand.writes):
                parts: list[OperationClass] = [(op, (*states[:index], moved, *states[index + 1 :]))]
                copies = self._target.level(moved[1]).kind != "cache" or moved[0] != state[0]
                if copies and operand.reads:
                    parts.append((Move(), (state, moved)))
                if copies and operand.writes:
                    parts.append((Move(), (moved, state)))
                if (op, states) not in parts:
                    yield tuple(parts)

    def _moved(self, state: StateClass, widens: bool) -> Iterator[StateClass]:
        dtype, level, _ = state
        wider = [to for start, to in sorted(self._target.info.casts) if start == dtype] if widens else []
        for name in self._target.level(level).destinations:
            to = self._target.level(name)
            for each in (dtype, *wider):
                own = by_name(each, self._target.dtypes)
                vectors = self._target.vector_sizes(to, own) if to.kind == "vector" else (None,)
                yield from ((each, name, vector) for vector in vectors if (each, name, vector) != state)


def _takes(kernel: Microkernel, states: tuple[StateClass, ...]) -> bool:
    if len(states) != len(kernel.operands):
        return False
    fits = all(
        (not one.dtypes or dtype in one.dtypes)
        and (not one.levels or level in one.levels)
        and (not one.vectors or vector in one.vectors)
        for one, (dtype, level, vector) in zip(kernel.operands, states, strict=True)
    )
    return fits and all(
        len({state[place] for state in states}) == 1
        for place, name in ((0, "dtype"), (2, "vector"))
        if name in kernel.same
    )
