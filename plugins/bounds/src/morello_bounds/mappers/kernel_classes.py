"""Classes of microkernels: families by size, measured alone; those near the best are kept ([Tollenaere2021] §5.1).

A kernel is what `U` and `V` of a scheme say: vectors along one dimension, rows along another one, and positions of a
filter inside. It is measured below a long loop along the sum. A class has all numbers of rows in an interval.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from itertools import combinations, groupby
from pathlib import Path

import attrs

from morello.api.goals import Goal
from morello.atomic_write import write_file
from morello.errors import Inapplicable, MorelloError
from morello.ir.impl import cost_and_peak
from morello.ir.ops.conv import Conv
from morello.ir.ops.matmul import Matmul
from morello.ir.spec import LogicalSpec, Spec
from morello.kernels.target import Target
from morello.schedule import Schedule
from morello_bounds.scheme import Scheme, Specifier, letters
from morello_bounds.scheme_steps import lanes, schedule_of_scheme, sums_of, vector_dim

#: Rows of kernels are along this dimension, for vectors along that one.
_ROWS = {(Matmul, "n"): "m", (Conv, "f"): "w", (Conv, "w"): "f"}
#: The most rows and vectors of a kernel, and the length of the loop along the sum when it is measured.
_MOST, _LONG = 15, 512
#: Kernels keep at least this part of the registers full of sums.
_FULL = 4
#: The columns of files of measured kernels.
_COLUMNS = ("target", "profile", "spec", "kernel", "rate")

#: Returns the time or cost of a program, in any unit; less is better.
Measure = Callable[[Goal], float]


def modelled(goal: Goal) -> float:
    """Return the cost of a program by the target's model."""
    return cost_and_peak(goal.impl).cost


@attrs.frozen(order=True)
class Family:
    """Kernels with `vectors` along one dimension, and these positions of a filter inside."""

    vectors: int
    inside: tuple[tuple[str, int], ...] = ()


@attrs.frozen
class KernelShape:
    """The dimensions of a Spec's kernels: vectors of `values`, rows, and sums, first the one with a loop."""

    along: str
    rows: str
    sums: tuple[str, ...]
    values: int

    @classmethod
    def of(cls, spec: Spec, target: Target) -> KernelShape | None:
        """Return the dimensions; None if the Spec is no product or convolution, or has no vectors."""
        try:
            along = vector_dim(spec.logical)
            rows = _ROWS.get((type(spec.op), along or ""))
            values = lanes(spec.logical, target)
        except Inapplicable:
            return None
        return cls(along, rows, tuple(sums_of(spec.logical)), values) if along and rows else None

    def scheme(self, family: Family, rows: int | None) -> Scheme:
        """Return the U and V of a kernel; without rows, for a λseq."""
        return (
            *(Specifier("U", dim, size) for dim, size in family.inside),
            Specifier("U", self.rows, rows),
            Specifier("U", self.along, family.vectors),
            Specifier("V", self.along, self.values),
        )

    def families(self, spec: Spec, target: Target) -> list[Family]:
        """Return the families whose vectors divide the Spec, with all subsets of its filter's sizes inside."""
        sizes = dict(zip(spec.logical.dims, map(int, spec.logical.shape), strict=True))
        inside = [(dim, sizes[dim]) for dim in self.sums[1:] if sizes[dim] > 1]
        subsets = [one for count in range(len(inside) + 1) for one in combinations(inside, count)]
        vectors = [one for one in range(1, _MOST + 1) if sizes[self.along] % (one * self.values) == 0]
        return [Family(count, one) for one in subsets for count in vectors if count <= _registers(target)]

    def label(self, spec: Spec, family: Family, rows: int) -> str:
        """Return the name of a kernel as in the paper, such as 3R12H2K."""
        spelled = letters(spec.op)
        parts = [*family.inside, (self.rows, rows), (self.along, family.vectors)]
        return "".join(f"{count}{spelled[dim].upper()}" for dim, count in parts)


