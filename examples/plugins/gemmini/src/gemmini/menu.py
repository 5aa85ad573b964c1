"""Menu items of [Hong2025] and prompts for language models, for `morello tune`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from morello_tune import MenuItem, TuningCandidate, TuningInfo, TuningPlugin
from morello_tune.edits import child_started, distinct_edits, insert_step, sites

from morello.plugins import MoveStep, Schedule, ToAccum

from .array import FP32, INT8, Array

_RESIDENT = """\
All of the second matrix fetched once, outside of the loop over rows, and not for each tile of these. Before:
    tile [1, 16, 256, 64]
    move 1 to SPAD as layout[0, 2, 1, 2p16]
    synthesize
After:
    move 1 to SPAD as layout[0, 2, 1, 2p16]
    tile [1, 16, 256, 64]
    synthesize"""


def menu(array: Array) -> tuple[MenuItem, ...]:
    """Return the items that only an array has."""
    return (
        MenuItem(
            name="resident",
            text="move more data to the scratchpad, outside of more loops, so that it is reused and loaded once",
            edits=partial(_resident, array),
            phase="early",
            example=_RESIDENT,
            triggers=("resident", "scratchpad", "reuse"),
        ),
        MenuItem(
            name="overwrite",
            text="let the first product of each sum set the accumulator, in place of moving zeros in",
            edits=partial(_overwrite, array),
            applies=lambda candidate: any(isinstance(site.step, ToAccum) for site in sites(candidate.impl)),
            phase="late",
        ),
    )


def _resident(array: Array, candidate: TuningCandidate) -> Iterator[Schedule]:
    """Fetch an operand anywhere on the way to the kernel; where it was fetched before, it is there already."""

    def found() -> Iterator[Callable[[], Schedule]]:
        for site in sites(candidate.impl):
            if site.main:
                for operand in (0, 1):
                    yield partial(insert_step, candidate, site, MoveStep(operand, "SPAD", array.blocks(3)))

    return distinct_edits(candidate, found())


def _overwrite(array: Array, candidate: TuningCandidate) -> Iterator[Schedule]:
    """Take products for whole sums where these begin as zeros: search finds loops over them."""

    def found() -> Iterator[Callable[[], Schedule]]:
        for site in sites(candidate.impl):
            if isinstance(site.step, ToAccum):
                moves = [MoveStep(operand, "SPAD", array.blocks(3)) for operand in (0, 1)]
                missing = [move for move in moves if site.spec.logical.states[move.operand].level != "SPAD"]
                yield partial(child_started, candidate, site, *missing)

    return distinct_edits(candidate, found())


def tuning(array: Array) -> TuningInfo:
    """Return the description of an array for prompts."""
    dim = array.dim
    return TuningInfo(
        description=(
            f"A systolic array of {dim}×{dim} processing elements, which keeps a tile of the second matrix "
            f"({array.element}) and adds products up in {array.sums}. Software manages its memories: operands are "
            f"fetched from memory (GL) to the scratchpad (SPAD, {array.scratchpad >> 10} KiB), sums stay in the "
            f"accumulator (ACC, {array.accumulator >> 10} KiB) and are moved out to memory. Both hold matrices in "
            f"blocks of {dim} columns: {array.blocks(3)}. "
            f"An instruction moves up to {dim} rows of up to {4 * dim} columns in, or {dim} columns "
            "out. Programs are judged by the bytes they move, and 16 more for each instruction."
        ),
        rules=(
            "A product is computed where both factors are in SPAD and sums in ACC, in the layout of blocks.",
            f"k and n are multiples of {dim}, and tiles for the kernels Compute and ComputeAdd have n = {dim}.",
            "Data moved to SPAD or ACC has to fit into its free part.",
            "Loops are not parallel.",
        ),
    )


def _plugin(array: Array) -> TuningPlugin:
    return TuningPlugin(target=array.name, menu=menu(array), info=tuning(array))


TUNE_INT8 = _plugin(INT8)
TUNE_FP32 = _plugin(FP32)
