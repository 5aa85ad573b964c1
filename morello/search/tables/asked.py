"""Answers of kernels' functions, kept by those fields of operand states that they were asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import attrs

from morello.ir.tensor import OperandState

T = TypeVar("T")

_FIELDS = frozenset(field.name for field in attrs.fields(OperandState))
#: A field of the state of one operand.
_Asked = tuple[int, str]


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
        self._known: dict[tuple[_Asked, ...], dict[tuple[object, ...], T]] = {}
        #: What the function asks for now, and the states that note it there.
        self._asked: set[_Asked] = set()
        self._watched: dict[tuple[int, OperandState], OperandState] = {}

    def __call__(self, states: Sequence[OperandState]) -> T:
        for fields, answers in self._known.items():
            values = _values(states, fields)
            if values in answers:
                return answers[values]
        self._asked.clear()
        answer = self._function([self._watch(state, operand) for operand, state in enumerate(states)])
        fields = tuple(sorted(self._asked))
        self._known.setdefault(fields, {})[_values(states, fields)] = answer
        return answer

    def _watch(self, state: OperandState, operand: int) -> OperandState:
        if (operand, state) not in self._watched:
            self._watched[operand, state] = _Watched.of(state, operand, self._asked)
        return self._watched[operand, state]


def _values(states: Sequence[OperandState], fields: Sequence[_Asked]) -> tuple[object, ...]:
    return tuple([getattr(states[operand], name) for operand, name in fields])