def _registers(target: Target) -> int:
    return max(level.capacity // level.unit for level in target.levels if level.kind == "vector")


@attrs.frozen
class MeasuredKernel:
    """A kernel and its operations in each unit of time or cost."""

    family: Family
    rows: int
    rate: float


@attrs.frozen
class KernelClass:
    """A family and the numbers of rows, all in an interval, whose kernels are near the best."""

    family: Family
    rows: tuple[int, ...]


@attrs.define
class KernelTable:
    """Measures kernels, and keeps the rates in a file if there is one."""

    measure: Measure = modelled
    path: Path | None = None
    _known: dict[tuple[str, ...], float] = attrs.field(factory=dict[tuple[str, ...], float], init=False)

    def __attrs_post_init__(self) -> None:
        if self.path is None or not self.path.exists():
            return
        try:
            with self.path.open(newline="", encoding="utf-8") as file:
                for row in csv.DictReader(file):
                    self._known[tuple(row[name] for name in _COLUMNS[:-1])] = float(row["rate"])
        except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
            raise MorelloError(f"cannot read kernels from {self.path}: {error}", "remove the file") from error

    def kernels(self, spec: Spec, target: Target) -> list[MeasuredKernel]:
        """Return the rates of all kernels for a Spec that the target has."""
        shape = KernelShape.of(spec, target)
        if shape is None:
            return []
        found: list[MeasuredKernel] = []
        registers, before = _registers(target), len(self._known)
        for family in shape.families(spec, target):
            for rows in range(1, _MOST + 1):
                if registers <= _FULL * rows * family.vectors and rows * family.vectors < registers:
                    rate = self._rate(spec, target, shape, family, rows)
                    found += [MeasuredKernel(family, rows, rate)] if rate else []
        if self.path is not None and len(self._known) > before:
            text = io.StringIO()
            rows = ((*key, repr(rate)) for key, rate in sorted(self._known.items()))
            csv.writer(text, lineterminator="\n").writerows((_COLUMNS, *rows))
            write_file(self.path, text.getvalue().encode())
        return found

    def _rate(self, spec: Spec, target: Target, shape: KernelShape, family: Family, rows: int) -> float:
        """Return the rate of a kernel, 0 if the target has none of that size."""
        alone = kernel_spec(spec, shape, family, rows)
        cache = next(level.name for level in target.levels if not level.is_register)
        near = tuple(attrs.evolve(state, level=cache) for state in alone.logical.states)
        alone = attrs.evolve(alone, logical=attrs.evolve(alone.logical, states=near))
        key = target.name, target.profile or "", str(alone.logical), shape.label(spec, family, rows)
        if key not in self._known:
            self._known[key] = 0.0
            if (schedule := _longest(alone, target, shape.sums[0], shape.scheme(family, rows))) is not None:
                goal = Goal.of(alone, target).apply(schedule).synthesize(db=False, progress=False)
                self._known[key] = alone.logical.flops / self.measure(goal)
        return self._known[key]


def kernel_spec(spec: Spec, shape: KernelShape, family: Family, rows: int, summed: int = _LONG) -> Spec:
    """Return the Spec of a kernel alone, with `summed` steps along the sum: the one given, but smaller."""
    logical = spec.logical
    own = dict(zip(logical.dims, map(int, logical.shape), strict=True))
    sizes = {**dict.fromkeys(own, 1), **dict(family.inside), shape.rows: rows}
    sizes[shape.along] = family.vectors * shape.values
    sizes[shape.sums[0]] = summed if own[shape.sums[0]] > 1 else 1
    alone = LogicalSpec(logical.op, tuple(sizes.values()), logical.states, True)
    return attrs.evolve(spec, logical=alone.canonical())


def _longest(alone: Spec, target: Target, summed: str, kernel: Scheme) -> Schedule | None:
    """Return the schedule whose kernel has the longest loop along the sum; None if the target has no kernel."""
    size = dict(zip(alone.logical.dims, map(int, alone.logical.shape), strict=True))[summed]
    inner = size
    while inner:
        loops = (Specifier("T", summed, size // inner), Specifier("T", summed, inner))
        try:
            return schedule_of_scheme((*loops, *kernel), alone, target)
        except Inapplicable:
            inner //= 2
    return None


def classes_of(kernels: Sequence[MeasuredKernel], threshold: float) -> list[KernelClass]:
    """Return the classes of kernels with at least this part of the best rate."""
    least = threshold * max((one.rate for one in kernels), default=0.0)
    found: list[KernelClass] = []
    for family, ones in groupby(sorted(kernels, key=lambda one: (one.family, one.rows)), lambda one: one.family):
        rows = [one.rows for one in ones if one.rate >= least]
        for _, run in groupby(enumerate(rows), lambda pair: pair[1] - pair[0]):
            found.append(KernelClass(family, tuple(one for _, one in run)))
    return found


def heat_map(kernels: Sequence[MeasuredKernel], threshold: float, letter: Callable[[str], str]) -> str:
    """Return tables of percent of the best rate, by vectors and rows, for each set of positions inside."""
    best = max((one.rate for one in kernels), default=0.0)
    texts: list[str] = []
    for inside in sorted({one.family.inside for one in kernels}):
        own = {(one.family.vectors, one.rows): one.rate / best for one in kernels if one.family.inside == inside}
        across = sorted({rows for _, rows in own})
        head = " ".join(f"{size}{letter(dim)}" for dim, size in inside) or "one position"
        lines = [f"{head}: percent of the best, by vectors (down) and rows; * at least {threshold:.0%}"]
        lines.append("    " + "".join(f"{rows:5}" for rows in across))
        for vectors in sorted({vectors for vectors, _ in own}):
            lines.append(f"{vectors:3} " + "".join(_cell(own.get((vectors, rows)), threshold) for rows in across))
        texts.append("".join(f"{line.rstrip()}\n" for line in lines))
    return "\n".join(texts)


def _cell(share: float | None, threshold: float) -> str:
    return "    ." if share is None else f"{100 * share:4.0f}{'*' if share >= threshold else ' '}"
