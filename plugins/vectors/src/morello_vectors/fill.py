"""Setting values of every type: to zero, one, an infinity or the smallest value, zeros around rows, and copies.

Broadcast repeats values along a dimension, OnePrefix copies them.
"""

from __future__ import annotations

from morello.ir.dtypes import DType
from morello.ir.layout import PhysicalDim
from morello.ir.numbers import Mask, Num, product
from morello.ir.ops.broadcast import Broadcast
from morello.ir.ops.fill import Fill
from morello.ir.ops.move import OnePrefix
from morello.ir.ops.pad import Pad
from morello.ir.spec import LogicalSpec
from morello.kernels.site import KernelSite
from morello.plugins import Machine, Microkernel, per_vector, touching
from morello_vectors.common import HALF_CYCLE, MEMORIES, touching_kernel
from morello_vectors.lanes import repeat
from morello_vectors.move import cast
from morello_vectors.values import literal

_MEMORIES = "/".join(MEMORIES)


def _zero_memory(site: KernelSite) -> None:
    out = site.operand(0)
    # For a whole array, compilers warn if the number of bytes is its number of elements.
    site.line(f"memset(&{out.scalar()}, 0, {out.tensor.bytes});")


def _constant(site: KernelSite) -> tuple[DType, str]:
    """Return the data type that is filled, and the constant in C."""
    op, dtype = site.spec.op, site.spec.states[0].dtype
    assert isinstance(op, Fill)
    return dtype, literal(op.constant(dtype), dtype)


def _fill_value(site: KernelSite) -> str:
    return f"{{out}} = {_constant(site)[1]};"


def _fill_vector(site: KernelSite) -> str:
    dtype, constant = _constant(site)
    return f"{{out}} = {repeat(site, dtype, site.spec.states[0].vector or 1)}({constant});"


def _fill_memory(site: KernelSite) -> None:
    out, index = site.operand(0), site.fresh("i")
    dtype, constant = _constant(site)
    at = site.fresh("at")
    site.line("{")
    site.line(f"    {dtype.c_name} *const {at} = {out.pointer()};")
    site.line(f"    for (ptrdiff_t {index} = 0; {index} < {out.tensor.volume}; ++{index}) {{")
    site.line(f"        {at}[{index}] = {constant};")
    site.line("    }")
    site.line("}")


_ZEROING = (
    touching_kernel(name="ValueZero", takes="FillZero(1, RF/L1)", template="{out} = 0;"),
    Microkernel(
        name="VectorZero",
        takes="FillZero(n, VRF)",
        when=lambda spec: spec.operand(0).vectors == 1,
        cost=per_vector(HALF_CYCLE),
        template="{out} = ({out_type}){{0}};",
    ),
    touching_kernel(
        name="MemsetZero",
        takes=f"FillZero(n, {_MEMORIES})",
        # Unlike in [Kaufman2025], every line is touched; a call takes half a cycle.
        emit=_zero_memory,
    ),
)


def _filling(op: Fill) -> tuple[Microkernel, ...]:
    """Return the kernels of another Fill: for a value, vector registers, or memory."""
    return (
        touching_kernel(name=f"Value{op.value}", op=op, takes="1, RF/L1", template=_fill_value),
        Microkernel(
            name=f"Vector{op.value}",
            op=op,
            takes="n, VRF",
            cost=per_vector(HALF_CYCLE),
            template=_fill_vector,
        ),
        touching_kernel(name=f"{op.value}Loop", op=op, takes=f"n, {_MEMORIES}", emit=_fill_memory),
    )


FILLS = (*_ZEROING, *(kernel for value in ("NegInf", "Min", "PosInf", "One") for kernel in _filling(Fill(value))))


# Padding.


def _order(spec: LogicalSpec) -> list[int]:
    """Return the dimensions of the output from the slowest: those of size 1, which layouts leave out, come first."""
    layout = spec.states[1].layout
    found = [one.dim for one in layout.dims] if layout else []
    return [*(dim for dim in range(len(spec.shape)) if dim not in found), *found]


def _same_order(spec: LogicalSpec) -> bool:
    """Return True if the dimensions of both lie in one order, without strips."""
    source, out = (state.layout for state in spec.states)
    if source is None or out is None or source.has_strips or out.has_strips:
        return False
    dims = [one.dim for one in source.dims]
    return [one.dim for one in out.dims if one.dim in dims] == dims


def _padded(spec: LogicalSpec) -> tuple[int, int]:
    """Return the place of the first and the last dimension with padding, among all in their order."""
    assert isinstance(spec.op, Pad)
    padded = spec.op.untiled(len(spec.shape))
    places = [at for at, dim in enumerate(_order(spec)) if dim in padded] or (len(spec.shape) - 1,)
    return places[0], places[-1]


