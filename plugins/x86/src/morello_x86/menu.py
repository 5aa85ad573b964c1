"""The part of x86-64 in `morello tune`: items of its menu, and words for language models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from morello_tune import MenuItem, TuningCandidate, TuningInfo
from morello_tune.edits import child_started, distinct_edits, replace_step, sites

from morello.rewrites.select import Select
from morello.schedule import Schedule

_STREAMED = "Streamed"


def _stream(candidate: TuningCandidate) -> Iterator[Schedule]:
    """Let a kernel write past the caches, or through them where it does not."""

    def found() -> Iterator[Callable[[], Schedule]]:
        for site in sites(candidate.impl):
            step, logical = site.step, site.spec.logical
            if isinstance(step, Select) and step.kernel.endswith(_STREAMED):
                yield partial(child_started, candidate, site)
                yield partial(replace_step, candidate, site, Select(step.kernel.removesuffix(_STREAMED)))
            for one in Select.steps(logical, candidate.target):
                if one.kernel.endswith(_STREAMED) and one != step:
                    yield partial(child_started, candidate, site, one)

    return distinct_edits(candidate, found())


MENU = (
    MenuItem(
        name="stream",
        text="write results past the caches, or through them again (kernels called ...Streamed)",
        edits=_stream,
        phase="late",
    ),
)


def tuning(vectors: str, registers: int) -> TuningInfo:
    """Return the description of an x86-64 target: `vectors` are its instructions in words."""
    return TuningInfo(
        description=(
            f"An x86-64 core with {vectors}, {registers} vector registers (level VRF), 16 general registers (RF), "
            "an L1 and an L2 cache, and memory (GL). Caches are the hardware's: a move to L1 or L2 that keeps layout "
            "and type copies nothing, but says that the operand is reused there. A move with another layout packs. "
            "Kernels called RegisterTile keep sums in registers over all of k and read operands wherever they lie; "
            "strips of columns are read fastest. Loops are cheap; tiles that leave boundaries need a schedule for each."
        ),
        rules=(
            "Registers are used by kernels: `select` one instead of moving operands to RF or VRF by hand.",
            "Sizes along columns are multiples of the values in a vector, or `fit` covers the rest.",
            "A buffer in L1 or L2 takes at most the bytes of the level that are free.",
        ),
    )
