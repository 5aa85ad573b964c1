"""Dot products: a row of values in L1 times a column of them, added to one value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import attrs

from morello.ir.dtypes import BF16, F32, I16, U16, U32, DType
from morello.ir.layout import Dynamic, OddEven
from morello.ir.numbers import Mask, Num
from morello.ir.ops.binary import Add
from morello.ir.ops.matmul import Matmul
from morello.ir.spec import LogicalSpec
from morello.kernels.site import KernelSite
from morello.plugins import Jam, Machine, Microkernel, Multiple, OperandPattern
from morello_x86.kernels.common import HALF_CYCLE, INTEGER_VECTOR, INTEGERS, NEAR, PREFIX
from morello_x86.kernels.convert import even_and_odd, unsigned, vector_as
from morello_x86.kernels.pairs import FACTORS
from morello_x86.kernels.reduce import combine_lanes

#: A C expression for `count` values of an operand along k, from a place on: of operand, place in the step, and count.
Values = Callable[[int, int, int], str]
#: A C expression for a vector of sums to which products are added: of the site, the bytes of a vector, the sums, and
#: the factors.
Step = Callable[[KernelSite, int, str, Values], str]

#: Vectors of sums that one dot product has at most, and those of several together.
_SUMS, _SUMS_TOGETHER = 4, 8

#: The sums of the lanes of four vectors, as four lanes.
_ADD_UP_FOUR = """static inline {four} add_up_four_{kind}({kind} a, {kind} b, {kind} c, {kind} d) {{
    const {register} pairs = {add}({add}(({register})a, ({register})b), {add}(({register})c, ({register})d));
    {four} half[2];
    memcpy(half, &pairs, sizeof pairs);
    return half[0] + half[1];
}}"""


_HALVES = """static inline {half} {name}({kind} v) {{
    {half} half[2];
    memcpy(half, &v, sizeof v);
    return half[0] + half[1];
}}"""


@attrs.frozen
class Together:
    """Dot products that are printed together: their sites, and for each the vectors that its sums are in."""

    sites: Sequence[KernelSite]
    pointers: Sequence[tuple[str, str]]
    sums: Sequence[Sequence[str]]


@attrs.frozen
class DotProduct:
    """A way to print a dot product: `step` takes as many values along k as fill `taken` vectors of sums."""

    widest: int
    step: Step
    taken: int = 1

    def emit(self, site: KernelSite) -> None:
        self.emit_all([site])

    def emit_all(self, sites: Sequence[KernelSite]) -> None:
        """A loop into as many accumulators as divide the number of steps. Factors that are the same are read once."""
        length = int(sites[0].spec.shape[2])
        sites[0].line("{")
        products = self.begin(sites, length // self.count(sites[0]))
        self.loop(products, length)
        self.end(products)
        sites[0].line("}")

    def count(self, site: KernelSite) -> int:
        """Return values along k that a step takes."""
        return self.taken * self.widest // site.spec.states[2].dtype.bytes

    def begin(self, sites: Sequence[KernelSite], steps: int) -> Together:
        """Declares pointers to the factors, and sums for so many steps."""
        site = sites[0]
        names: dict[str, str] = {}
        pointers: list[tuple[str, str]] = []
        for one in sites:
            places = [one.operand(index).pointer() for index in range(2)]
            for index, (place, name) in enumerate(zip(places, ("lhs_at", "rhs_at"), strict=True)):
                if place not in names:
                    names[place] = site.fresh(name)
                    c_type = site.spec.states[index].dtype.c_name
                    site.line(f"    const {c_type} *const {names[place]} = {place};")
            pointers.append((names[places[0]], names[places[1]]))
        each = accumulators(steps, min(_SUMS, _SUMS_TOGETHER // len(sites)))
        sums = [[site.fresh("sum") for _ in range(each)] for _ in sites]
        site.line(f"    {self._kind(site)} {', '.join(f'{name} = {{0}}' for own in sums for name in own)};")
        return Together(sites, pointers, sums)

    def loop(self, products: Together, length: int) -> None:
        """Add the products of the first `length` values, whole vectors, to the sums by turns."""
        site = products.sites[0]
        count, each = self.count(site), len(products.sums[0])
        i = site.fresh("i")
        site.line(f"    for (ptrdiff_t {i} = 0; {i} < {length}; {i} += {each * count}) {{")
        for lane in range(each):
            for pointers, sums in zip(products.pointers, products.sums, strict=True):

                def values(
                    index: int, place: int, number: int, addresses: tuple[str, str] = pointers, base: int = lane * count
                ) -> str:
                    load = site.load(site.spec.states[index].dtype, number)
                    return f"{load}({addresses[index]} + {i}{f' + {base + place}' if base + place else ''})"

                site.line(f"        {sums[lane]} = {self.step(site, self.widest, sums[lane], values)};")
        site.line("    }")

    def end(self, products: Together) -> None:
        """Add all sums to the outputs, four at once where these are neighbours."""
        rest = list(zip(products.sites, products.sums, strict=True))
        while rest:
            four = rest[:4]
            if self._are_neighbours([site for site, _ in four]):
                self._four([site for site, _ in four], [sums for _, sums in four])
                rest = rest[4:]
            else:
                self._one(*rest.pop(0))

    def _one(self, site: KernelSite, sums: Sequence[str]) -> None:
        dtype = site.spec.states[2].dtype
        self._add(site, f"{combine_lanes(site, Add, _lanes(site), self.widest // dtype.bytes)}({' + '.join(sums)})")

    def _add(self, site: KernelSite, total: str) -> None:
        dtype, out = site.spec.states[2].dtype, site.operand(2).scalar()
        if dtype.is_float:
            site.line(f"    {out} += {total};")
        else:
            site.line(f"    {out} = ({dtype.c_name})((uint32_t){out} + {total});")

    def _are_neighbours(self, sites: Sequence[KernelSite]) -> bool:
        """Return True for four sites with outputs of 32 bits: in scalar registers, or a vector in memory."""
        outs = [site.operand(2) for site in sites]
        if len(outs) < 4 or sites[0].spec.states[2].dtype.bytes != 4:
            return False
        return outs[0].in_registers or [outs[0].distance(out) for out in outs] == [0, 1, 2, 3]

    def _four(self, sites: Sequence[KernelSite], sums: Sequence[Sequence[str]]) -> None:
        site, four = sites[0], sites[0].vector_type(_lanes(sites[0]), 4)
        total = self._sums_of_four(site, four, sums)
        if site.operand(2).in_registers:
            name = site.fresh("totals")
            site.line(f"    const {four} {name} = {total};")
            for lane, one in enumerate(sites):
                self._add(one, f"{name}[{lane}]")
            return
        dtype, address = site.spec.states[2].dtype, site.operand(2).pointer()
        before = f"{site.load(dtype, 4)}({address})"
        if dtype.is_float:
            site.line(f"    {site.store(dtype, 4)}({address}, {before} + {total});")
        else:
            out = site.vector_type(dtype, 4)
            site.line(f"    {site.store(dtype, 4)}({address}, ({out})(({four}){before} + {total}));")

    def _sums_of_four(self, site: KernelSite, four: str, sums: Sequence[Sequence[str]]) -> str:
        """Return a vector of the sums over the lanes of four dot products."""
        dtype, kind, lanes = site.spec.states[2].dtype, self._kind(site), _lanes(site)
        totals = [" + ".join(each) for each in sums]
        if self.widest == 64:
            totals = [f"{_halved(site, kind, site.vector_type(lanes, 8))}({total})" for total in totals]
            kind = site.vector_type(lanes, 8)
        register, add = ("__m256", "_mm256_hadd_ps") if dtype.is_float else ("__m256i", "_mm256_hadd_epi32")
        text = _ADD_UP_FOUR.format(four=four, kind=kind, register=register, add=add)
        return f"{site.helper(f'add_up_four_{kind}', text)}({', '.join(totals)})"

    @property
    def jam(self) -> Jam:
        return Jam(most=_SUMS_TOGETHER, registers={"VRF": _SUMS_TOGETHER + 4}, emit=self.emit_all)

    def _kind(self, site: KernelSite) -> str:
        lanes = _lanes(site)
        return site.vector_type(lanes, self.widest // lanes.bytes)


def _lanes(site: KernelSite) -> DType:
    """Return the type of sums: integers are added up as unsigned ones, which wrap around."""
    dtype = site.spec.states[2].dtype
    return dtype if dtype.is_float else unsigned(dtype)


def _halved(site: KernelSite, kind: str, half: str) -> str:
    """Return the C function that adds the upper half of a vector to the lower one."""
    name = f"halves_of_{kind}"
    return site.helper(name, _HALVES.format(kind=kind, half=half, name=name))


def accumulators(steps: int, most: int = _SUMS) -> int:
    return max(count for count in range(1, most + 1) if steps % count == 0)


def f32_step(site: KernelSite, size: int, total: str, values: Values) -> str:
    return _fmadd(size, total, *(values(index, 0, size // 4) for index in range(2)))


def _fmadd(size: int, total: str, lhs: str, rhs: str) -> str:
    return f"{PREFIX[size]}_fmadd_ps({lhs}, {rhs}, {total})"


def _f32_bf16_step(site: KernelSite, size: int, total: str, values: Values) -> str:
    count = size // 4
    return _fmadd(size, total, values(0, 0, count), vector_as(site, values(1, 0, count), BF16, F32, count))


def _bf16_step(site: KernelSite, size: int, total: str, values: Values) -> str:
    """Return the products of the even values, then those of the odd ones."""
    count = size // 4
    (even, odd), (other_even, other_odd) = (even_and_odd(site, values(i, 0, 2 * count), count) for i in range(2))
    return _fmadd(size, _fmadd(size, total, even, other_even), odd, other_odd)


def _odd_even_bf16_step(site: KernelSite, size: int, total: str, values: Values) -> str:
    """Return True if the left-hand side has its even values first in memory."""
    count = size // 4
    even, odd = even_and_odd(site, values(1, 0, 2 * count), count)
    return _fmadd(size, _fmadd(size, total, values(0, 0, count), even), values(0, count, count), odd)


def _wrapping_step(site: KernelSite, size: int, total: str, values: Values) -> str:
    """Factors are converted to the output's type, multiplied and added, modulo a power of two."""
    out = unsigned(site.spec.states[2].dtype)
    count = size // out.bytes
    lhs, rhs = (vector_as(site, values(i, 0, count), site.spec.states[i].dtype, out, count) for i in range(2))
    return f"{total} + {lhs} * {rhs}"


