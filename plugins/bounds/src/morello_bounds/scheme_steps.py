"""Schedules of schemes, and schemes of programs: loops are steps, and what `U` and `V` say is a microkernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

import attrs

from morello.errors import Inapplicable
from morello.ir.impl import Impl, KernelCall, Leaf, Loop, Node, TileRange
from morello.ir.ops.conv import Conv
from morello.ir.ops.matmul import Matmul
from morello.ir.spec import LogicalSpec, Spec
from morello.kernels.target import Target
from morello.rewrites.base import Rewrite
from morello.rewrites.fit import ExactFit
from morello.rewrites.move import MoveStep
from morello.rewrites.select import Select
from morello.rewrites.spatial_split import SpatialSplit
from morello.rewrites.tile import Tile
from morello.rewrites.to_accum import ToAccum
from morello.schedule import Schedule, Statement, Subschedule, default_child, rewrite_leaf
from morello_bounds.nest import nest_of
from morello_bounds.scheme import LoopSequence, Scheme, Specifier, letters, resolved, scheme_text
from morello_bounds.tiles import held

#: The dimensions of a convolution that those of its product at one position of the filter are; with `filters`, others.
_OF_PRODUCT = {False: {"b": "b", "m": "w", "k": "c", "n": "f"}, True: {"b": "b", "m": "f", "k": "c", "n": "w"}}


def lanes(logical: LogicalSpec, target: Target) -> int:
    """Return the values of the output in the longest vector of the target. Raises Inapplicable if it has none."""
    sizes = [size for level in target.levels for size in level.vectors]
    if not sizes:
        raise Inapplicable(f"{target.name} has no vectors", "choose another target")
    return max(sizes) // logical.states[-1].dtype.bytes


def vector_dim(logical: LogicalSpec) -> str | None:
    """Return the dimension along which values of the output are neighbours; None for one value."""
    layout = logical.states[-1].layout
    if layout is None or not layout.dims:
        return None
    (loop, _), *_ = logical.declared[-1].dims[layout.dims[-1].dim]
    return logical.dims[loop]


def sums_of(logical: LogicalSpec) -> list[str]:
    """Return the dimensions along which an operation sums, first that which microkernels have as a loop."""
    return [logical.dims[loop] for loop in logical.op.reductions(len(logical.shape))]


def schedule_of_scheme(scheme: Scheme, spec: Spec, target: Target, band: range = range(0)) -> Schedule:
    """Return the schedule with a scheme's loops, and the cheapest microkernel for its U and V.

    Operands are views in the fastest cache where the kernel needs that. Threads share the loops `band` of the scheme,
    as one loop. Raises Inapplicable where schedules or kernels cannot express it.
    """
    logical = spec.logical
    letters(logical.op)
    sizes = dict(zip(logical.dims, map(int, logical.shape), strict=True))
    vectors = any(isinstance(one, Specifier) and one.kind == "V" for one in scheme)
    whole = resolved(scheme, sizes, lanes(logical, target) if vectors else 1, logical.op)
    return tuple(_Lowering(target, whole, band, sums_of(logical)[0]).steps(spec, 0, {}))


@attrs.frozen
class _Lowering:
    target: Target
    scheme: Scheme
    band: range
    #: The dimension along which kernels sum in a loop.
    summed: str

    def steps(self, spec: Spec, place: int, numbers: Mapping[str, int]) -> Iterator[Statement]:
        """Yield the statements of the specifiers from a place on, for a Spec with their tile."""
        inner = self.scheme[place:]
        if place >= self.band.stop:
            for step in self._moves(spec, place, numbers):
                with suppress(Inapplicable):
                    spec = rewrite_leaf(spec, step, self.target).children[0].spec
                    yield step
        if place == self._kernel_starts:
            yield from self._kernel(spec, inner)
            return
        one = inner[0]
        if isinstance(one, LoopSequence):
            yield from self._sequence(spec, place, one, numbers)
            return
        if place in self.band:
            place = self.band.stop - 1
        tile = self._tile(spec, place + 1, numbers)
        step = Tile(tuple(tile), parallel=place in self.band)
        if tile != [*map(int, spec.logical.shape)]:
            yield from self._in(spec, [*self._accumulated(spec, tile), step], place + 1, numbers)
        else:
            yield from self.steps(spec, place + 1, numbers)

    def _moves(self, spec: Spec, place: int, numbers: Mapping[str, int]) -> Iterator[MoveStep]:
        """Yield views of operands in caches: of the outermost tile that fits, outside of loops that do not index it."""
        levels = [level.name for level in self.target.levels]
        for number, level in reversed([*enumerate(self.target.levels)]):
            far = [at for at, state in enumerate(spec.logical.states) if levels.index(state.level) > number]
            if level.kind == "cache":
                for at in far:
                    if self._stays(spec, place, numbers, at, far, int(spec.limits[number])):
                        yield MoveStep(at, level.name)

    def _stays(
        self, spec: Spec, place: int, numbers: Mapping[str, int], at: int, far: Sequence[int], capacity: int
    ) -> bool:
        """Return True if an operand's part is the same in all tiles from a place on to the first that fits."""
        nest, dims = nest_of(spec), spec.logical.dims
        while sum(int(held(nest.arrays[one], self._tile(spec, place, numbers))) for one in far) > capacity:
            one = self.scheme[place]
            if place >= self._kernel_starts or isinstance(one, LoopSequence):
                return False
            if one.count != 1 and dims.index(one.dim) in nest.arrays[at].support:
                return False
            place += 1
        return True

    @property
    def _kernel_starts(self) -> int:
        """Return the place of the loop along sums that kernels contain, if it is right above U and V, or of those."""
        place = len(self.scheme)
        while place and self._is(place - 1, "UV"):
            place -= 1
        return place - 1 if place and self._is(place - 1, "T") and self.scheme[place - 1].dim == self.summed else place

    def _is(self, place: int, kinds: str) -> bool:
        one = self.scheme[place]
        return isinstance(one, Specifier) and one.kind in kinds

    def _tile(self, spec: Spec, place: int, numbers: Mapping[str, int]) -> list[int]:
        """Return the sizes of the tile that the specifiers from a place on cover."""
        sizes = dict.fromkeys(spec.logical.dims, 1)
        for one in self.scheme[place:]:
            count = one.total if isinstance(one, LoopSequence) else one.count or numbers.get(one.dim, 1)
            sizes[one.dim] *= count
        return [*sizes.values()]

    def _accumulated(self, spec: Spec, tile: Sequence[int]) -> list[Rewrite]:
        """Return what comes before a loop with these tiles: to_accum if it sums."""
        untiled = spec.op.untiled(len(tile))
        return [ToAccum()] if any(tile[loop] < int(spec.logical.shape[loop]) for loop in untiled) else []

    def _in(self, spec: Spec, steps: Sequence[Rewrite], place: int, numbers: Mapping[str, int]) -> Iterator[Statement]:
        """Yield steps, and the statements of the specifiers from a place on below the last of them."""
        for step in steps:
            node = rewrite_leaf(spec, step, self.target)
            child = default_child(node)
            assert child is not None, "tiles that divide have one body"
            spec = node.children[child].spec
            yield step
        yield from self.steps(spec, place, numbers)

    def _sequence(self, spec: Spec, place: int, one: LoopSequence, numbers: Mapping[str, int]) -> Iterator[Statement]:
        """Yield `fit`, with the numbers of tiles where they are not the fewest, and the statements of each body."""
        loop = spec.logical.dims.index(one.dim)
        known = [{**numbers, one.dim: number} for _, number in one.loops]
        tiles = [self._tile(spec, place + 1, each) for each in known]
        sizes, trips = [tile[loop] for tile in tiles], [count for count, _ in one.loops]
        for step in self._accumulated(spec, tiles[0]):
            yield step
            spec = rewrite_leaf(spec, step, self.target).children[-1].spec
        fit = ExactFit(loop, tuple(sizes))
        node = rewrite_leaf(spec, fit, self.target)
        assert isinstance(node.expansion, Loop)
        if [int(ranges[loop].trips) for ranges in _ranges(node.expansion)] != trips:
            fit = attrs.evolve(fit, trips=tuple(trips))
        yield fit
        for at, (child, each) in enumerate(zip(node.children, known, strict=True)):
            yield Subschedule((at,), tuple(self.steps(child.spec, place + 1, each)))

    def _kernel(self, spec: Spec, inner: Scheme) -> Iterator[Statement]:
        """Yield the steps to the cheapest microkernel of a Spec. Raises Inapplicable if the target has none."""
        wanted = next((one.dim for one in inner if isinstance(one, Specifier) and one.kind == "V"), None)
        made = vector_dim(spec.logical)
        named = letters(spec.op)
        if wanted is not None and made not in (None, wanted):
            raise Inapplicable(
                f"V_{named[wanted]}: values of the output are neighbours along {named[made or wanted]} alone",
                "choose another layout of the output, or another V",
            )
        found = [self._selected(spec, steps) for steps in _ways(spec, self.target)]
        best = min((one for one in found if one), key=lambda one: one[0], default=None)
        if best is None:
            text = scheme_text(inner, spec.op)
            kernels = [one.name for one in self.target.kernels if one.implements(spec.op)]
            raise Inapplicable(
                f"no microkernel of {self.target.name} implements {text}: {spec.logical.short()}",
                f"for {spec.op} it has {', '.join(kernels)}; make U smaller, or the loop above it",
            )
        yield from best[1]

    def _selected(self, spec: Spec, steps: Sequence[Rewrite]) -> tuple[int, Sequence[Rewrite]] | None:
        """Return the cost of steps and the cheapest kernel below them, and all these steps; None without a kernel."""
        leaf, spent = spec, 0
        try:
            for step in steps:
                node = rewrite_leaf(leaf, step, self.target)
                child = default_child(node)
                if child is None:
                    return None
                leaf, spent = node.children[child].spec, spent + int(node.expansion.cost)
        except Inapplicable:
            return None
        costs: list[tuple[int, str]] = []
        for select in Select.steps(leaf.logical, self.target):
            with suppress(Inapplicable):
                costs.append((int(rewrite_leaf(leaf, select, self.target).expansion.cost), select.kernel))
        if not costs:
            return None
        cost, kernel = min(costs)
        return spent + cost, (*steps, Select(kernel))


