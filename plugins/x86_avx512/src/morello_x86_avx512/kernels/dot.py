"""Dot products of small types: whole vectors, and with a masked tail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import attrs
from morello_vectors.common import HALF_CYCLE
from morello_vectors.dot import SUMMING, f32_step, row_times_column
from morello_vectors.dot_code import Computing, DotProduct, Step, Values, in_columns

from morello.ir.numbers import Mask, Num, ceil_div, choose
from morello.ir.ops.matmul import Matmul
from morello.ir.spec import LogicalSpec
from morello.kernels.site import KernelSite
from morello.plugins import Machine, Microkernel
from morello_x86_avx512.kernels.instructions import INSTRUCTIONS, Instruction
from morello_x86_avx512.kernels.masks import WIDTH, load_first

_ACCUMULATE = Matmul(accumulate=True)


def _step(instruction: Instruction) -> Step:
    def step(site: KernelSite, size: int, total: str, values: Values) -> str:
        count = instruction.adds.taken * size // 4
        return instruction.spelled(site, size, total, *(values(index, 0, count) for index in range(2)))

    return step


@attrs.frozen
class TailedDotProduct(DotProduct):
    """A dot product of any length: a loop over whole vectors, and a masked one that is zero past the end."""

    def emit_all(self, sites: Sequence[KernelSite]) -> None:
        site = sites[0]
        count = self.count(site)
        length = int(site.spec.shape[2])
        whole, tail = length // count, length % count
        site.line("{")
        products = self.begin(sites, whole or 1)
        if whole:
            self.loop(products, whole * count)
        for pointers, (total, *_) in zip(products.pointers, products.sums, strict=True):

            def values(index: int, place: int, number: int, addresses: tuple[str, str] = pointers) -> str:
                first = f"{addresses[index]} + {whole * count}" if whole else addresses[index]
                return load_first(site, site.spec.states[index].dtype, tail, first)

            site.line(f"    {total} = {self.step(site, self.widest, total, values)};")
        self.end(products)
        site.line("}")


def _computing(count: int) -> Computing:
    """Return [Kaufman2025]'s cost for vdpbf16ps: one cycle a vector, and four to add up each accumulator."""

    def computing(spec: LogicalSpec) -> Num:
        steps: Num = spec.shape[2] // count
        sums = choose(steps % 4 == 0, 4, choose(steps % 3 == 0, 3, choose(steps % 2 == 0, 2, 1)))
        return HALF_CYCLE * (steps + 4 * sums)

    return computing


def _tailed_cost(count: int, each: int) -> Callable[[LogicalSpec, Machine], Num]:
    """As without a tail, with one vector more, and a cycle for the masks."""

    def cost(spec: LogicalSpec, machine: Machine) -> Num:
        return HALF_CYCLE * (each * ceil_div(spec.shape[2], count) + 1) + SUMMING + machine.move_cost(spec.operand(2))

    return cost


def _kernels(instruction: Instruction) -> Sequence[Microkernel]:
    count = instruction.adds.taken * WIDTH // 4
    arguments = WIDTH, _step(instruction), instruction.adds.taken
    whole, tailed = DotProduct(*arguments), TailedDotProduct(*arguments)
    computing = _computing(count)
    shared = partial(
        Microkernel,
        op=_ACCUMULATE,
        cpu_features=instruction.adds.cpu_features,
        flush_to_zero=instruction.adds.flush_to_zero,
        registers={"VRF": 6},
    )
    loop = shared(
        name=f"DotProductLoop{instruction.adds.name}",
        takes=row_times_column(f"{count}i", *instruction.types),
        when=instruction.takes,
        cost=lambda spec, machine: computing(spec) + machine.move_cost(spec.operand(2)),
        emit=whole.emit,
        jam=whole.jam,
    )
    return (
        loop,
        in_columns(loop, whole, computing),
        shared(
            name=f"DotProductTail{instruction.adds.name}",
            takes=row_times_column("k", *instruction.types),
            when=lambda spec: instruction.takes(spec) & _has_tail(spec, count),
            # Up to four accumulators, as above; one where there is only a tail.
            cost=lambda spec, machine: (
                _tailed_cost(count, 1)(spec, machine) + choose(spec.shape[2] < count, 1, 4) * 4 * HALF_CYCLE
            ),
            emit=tailed.emit,
            jam=tailed.jam,
        ),
    )


def _has_tail(spec: LogicalSpec, count: int) -> Mask:
    """Vectors do not cover k; a single value needs none."""
    return (spec.shape[2] % count != 0) & (spec.shape[2] > 1)


_TAILED = TailedDotProduct(WIDTH, f32_step)

KERNELS = (
    *(kernel for instruction in INSTRUCTIONS for kernel in _kernels(instruction)),
    Microkernel(
        name="DotProductTail",
        op=_ACCUMULATE,
        takes=row_times_column("k", "f32", "f32", "f32"),
        when=lambda spec: _has_tail(spec, WIDTH // 4),
        # Per vector what DotProductLoop costs.
        cost=_tailed_cost(WIDTH // 4, 4),
        registers={"VRF": 6},
        emit=_TAILED.emit,
        jam=_TAILED.jam,
    ),
)
