"""Evaluate a kernel's functions once for all tuples of operand states that agree in the fields that are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import Any, TypeVar

import attrs
import numpy as np

from morello.ir.tensor import OperandState
from morello.search.arrays import Bools, Ints

T = TypeVar("T")

_FIELDS = frozenset(field.name for field in attrs.fields(OperandState))


class _RecordingState(OperandState):
    """An operand state that records which of its fields are read."""

    __slots__ = ("_read",)
    _read: set[str]

    @classmethod
    def of(cls, state: OperandState, read: set[str]) -> OperandState:
        recording = cls(**{name: getattr(state, name) for name in _FIELDS})
        object.__setattr__(recording, "_read", read)
        return recording

    def __getattribute__(self, name: str) -> Any:
        if name in _FIELDS:
            object.__getattribute__(self, "_read").add(name)
        # States made from it, and states compared with it, are plain ones.
        return OperandState if name == "__class__" else object.__getattribute__(self, name)


class StateList:
    """States of one operand, on which several functions are evaluated one after another."""

    def __init__(self, states: Sequence[OperandState]):
        self._states = states
        self._read: set[str] = set()
        self._recording: dict[int, OperandState] = {}
        self._numbers: dict[frozenset[str], Ints] = {}
        self._places: Ints = np.arange(len(states))
        self._agreeing: dict[tuple[frozenset[str], int], Ints] = {}

    def __len__(self) -> int:
        return len(self._places)

    def at(self, places: Ints) -> StateList:
        """Return the sublist at some places. Both lists share their caches."""
        some = copy(self)
        some._places = self._places[places]
        some._agreeing = {}
        return some

    def recording(self, place: int) -> OperandState:
        """Return one of the states; from now on it records which fields are read."""
        self._read.clear()
        own = int(self._places[place])
        if own not in self._recording:
            self._recording[own] = _RecordingState.of(self._states[own], self._read)
        return self._recording[own]

    def agreeing(self, place: int) -> Ints:
        """Return the places of the states that equal one in all fields read since `recording`."""
        fields = frozenset(self._read)
        if (fields, place) not in self._agreeing:
            if fields not in self._numbers:
                self._numbers[fields] = self._numbered(fields)
            numbers = self._numbers[fields][self._places]
            self._agreeing[fields, place] = (numbers == numbers[place]).nonzero()[0]
        return self._agreeing[fields, place]

    def _numbered(self, fields: frozenset[str]) -> Ints:
        """Return numbers, [states], that are equal where states agree in some fields."""
        numbers: dict[tuple[object, ...], int] = {}
        found = [tuple([getattr(state, name) for name in fields]) for state in self._states]
        return np.array([numbers.setdefault(values, len(numbers)) for values in found], dtype=np.int64)


def evaluated(
    function: Callable[[Sequence[OperandState]], T], operands: Sequence[StateList], wanted: Bools
) -> Iterator[tuple[list[Ints], T]]:
    """Yield a function's results on the `wanted` tuples, [states of operand 0, ...], of one state per operand.

    Each result comes with the places of some states of each operand; it holds for all their wanted combinations. The
    function is called once for tuples that agree in the fields it reads. Operands must not share a `StateList`.
    """
    unknown = wanted.copy()
    flat, at = unknown.reshape(-1), 0
    while True:
        at += int(flat[at:].argmax())
        if not flat[at]:
            return
        places = [int(place) for place in np.unravel_index(at, unknown.shape)]
        result = function([own.recording(place) for own, place in zip(operands, places, strict=True)])
        agreeing = [own.agreeing(place) for own, place in zip(operands, places, strict=True)]
        unknown[box(agreeing)] = False
        yield agreeing, result


def box(places: Sequence[Ints]) -> tuple[Ints, ...]:
    """Return the index of all tuples of these places: `numpy.ix_`, five times as fast."""
    return tuple([at.reshape(-1, *[1] * behind) for behind, at in enumerate(reversed(places))][::-1])
