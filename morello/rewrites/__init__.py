"""Rewrites: semantics-preserving steps from a Spec to a node over smaller Specs, one family a file."""

from morello.rewrites.base import Case, Rewrite, Vector, Word, argument
from morello.rewrites.fit import ExactFit
from morello.rewrites.move import Move
from morello.rewrites.select import Select
from morello.rewrites.split import Split
from morello.rewrites.tile import Tile
from morello.rewrites.to_accum import ToAccum

#: The rewrites of the paper's search that a target for dense linear algebra wants, in tie-break order.
STANDARD: tuple[type[Rewrite], ...] = (Select, ToAccum, Tile, Split, ExactFit, Move)

__all__ = [
    "STANDARD",
    "Case",
    "ExactFit",
    "Move",
    "Rewrite",
    "Select",
    "Split",
    "Tile",
    "ToAccum",
    "Vector",
    "Word",
    "argument",
]
