"""Bounds by the pattern of one operand and the classes of the others (`operand_bounds.c`).

They are the costs of the abstract problem in which the other operands have unknown patterns, for all shapes. Mostly
changing the layout of a single operand makes a Spec expensive.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from morello.ir.ops.compose import Compose
from morello.ir.ops.constants import Constants
from morello.search.arrays import Bools, Floats32, Ints
from morello.search.bounds.class_tuples import SpaceBounds
from morello.search.budget import check_budget
from morello.search.layout_bounds.solve import LayoutBounds
from morello.search.structs import Pointer, Structs
from morello.search.tables.shapes import Key

#: Spaces with more bounds than this have none by operand.
_MOST = 100_000_000


class OperandBounds:
    """The bounds of all spaces with transition closures except graphs, which have too many operands."""

    def __init__(self, layouts: LayoutBounds):
        self._layouts, self._bounds = layouts, layouts.bounds
        self._patterns = layouts.patterns
        #: The class of each pattern.
        self._cls: Ints = np.array([pattern.cls for pattern in self._patterns.all], dtype=np.int64)
        #: The fields of each space, converted.
        self._fields: dict[Key, dict[str, Any]] = {}

    def fields(self, own: SpaceBounds, kernel_states: Ints, structs: Structs) -> dict[str, Any]:
        """Return the fields of a space in both models, given the patterns of kernels, [kernels, operands]."""
        key = own.space.key
        if key not in self._layouts.closures or isinstance(key.op, (Compose, Constants)):
            return {}
        unknown = np.full(len(self._bounds.states.classes), -1)
        unknown[self._cls[self._patterns.any]] = self._patterns.any
        blank = self._patterns.any[kernel_states] == kernel_states
        operands = [
            self._operand(own, operand, kernel_states, np.delete(blank, operand, axis=1).all(axis=1))
            for operand in range(len(own.space.operands))
        ]
        if sum(one["rows"] * one["others"] for one in operands) > _MOST:
            return {}
        self._fields[key] = structs.fields("Space", {"by_operand": operands, "blank": unknown[own.classes]})
        return self._fields[key]

    def of(self, key: Key) -> dict[str, Any]:
        """Return the same fields again."""
        return self._fields.get(key, {})

    def _operand(self, own: SpaceBounds, operand: int, kernel_states: Ints, blank: Bools) -> dict[str, Any]:
        cls = self._cls
        solvable = np.flatnonzero(own.solvable)
        # The classes of the other operands, as if this one had class 0.
        rest = own.classes[solvable]
        rest[:, operand] = 0
        other = np.full(len(own.classes), -1)
        _, other[solvable] = np.unique(own.codes(rest).astype(np.int64), return_inverse=True)
        others = int(other.max(initial=-1)) + 1
        tuple_of = np.full((len(self._bounds.states.classes), others), -1)
        tuple_of[own.classes[solvable, operand], other[solvable]] = solvable
        sets = self._layouts.closures[own.space.key][operand].sets
        patterns = [np.array(one["pattern"], dtype=np.int64) for one in sets.fields()]
        counts = sets.counts[sets.of]
        first = np.cumsum(counts) - counts
        rows = int(counts.sum())
        number = own.number(cls[kernel_states]) if len(kernel_states) else np.zeros(0, dtype=np.int64)
        # A space may have no class tuples: the last place is that of none.
        kernel = np.flatnonzero(blank & (np.append(other, -1)[number] >= 0))
        return {
            "row": np.zeros(rows, dtype=np.int32),
            "rows": rows,
            "done": np.zeros(len(first), dtype=np.uint8),
            "first": first,
            "sets": [
                {"places": len(own), "pattern": own, "place": place, "tuple": tuple_of[cls[own]]}
                for own, place in zip(patterns, sets.place, strict=True)
            ],
            "set": sets.of,
            "most": int(sets.counts.max(initial=0)),
            "others": others,
            "tuples": len(other),
            "other": other,
            "kernels": len(kernel),
            "kernel": kernel,
            "kernel_pattern": kernel_states[kernel, operand],
            "kernel_other": other[number[kernel]],
        }

    def compute(self, abstract: Pointer, structs: Structs) -> None:
        """Compute all values, those of the spaces below first."""
        keys = [key for key in self._bounds.order if key in self._fields]
        every = [self._fields[key]["by_operand"][operand] for key in keys for operand in self._operands(key)]
        largest = max((one.rows * one.others for one in every), default=0)
        check_budget(4 * largest)
        # All rows of one operand, before equal ones are shared.
        rows = np.empty(largest, dtype=np.float32)
        for key in keys:
            order = np.concatenate(self._bounds.by_key[key].space.layers()).astype(np.int32)
            numbers = structs.ffi.from_buffer("int32_t[]", order)
            for operand in self._operands(key):
                check_budget()
                own = self._fields[key]["by_operand"][operand]
                own.values = structs.ffi.cast("float *", rows.ctypes.data)
                distinct = structs.lib.engine_bound_operand(abstract, self._bounds.index[key], operand, numbers)
                if distinct < 0:
                    raise MemoryError
                values: Floats32 = structs.keep(rows[: distinct * own.others].copy())
                own.values = structs.ffi.cast("float *", values.ctypes.data)

    def _operands(self, key: Key) -> range:
        return range(len(self._bounds.by_key[key].space.operands))
