"""Rewrites: semantics-preserving steps from a Spec to a node over smaller Specs, one family a file."""

from morello.rewrites.base import Rewrite, RewriteCase, Vector, Word, argument
from morello.rewrites.broadcast_first import BroadcastFirst
from morello.rewrites.bufferize import Bufferize
from morello.rewrites.convert import Convert
from morello.rewrites.fit import ExactFit
from morello.rewrites.materialize import Materialize, Rematerialize
from morello.rewrites.move import MoveStep
from morello.rewrites.one_group import OneGroup
from morello.rewrites.pad import PadStep
from morello.rewrites.select import Select
from morello.rewrites.softmax import ToMaxAndDenominator, ToMaxAndUnscaled, ToSoftmaxParts, ToSoftmaxPartsRecompute
from morello.rewrites.softmax_per_part import OnePart, ParallelSplitSoftmax
from morello.rewrites.spatial_split import SpatialSplit
from morello.rewrites.split import Split
from morello.rewrites.tile import Tile
from morello.rewrites.to_accum import ToAccum
from morello.rewrites.to_move import ToMove
from morello.rewrites.to_sum import ToSum

#: The rewrites of [Kaufman2025] and more, which a target for dense linear algebra wants, in tie-break order.
STANDARD: tuple[type[Rewrite], ...] = (
    Select,
    ToAccum,
    ToMove,
    ToSum,
    ToSoftmaxParts,
    ToSoftmaxPartsRecompute,
    ToMaxAndUnscaled,
    ToMaxAndDenominator,
    ParallelSplitSoftmax,
    OnePart,
    BroadcastFirst,
    Materialize,
    Rematerialize,
    Convert,
    Bufferize,
    PadStep,
    OneGroup,
    SpatialSplit,
    Tile,
    Split,
    ExactFit,
    MoveStep,
)

__all__ = [
    "STANDARD",
    "BroadcastFirst",
    "Bufferize",
    "Convert",
    "ExactFit",
    "Materialize",
    "MoveStep",
    "OneGroup",
    "OnePart",
    "PadStep",
    "ParallelSplitSoftmax",
    "Rematerialize",
    "Rewrite",
    "RewriteCase",
    "Select",
    "SpatialSplit",
    "Split",
    "Tile",
    "ToAccum",
    "ToMaxAndDenominator",
    "ToMaxAndUnscaled",
    "ToMove",
    "ToSoftmaxParts",
    "ToSoftmaxPartsRecompute",
    "ToSum",
    "Vector",
    "Word",
    "argument",
]
