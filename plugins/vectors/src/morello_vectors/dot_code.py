"""The C of dot products: a loop along k into vectors of sums, which are added up in the end; and of several of them.

Dot products side by side read as many columns at once. For columns that lie one behind the other in L2 or memory, that
takes a quarter to a half longer than reading each to its end before the next: prefetchers follow one stream best.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import attrs
import numpy as np

from morello.ir.dtypes import DType
from morello.ir.numbers import Num
from morello.ir.ops.binary import Add
from morello.ir.spec import LogicalSpec
from morello.kernels.site import KernelSite
from morello.plugins import Machine, Microkernel, Multiple, UnrollAndJam
from morello_vectors.convert import unsigned
from morello_vectors.instructions import instructions
from morello_vectors.reduce import combine_lanes
from morello_vectors.tile_cost import smooth_maximum

#: A C expression for `count` values of an operand along k, from a place on: of operand, place in the step, and count.
Values = Callable[[int, int, int], str]
#: A C expression for a vector of sums to which products are added: of the site, the bytes of a vector, the sums, and
#: the factors.
Step = Callable[[KernelSite, int, str, Values], str]

#: Tenths of a cycle of a dot product, but for touching its output.
Computing = Callable[[LogicalSpec], Num]

#: Vectors of sums that one dot product has at most, and those of several side by side.
_SUMS, SIDE_BY_SIDE = 4, 8


@attrs.frozen
class JammedProducts:
    """Dot products that are printed together: their sites, and for each the pointers and the vectors of its sums."""

    sites: Sequence[KernelSite]
    pointers: Sequence[tuple[str, str]]
    sums: Sequence[Sequence[str]]


@attrs.frozen
class DotProduct:
    """The C of a dot product: `step` takes as many values along k as fill `taken` vectors of sums."""

    widest: int
    step: Step
    taken: int = 1

    def emit(self, site: KernelSite) -> None:
        self.emit_all([site])

    def emit_all(self, sites: Sequence[KernelSite]) -> None:
        """Print a loop into as many accumulators as divide the number of steps. Equal factors are read once."""
        length = int(sites[0].spec.shape[2])
        sites[0].line("{")
        products = self.begin(sites, length // self.count(sites[0]))
        self.loop(products, length)
        self.end(products)
        sites[0].line("}")

    def count(self, site: KernelSite) -> int:
        """Return values along k that a step takes."""
        return self.taken * self.widest // site.spec.states[2].dtype.bytes

    def begin(self, sites: Sequence[KernelSite], steps: int) -> JammedProducts:
        """Declare pointers to the factors, and sums for this number of steps."""
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
        sums = self.zeros(site, len(sites), accumulators(steps, min(_SUMS, SIDE_BY_SIDE // len(sites))))
        return JammedProducts(sites, pointers, sums)

    def zeros(self, site: KernelSite, products: int, each: int) -> list[list[str]]:
        """Declare vectors of sums that are zero: `each` of them for each of `products`."""
        sums = [[site.fresh("sum") for _ in range(each)] for _ in range(products)]
        site.line(f"    {self._kind(site)} {', '.join(f'{name} = {{0}}' for own in sums for name in own)};")
        return sums

    def loop(self, products: JammedProducts, length: int) -> None:
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

    def end(self, products: JammedProducts) -> None:
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
        site = sites[0]
        if not site.operand(2).in_registers:
            self.add_four(site, site.operand(2).pointer(), sums)
            return
        four, name = self._sums_of_four(site, sums), site.fresh("totals")
        site.line(f"    const {site.vector_type(_lanes(site), 4)} {name} = {four};")
        for lane, one in enumerate(sites):
            self._add(one, f"{name}[{lane}]")

    def add_four(self, site: KernelSite, address: str, sums: Sequence[Sequence[str]]) -> None:
        """Add the sums over the lanes of four dot products to neighbours in memory."""
        dtype, total = site.spec.states[2].dtype, self._sums_of_four(site, sums)
        before = f"{site.load(dtype, 4)}({address})"
        if dtype.is_float:
            site.line(f"    {site.store(dtype, 4)}({address}, {before} + {total});")
        else:
            four, out = site.vector_type(_lanes(site), 4), site.vector_type(dtype, 4)
            site.line(f"    {site.store(dtype, 4)}({address}, ({out})(({four}){before} + {total}));")

    def _sums_of_four(self, site: KernelSite, sums: Sequence[Sequence[str]]) -> str:
        """Return a vector of the sums over the lanes of four dot products."""
        dtype = _lanes(site)
        return instructions(site).sums_of_four(
            site,
            dtype,
            self.widest // dtype.bytes,
            [" + ".join(each) for each in sums],
            lambda values: combine_lanes(site, Add, dtype, values),
        )

    @property
    def jam(self) -> UnrollAndJam:
        return UnrollAndJam(most=SIDE_BY_SIDE, registers={"VRF": SIDE_BY_SIDE + 4}, emit=self.emit_all)

    def _kind(self, site: KernelSite) -> str:
        lanes = _lanes(site)
        return site.vector_type(lanes, self.widest // lanes.bytes)


def _lanes(site: KernelSite) -> DType:
    """Return the type of sums: integers are added up as unsigned ones, which wrap around."""
    dtype = site.spec.states[2].dtype
    return dtype if dtype.is_float else unsigned(dtype)


def accumulators(steps: int, most: int = _SUMS) -> int:
    return max(count for count in range(1, most + 1) if steps % count == 0)


# A row times columns that are read one after the other.

_COLUMN = 2
#: Columns whose sums are added up together.
_FOUR = 4
#: Sums of the column that is read, one of each of the others, and what a step needs besides.
_REGISTERS = SIDE_BY_SIDE + _FOUR
#: Tenths of a cycle to start a column.
_TURN = 20


def _emit(product: DotProduct, site: KernelSite) -> None:
    """Print a loop over four columns at a time."""
    _, _, length, columns = map(int, site.spec.shape)
    lhs, rhs, out = (site.operand(index) for index in range(3))
    names = [site.fresh(name) for name in ("lhs_at", "columns", "sums_at")]
    n = site.fresh("n")
    site.line(f"for (ptrdiff_t {n} = 0; {n} < {columns}; {n} += {_FOUR}) {{")
    places = (lhs.pointer(), f"{rhs.pointer()} + {n} * {rhs.stride(_COLUMN)}", f"{out.pointer()} + {n}")
    for name, place, state, const in zip(names, places, site.spec.states, ("const ", "const ", ""), strict=True):
        site.line(f"    {const}{state.dtype.c_name} *const {name} = {place};")
    sums = product.zeros(site, _FOUR, accumulators(length // product.count(site)))
    for column, own in enumerate(sums):
        place = rhs.stride(_COLUMN) * column
        pointers = (names[0], f"{names[1]} + {place}" if column else names[1])
        # Otherwise clang unrolls all loops and mixes them, which is three times as slow.
        site.line('    __asm__ volatile("" ::: "memory");')
        product.loop(JammedProducts([site], [pointers], [own]), length)
    product.add_four(site, names[2], sums)
    site.line("}")


def in_columns(kernel: Microkernel, product: DotProduct, computing: Computing) -> Microkernel:
    """Return the kernel that computes four or more dot products of `kernel` on columns in L2 or memory.

    `computing` are the tenths of a cycle of one of them, which overlap with reading.
    """
    lhs, rhs, out = kernel.operands
    assert isinstance(kernel.shape, tuple)

    def cost(spec: LogicalSpec, machine: Machine) -> Num:
        computed = spec.shape[3] * (computing(spec) + _TURN)
        total = np.rint(smooth_maximum(computed, machine.move_cost(spec.operand(1)))).astype(np.int64)
        total = total + machine.move_cost(spec.operand(2))
        return total if total.ndim else int(total)

    return attrs.evolve(
        kernel,
        name=kernel.name.replace("DotProductLoop", "RowTimesColumns"),
        operands=(lhs, attrs.evolve(rhs, levels=("L2", "L3", "GL")), attrs.evolve(out, levels=("L1",))),
        shape=(*kernel.shape[:3], Multiple(of=_FOUR)),
        cost=cost,
        registers={"VRF": _REGISTERS},
        emit=partial(_emit, product),
        jam=None,
    )
