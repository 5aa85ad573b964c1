"""Answers of kernels' functions, kept by those fields of operand states that they were asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any, Generic, TypeVar

import attrs

from morello.ir.tensor import OperandState

T = TypeVar("T")

_FIELDS = frozenset(field.name for field in attrs.fields(OperandState))
#: A field of the state of one operand.
_Asked = tuple[int, str]
_Values = Callable[[Sequence[OperandState]], tuple[object, ...]]


class _Watched(OperandState):
    """An operand state that notes which of its fields it is asked for; in all else it is the state itself."""

    __slots__ = ("_asked", "_operand")
    _asked: set[_Asked]
    _operand: int

    @classmethod
    def of(cls, state: OperandState, operand: int, asked: set[_Asked]) -> OperandState:
        watched = cls(**{name: getattr(state, name) for name in _FIELDS})
        object.__setattr__(watched, "_operand", operand)
        object.__setattr__(watched, "_asked", asked)
        return watched

    def __getattribute__(self, name: str) -> Any:
        if name in _FIELDS:
            object.__getattribute__(self, "_asked").add((object.__getattribute__(self, "_operand"), name))
        # States made of it, and those it is compared with, are plain ones.
        return OperandState if name == "__class__" else object.__getattribute__(self, name)


class Answers(Generic[T]):
    """Answers of a function of operand states, called once for all states that agree in what it looks at."""

    def __init__(self, function: Callable[[Sequence[OperandState]], T]):
        self._function = function
        self._known: dict[frozenset[_Asked], tuple[_Values, dict[tuple[object, ...], T]]] = {}
        #: What the function asks for now, and the states that note it there.
        self._asked: set[_Asked] = set()
        self._watched: dict[tuple[int, OperandState], OperandState] = {}

    def __call__(self, states: Sequence[OperandState]) -> T:
        for values, answers in self._known.values():
            found = values(states)
            if found in answers:
                return answers[found]
        self._asked.clear()
        answer = self._function([self._watch(state, operand) for operand, state in enumerate(states)])
        fields = frozenset(self._asked)
        values, answers = self._known.setdefault(fields, (_values_of(fields), {}))
        answers[values(states)] = answer
        return answer

    def _watch(self, state: OperandState, operand: int) -> OperandState:
        if (operand, state) not in self._watched:
            self._watched[operand, state] = _Watched.of(state, operand, self._asked)
        return self._watched[operand, state]


def _values_of(fields: Iterable[_Asked]) -> _Values:
    """Return a function that gives the values of some fields."""
    by_operand = groupby(sorted(fields), key=itemgetter(0))
    getters = [(operand, attrgetter(*(name for _, name in group))) for operand, group in by_operand]
    return lambda states: tuple([get(states[operand]) for operand, get in getters])
