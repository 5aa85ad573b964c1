"""Costs of lines are found again on machines that have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs
import pytest
from morello_vectors.tile_cost import Lines
from morello_x86.calibration.tile_lines import Taken, Walks, cases_of, measure, reading

#: What a call takes with all in L1, by its multiply-adds.
_NEAR = 6
_FREE = Lines(stream=0, run=0, apart=0, out=0, half_page=0, page=0)


@attrs.define
class Known:
    """A machine on which lines of each level cost what `levels` say."""

    size: int
    levels: Mapping[str, Lines]
    quick: bool = True

    def build(self, source: str, flags: Sequence[str] = ()) -> Path:
        raise NotImplementedError("lines are measured in units")

    def units(self, source: str, names: Sequence[str]) -> list[float]:
        walks = Walks(self.size)
        times = {}
        for level, cases in cases_of(self.size).items():
            for case in cases:
                near = 128 * _NEAR * case.rows * case.vectors
                one = Taken(case, 0, near, *walks.shape(case))
                times[case.name] = self._call(one, self.levels[level]) * walks.calls(case)
        assert all(f"static void {name}(" in source for name in names)
        return [times[name] for name in names]

    def _call(self, one: Taken, lines: Lines) -> float:
        if one.case.walks == "out":
            return one.near + 2 * one.runs * one.lines * lines.out
        spaced = {2048: lines.half_page, 4096: lines.page}.get(one.case.pitch, 0)
        apart = lines.apart if one.case.pitch and one.case.walks == "rhs" else 0
        return float(reading(one, lines.stream, lines.run, apart, spaced))


@pytest.mark.parametrize("size", [32, 64])
def test_what_lines_cost_is_found(size: int) -> None:
    levels = {
        "L1": _FREE,
        "L2": Lines(stream=20, run=2, apart=4, out=7, half_page=35, page=70),
        "L3": Lines(stream=30, run=1, apart=9, out=9, half_page=50, page=90),
        "GL": Lines(stream=60, run=12, apart=90, out=30, half_page=100, page=160),
    }
    found = measure(size, Known(size, levels))
    for level, lines in levels.items():
        for one, other in zip(found[level], lines, strict=True):
            assert one == pytest.approx(other, abs=2), level


@pytest.mark.parametrize("size", [32, 64])
def test_where_all_is_as_near_lines_cost_nothing(size: int) -> None:
    assert set(measure(size, Known(size, dict.fromkeys(("L1", "L2", "L3", "GL"), _FREE))).values()) == {_FREE}
