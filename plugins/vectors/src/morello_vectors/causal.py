"""CausalMask of single values, and of vectors of a row of scores."""

from __future__ import annotations

from morello.ir.dtypes import F32, I32, U32
from morello.ir.numbers import Mask, Num
from morello.ir.ops.causal import CausalMask
from morello.ir.spec import LogicalSpec
from morello.kernels.site import KernelSite
from morello.plugins import Machine, Microkernel, touching
from morello_vectors.common import HALF_CYCLE
from morello_vectors.lanes import Place, lanewise, vectors, width
from morello_vectors.values import read_first

#: Half cycles of a vector: two loads, a comparison, a choice and a store. A window adds a difference and a comparison.
_VECTOR, _WINDOW = 4, 2


def _window(site: KernelSite) -> int:
    assert isinstance(site.spec.op, CausalMask)
    return site.spec.op.window


def _value(site: KernelSite) -> None:
    scores, row, column, out = (site.operand(index).scalar() for index in range(4))
    # Differences are below 2^32 where they count.
    apart = f"(uint32_t){row} - (uint32_t){column} < {_window(site)}u"
    kept = f"{column} <= {row}" + (f" && {apart}" if _window(site) else "")
    if row == column:
        # Compilers warn of an integer that is compared with itself, and of a parameter that is not used.
        site.line(f"(void){row};")
        site.line(f"{out} = {scores};")
        return
    site.line(f"{out} = {kept} ? {read_first(site, 0, F32)} : -__builtin_inff();")


def _vector(place: Place) -> str:
    site, window = place.site, _window(place.site)
    floats, ints, words = (site.vector_type(dtype, place.values) for dtype in (F32, I32, U32))
    kept = "columns <= rows"
    if window:
        kept = f"({kept}) & ({ints})(({words})rows - ({words})columns < {window}u)"
    name = f"causal{window or ''}_{floats}"
    text = f"""static inline {floats} {name}({floats} scores, {ints} rows, {ints} columns) {{
    const {ints} kept = {kept};
    return ({floats})((kept & ({ints})scores) | (~kept & ({ints}){place.constant(float("-inf"))}));
}}"""
    return f"{{out}} = {site.helper(name, text)}({{scores}}, {{rows}}, {{columns}});"


SCALARS = (
    Microkernel(
        name="ValueCausalMask",
        op=CausalMask,
        takes="1, f32 RF/L1, i32 RF/L1, i32 RF/L1, f32 RF/L1",
        cost=touching(3 * HALF_CYCLE),
        emit=_value,
    ),
)


def kernels(widest: int) -> tuple[Microkernel, ...]:
    """Return the kernel of a core whose widest vectors have `widest` bytes: on a part of a row."""

    def fits(spec: LogicalSpec) -> Mask:
        return (spec.op.volume(spec.shape) > 1) & (4 * width(spec, widest) <= widest)

    def cost(spec: LogicalSpec, machine: Machine) -> Num:
        assert isinstance(spec.op, CausalMask)
        each = _VECTOR + (_WINDOW if spec.op.window else 0)
        return HALF_CYCLE * (vectors(spec, widest) * each + 2)

    return (
        Microkernel(
            name="VectorCausalMask",
            op=CausalMask,
            takes="1×1×n, f32 L1/VRF, i32 RF/L1, i32 L1/VRF, f32 L1/VRF",
            same=("lanes",),
            when=fits,
            cost=cost,
            registers={"VRF": 4},
            emit=lanewise(_vector, widest),
        ),
    )
