"""Lower bounds by class: the optimum of the relaxed problem, for all shapes and the limits that matter most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from morello.ir.limits import Limits
from morello.search.bounds.class_tuples import Classes, SpaceBounds
from morello.search.bounds.relaxed import Relaxed, StepBounds
from morello.search.budget import check_budget
from morello.search.structs import Structs
from morello.search.tables.shapes import Key
from morello.search.tables.step_tables import SearchTables

#: No program costs less: each has a microkernel, and each microkernel costs at least this.
LEAST = 1.0


class Bounds(Relaxed):
    """Lower bounds on the cost of every Spec below the goals whose limits are not above `ceilings`.

    `trivial` bounds are all `LEAST`: generic rewrites may lead to any Spec.
    """

    def __init__(
        self,
        goals: Sequence[tuple[Key, Classes]],
        tables: SearchTables,
        kinds: Sequence[type[StepBounds]],
        *,
        trivial: bool = False,
        ceilings: Limits | None = None,
    ):
        super().__init__(goals, tables, kinds, ceilings)
        if trivial:
            for bounds in self.by_key.values():
                bounds.values = np.full((bounds.space.count + 1, bounds.width + 1), LEAST, dtype=np.float32)
        else:
            self._solve_all()

    def _solve_all(self) -> None:
        """Compute all values. One pass suffices unless pipelines form a circle; then iterate to a fixed point."""
        structs = Structs()
        for bounds in self.by_key.values():
            check_budget(4 * (bounds.space.count + 1) * (bounds.width + 1))
            bounds.values = np.full((bounds.space.count + 1, bounds.width + 1), np.inf, dtype=np.float32)
        model = self._pack(structs)
        stale, solved = {*self.order}, set[Key]()
        while stale:
            for key in self.order:
                if key in stale:
                    check_budget()
                    stale.remove(key)
                    changed = structs.lib.engine_lower_bounds(model, self.index[key])
                    if changed < 0:
                        raise MemoryError
                    if changed or key not in solved:
                        stale |= {other for other in self.order if key in self.below[other]}
                    solved.add(key)

    def _pack(self, structs: Structs) -> Any:
        """Return the relaxed problem, marshalled."""
        spaces = [self._space(bounds, structs) for bounds in self.by_key.values()]
        counts = self.limit_codes.counts
        levels: list[dict[str, Any]] = [
            {
                "codes": count,
                "steps": len(codes),
                "bytes": self.limit_codes.values[level],
                "step": self.limit_steps[level, :count],
                "code": codes,
            }
            for level, (count, codes) in enumerate(zip(counts, self.step_codes, strict=True))
        ]
        fields = {
            "levels": len(levels),
            "steps": max(map(len, self.step_codes)),
            "level": [*levels, {"steps": 1}],
            "space": spaces,
            "cheapest": self.cheapest,
            "smallest": self.smallest,
        }
        return structs.struct("BoundModel", fields)

    def _space(self, bounds: SpaceBounds, structs: Structs) -> dict[str, Any]:
        fields = {
            "shapes": bounds.space.count,
            "tuples": len(bounds.tuples),
            "width": bounds.width + 1,
            "values": bounds.values,
            "tensor": bounds.space.tensors,
            "full": bounds.full,
            "per_level": bounds.per_level,
            "order": np.concatenate(bounds.space.layers()),
        }
        for steps in self.steps:
            fields |= steps.fields(bounds)
        return structs.fields("BoundSpace", fields)
