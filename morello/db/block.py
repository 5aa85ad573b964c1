"""Answers as they go into the database and come out: to many cells of one table, or to one Spec."""

from __future__ import annotations

from enum import IntEnum
from typing import TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from morello.ir.limits import Limits
from morello.ir.spec import LogicalSpec

Ints: TypeAlias = npt.NDArray[np.int64]

#: Search counts costs in doubles, and refuses those that it cannot count exactly.
LARGEST_COST = (1 << 53) - 1


class AnswerKind(IntEnum):
    """A kind of answer to a Spec."""

    EXACT = 0  # the cost of the optimum
    LOWER = 1  # no program costs less
    NONE = 2  # there is no program


#: In place of a Kind: nothing is known.
UNKNOWN = -1


@attrs.frozen(eq=False)
class AnswerBlock:
    """Answers for N cells of one table: Specs that differ in numbers only.

    The sizes in the shape of `labels` are ignored, but for their number, the rank. Limits and peaks are bytes per
    level in normal form. An EXACT answer holds for every limits L with peaks <= L <= limits; LOWER and NONE hold
    for all limits up to `limits`.
    """

    labels: LogicalSpec
    shapes: Ints  # [N, rank]
    limits: Ints  # [N, levels], under which the cells were solved
    peaks: Ints  # [N, levels]; EXACT: of the chosen program, else 0
    costs: Ints  # [N], at most LARGEST_COST; EXACT: of the optimum; LOWER: no program costs less; NONE: 0
    kinds: npt.NDArray[np.int8]  # [N]
    steps: tuple[str, ...]  # as in a schedule
    step: npt.NDArray[np.int32]  # [N]; EXACT: which of `steps` was chosen, else -1


@attrs.frozen
class Entry:
    """The answer to one Spec. `peak` (bytes per level) and `step` are those of the optimum, if it is EXACT.

    That a `foreign` one is the optimum is another's word.
    """

    cost: int
    kind: AnswerKind
    peak: Limits
    step: str | None
    foreign: bool = attrs.field(default=False, eq=False)
