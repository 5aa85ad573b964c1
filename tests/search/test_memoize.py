"""Memoized results for all states that agree in the fields read equal those of the function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import product
from operator import attrgetter

import attrs
import numpy as np
import pytest

from morello.ir.dtypes import F32, U8
from morello.ir.layout import row_major
from morello.ir.tensor import OperandState
from morello.search.tables.memoize import StateList, evaluated

_L1 = OperandState(F32, "L1", row_major(2), contig=2)
_STATES = tuple(
    OperandState(dtype, level, row_major(2), contig, aligned)
    for dtype, level, contig, aligned in product((F32, U8), ("L1", "GL"), (0, 2), (False, True))
)


@cache
def _kept(state: OperandState) -> str:
    return f"{state.level}{state.contig}"


_FUNCTIONS: dict[str, tuple[int, Callable[[Sequence[OperandState]], object]]] = {
    "nothing": (1, lambda states: len(states)),
    "one field": (2, lambda states: states[0].level),
    "one field of the second": (2, lambda states: states[1].contig),
    "a property": (2, lambda states: states[0].contiguous),
    "a branch": (3, lambda states: states[0].aligned and states[1].dtype),
    "equality": (256, lambda states: states[0] == states[1]),
    "equality with a plain state": (2 + 2 + 2 + 2, lambda states: states[0] == _L1),
    "hash": (16, lambda states: _kept(states[0])),
    "a changed state": (16, lambda states: attrs.evolve(states[0], level="GL")),
    "its class": (1, lambda states: (type(attrs.evolve(_L1)), states[0].__class__)),
    "words": (16, lambda states: repr(states[0])),
}


@pytest.mark.parametrize("name", _FUNCTIONS)
def test_results_are_those_of_the_function_called_once_per_class_of_states(name: str) -> None:
    most, function = _FUNCTIONS[name]
    calls = 0

    def counted(states: Sequence[OperandState]) -> object:
        nonlocal calls
        calls += 1
        return function(states)

    seen = np.zeros((len(_STATES), len(_STATES)), dtype=np.int64)
    together = np.ones(seen.shape, dtype=np.bool_)
    for places, result in evaluated(counted, [StateList(_STATES), StateList(_STATES)], together):
        seen[np.ix_(*places)] += 1
        for first, second in product(*(at.tolist() for at in places)):
            assert result == function([_STATES[first], _STATES[second]])
    assert np.all(seen == 1)
    assert calls <= most


def test_unwanted_tuples_are_not_evaluated() -> None:
    read: list[tuple[str, str]] = []

    def levels(states: Sequence[OperandState]) -> object:
        read.append((states[0].level, states[1].level))
        return None

    together = np.eye(len(_STATES), dtype=np.bool_)
    assert len(list(evaluated(levels, [StateList(_STATES), StateList(_STATES)], together))) == 2
    assert sorted(read) == [("GL", "GL"), ("L1", "L1")]


def test_functions_may_share_a_state_list() -> None:
    every, some = StateList(_STATES), np.array([1, 6, 14])
    for name in ("level", "contig", "level"):
        for operand, states in ((every, _STATES), (every.at(some), [_STATES[at] for at in some])):
            function, together = attrgetter(name), np.ones(len(states), dtype=np.bool_)
            found = [*evaluated(lambda states, get=function: get(states[0]), [operand], together)]
            assert {int(at): result for (places,), result in found for at in places} == dict(
                enumerate(map(function, states))
            )
            assert len(found) == 2


def test_states_made_from_recording_ones_are_plain() -> None:
    only = [StateList([_L1])]
    ((_, made),) = evaluated(lambda states: attrs.evolve(states[0], level="GL"), only, np.ones(1, dtype=np.bool_))
    assert type(made) is OperandState


def test_errors_of_the_function_propagate() -> None:
    def fails(states: Sequence[OperandState]) -> object:
        raise ValueError(states[0].level)

    with pytest.raises(ValueError, match="L1"):
        next(evaluated(fails, [StateList([_L1])], np.ones(1, dtype=np.bool_)))
