"""The compiled search of one engine, as Python sees it: nodes, steps, and what it asks for on its way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from morello.errors import MorelloError, PluginError
from morello.search.arrays import Floats, Ints
from morello.search.structs import Pointer, Structs

#: In place of a chosen step: none; the program is known from earlier, and its steps are not known here.
NOT_CHOSEN, RECALLED = -1, -2
#: Turns of search between two returns to Python: some 0.1 ms.
QUOTA = 256

_UNKNOWN_PEAK = (1 << 64) - 1


@attrs.frozen(eq=False)
class Nodes:
    """Some nodes, an array row each: `low` <= cost <= `high`; `limits` are words (`PackedLimits`)."""

    table: Ints
    shape: Ints
    limits: Any
    low: Floats
    high: Floats
    solved: Any
    recalled: Any


@attrs.frozen
class Hyperedge:
    """A step on a node: its own cost, the costs between which the best program is that begins so, and its parts."""

    priority: int
    own: float
    low: float
    high: float
    parts: tuple[int, ...]
    times: tuple[float, ...]


@attrs.frozen
class Chosen:
    """The chosen step of a solved node, its parts' nodes, and its program's peak as a word, None if not known."""

    priority: int
    peak: int | None
    parts: tuple[int, ...]


class Suspended(Exception):
    """Search waits for what Python knows of a node.

    That is its `steps`, earlier `answers` to its table, which of them to `assume`, or whether there is a `program`.
    """

    def __init__(self, what: str, node: int):
        super().__init__(f"{what} of node {node}")
        self.what, self.node = what, node


class Core:
    """A state of the compiled search. Nodes are numbered from 1 on; node 0 stands for none."""

    def __init__(self, model: Pointer, structs: Structs):
        self._structs = structs
        self.ffi, self._lib = structs.ffi, structs.lib
        self.model = model
        #: Whether every program is looked at.
        self.exhaustive = bool(model.exhaustive)
        state = self._lib.engine_new(model)
        if not state:
            raise MemoryError
        self._state: Any = self.ffi.gc(state, self._lib.engine_free)
        self.progress: Any = self._lib.engine_progress(self._state)

    def __len__(self) -> int:
        """Return the number of nodes, node 0 among them."""
        return int(self.progress.nodes)

    # Nodes.

    def table(self, space: int, tuples: int, states: Sequence[int]) -> int:
        """Return the number of a table, a new one if need be."""
        found = self._lib.engine_table(self._state, space, tuples, states)
        if not found:
            raise MemoryError
        return found - 1

    def node(self, table: int, shape: int, limits: int) -> int:
        """Return the number of a node, a new one if need be; limits that make no difference count as full."""
        found = self._lib.engine_node(self._state, table, shape, limits)
        if not found:
            raise MemoryError
        return found

    def nodes(self, first: int = 0, count: int | None = None) -> Nodes:
        """Return what is known of nodes, by default of all."""
        count = len(self) - first if count is None else count
        table, shape = np.empty(count, dtype=np.uint32), np.empty(count, dtype=np.int32)
        limits, flags = np.empty(count, dtype=np.uint64), np.empty(count, dtype=np.uint8)
        low, high = np.empty(count), np.empty(count)
        columns = ("uint32_t[]", table), ("int32_t[]", shape), ("uint64_t[]", limits), ("double[]", low)
        columns = *columns, ("double[]", high), ("uint8_t[]", flags)
        buffers = [self.ffi.from_buffer(kind, array) for kind, array in columns]
        self._lib.engine_nodes(self._state, first, count, *buffers)
        solved, recalled = (
            (flags & self._lib.IS_SOLVED).astype(np.bool_),
            (flags & self._lib.IS_RECALLED).astype(np.bool_),
        )
        return Nodes(table.astype(np.int64), shape.astype(np.int64), limits, low, high, solved, recalled)

    def costs(self, node: int) -> tuple[float, float]:
        """Return the costs between which that of a node is; both are infinite where nothing implements it."""
        return self._lib.engine_low(self._state, node), self._lib.engine_high(self._state, node)

    def states(self, table: int) -> tuple[int, tuple[int, ...]]:
        """Return the space of a table, and the states of its operands, -1 behind them."""
        space, states = self.ffi.new("int32_t *"), self.ffi.new("int32_t[]", self.model.width)
        self._lib.engine_states(self._state, table, space, states)
        return int(space[0]), tuple(states)

    # Search.

    def start(self, node: int, budget: float, slack: float = 1.0) -> None:
        """Begin to solve a node, or to show that it costs more than the budget.

        A program will do that costs at most `slack` times what is proven that it must cost.
        """
        self._check(self._lib.engine_start(self._state, node, budget, slack))

    def solve(self) -> bool:
        """Go on for some turns; return whether it is done. Raises Suspended."""
        return self._check(self._lib.engine_solve(self._state, QUOTA))

    def lookup(self, node: int, budget: float = float("inf")) -> bool:
        """Have the abstract search prove that a node costs more than a budget, for some turns.

        Return whether it is done. Its bound is learnt where it is above what was known.
        """
        return self._check(self._lib.engine_lookup(self._state, node, budget, QUOTA))

    def release(self) -> None:
        """Let go of what was begun; what was learnt stays."""
        self._lib.engine_release(self._state)

    def start_choice(self, node: int, *, settle: bool) -> None:
        """Begin to choose for a node and all below it.

        Which step comes first may depend on whether others are as cheap, which is found out if `settle` is on.
        """
        self._check(self._lib.engine_choice(self._state, node, settle))

    def choose(self) -> bool:
        """Go on choosing for some turns; return whether it is done. Raises Suspended."""
        return self._check(self._lib.engine_choose(self._state, QUOTA))

    def chosen(self, node: int) -> Chosen:
        """Return what was chosen for a node."""
        info = self.ffi.new("ChoiceInfo *")
        self._lib.engine_chosen(self._state, node, info)
        parts = self.ffi.new("uint32_t[]", info.parts)
        if info.parts:
            self._lib.engine_chosen_parts(self._state, node, parts)
        return Chosen(int(info.priority), None if info.peak == _UNKNOWN_PEAK else int(info.peak), tuple(parts))

    def best(self, node: int) -> int:
        """Return the number of the best program found so far for a node, 0 if it is not known step by step."""
        return int(self._lib.engine_best(self._state, node))

    def found(self, program: int) -> tuple[int, list[tuple[int, int]]]:
        """Return the first step's priority of a program that was found, and the nodes and programs of its parts."""
        info = self.ffi.new("ChoiceInfo *")
        self._lib.engine_found(self._state, program, info)
        nodes, programs = (self.ffi.new("uint32_t[]", max(1, info.parts)) for _ in range(2))
        self._lib.engine_found_parts(self._state, program, nodes, programs)
        return int(info.priority), [(int(nodes[at]), int(programs[at])) for at in range(info.parts)]

    def forget_program(self, node: int) -> None:
        """Let a node's program be looked for, though it is known from earlier."""
        self._lib.engine_forget(self._state, node)

    def hyperedges(self, node: int, budget: float) -> list[Hyperedge]:
        """Return all steps on a node that may lead to a program within a budget. Raises Suspended."""
        count, info = self.ffi.new("uint32_t *"), self.ffi.new("StepInfo *")
        self._check(self._lib.engine_expand(self._state, node, budget, count))
        found: list[Hyperedge] = []
        for index in range(count[0]):
            self._lib.engine_step(self._state, node, index, info)
            parts, times = self.ffi.new("uint32_t[]", info.parts), self.ffi.new("double[]", info.parts)
            self._lib.engine_step_parts(self._state, node, index, parts, times)
            found.append(Hyperedge(int(info.priority), info.own, info.low, info.high, tuple(parts), tuple(times)))
        return found

    # Answers.

    def add_step(
        self,
        node: int,
        priority: int,
        cost: float,
        needs: int,
        parts: Sequence[int],
        times: Sequence[float],
        live: Sequence[Sequence[int]],
    ) -> None:
        """Add a step that only Python knows; `live`, [parts, levels], are the bytes held while each part runs."""
        flat = [amount for row in live for amount in row]
        self._check(self._lib.engine_add_step(self._state, node, priority, cost, needs, len(parts), parts, times, flat))

    def steps_added(self, node: int) -> None:
        """Say that all such steps on a node are there."""
        self._lib.engine_steps_added(self._state, node)

    def set_answers(self, table: int, answers: dict[str, Any] | None) -> None:
        """Give the answers to a table that are known from earlier: the fields of `Answers` in `_engine.h`."""
        known = self._structs.struct("Answers", answers or {})
        self._check(self._lib.engine_answers(self._state, table, known))

    def assume(self, node: int, low: float, high: float) -> None:
        """Take it for known from earlier between which costs that of a node is."""
        self._lib.engine_assume(self._state, node, low, high)

    def tighten(self, node: int, cost: int) -> None:
        """Take it for known that a node has a program of this cost, whose steps are not known here."""
        self._check(self._lib.engine_tighten(self._state, node, cost))

    def set_program(self, node: int, peak: int | None) -> None:
        """Say what peak the program has that is known from earlier for a node, None: there is no such program."""
        self._check(self._lib.engine_set_program(self._state, node, peak is not None, peak or 0))

    def _check(self, status: int) -> bool:
        """Return whether it is done, given what the compiled search returned. Raises what went wrong."""
        lib = self._lib
        if status in (lib.FINISHED, lib.PAUSED):
            return status == lib.FINISHED
        waiting = int(self.progress.waiting)
        asks = {lib.NEEDS_STEPS: "steps", lib.NEEDS_ANSWERS: "answers"}
        asks |= {lib.NEEDS_PROGRAM: "program", lib.NEEDS_ASSUMPTION: "assumption"}
        if status in asks:
            raise Suspended(asks[status], waiting)
        if status == lib.NO_MEMORY:
            raise MemoryError
        if status == lib.TOO_LARGE:
            raise MorelloError("search has met more Specs than it can number", "make the sizes smaller")
        if status == lib.CIRCLE:
            raise PluginError(
                "a rewrite leads from a Spec back to that Spec, so that search has no end",
                "each step should make sizes smaller, take memory, or replace the operation",
            )
        raise AssertionError(f"no step on node {waiting} costs what it was found to cost")