def _pad(site: KernelSite) -> None:
    op, source, out = site.spec.op, site.operand(0), site.operand(1)
    assert isinstance(op, Pad)
    first, last = _padded(site.spec)
    order = _order(site.spec)
    given, made = ([int(one.tensor.shape[dim]) for dim in order] for one in (source, out))
    dtype, inner = out.tensor.state.dtype, int(product(made[last + 1 :]))
    pads = [op.pads(len(order))[dim] for dim in order]
    from_, to, image = (site.fresh(name) for name in ("from", "to", "image"))
    site.line("{")
    site.line(f"    const {dtype.c_name} *const {from_} = {source.pointer()};")
    site.line(f"    {dtype.c_name} *const {to} = {out.pointer()};")
    if op.mode == "constant":
        _fill_around(site, to, op.value, dtype)
    # Tensors around the padding are one dimension, and so is what lies within a row.
    own = made if op.mode != "constant" else given
    start, begin, depth = image, image, "    "
    site.line(f"    for (ptrdiff_t {image} = 0; {image} < {product(made[:first])}; ++{image}) {{")
    for dim in range(first, last + (op.mode != "constant")):
        row, depth = site.fresh("row"), f"{depth}    "
        site.line(f"{depth}for (ptrdiff_t {row} = 0; {row} < {own[dim]}; ++{row}) {{")
        size, padded, before = given[dim], made[dim], pads[dim][0]
        if op.mode == "constant":
            start, begin = f"({start} * {padded} + {row} + {before})", f"({begin} * {size} + {row})"
        else:
            start, begin = f"({start} * {padded} + {row})", f"({begin} * {size} + {_mirrored(op, row, before, size)})"
    if op.mode == "constant":
        size, before = (one * inner for one in (given[last], pads[last][0]))
        start, begin = f"{start} * {made[last] * inner} + {before}", f"{begin} * {size}"
    else:
        size, start, begin = inner, f"{start} * {inner}", f"{begin} * {inner}"
    copied = f"memcpy({to} + {start}, {from_} + {begin}, {size * dtype.bytes});"
    site.line(f"{depth}    {copied}")
    for level in range(len(depth) // 4, -1, -1):
        site.line(f"{'    ' * level}}}")


def _fill_around(site: KernelSite, to: str, value: float, dtype: DType) -> None:
    """Print the loop that fills an output."""
    out, index = site.operand(1).tensor, site.fresh("i")
    if str(value) == "0.0":
        site.line(f"    memset({to}, 0, {out.bytes});")
        return
    site.line(f"    for (ptrdiff_t {index} = 0; {index} < {out.volume}; ++{index}) {{")
    site.line(f"        {to}[{index}] = {literal(value, dtype)};")
    site.line("    }")


def _mirrored(op: Pad, row: str, before: int, size: int) -> str:
    """Return the place in a dimension of the source for one in the output: at its edge, or reflected there."""
    at = f"({row} - {before})"
    low, high = ("0", f"{size - 1}") if op.mode == "edge" else (f"-{at}", f"{2 * size - 2} - {at}")
    return f"({at} < 0 ? {low} : {at} >= {size} ? {high} : {at})"


def _pad_cost(spec: LogicalSpec, machine: Machine) -> Num:
    """Return the cost: touching every line, and a call of memcpy for each row, whose place may have to be found."""
    assert isinstance(spec.op, Pad)
    copied = spec.operand(0).shape if spec.op.mode == "constant" else spec.shape
    rows = _order(spec)[: _padded(spec)[1] + (spec.op.mode != "constant")]
    half_cycles = 1 if spec.op.mode == "constant" else 4
    return touching()(spec, machine) + HALF_CYCLE * half_cycles * product(copied[dim] for dim in rows)


PADDING = (
    Microkernel(
        name="PadRows",
        op=Pad,
        takes=f"n, {_MEMORIES}, {_MEMORIES}",
        same=("dtype",),
        when=_same_order,
        cost=_pad_cost,
        emit=_pad,
    ),
)


# Broadcast and OnePrefix.


def _value_to_registers(site: KernelSite) -> None:
    source, out = site.operand(0), site.operand(1)
    state = out.tensor.state
    kind, name = site.vector_type(state.dtype, state.vector or 1), site.fresh("all")
    site.line("{")
    site.line(f"    const {kind} {name} = {repeat(site, state.dtype, state.vector or 1)}({source.scalar()});")
    for register in out.vectors():
        site.line(f"    {register} = {name};")
    site.line("}")


def _registers(site: KernelSite) -> None:
    """The source's registers, or vectors in L1, over and over."""
    source, out = site.operand(0), site.operand(1)
    state = out.tensor.state
    size = state.vector or 1
    volume = int(source.tensor.volume)
    for position, register in zip(range(0, int(out.tensor.volume), size), out.vectors(), strict=True):
        if source.in_registers:
            site.line(f"{register} = {source.register(position % volume)};")
        else:
            site.line(f"{register} = {site.load(state.dtype, size)}({source.pointer(position % volume)});")


def _memory(site: KernelSite) -> None:
    """The source's run of values, over and over."""
    source, out = site.operand(0), site.operand(1)
    dtype = out.tensor.state.dtype
    index, place, value = site.fresh("i"), site.fresh("at"), site.fresh("value")
    length, total = int(source.tensor.volume), int(out.tensor.volume)
    setting = f"{place}[{index}] = {value};"
    site.line("{")
    site.line(f"    {dtype.c_name} *const {place} = {out.pointer()};")
    if length == 1:
        site.line(f"    const {dtype.c_name} {value} = {source.scalar()};")
    else:
        setting = f"memcpy({place} + {index}, {source.pointer()}, {length * dtype.bytes});"
    site.line(f"    for (ptrdiff_t {index} = 0; {index} < {total}; {index} += {length}) {{")
    site.line(f"        {setting}")
    site.line("    }")
    site.line("}")


def _outermost(spec: LogicalSpec) -> bool:
    """Return True if the output is the source over and over: its slowest dimension is the one that the source lacks."""
    source, out = (state.layout for state in spec.states)
    op = spec.op
    assert isinstance(op, Broadcast)
    if source is None or out is None or not out.dims:
        return False
    return out.dims[0].dim == op.axis(len(spec.shape)) and out.dims[1:] == source.dims


def _whole_vectors(spec: LogicalSpec) -> Mask:
    """Return True if every vector of the output lies within one copy of the source."""
    source, out = spec.states
    if source.vector not in (None, out.vector) or not _outermost(spec):
        return False
    return spec.operand(0).volume % (out.vector or 1) == 0


def _single(spec: LogicalSpec) -> Mask:
    return spec.operand(0).volume == 1


def _prefixed(spec: LogicalSpec) -> bool:
    """Return True if both tensors have their values in the same order."""
    source, out = (state.layout for state in spec.states)
    if source is None or out is None:
        return False
    shifted = tuple(PhysicalDim(one.dim + 1, one.size, one.odd_even) for one in source.dims)
    return shifted == out.dims


def _copy(site: KernelSite) -> None:
    source, out = site.operand(0), site.operand(1)
    site.line(f"memcpy({out.pointer()}, {source.pointer()}, {out.tensor.bytes});")


BROADCASTS = (
    touching_kernel(name="ValueBroadcast", op=Broadcast, takes="1, RF/L1, RF/L1", template=cast),
    Microkernel(
        name="VecScalarAssign",
        op=Broadcast,
        takes="n, RF/L1, VRF",
        same=("dtype",),
        when=_single,
        cost=lambda spec, machine: HALF_CYCLE * (spec.operand(1).vectors + 1) + touching()(spec, machine),
        emit=_value_to_registers,
    ),
    Microkernel(
        name="VectorBroadcast",
        op=Broadcast,
        takes="n, VRF/L1, VRF",
        same=("dtype",),
        when=_whole_vectors,
        cost=lambda spec, machine: HALF_CYCLE * spec.operand(1).vectors,
        emit=_registers,
    ),
    touching_kernel(
        name="BroadcastLoop",
        op=Broadcast,
        takes=f"n, RF/{_MEMORIES}, {_MEMORIES}",
        same=("dtype",),
        # One value fills a tensor of any layout; more of them are copied as they lie.
        when=lambda spec: _single(spec) if not _outermost(spec) else True,
        emit=_memory,
    ),
    touching_kernel(name="ValueOnePrefix", op=OnePrefix, takes="1, RF/L1, RF/L1", template=cast),
    touching_kernel(
        name="OnePrefixCopy",
        op=OnePrefix,
        takes=f"n, {_MEMORIES}, {_MEMORIES}",
        same=("dtype",),
        when=_prefixed,
        emit=_copy,
    ),
    Microkernel(
        name="VectorOnePrefix",
        op=OnePrefix,
        takes="n, VRF, VRF",
        same=("dtype", "vector"),
        when=_prefixed,
        cost=per_vector(HALF_CYCLE),
        template="{out} = {src};",
    ),
)
