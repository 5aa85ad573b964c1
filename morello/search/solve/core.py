"""The compiled search of one engine: nodes, hyperedges, and the requests of a search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from morello.errors import MorelloError, PluginError
from morello.search.arrays import Floats, Ints
from morello.search.structs import Pointer, Structs

#: In place of a chosen step: the program of an earlier search.
RECALLED = -2
#: Turns of search between two returns to Python: some 0.1 ms.
QUOTA = 256

_UNKNOWN_PEAK = (1 << 64) - 1


@attrs.frozen(eq=False)
class Nodes:
    """Some nodes, [n] each: `low` <= cost <= `high`; `limits` are words (`LimitCodes`)."""

    table: Ints
    shape: Ints
    limits: Any
    low: Floats
    high: Floats
    solved: Any
    recalled: Any


@attrs.frozen
class Hyperedge:
    """A step on a node: its own cost, the bounds of its best program, its parts, and how many times each runs."""

    priority: int
    own: float
    low: float
    high: float
    parts: tuple[int, ...]
    times: tuple[float, ...]


@attrs.frozen
class Chosen:
    """The chosen step of a solved node, its program's peak as a word, None if unknown, and its parts."""

    priority: int
    peak: int | None
    parts: tuple[int, ...]


class Suspended(Exception):
    """The search needs something of a node before it can go on.

    `what` is "steps" of generic rewrites, earlier "answers" to its table, an "assumption" where these differ or are
    unverified, or an earlier "program".
    """

    def __init__(self, what: str, node: int):
        super().__init__(f"{what} of node {node}")
        self.what, self.node = what, node


