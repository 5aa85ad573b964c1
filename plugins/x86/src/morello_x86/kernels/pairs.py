"""Products of small integers, two neighbours along k at once: interleaved in pairs, and in dot products."""

from __future__ import annotations

from collections.abc import Sequence

from morello_vectors.common import HALF_CYCLE
from morello_vectors.convert import vector_as, word_of
from morello_vectors.dot import dot_products, per_values, row_times_column
from morello_vectors.dot_code import Values

from morello.ir.dtypes import I16, U16, U32
from morello.ir.numbers import Num
from morello.ir.ops.matmul import Matmul
from morello.ir.spec import LogicalSpec
from morello.kernels.site import KernelSite
from morello.plugins import Machine, Microkernel, touching
from morello_x86.kernels.spelling import INTEGER_VECTOR, PREFIX

#: What fits 16 bits with a sign, so that vpmaddwd multiplies it.
FACTORS = "u8/i8/i16"


def _pair_mult_add(site: KernelSite) -> str:
    """vpmaddwd multiplies 16-bit integers and adds products of neighbours: exact in 32 bits, modulo 2^32."""
    size, narrow = site.spec.states[2].vector or 1, site.spec.states[1].dtype
    prefix, whole = PREFIX[4 * size], INTEGER_VECTOR[4 * size]
    pair = f"{prefix}_set1_epi32({word_of(site.operand(0), 2)})"
    product = f"{prefix}_madd_epi16({pair}, ({whole}){vector_as(site, '{rhs}', narrow, I16, 2 * size)})"
    return f"{{out}} = ({{out_type}}){prefix}_add_epi32(({whole}){{out}}, {product});"


def _saturating_pairs(site: KernelSite) -> str:
    """vpmaddubsw multiplies unsigned with signed bytes and saturates sums of neighbours to 16 bits."""
    size = site.spec.states[2].vector or 1
    prefix, whole = PREFIX[2 * size], INTEGER_VECTOR[2 * size]
    low, high = (site.operand(0).scalar(position) for position in range(2))
    pair = f"{prefix}_set1_epi16((int16_t)({low} | (uint32_t){high} << 8))"
    product = f"{prefix}_maddubs_epi16({pair}, ({whole}){{rhs}})"
    return f"{{out}} = ({{out_type}}){prefix}_add_epi16(({whole}){{out}}, {product});"


def _saturating_values(site: KernelSite) -> None:
    """Print the same for one output; products of bytes and their sum fit an int."""
    lhs, rhs, out = (site.operand(i) for i in range(3))
    total = " + ".join(f"{lhs.scalar(position)} * {rhs.scalar(position)}" for position in range(2))
    sum_ = site.fresh("pair")
    site.line("{")
    site.line(f"    const int32_t {sum_} = {total};")
    clamped = f"({sum_} < INT16_MIN ? INT16_MIN : {sum_} > INT16_MAX ? INT16_MAX : {sum_})"
    site.line(f"    {out.scalar()} = (int16_t)((uint32_t){out.scalar()} + (uint32_t){clamped});")
    site.line("}")


def _twice_as_many(spec: LogicalSpec) -> bool:
    """Return True if a register of the right-hand side holds the pairs of one of sums, in the same order."""
    factor, total = spec.states[1], spec.states[2]
    return factor.vector in (None, 2 * (total.vector or 1))


def _pair_cost(spec: LogicalSpec, machine: Machine) -> Num:
    """Return the cost of one value along k; widening bytes first takes half of that, by measurement."""
    each = 2 if spec.states[1].dtype == I16 else 3
    return HALF_CYCLE * (each * spec.operand(2).vectors + 1) + machine.move_cost(spec.operand(1))


def _saturating_cost(spec: LogicalSpec, machine: Machine) -> Num:
    """Return [Kaufman2025]'s cost: vectors, and both sides if they are in L1."""
    moves = machine.move_cost(spec.operand(0)) + machine.move_cost(spec.operand(1))
    return HALF_CYCLE * (2 * spec.operand(2).vectors + 1) + moves


_SATURATING = Matmul(accumulate=True, saturating=True)


def _pairs_step(site: KernelSite, size: int, total: str, values: Values) -> str:
    """vpmaddwd: as `_pair_mult_add`."""
    prefix, whole, count = PREFIX[size], INTEGER_VECTOR[size], size // 2
    lhs, rhs = (vector_as(site, values(i, 0, count), site.spec.states[i].dtype, I16, count) for i in range(2))
    products = f"{prefix}_madd_epi16(({whole}){lhs}, ({whole}){rhs})"
    return f"{total} + ({site.vector_type(U32, size // 4)}){products}"


def _saturating_step(site: KernelSite, size: int, total: str, values: Values) -> str:
    """vpmaddubsw: as `_saturating_pairs`."""
    prefix, whole = PREFIX[size], INTEGER_VECTOR[size]
    lhs, rhs = (f"({whole}){values(i, 0, size)}" for i in range(2))
    return f"{total} + ({site.vector_type(U16, size // 2)}){prefix}_maddubs_epi16({lhs}, {rhs})"


def dots(vectors: Sequence[int]) -> tuple[Microkernel, ...]:
    """Return the dot products of a core with vectors of these sizes in bytes."""
    widest = max(vectors)
    return (
        *dot_products(
            widest,
            "DotProductLoopPairs",
            row_times_column(f"{widest // 2}i", FACTORS, FACTORS, "i32/u32"),
            _pairs_step,
            per_values(2, widest // 2),
            taken=2,
            columns=True,
        ),
        # Wins for saturating products of a row, whose sums would not fill a register tile.
        *dot_products(
            widest,
            "DotProductLoopU8S8S16",
            row_times_column(f"{widest}i", "u8", "i8", "i16"),
            _saturating_step,
            per_values(2, widest),
            taken=2,
            saturating=True,
        ),
    )


#: PairBroadcastVecMultAdd wins for products with few values along k, and the saturating kernels for products of one
#: column or one pair along k, which are too small for register tiles.
PAIRS = (
    Microkernel(
        name="PairBroadcastVecMultAdd",
        takes=f"MatmulAccum(1×1×2×n, {FACTORS} RF/L1, {FACTORS} L1/VRF col_major, i32/u32 VRF row_major)",
        when=_twice_as_many,
        cost=_pair_cost,
        registers={"VRF": 2},
        template=_pair_mult_add,
    ),
    Microkernel(
        name="TwoVecBroadcastVecMultAddU8S8S16",
        op=_SATURATING,
        takes="1×1×2×n, u8 RF/L1, i8 L1/VRF col_major, i16 VRF row_major",
        when=_twice_as_many,
        cost=_saturating_cost,
        registers={"VRF": 2},
        template=_saturating_pairs,
    ),
    Microkernel(
        name="SaturatingMultAdd",
        op=_SATURATING,
        takes="1×1×2×1, u8 RF/L1, i8 RF/L1, i16 RF/L1",
        # Two multiplications, two additions and two comparisons.
        cost=touching(6 * HALF_CYCLE),
        emit=_saturating_values,
    ),
)
