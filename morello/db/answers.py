"""Answers to Specs: to many Specs of one table, and to one Spec."""

from __future__ import annotations

from enum import IntEnum
from typing import TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from morello.ir.limits import Limits
from morello.ir.spec import LogicalSpec

Ints: TypeAlias = npt.NDArray[np.int64]

#: Search counts costs in doubles, and refuses costs that these do not hold exactly.
LARGEST_COST = (1 << 53) - 1


class AnswerKind(IntEnum):
    """The kind of an answer."""

    EXACT = 0  # the optimal cost
    LOWER = 1  # a lower bound of the cost
    NONE = 2  # no program exists


@attrs.frozen(eq=False)
class AnswerBlock:
    """Answers to N Specs of one table, which differ in sizes and limits only.

    `labels` gives the rest of the Spec; its shape counts by its length, the rank. Limits and peaks are bytes per level
    in normal form. An EXACT answer holds for all limits L with peaks <= L <= limits, other answers for all L <= limits.
    """

    labels: LogicalSpec
    shapes: Ints  # [N, rank]
    limits: Ints  # [N, levels], under which the Specs were solved
    peaks: Ints  # [N, levels]; EXACT: of the chosen program, else 0
    costs: Ints  # [N], at most LARGEST_COST; EXACT: the optimum; LOWER: the bound; NONE: 0
    kinds: npt.NDArray[np.int8]  # [N]
    steps: tuple[str, ...]  # texts of first steps, as in a schedule
    step: npt.NDArray[np.int32]  # [N], index into `steps`; -1 unless EXACT


@attrs.frozen
class SpecAnswer:
    """The answer to one Spec. `peak`, in bytes per level, and `step` are those of the optimum of an EXACT answer.

    An `unverified` answer was imported, or found with the help of imported ones.
    """

    cost: int
    kind: AnswerKind
    peak: Limits
    step: str | None
    unverified: bool = attrs.field(default=False, eq=False)

    def __str__(self) -> str:
        if self.kind == AnswerKind.NONE:
            return "no program"
        if self.kind == AnswerKind.LOWER:
            return f"a cost of at least {self.cost:,}"
        return f"cost {self.cost:,} with peak {list(self.peak)} by `{self.step}`"
