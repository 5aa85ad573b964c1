"""Answers of kernels' functions: one for all tuples of operand states that agree in what the function looks at."""

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


class _Watched(OperandState):
    """An operand state that notes which of its fields it is asked for; in all else it is the state itself."""

    __slots__ = ("_asked",)
    _asked: set[str]

    @classmethod
    def of(cls, state: OperandState, asked: set[str]) -> OperandState:
        watched = cls(**{name: getattr(state, name) for name in _FIELDS})
        object.__setattr__(watched, "_asked", asked)
        return watched

    def __getattribute__(self, name: str) -> Any:
        if name in _FIELDS:
            object.__getattribute__(self, "_asked").add(name)
        # States made of it, and those it is compared with, are plain ones.
        return OperandState if name == "__class__" else object.__getattribute__(self, name)


class Choices:
    """States of one operand that functions are asked about, one after the other: many functions about the same."""

    def __init__(self, states: Sequence[OperandState]):
        self._states = states
        self._asked: set[str] = set()
        self._watched: dict[int, OperandState] = {}
        self._numbers: dict[frozenset[str], Ints] = {}
        self._places: Ints = np.arange(len(states))
        self._agreeing: dict[tuple[frozenset[str], int], Ints] = {}

    def __len__(self) -> int:
        return len(self._places)

    def at(self, places: Ints) -> Choices:
        """Return some of these choices, which know what these know."""
        some = copy(self)
        some._places = self._places[places]
        some._agreeing = {}
        return some

    def watched(self, place: int) -> OperandState:
        """Return one of them that notes what it is asked for from now on."""
        self._asked.clear()
        own = int(self._places[place])
        if own not in self._watched:
            self._watched[own] = _Watched.of(self._states[own], self._asked)
        return self._watched[own]

    def agreeing(self, place: int) -> Ints:
        """Return the places of the states that agree with one in what `watched` was asked for."""
        fields = frozenset(self._asked)
        if (fields, place) not in self._agreeing:
            if fields not in self._numbers:
                self._numbers[fields] = self._numbered(fields)
            numbers = self._numbers[fields][self._places]
            self._agreeing[fields, place] = (numbers == numbers[place]).nonzero()[0]
        return self._agreeing[fields, place]

    def _numbered(self, fields: frozenset[str]) -> Ints:
        """Return numbers, [states], that are the same where states agree in some fields."""
        numbers: dict[tuple[object, ...], int] = {}
        found = [tuple([getattr(state, name) for name in fields]) for state in self._states]
        return np.array([numbers.setdefault(values, len(numbers)) for values in found], dtype=np.int64)


def answers(
    function: Callable[[Sequence[OperandState]], T], choices: Sequence[Choices], together: Bools
) -> Iterator[tuple[list[Ints], T]]:
    """Yield what a function says of tuples of one state out of the `choices` of each operand that go `together`.

    It is called once for all that agree in what it looks at. They are among all tuples of some states of each operand:
    the places of these among the choices come with the answer. No two operands have the same `Choices`.
    """
    unknown = together.copy()
    flat, at = unknown.reshape(-1), 0
    while True:
        at += int(flat[at:].argmax())
        if not flat[at]:
            return
        places = [int(place) for place in np.unravel_index(at, unknown.shape)]
        answer = function([own.watched(place) for own, place in zip(choices, places, strict=True)])
        agreeing = [own.agreeing(place) for own, place in zip(choices, places, strict=True)]
        unknown[box(agreeing)] = False
        yield agreeing, answer


def box(places: Sequence[Ints]) -> tuple[Ints, ...]:
    """Return the index of all tuples of these places, as `numpy.ix_` does, which takes five times as long."""
    return tuple([at.reshape(-1, *[1] * behind) for behind, at in enumerate(reversed(places))][::-1])