def _pairs_step(site: KernelSite, size: int, total: str, values: Values) -> str:
    """vpmaddwd: see `pairs`."""
    prefix, whole, count = PREFIX[size], INTEGER_VECTOR[size], size // 2
    lhs, rhs = (vector_as(site, values(i, 0, count), site.spec.states[i].dtype, I16, count) for i in range(2))
    products = f"{prefix}_madd_epi16(({whole}){lhs}, ({whole}){rhs})"
    return f"{total} + ({site.vector_type(U32, size // 4)}){products}"


def _saturating_step(site: KernelSite, size: int, total: str, values: Values) -> str:
    """vpmaddubsw: see `pairs`."""
    prefix, whole = PREFIX[size], INTEGER_VECTOR[size]
    lhs, rhs = (f"({whole}){values(i, 0, size)}" for i in range(2))
    return f"{total} + ({site.vector_type(U16, size // 2)}){prefix}_maddubs_epi16({lhs}, {rhs})"


def row_times_column(lhs: Sequence[str], rhs: Sequence[str], out: Sequence[str]) -> tuple[OperandPattern, ...]:
    """Return the operands of a dot product, of these data types."""
    return (
        OperandPattern(levels=("L1",), dtypes=tuple(lhs), layout="row_major"),
        OperandPattern(levels=("L1",), dtypes=tuple(rhs), layout="col_major"),
        OperandPattern(levels=NEAR, dtypes=tuple(out)),
    )