class Core:
    """A state of the compiled search. Nodes are numbered from 1; node 0 means none."""

    def __init__(self, model: Pointer, structs: Structs):
        self._structs = structs
        self.ffi, self._lib = structs.ffi, structs.lib
        self.model = model
        #: Whether no bound excludes a program.
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
        """Return the number of a node, a new one if need be. Limits that do not matter count as full."""
        found = self._lib.engine_node(self._state, table, shape, limits)
        if not found:
            raise MemoryError
        return found

    def nodes(self, first: int = 0, count: int | None = None) -> Nodes:
        """Return `count` nodes from `first` on, by default all."""
        count = len(self) - first if count is None else count
        rows = self._structs.rows("Node", self._lib.engine_nodes(self._state) + first, count)
        solved, recalled = (rows["flags"] & flag != 0 for flag in (self._lib.IS_SOLVED, self._lib.IS_RECALLED))
        table, shape = rows["table"].astype(np.int64), rows["shape"].astype(np.int64)
        return Nodes(table, shape, rows["limits"], rows["low"], rows["high"], solved, recalled)

    def costs(self, node: int) -> tuple[float, float]:
        """Return the bounds of a node; both are infinite where it has no program."""
        own = self._lib.engine_nodes(self._state)[node]
        return own.low, own.high

    def states(self, table: int) -> tuple[int, tuple[int, ...]]:
        """Return the space of a table, and the states of its operands, followed by -1."""
        states = self._lib.engine_states(self._state, table)
        return self._lib.engine_space(self._state, table), tuple(states[0 : self.model.width])

    # Search.

    def start(self, node: int, budget: float, slack: float = 1.0) -> None:
        """Start to solve a node to within `slack` times its bound, or to prove that it costs more than the budget."""
        self._check(self._lib.engine_start(self._state, node, budget, slack))

    def solve(self) -> bool:
        """Go on for some turns; return whether the search is finished. Raises Suspended."""
        return self._check(self._lib.engine_solve(self._state, QUOTA))

    def lookup(self, node: int, budget: float = float("inf")) -> bool:
        """Raise the bound of a node by the abstract search until it exceeds a budget, for some turns.

        Return whether that is done, or the bound can rise no further.
        """
        return self._check(self._lib.engine_lookup(self._state, node, budget, QUOTA))

    def release(self) -> None:
        """Abandon the running search; bounds stay."""
        self._lib.engine_release(self._state)

    def start_choice(self, node: int, *, settle: bool) -> None:
        """Start to choose for a node and all below it.

        The first step of least cost may depend on nodes that are unsolved; they are solved if `settle` is on.
        """
        self._check(self._lib.engine_choice(self._state, node, settle))

    def choose(self) -> bool:
        """Go on choosing for some turns; return whether all is chosen. Raises Suspended."""
        return self._check(self._lib.engine_choose(self._state, QUOTA))

    def chosen(self, node: int) -> Chosen:
        """Return the choice for a node."""
        one = self._lib.engine_chosen(self._state, node)
        parts = tuple(one.nodes[at] for at in range(one.parts))
        return Chosen(one.priority, None if one.peak == _UNKNOWN_PEAK else one.peak, parts)

    def best(self, node: int) -> int:
        """Return the number of the best program found so far for a node, 0 if its steps are not known."""
        return self._lib.engine_best(self._state, node)

    def found(self, program: int) -> tuple[int, list[tuple[int, int]]]:
        """Return the priority of the first step of a program, and the node and program of each part."""
        one = self._lib.engine_found(self._state, program)
        return one.priority, [(one.nodes[at], one.programs[at]) for at in range(one.parts)]

    def forget_program(self, node: int) -> None:
        """Drop the recalled program of a node, so that it is searched for."""
        self._lib.engine_forget(self._state, node)

    def hyperedges(self, node: int, budget: float) -> list[Hyperedge]:
        """Return the hyperedges of a node within a budget. Raises Suspended."""
        self._check(self._lib.engine_expand(self._state, node, budget))
        every, found = self._lib.engine_times(self._state), list[Hyperedge]()
        for index in range(self._lib.engine_steps(self._state, node)):
            one = self._lib.engine_step(self._state, node, index)
            parts = [one.part[at] for at in range(one.parts)]
            nodes, times = tuple(part.node for part in parts), tuple(every[part.times] for part in parts)
            found.append(Hyperedge(one.priority, one.own, one.low, one.high, nodes, times))
        return found

    # Requests.

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
        """Add a step of a generic rewrite; `live`, [parts, levels], are the bytes held while each part runs."""
        flat = [amount for row in live for amount in row]
        self._check(self._lib.engine_add_step(self._state, node, priority, cost, needs, len(parts), parts, times, flat))

    def steps_added(self, node: int) -> None:
        """Declare that all steps of generic rewrites on a node are added."""
        self._lib.engine_steps_added(self._state, node)

    def set_answers(self, table: int, answers: dict[str, Any] | None) -> None:
        """Set the earlier answers to a table: the fields of `Answers` in `_engine.h`."""
        known = self._structs.struct("Answers", answers or {})
        self._check(self._lib.engine_answers(self._state, table, known))

    def assume(self, node: int, low: float, high: float) -> None:
        """Set the bounds of a node from an earlier search."""
        self._check(self._lib.engine_assume(self._state, node, low, high))

    def tighten(self, node: int, cost: int) -> None:
        """Lower the upper bound of a node to the cost of a program whose steps are not among the nodes."""
        self._check(self._lib.engine_tighten(self._state, node, cost))

    def set_program(self, node: int, peak: int | None) -> None:
        """Set the peak of the recalled program of a node, None: it has no such program."""
        self._check(self._lib.engine_set_program(self._state, node, peak is not None, peak or 0))

    def _check(self, status: int) -> bool:
        """Return whether the search is finished, given its status. Raises Suspended and errors."""
        lib = self._lib
        if status in (lib.FINISHED, lib.PAUSED):
            return status == lib.FINISHED
        waiting = int(self.progress.waiting)
        needs = {lib.NEEDS_STEPS: "steps", lib.NEEDS_ANSWERS: "answers"}
        needs |= {lib.NEEDS_PROGRAM: "program", lib.NEEDS_ASSUMPTION: "assumption"}
        if status in needs:
            raise Suspended(needs[status], waiting)
        if status == lib.NO_MEMORY:
            raise MemoryError
        if status == lib.TOO_LARGE:
            raise MorelloError("search has met more Specs than it can number", "make the sizes smaller")
        if status == lib.CIRCLE:
            raise PluginError(
                "a rewrite leads from a Spec back to that Spec, so that search has no end",
                "each step should make sizes smaller, take memory, or replace the operation",
            )
        raise AssertionError(f"no step on node {waiting} has its proven cost")
