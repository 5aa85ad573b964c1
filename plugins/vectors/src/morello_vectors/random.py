"""Random numbers from counters: a hash of integers, in vectors and one by one."""

from __future__ import annotations

from typing import Any

from morello.ir.dtypes import F32, I32, U32
from morello.ir.numbers import Mask, Num
from morello.ir.ops.rand_matmul import COLUMN_FACTOR, MIXING, SCALE, SHIFT, Random, seed_word
from morello.ir.spec import LogicalSpec
from morello.kernels.site import KernelSite
from morello.plugins import Machine, Microkernel, touching
from morello_vectors.common import HALF_CYCLE
from morello_vectors.lanes import Place, lanewise, vectors, width

#: Tenths of a cycle of a vector, by its bytes, and of a row, on a core of Zen 5: benchmarks/random_products.py measures
#: them. Multiplying integers takes most of it.
_VECTOR = {16: 45, 32: 45, 64: 47}
_ROW = 60
#: What hashing a vector of rows takes.
_KEYS = {16: 34, 32: 34, 64: 31}
#: The same of a single value, whose row is hashed as well: 26 instructions, four in a cycle.
_VALUE = 65


def _mixing(site: KernelSite, kind: str) -> str:
    """Return the C function that hashes words: a vector, or one."""
    steps = [f"x ^= x >> {shift};" + (f"\n    x *= {factor:#x}u;" if factor > 1 else "") for shift, factor in MIXING]
    head = f"static inline {kind} mixed_{kind}({kind} x)"
    return site.helper(f"mixed_{kind}", "\n    ".join([f"{head} {{", *steps, "return x;\n}"]))


def _number(site: KernelSite, words: str, signed: str, floats: str, converted: str) -> str:
    """Return the C function of the hash of a row and the counters of columns that gives random numbers."""
    mixed = _mixing(site, words)
    head = f"static inline {floats} random_{floats}({words} key, {words} column)"
    hashed = f"const {words} x = {mixed}(key ^ column * {COLUMN_FACTOR:#x}u);"
    result = f"return {converted.format(value=f'(({signed})x >> {SHIFT})')} * {SCALE.hex()}f;"
    return site.helper(f"random_{floats}", f"{head} {{\n    {hashed}\n    {result}\n}}")


def _seed(site: KernelSite) -> str:
    op = site.spec.op
    assert isinstance(op, Random)
    return f"{seed_word(op.seed):#x}u"


def _vector(place: Place) -> str:
    site = place.site
    words, signed, floats = (site.vector_type(dtype, place.values) for dtype in (U32, I32, F32))
    number = _number(site, words, signed, floats, f"__builtin_convertvector({{value}}, {floats})")
    return f"{{out}} = {number}({_mixing(site, words)}({{rows}} ^ {_seed(site)}), {{columns}});"


def _value(site: KernelSite) -> None:
    rows, columns, out = (site.operand(index).scalar() for index in range(3))
    number = _number(site, "uint32_t", "int32_t", "float", "(float){value}")
    site.line(f"{out} = {number}({_mixing(site, 'uint32_t')}({rows} ^ {_seed(site)}), {columns});")


SCALARS = (
    Microkernel(
        name="ValueRandom",
        op=Random,
        takes="1, u32 RF/L1, u32 RF/L1, f32 RF/L1",
        cost=touching(_VALUE),
        emit=_value,
    ),
)


def kernels(widest: int) -> tuple[Microkernel, ...]:
    """Return the kernels of a core whose widest vectors have `widest` bytes: on parts of rows, and of columns."""

    def fits(spec: LogicalSpec) -> Mask:
        return (spec.op.volume(spec.shape) > 1) & (4 * width(spec, widest) <= widest)

    def row_cost(spec: LogicalSpec, machine: Machine) -> Num:
        """As measured; a vector is loaded and stored meanwhile. In registers there is the hash of the row alone."""
        in_memory = all(state.vector is None for state in spec.states)
        size = 4 * width(spec, widest)
        return vectors(spec, widest) * _VECTOR[size] + (_ROW if in_memory else _KEYS[size])

    def column_cost(spec: LogicalSpec, machine: Machine) -> Num:
        size = 4 * width(spec, widest)
        return vectors(spec, widest) * (_VECTOR[size] + _KEYS[size]) + HALF_CYCLE

    def kernel(name: str, **declared: Any) -> Microkernel:
        emit = lanewise(_vector, widest)
        return Microkernel(
            name=name, op=Random, same=("lanes",), when=fits, registers={"VRF": 4}, emit=emit, **declared
        )

    return (
        kernel("VectorRandom", takes="1×1×n, u32 RF/L1, u32 L1/VRF, f32 L1/VRF", cost=row_cost),
        kernel("VectorRandomColumn", takes="1×n×1, u32 L1/VRF, u32 RF/L1, f32 L1/VRF", cost=column_cost),
    )