def _wraps(widest: int) -> Callable[[LogicalSpec], Mask]:
    """No factor is wider than the sums, of which k fills vectors."""

    def holds(spec: LogicalSpec) -> Mask:
        lhs, rhs, out = (state.dtype.bytes for state in spec.states)
        return (max(lhs, rhs) <= out) & (spec.shape[2] % (widest // out) == 0)

    return holds


def _odd_even(values: int) -> Callable[[LogicalSpec], bool]:
    """Return True if the left-hand side is in odd-even strips of two vectors of `values`."""

    def holds(spec: LogicalSpec) -> bool:
        layout, strip = spec.states[0].layout, OddEven(2, 2 * values)
        return layout is not None and layout.dims in ((strip,), (Dynamic(2), strip))

    return holds


#: Tenths of a cycle that it takes to add up the sums of a dot product, and the lanes of one.
SUMMING = 50


def per_values(cost: int, values: int) -> Callable[[LogicalSpec, Machine], Num]:
    """Half cycles for so many values along k, rounded up, adding up the lanes, and what touching the output costs."""
    return lambda spec, machine: (
        -(-cost * HALF_CYCLE * spec.shape[2] // values) + SUMMING + machine.move_cost(spec.operand(2))
    )


def _wrapping_cost(widest: int) -> Callable[[LogicalSpec, Machine], Num]:
    """Return the cost: two cycles per vector of sums, by measurement of i32, whose multiplication is the slowest."""

    def cost(spec: LogicalSpec, machine: Machine) -> Num:
        return per_values(2, widest // spec.states[2].dtype.bytes)(spec, machine)

    return cost


_ACCUMULATE = Matmul(accumulate=True)
_SATURATE = Matmul(accumulate=True, saturating=True)
_F32 = (("f32",),) * 3
_MIXED = (("f32",), ("bf16",), ("f32",))
_BYTES = (("u8",), ("i8",), ("i16",))


def _kernel(
    widest: int,
    name: str,
    operands: tuple[OperandPattern, ...],
    step: Step,
    cost: Callable[[LogicalSpec, Machine], Num],
    multiple: int | None,
    taken: int = 1,
    when: Callable[[LogicalSpec], Mask] | None = None,
    op: Matmul = _ACCUMULATE,
) -> Microkernel:
    """Return a dot product with vectors of `widest` bytes, of k values that `multiple` divides."""
    product = DotProduct(widest, step, taken)
    return Microkernel(
        name=name,
        op=op,
        operands=operands,
        shape=(1, 1, None if multiple is None else Multiple(of=multiple), 1),
        when=when,
        cost=cost,
        registers={"VRF": 4 if step is f32_step else 6},
        emit=product.emit,
        jam=product.jam,
    )


def kernels(vectors: Sequence[int]) -> tuple[Microkernel, ...]:
    """Return the dot products of a core with vectors of these sizes in bytes."""
    widest = max(vectors)
    values = widest // 4
    kernel = partial(_kernel, widest)
    # Costs of floats are [Kaufman2025]'s, whatever the size of vectors.
    return (
        kernel("DotProductLoop", row_times_column(*_F32), f32_step, per_values(8, 32), values),
        kernel(
            "DotProductLoopBf16Bf16F32",
            row_times_column(("bf16",), ("bf16",), ("f32",)),
            _bf16_step,
            per_values(12, 64),
            2 * values,
            taken=2,
        ),
        kernel("DotProductLoopF32Bf16F32", row_times_column(*_MIXED), _f32_bf16_step, per_values(32, 64), values),
        kernel(
            "DotProductLoopF32InterleavedBf16F32",
            (OperandPattern(levels=("L1",), dtypes=("f32",)), *row_times_column(*_MIXED)[1:]),
            _odd_even_bf16_step,
            per_values(16, 64),
            2 * values,
            taken=2,
            when=_odd_even(values),
        ),
        kernel(
            "DotProductLoopInt",
            row_times_column(INTEGERS, INTEGERS, INTEGERS),
            _wrapping_step,
            _wrapping_cost(widest),
            None,
            when=_wraps(widest),
        ),
        kernel(
            "DotProductLoopPairs",
            row_times_column(FACTORS, FACTORS, ("i32", "u32")),
            _pairs_step,
            per_values(2, widest // 2),
            widest // 2,
            taken=2,
        ),
        kernel(
            "DotProductLoopU8S8S16",
            row_times_column(*_BYTES),
            _saturating_step,
            per_values(1, widest),
            widest,
            taken=2,
            op=_SATURATE,
        ),
    )