def _ways(spec: Spec, target: Target) -> Iterator[tuple[Rewrite, ...]]:
    """Yield the steps below which a kernel may implement a Spec: none, moves to the fastest cache, products."""
    cache = next((level.name for level in target.levels if not level.is_register), None)
    far = [at for at, state in enumerate(spec.logical.states) if cache and state.level != cache]
    for moves in ((), tuple(MoveStep(at, cache or "") for at in far)):
        yield moves
        if isinstance(spec.op, Conv):
            first: tuple[Rewrite, ...] = () if spec.op.accumulate else (ToAccum(),)
            for filters in (False, True):
                yield (*first, *moves, SpatialSplit(filters))
        if not far:
            return


# Schemes of programs.


def scheme_of(impl: Impl, target: Target) -> Scheme:
    """Return the scheme of a program's loops and microkernels, without trips of 1; moves and fills are left out.

    Raises Inapplicable for a program with other loops than those of schemes.
    """
    letters(impl.spec.op)
    return _raised(impl, target, dict(zip(impl.spec.logical.dims, impl.spec.logical.dims, strict=True)))


def _raised(impl: Impl, target: Target, names: Mapping[str, str]) -> Scheme:
    if isinstance(impl, Leaf):
        raise Inapplicable(f"{impl} has no scheme", "finish the program: `synthesize`, or select kernels")
    logical, expansion = impl.spec.logical, impl.expansion
    if isinstance(expansion, KernelCall):
        return _of_kernel(logical, target, names)
    if isinstance(expansion, Loop):
        bodies = len(impl.children)
        if isinstance(expansion.step, ExactFit) and bodies > 1:
            return _of_sequence(impl, expansion, expansion.step.dim, target, names)
        cut = [loop for loop in range(len(logical.dims)) if len({one[loop] for one in _ranges(expansion)}) > 1]
        if bodies == 2 and len(cut) == 1 and all(part.times == 1 for part in expansion.parts):
            return _of_sequence(impl, expansion, cut[0], target, names)
        if bodies > 1:
            raise Inapplicable(
                f"`{expansion.step}` leaves boundary tiles, which schemes cannot have", "tile by divisors"
            )
        trips = [(dim, int(at.trips)) for one in _ranges(expansion) for dim, at in zip(logical.dims, one, strict=True)]
        outer = tuple(Specifier("T", names[dim], count) for dim, count in trips if count > 1)
        return (*outer, *_raised(impl.children[0], target, names))
    child = default_child(impl)
    if child is None:
        raise Inapplicable(f"`{expansion.step}` is no loop of a scheme", "schemes have loops around one microkernel")
    if isinstance(expansion.step, SpatialSplit):
        if int(logical.shape[3]) > 1 and int(logical.shape[4]) > 1:
            raise Inapplicable(
                f"`{expansion.step}` joins rows of pixels, which schemes cannot", "tile h by 1 before it"
            )
        axis = "h" if int(logical.shape[3]) > 1 else "w"
        inner = {dim: axis if of == "w" else of for dim, of in _OF_PRODUCT[expansion.step.filters].items()}
        return _raised(impl.children[child], target, inner)
    if not isinstance(impl.children[child].spec.op, Conv | Matmul):
        raise Inapplicable(f"`{expansion.step}` is no loop of a scheme", "schemes have loops around one microkernel")
    return _raised(impl.children[child], target, names)


