"""Map Specs to nodes of an engine, and back."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from morello.ir.spec import LogicalSpec, Spec
from morello.search.bounds.class_tuples import Classes
from morello.search.bounds.solve import Bounds
from morello.search.solve.core import Core
from morello.search.tables.operand_states import States
from morello.search.tables.shapes import Space, key_of
from morello.search.tables.step_tables import ranked_states


class Directory:
    """Maps Specs to nodes and nodes to Specs."""

    def __init__(self, bounds: Bounds, core: Core):
        self._bounds, self._core, self._states = bounds, core, bounds.states
        self._spaces = [own.space for own in bounds.by_key.values()]

    def covers(self, logical: LogicalSpec) -> bool:
        """Return whether a Spec is among those below the seeds."""
        bounds = self._bounds.by_key.get(key_of(logical))
        if bounds is None or bounds.space.number([int(size) for size in logical.shape]) < 0:
            return False
        if not all(one in self._states.numbers for one in ranked_states(logical)):
            return False
        return classes_of(logical, self._states) in bounds.tuples

    def table_of(self, logical: LogicalSpec) -> int:
        """Return the subproblem table of a covered Spec."""
        key = key_of(logical)
        states = [self._states.numbers[one] for one in ranked_states(logical)]
        number = self._bounds.by_key[key].tuples[classes_of(logical, self._states)]
        return self._core.table(self._bounds.index[key], number, states)

    def nodes_of(self, specs: Sequence[Spec]) -> list[int]:
        """Return the node of each Spec. All are covered."""
        codes = self._bounds.limit_codes
        found: list[int] = []
        for spec in specs:
            space = self._bounds.by_key[key_of(spec.logical)].space
            shape = space.number([int(size) for size in spec.shape])
            limits = codes.pack(codes.encode(spec.limits).tolist())
            found.append(self._core.node(self.table_of(spec.logical), shape, limits))
        return found

    def spec(self, node: int) -> Spec:
        """Return the Spec of a node."""
        (limits,) = self._bounds.limit_codes.bytes(self._core.nodes(node, 1).limits).tolist()
        return Spec(self.logical(node), tuple(limits))

    def logical(self, node: int) -> LogicalSpec:
        """Return the Spec of a node, without its limits."""
        one = self._core.nodes(node, 1)
        labels = self.labels(int(one.table[0]))
        sizes = self._bounds.by_key[key_of(labels)].space.sizes[:, one.shape[0]]
        return attrs.evolve(labels, shape=tuple(int(size) for size in sizes))

    def space_of(self, table: int) -> Space:
        """Return the space of a table."""
        return self._spaces[self._core.states(table)[0]]

    def labels(self, table: int) -> LogicalSpec:
        """Return a Spec of a table, with sizes of 1."""
        number, states = self._core.states(table)
        space = self._spaces[number]
        labels = tuple(self._states.states[state][1] for state in states[: len(space.operands)])
        return LogicalSpec(space.key.op, (1,) * space.key.rank, labels, space.key.serial)


def least(bounds: Bounds, logical: LogicalSpec) -> float:
    """Return the bound by class of a covered Spec with all memory, infinity: it has no program."""
    own = bounds.by_key[key_of(logical)]
    shape = own.space.number([int(size) for size in logical.shape])
    return float(own.values[shape, own.full[own.tuples[classes_of(logical, bounds.states)]]])


def classes_of(logical: LogicalSpec, states: States) -> Classes:
    """Return the state classes of the operands of a covered Spec."""
    return tuple(int(states.cls[states.numbers[one]]) for one in ranked_states(logical))
