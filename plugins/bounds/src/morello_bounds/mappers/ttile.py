"""The mapper `ttile`: classes of kernels, composed to cover a size exactly, below pruned orders of loops; the schemes
that move least are tried, as TTile does ([Tollenaere2021] §5)."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from random import Random

import attrs

from morello.atomic_write import write_file
from morello.errors import Inapplicable
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.schedule import Schedule, schedule_text
from morello_bounds.hooks import Mapper
from morello_bounds.mappers.kernel_classes import (
    Family,
    KernelClass,
    KernelShape,
    KernelTable,
    Measure,
    MeasuredKernel,
    classes_of,
    heat_map,
    kernel_spec,
    modelled,
)
from morello_bounds.mappers.permutations import Caches, best_permutation, completed, covers, divisors
from morello_bounds.nest import Nest, nest_of
from morello_bounds.scheme import LoopSequence, Scheme, Specifier, letters, parse_scheme, scheme_text
from morello_bounds.scheme_steps import schedule_of_scheme

NAME = "ttile"
#: The most combinations of a class for a size, those with the best rates first, and schemes whose bytes are counted.
_COVERS, _COUNTED = 12, 2000
#: Of random schemes: trips of the loop along the sum above a kernel, at least; and draws for each that is tried.
_LONG_LOOP, _DRAWS = 32, 20


@attrs.frozen
class TTileOptions:
    """Kernels from a `threshold` of the best on form classes; of all schemes, the `share` with the longest loops along
    the sum above the kernel are sorted by bytes moved, and the first `tried` become programs; if `drawn`, random ones.

    A `folder` receives measured kernels, their heat map, and a table of all programs for each Spec.
    """

    measure: Measure = modelled
    folder: Path | None = None
    threshold: float = 0.85
    share: float = 0.4
    tried: int = 200
    drawn: bool = False


@attrs.frozen
class Candidate:
    """A scheme, the trips of the loop along the sum right above its kernel, and the bytes it moves into each cache."""

    scheme: Scheme
    summed: int
    moved: tuple[int, ...] = ()


@attrs.frozen
class Row:
    """A program in the table of results: its scheme, the parallel variant if any, its schedule, and its value."""

    candidate: Candidate
    variant: str
    schedule: Schedule
    value: float | None


def ttile(options: TTileOptions | None = None) -> Mapper:
    """Return the mapper with these options."""
    chosen = options or TTileOptions()

    def propose(spec: Spec, target: Target, seed: int) -> Generator[Schedule, float | None, None]:
        yield from _propose(spec, target, seed, chosen)

    text = "kernels near the best, two sizes composed, below orders of loops that move little: the best by volume"
    return Mapper(NAME, propose, text, adaptive=True)


def _propose(spec: Spec, target: Target, seed: int, options: TTileOptions) -> Generator[Schedule, float | None, None]:
    folder, shape = options.folder, KernelShape.of(spec, target)
    if shape is None:
        return
    table = KernelTable(options.measure, folder and folder / "kernels.csv")
    kernels = table.kernels(spec, target)
    caches = Caches.of(spec, target)
    rows: list[Row] = []
    tried = 0
    found = drawn(spec, target, kernels, options, seed) if options.drawn else candidates(spec, target, kernels, options)
    for candidate in found:
        if tried == options.tried:
            break
        before = len(rows)
        for name, scheme, band in variants(candidate.scheme, spec):
            try:
                schedule = schedule_of_scheme(scheme, spec, target, band)
            except Inapplicable:
                continue
            value = yield schedule
            rows.append(Row(attrs.evolve(candidate, scheme=scheme), name, schedule, value))
        tried += len(rows) > before
    if folder is not None:
        spelled = letters(spec.op)
        write_file(folder / "kernels.txt", heat_map(kernels, options.threshold, lambda dim: spelled[dim]).encode())
        write_file(folder / f"{_file_name(spec)}.csv", ranked_csv(rows, spec, caches).encode())


def _file_name(spec: Spec) -> str:
    """Return a name of the operation and its sizes."""
    return f"{spec.op}-{'x'.join(map(str, spec.logical.shape))}".replace("[", "-").replace("]", "").replace(" ", "")


def candidates(spec: Spec, target: Target, kernels: Sequence[MeasuredKernel], options: TTileOptions) -> list[Candidate]:
    """Return the schemes with long loops along the sum, the one that moves least first ([Tollenaere2021] §5.4)."""
    shape, nest, caches = KernelShape.of(spec, target), nest_of(spec), Caches.of(spec, target)
    if shape is None:
        return []
    sizes = dict(zip(nest.loops, nest.sizes, strict=True))
    rates = {(one.family, one.rows): one.rate for one in kernels}
    found = {
        scheme: Candidate(scheme, summed)
        for own in _classes(kernels, sizes[shape.rows], options.threshold)
        for scheme, summed in _schemes(spec, target, shape, own, nest, caches, rates)
    }
    kept = longest([*found.values()], options.share)
    kept = kept[:: -(-len(kept) // _COUNTED) or 1]
    moved = [attrs.evolve(one, moved=caches.volumes(one.scheme, nest)) for one in kept]
    return sorted(moved, key=lambda one: (caches.cost(one.moved), scheme_text(one.scheme, spec.op)))


def drawn(
    spec: Spec, target: Target, kernels: Sequence[MeasuredKernel], options: TTileOptions, seed: int
) -> Iterator[Candidate]:
    """Yield distinct random schemes: a kernel or two of a class, a long loop along the sum above, then any loops.

    The sampling of [Tollenaere2023]: factors of what is left of each size are drawn in random order.
    """
    shape, nest, caches = KernelShape.of(spec, target), nest_of(spec), Caches.of(spec, target)
    if shape is None:
        return
    sizes = dict(zip(nest.loops, nest.sizes, strict=True))
    summed, extent, random = shape.sums[0], sizes[shape.rows], Random(seed)
    classes = _classes(kernels, extent, options.threshold)
    seen: set[Scheme] = set()
    for _ in range(_DRAWS * options.tried if classes else 0):
        own = random.choice(classes)
        family, cover = own.family, random.choice([*covers(extent, own.rows)])
        trips = [
            one
            for one in divisors(sizes[summed])
            if all(_takes(spec, target, shape, family, rows, one) for _, rows in cover)
        ]
        if not trips:
            continue
        long = random.choice([one for one in trips if one >= _LONG_LOOP] or [max(trips)])
        kernel = {**dict(family.inside), shape.along: family.vectors * shape.values, summed: long}
        total = sum(count * rows for count, rows in cover)
        left = {dim: size // kernel.get(dim, 1) for dim, size in sizes.items()} | {shape.rows: extent // total}
        outer: list[Specifier | LoopSequence] = []
        while open_dims := [dim for dim, size in left.items() if size > 1]:
            dim = random.choice(open_dims)
            factor = random.choice(divisors(left[dim])[1:])
            outer.append(Specifier("T", dim, factor))
            left[dim] //= factor
        if len(cover) > 1:
            outer.insert(random.randint(0, len(outer)), LoopSequence(shape.rows, cover))
        inner = shape.scheme(family, None if len(cover) > 1 else total)
        scheme = (*_merged(tuple(outer)), Specifier("T", summed, long), *inner)
        if scheme not in seen:
            seen.add(scheme)
            yield Candidate(scheme, long, caches.volumes(scheme, nest))


def longest(found: Sequence[Candidate], share: float) -> list[Candidate]:
    """Return the share of candidates with the longest loops along the sum, and those with loops as long as these."""
    lengths = sorted((one.summed for one in found), reverse=True)
    least = lengths[math.ceil(share * len(lengths)) - 1] if lengths else 0
    return [one for one in found if one.summed >= least]


def _classes(kernels: Sequence[MeasuredKernel], extent: int, threshold: float) -> list[KernelClass]:
    """Return the classes that cover an extent; if none does, for each family the best kernel that does."""
    fits = [one for one in classes_of(kernels, threshold) if any(covers(extent, one.rows))]
    if fits:
        return fits
    even = [one for one in kernels if extent % one.rows == 0]
    by_family = groupby(sorted(even, key=lambda one: one.family), lambda one: one.family)
    best = [max(ones, key=lambda one: one.rate) for _, ones in by_family]
    return [KernelClass(one.family, (one.rows,)) for one in best]


def _schemes(
    spec: Spec,
    target: Target,
    shape: KernelShape,
    own: KernelClass,
    nest: Nest,
    caches: Caches,
    rates: Mapping[tuple[Family, int], float],
) -> Iterator[tuple[Scheme, int]]:
    """Yield the schemes of a class, and the trips of their loops along the sum above the kernel."""
    sizes, family = dict(zip(nest.loops, nest.sizes, strict=True)), own.family
    summed, extent = shape.sums[0], sizes[shape.rows]
    kernel = {**dict(family.inside), shape.along: family.vectors * shape.values}
    least = next(one for one in divisors(extent) if one >= own.rows[0])
    steps = {dim: [one for one in divisors(size) if one % kernel.get(dim, 1) == 0] for dim, size in sizes.items()}
    steps[shape.rows] = [one for one in steps[shape.rows] if one >= least]
    permutation = best_permutation(nest, {**kernel, shape.rows: least}, steps, caches, summed)
    if not any(shape.rows in group for group in permutation):
        permutation = (*permutation[:-1], (shape.rows, *permutation[-1]))
    taken = {
        rows: [one for one in divisors(sizes[summed]) if _takes(spec, target, shape, family, rows, one)]
        for rows in own.rows
    }
    fastest = sorted(covers(extent, own.rows), key=lambda one: (_time(one, family, rates), one))
    for cover in fastest[:_COVERS]:
        sequence = LoopSequence(shape.rows, cover) if len(cover) > 1 else None
        total = sum(trips * rows for trips, rows in cover)
        left = {dim: size // kernel.get(dim, 1) for dim, size in sizes.items()}
        left[shape.rows] = extent // total
        inner = shape.scheme(family, None if sequence else total)
        for scheme in completed(permutation, left, sequence, inner):
            loop = scheme[-len(inner) - 1]
            assert isinstance(loop, Specifier), "the loop along the sum is innermost"
            if all((loop.count or 1) in taken[rows] for _, rows in cover):
                outer = _merged(scheme[: -len(inner) - 1])
                yield (*outer, loop, *inner), loop.count or 1


def _merged(loops: Scheme) -> Scheme:
    """Return the loops without those of one trip; loops inside one another along a dimension are one."""
    made: list[Specifier | LoopSequence] = []
    for one in loops:
        last = made[-1] if made else None
        if isinstance(one, LoopSequence):
            made.append(one)
        elif isinstance(last, Specifier) and last.dim == one.dim:
            made[-1] = attrs.evolve(last, count=(last.count or 1) * (one.count or 1))
        elif one.count != 1:
            made.append(one)
    return tuple(made)


def _time(cover: Sequence[tuple[int, int]], family: Family, rates: Mapping[tuple[Family, int], float]) -> float:
    """Return the time of each row in kernels that cover a size."""
    rows = sum(trips * rows for trips, rows in cover)
    return sum(trips * rows / rates[family, rows] for trips, rows in cover) / rows


def _takes(spec: Spec, target: Target, shape: KernelShape, family: Family, rows: int, summed: int) -> bool:
    """Return True if a microkernel takes this many steps along the sum."""
    alone = kernel_spec(spec, shape, family, rows, summed)
    try:
        schedule_of_scheme((Specifier("T", shape.sums[0], summed), *shape.scheme(family, rows)), alone, target)
    except Inapplicable:
        return False
    return True


def of_scheme(text: str) -> Mapper:
    """Return the mapper `scheme`, which proposes the schedule of a scheme."""

    def propose(spec: Spec, target: Target, seed: int) -> Iterator[Schedule]:
        yield schedule_of_scheme(parse_scheme(text, spec.op), spec, target)

    return Mapper("scheme", propose, "the loops of a scheme", adaptive=True)


def variants(scheme: Scheme, spec: Spec) -> Iterator[tuple[str, Scheme, range]]:
    """Yield the variants of a scheme by name, and the band of loops that threads share ([Tollenaere2021] §5.5).

    a: its longest band of loops that do not sum; b, c: with loops that sum innermost, and outermost. One without a name
    for serial Specs.
    """
    if spec.logical.serial:
        yield "", scheme, range(0)
        return
    sums = {spec.logical.dims[loop] for loop in spec.op.reductions(len(spec.logical.shape))}
    start = next(at for at, one in enumerate(scheme) if isinstance(one, Specifier) and one.kind in "UV") - 1
    outer = [one for one in scheme[:start] if not (isinstance(one, Specifier) and one.count == 1)]
    adding = [one for one in outer if one.dim in sums]
    others = [one for one in outer if one.dim not in sums]
    seen: set[tuple[Scheme, range]] = set()
    for name, loops in (("a", outer), ("b", [*others, *adding]), ("c", [*adding, *others])):
        whole, band = (*loops, *scheme[start:]), _band(loops, sums)
        if (whole, band) not in seen:
            seen.add((whole, band))
            yield name, whole, band


def _band(loops: Sequence[Specifier | LoopSequence], sums: set[str]) -> range:
    """Return the places of the adjacent loops with the most trips that threads can share."""
    best, most = range(0), 1
    for first in range(len(loops)):
        trips = 1
        for at, one in enumerate(loops[first:], first):
            if isinstance(one, LoopSequence) or one.dim in sums:
                break
            trips *= one.count or 1
            if trips > most:
                best, most = range(first, at + 1), trips
    return best


def ranked_csv(rows: Sequence[Row], spec: Spec, caches: Caches) -> str:
    """Return the programs as CSV, the best first; those without a value are last."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    moved = [f"bytes to {name}" for name in caches.names]
    writer.writerow(["rank", "value", "variant", "scheme", "steps along the sum", *moved, "schedule"])
    order = sorted(rows, key=lambda row: math.inf if row.value is None else row.value)
    for rank, row in enumerate(order, 1):
        value, one = "" if row.value is None else f"{row.value:.6g}", row.candidate
        scheme = scheme_text(one.scheme, spec.op)
        writer.writerow([rank, value, row.variant, scheme, one.summed, *one.moved, schedule_text(row.schedule)])
    return text.getvalue()
