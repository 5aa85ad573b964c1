"""Packing in memory: rows of small values become strips of two to eight of them, as multiply-adds take them along k."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import attrs

from morello.ir.dtypes import by_name
from morello.ir.layout import Dynamic, Packed
from morello.ir.numbers import Mask, Num
from morello.ir.ops.move import Move
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import OperandState
from morello.kernels.site import KernelSite
from morello.plugins import Machine, Microkernel, OperandPattern, touching
from morello_vectors.common import DTYPES_OF, HALF_CYCLE, MEMORIES
from morello_vectors.transpose import in_rows, pairs_of, row_and_column

_FOUR = """static inline void {name}({kind} r0, {kind} r1, {kind} r2, {kind} r3, {kind} c[4]) {{
    {kind} first[2], second[2];
    {pairs}(r0, r1, first);
    {pairs}(r2, r3, second);
    {wide} half[2];
    for (int i = 0; i < 2; ++i) {{
        {wide_pairs}(({wide})first[i], ({wide})second[i], half);
        c[2 * i] = ({kind})half[0];
        c[2 * i + 1] = ({kind})half[1];
    }}
}}"""

_EIGHT = """static inline void {name}({kind} r0, {kind} r1, {kind} r2, {kind} r3, {kind} r4, {kind} r5, {kind} r6,
                             {kind} r7, {kind} c[8]) {{
    {kind} first[4], second[4];
    {pairs}(r0, r1, r2, r3, first);
    {pairs}(r4, r5, r6, r7, second);
    {wide} half[2];
    for (int i = 0; i < 4; ++i) {{
        {wide_pairs}(({wide})first[i], ({wide})second[i], half);
        c[2 * i] = ({kind})half[0];
        c[2 * i + 1] = ({kind})half[1];
    }}
}}"""


def _in_strips(taken: int) -> Callable[[OperandState], bool]:
    """Return the condition that a state is in strips of `taken` rows; a single strip is a matrix in the other order."""

    def fits(state: OperandState) -> bool:
        if state.layout is None or not state.layout.dims:
            return False
        strip = state.layout.dims[-1]
        return state.contig >= 2 and (strip.size is None or strip == Packed(strip.dim, taken))

    return fits


def _fits(taken: int) -> Callable[[LogicalSpec], Mask]:
    def fits(spec: LogicalSpec) -> Mask:
        (row, column), out = row_and_column(spec), spec.states[1].layout
        assert out is not None
        if out.dims == (Dynamic(column), Dynamic(row)):
            return spec.shape[row] == taken
        return out.dims == (Dynamic(row), Dynamic(column), Packed(row, taken))

    return fits


def _strips(site: KernelSite, size: int, taken: int) -> str:
    """Return the C function that makes strips of the values of two, four or eight vectors."""
    dtype = site.spec.states[0].dtype
    kind = site.vector_type(dtype, size // dtype.bytes)
    if taken == 2:
        return pairs_of(site, dtype, size)
    unit = by_name(f"u{8 * dtype.bytes * taken // 2}")
    text, name, parts = (_FOUR, "fours", 2) if taken == 4 else (_EIGHT, "eights", 4)
    pairs = _strips(site, size, parts)
    words = {"wide": site.vector_type(unit, size // unit.bytes), "wide_pairs": pairs_of(site, unit, size)}
    name = f"{name}_{kind}"
    return site.helper(name, text.format(name=name, kind=kind, pairs=pairs, **words))


def _emit(taken: int, sizes: Sequence[int]) -> Callable[[KernelSite], None]:
    def emit(site: KernelSite) -> None:
        for line in _lines(site, taken, sizes):
            site.line(line)

    return emit


def _lines(site: KernelSite, taken: int, sizes: Sequence[int]) -> Iterator[str]:
    """Yield loops over strips of rows: of the widest vectors that fit, then of narrower ones, then of single values."""
    dims = row_and_column(site.spec)
    source, out, dtype = site.operand(0), site.operand(1), site.spec.states[0].dtype
    rows, columns = (int(site.spec.shape[dim]) for dim in dims)
    k, c, src, dst, strips = (site.fresh(name) for name in ("k", "c", "src", "dst", "strips"))
    row, step = source.stride(dims[0]), out.stride(dims[0], taken)
    yield f"for (ptrdiff_t {k} = 0; {k} < {rows // taken}; ++{k}) {{"
    yield f"    const {dtype.c_name} *const {src} = {source.pointer()} + {k} * {(row * taken).grouped()};"
    yield f"    {dtype.c_name} *const {dst} = {out.pointer()} + {k} * {step.grouped()};"
    places = [src if (row * at).constant == 0 else f"{src} + {row * at}" for at in range(taken)]
    done = 0
    for size in sorted(sizes, reverse=True):
        count = size // dtype.bytes
        end = columns // count * count
        if end > done:
            kind, load, store = site.vector_type(dtype, count), site.load(dtype, count), site.store(dtype, count)
            yield f"    for (ptrdiff_t {c} = {done}; {c} < {end}; {c} += {count}) {{"
            yield f"        {kind} {strips}[{taken}];"
            loaded = ", ".join(f"{load}({place} + {c})" for place in places)
            yield f"        {_strips(site, size, taken)}({loaded}, {strips});"
            for at in range(taken):
                yield f"        {store}({dst} + {c} * {taken} + {at * count}, {strips}[{at}]);"
            yield "    }"
            done = end
    if done < columns:
        yield f"    for (ptrdiff_t {c} = {done}; {c} < {columns}; ++{c}) {{"
        for at, place in enumerate(places):
            yield f"        {dst}[{c} * {taken} + {at}] = ({place})[{c}];"
        yield "    }"
    yield "}"


def _cost(taken: int, widest: int) -> Callable[[LogicalSpec, Machine], Num]:
    """Return costs: two shuffles for each pair of vectors and stage, and a little for what vectors leave over."""
    stages = taken.bit_length() - 1

    def cost(spec: LogicalSpec, machine: Machine) -> Num:
        dims, source = row_and_column(spec), spec.operand(0)
        columns = spec.shape[dims[1]]
        count = widest // source.state.dtype.bytes
        rows = source.volume // columns
        left = columns % (16 // source.state.dtype.bytes)
        vectors = rows * (columns // count + (columns % count + 15) // 16)
        return HALF_CYCLE * (2 * stages * vectors + rows * (1 + left)) + touching()(spec, machine)

    return cost


def kernels(
    vectors: Sequence[int], strips: Sequence[tuple[int, int]] = ((1, 4), (1, 2), (2, 2))
) -> tuple[Microkernel, ...]:
    """Return the kernels that pack strips, by default of two and four bytes, and of two values of 16 bits.

    `strips` are bytes of a value, and values: up to eight bytes together.
    """
    memory = OperandPattern(levels=MEMORIES, contiguous=False)
    return tuple(
        Microkernel(
            name=f"Pack{taken}Of{8 * width}Bits",
            op=Move(),
            operands=(
                attrs.evolve(memory, dtypes=DTYPES_OF[width], when=in_rows),
                attrs.evolve(memory, dtypes=DTYPES_OF[width], when=_in_strips(taken)),
            ),
            same=("dtype",),
            when=_fits(taken),
            cost=_cost(taken, max(vectors)),
            registers={"VRF": 3 * taken},
            emit=_emit(taken, vectors),
        )
        for width, taken in strips
    )