def _ranges(loop: Loop) -> list[tuple[TileRange, ...]]:
    """Return the tiles of each body of a loop, by dimension."""
    return [part.ranges for part in loop.parts if part.ranges is not None]


def _of_kernel(logical: LogicalSpec, target: Target, names: Mapping[str, str]) -> Scheme:
    """Return the T, U and V of a call: first the loop along sums, last the vectors of the output."""
    sizes = dict(zip(logical.dims, map(int, logical.shape), strict=True))
    values, along, (first, *others) = lanes(logical, target), vector_dim(logical), sums_of(logical)
    rest = [dim for dim in sizes if dim not in (first, along, *others)]
    inner = [Specifier("T", names[first], sizes[first]), *(Specifier("U", names[one], sizes[one]) for one in others)]
    inner += [Specifier("U", names[one], sizes[one]) for one in rest]
    if along is not None:
        vectors, left = divmod(sizes[along], values)
        if left:
            inner.append(Specifier("U", names[along], sizes[along]))
        else:
            inner += [Specifier("U", names[along], vectors), Specifier("V", names[along])]
    return tuple(one for one in inner if one.count != 1)


def _of_sequence(impl: Node, expansion: Loop, loop: int, target: Target, names: Mapping[str, str]) -> Scheme:
    """Return a λseq and what its bodies have in common: all specifiers but one of its dimension."""
    dim = names[impl.spec.logical.dims[loop]]
    bodies = [_raised(child, target, names) for child in impl.children]
    trips = [int(ranges[loop].trips) for ranges in _ranges(expansion)]
    if isinstance(expansion.step, Tile):
        # The main tile and the boundary are loops of their own.
        for at, (head, *rest) in enumerate(bodies):
            if isinstance(head, Specifier) and (head.kind, head.dim) == ("T", dim):
                trips[at], bodies[at] = head.count or 1, tuple(rest)
    first = bodies[0]
    apart = [at for at, ones in enumerate(zip(*bodies, strict=False)) if len({*ones}) > 1]
    numbers = [body[apart[0]] for body in bodies] if len(apart) == 1 else []
    bound = [one for one in numbers if isinstance(one, Specifier) and one.dim == dim and one.count is not None]
    same = len({len(body) for body in bodies}) == 1 and len({(one.kind, one.dim) for one in bound}) == 1
    if len(bound) < len(bodies) or not same:
        raise Inapplicable(
            f"the bodies of `{expansion.step}` differ by more than a number along {dim}", "schemes share their loops"
        )
    loops = tuple(zip(trips, [one.count or 1 for one in bound], strict=True))
    common = (*first[: apart[0]], attrs.evolve(bound[0], count=None), *first[apart[0] + 1 :])
    return (LoopSequence(dim, loops), *common)
