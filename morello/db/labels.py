"""The labels of a table as text: operation, rank, whether it is serial, and the state of each operand."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from morello.errors import MorelloError
from morello.frontend.graphs import Operations, parse_operation
from morello.ir.dtypes import DType, by_name
from morello.ir.layout import Layout, PhysicalDim
from morello.ir.ops import Operation
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import OperandState

_LABELS = re.compile(r"(?P<op>.+) (?P<rank>[0-9]{1,2})(?P<serial> serial)?: (?P<states>.*)")
_STATE = re.compile(
    r"(?P<dtype>\w+) (?P<level>\w+) (?P<layout>-|layout\[.*\]) c(?P<contig>[0-9]{1,18})(?P<ua> ua)?"
    r"( v(?P<vector>[0-9]{1,18}))?( s(?P<spacing>[0-9]{1,18}))?"
)
_STRIP = re.compile(r"([0-9]{1,18})(?:(p|oe)([0-9]{1,18}))?")
_SEPARATOR = " | "


def write(labels: LogicalSpec) -> str:
    """Return text that two Specs share exactly if they are of one table, e.g.
    `FillZero 2 serial: f32 L1 layout[0, 1] c2`."""
    return _write(labels.op, len(labels.shape), labels.states, labels.serial)


@lru_cache(maxsize=1 << 16)
def _write(op: Operation, rank: int, states: tuple[OperandState, ...], serial: bool) -> str:
    return f"{op} {rank}{' serial' if serial else ''}: {_SEPARATOR.join(map(_write_state, states))}"


def _write_state(state: OperandState) -> str:
    layout = "-" if state.layout is None else str(state.layout)
    unaligned = "" if state.aligned else " ua"
    vector = "" if state.vector is None else f" v{state.vector}"
    spacing = f" s{state.spacing}" if state.spacing else ""
    return f"{state.dtype} {state.level} {layout} c{state.contig}{unaligned}{vector}{spacing}"


def read(text: str, operations: Operations, dtypes: Mapping[str, DType]) -> LogicalSpec:
    """Return the labels that `write` made text of, with every size 1, where the language has these words.

    Raises MorelloError for any other text.
    """
    fields = _LABELS.fullmatch(text)
    if fields is None:
        raise _unknown(text)
    states = tuple(_read_state(state, dtypes) for state in fields["states"].split(_SEPARATOR))
    rank = int(fields["rank"])
    return LogicalSpec(parse_operation(fields["op"], rank, operations), (1,) * rank, states, bool(fields["serial"]))


def _read_state(text: str, dtypes: Mapping[str, DType]) -> OperandState:
    fields = _STATE.fullmatch(text)
    if fields is None:
        raise _unknown(text)
    vector = None if fields["vector"] is None else int(fields["vector"])
    layout = None if fields["layout"] == "-" else _read_layout(fields["layout"])
    dtype = by_name(fields["dtype"], dtypes)
    spacing = int(fields["spacing"] or 0)
    return OperandState(dtype, fields["level"], layout, int(fields["contig"]), not fields["ua"], vector, spacing)


def _read_layout(text: str) -> Layout:
    words = text.removeprefix("layout[").removesuffix("]").split(", ")
    return Layout(tuple(_read_dim(word) for word in words if word))


def _read_dim(text: str) -> PhysicalDim:
    found = _STRIP.fullmatch(text)
    if found is None:
        raise _unknown(text)
    return PhysicalDim(int(found[1]), int(found[3]) if found[3] else None, found[2] == "oe")


def _unknown(text: str) -> MorelloError:
    return MorelloError(f"{text!r} are no labels of a table", "they look like: FillZero 1 serial: f32 L1 layout[0] c1")
