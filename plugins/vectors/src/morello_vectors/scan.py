"""ArgMax, ArgMin, CumSum, LinearScan and TopK in memory.

All but the last go along columns side by side, which compilers make vectors; ArgMax takes a long row as columns.
"""

from __future__ import annotations

from collections.abc import Callable
from string import Template

from morello.ir.dtypes import I64, DType
from morello.ir.numbers import Mask, Num, ceil_div, product
from morello.ir.ops.binary import Add
from morello.ir.ops.scan import Arg, ArgMax, ArgMin, CumSum, LinearScan, TopK
from morello.ir.spec import LogicalSpec
from morello.kernels.site import KernelSite
from morello.plugins import Machine, Microkernel, OperandPattern, touching
from morello_vectors.common import HALF_CYCLE, MEMORIES
from morello_vectors.convert import scalar_as
from morello_vectors.elementwise import of_values
from morello_vectors.gather import alike, behind

#: Columns that a loop handles side by side, and the values of a row at once.
_COLUMNS, _LANES = 64, 32

_ARG = Template("""\
static void $name(const $type *restrict from, ptrdiff_t stride, ptrdiff_t count, ptrdiff_t width,
                  $kind *restrict best, $index *restrict at) {
    for (ptrdiff_t c = 0; c < width; ++c) {
        best[c] = $first;
        at[c] = 0;
    }
    for (ptrdiff_t i = 1; i < count; ++i)
        for (ptrdiff_t c = 0; c < width; ++c) {
            const $kind v = $value, b = best[c];
            const int better = $better;
            best[c] = better ? v : b;
            at[c] = better ? ($index)i : at[c];
        }
}""")
#: The values so far are kept in order where they go.
_TOP = Template("""\
static void $name(const $type *restrict from, ptrdiff_t stride, ptrdiff_t count, ptrdiff_t k,
                  $type *restrict values, ptrdiff_t step, $index *restrict at, ptrdiff_t next) {
    ptrdiff_t held = 0;
    for (ptrdiff_t i = 0; i < count; ++i) {
        const $kind v = $value;
        $kind b = $last;
        if (held == k && !($better))
            continue;
        ptrdiff_t j = held < k ? held++ : k - 1;
        for (; j > 0; --j) {
            b = $before;
            if (!($better))
                break;
            values[j * step] = values[(j - 1) * step];
            at[j * next] = at[(j - 1) * next];
        }
        values[j * step] = from[i * stride];
        at[j * next] = ($index)i;
    }
}""")
_SUMS = Template("""\
static void $name(const $type *restrict from, ptrdiff_t stride, ptrdiff_t count, ptrdiff_t width,
                  $out *restrict to, ptrdiff_t step) {
    $kind sum[$columns];
    for (ptrdiff_t c = 0; c < width; ++c)
        sum[c] = 0;
    for (ptrdiff_t i = 0; i < count; ++i)
        for (ptrdiff_t c = 0; c < width; ++c) {
            const $kind before = sum[c], v = $value;
            sum[c] = $total;
            to[i * step + c] = $result;
        }
}""")

_LINEAR = Template("""\
static void $name(const $factor *restrict by, ptrdiff_t apart, const $type *restrict from, ptrdiff_t stride,
                  ptrdiff_t count, ptrdiff_t width, $out *restrict to, ptrdiff_t step) {
    $kind sum[$columns];
    for (ptrdiff_t c = 0; c < width; ++c)
        sum[c] = 0;
    for (ptrdiff_t i = 0; i < count; ++i)
        for (ptrdiff_t c = 0; c < width; ++c) {
            sum[c] = $times * sum[c] + $value;
            to[i * step + c] = $result;
        }
}""")


def _better(sign: int, dtype: DType, v: str, b: str) -> str:
    compared = f"{v} {'>' if sign > 0 else '<'} {b}"
    return f"({compared}) | (({v} != {v}) & ({b} == {b}))" if dtype.is_float else compared


def _arg(site: KernelSite) -> str:
    """Return the C function that finds the best of each of several columns."""
    op, (dtype, index) = site.spec.op, (state.dtype for state in site.spec.states)
    assert isinstance(op, Arg)
    name, kind = f"{op.name.lower()}_{dtype}_{index}", dtype.wide
    text = _ARG.substitute(
        name=name,
        type=dtype.c_name,
        kind=kind.c_name,
        index=index.c_name,
        first=scalar_as(site, "from[c]", dtype, kind),
        value=scalar_as(site, "from[i * stride + c]", dtype, kind),
        better=_better(op.sign, dtype, "v", "b"),
    )
    return site.helper(name, text)


def _axis(spec: LogicalSpec) -> int:
    assert isinstance(spec.op, (Arg, CumSum, LinearScan, TopK))
    return spec.op.axis(len(spec.shape))


def _columns(spec: LogicalSpec) -> Num:
    """Return the number of columns of a Spec with values along its dimension only, or one run at each place."""
    return product(size for dim, size in enumerate(spec.shape) if dim != _axis(spec))


def _by_columns(site: KernelSite, c: str, some: str, *body: str) -> None:
    """Print a loop over groups of columns, `some` of them from `c` on, as many as the functions hold at most."""
    width = int(_columns(site.spec))
    site.line(f"for (ptrdiff_t {c} = 0; {c} < {width}; {c} += {_COLUMNS}) {{")
    site.line(f"    const ptrdiff_t {some} = {width} - {c} < {_COLUMNS} ? {width} - {c} : {_COLUMNS};")
    for line in body:
        site.line(f"    {line}")
    site.line("}")


def _arg_columns(site: KernelSite) -> None:
    spec, source, out = site.spec, site.operand(0), site.operand(1)
    count, width = int(spec.shape[_axis(spec)]), int(_columns(spec))
    kind, c = spec.states[0].dtype.wide.c_name, site.fresh("c")
    best, some = site.fresh("best"), site.fresh("some")
    where = f"({source.pointer()}) + {c}, {source.stride(_axis(spec))}, {count}, {some}"
    found = f"{_arg(site)}({where}, {best}, ({out.pointer()}) + {c});"
    _by_columns(site, c, some, f"{kind} {best}[{min(width, _COLUMNS)}];", found)


def _arg_row(site: KernelSite) -> None:
    """Find the best of each of several columns of a row, then the first of the best of these."""
    spec, source, out = site.spec, site.operand(0), site.operand(1)
    op, dtype, integer = spec.op, spec.states[0].dtype, spec.states[1].dtype.c_name
    assert isinstance(op, Arg)
    count, kind = int(spec.shape[_axis(spec)]), dtype.wide
    best, at, row, c, v = (site.fresh(name) for name in ("best", "at", "row", "c", "v"))
    first, index = f"{best}[0]", f"{at}[0]"
    better = _better(op.sign, dtype, v, first)
    equal = f"({v} == {first}) | (({v} != {v}) & ({first} != {first}))" if dtype.is_float else f"{v} == {first}"
    whole = count // _LANES * _LANES
    site.line("{")
    site.line(f"    const {dtype.c_name} *const {row} = {source.pointer()};")
    site.line(f"    {kind.c_name} {best}[{_LANES}];")
    site.line(f"    {integer} {at}[{_LANES}];")
    site.line(f"    {_arg(site)}({row}, {_LANES}, {count // _LANES}, {_LANES}, {best}, {at});")
    site.line(f"    {index} *= {_LANES};")
    site.line(f"    for ({integer} {c} = 1; {c} < {_LANES}; ++{c}) {{")
    site.line(f"        const {kind.c_name} {v} = {best}[{c}];")
    place = f"{at}[{c}] * {_LANES} + {c}"
    site.line(f"        if (({better}) | (({equal}) & ({place} < {index}))) {{")
    site.line(f"            {first} = {v};")
    site.line(f"            {index} = {place};")
    site.line("        }")
    site.line("    }")
    if whole < count:
        site.line(f"    for ({integer} {c} = {whole}; {c} < {count}; ++{c}) {{")
        site.line(f"        const {kind.c_name} {v} = {scalar_as(site, f'{row}[{c}]', dtype, kind)};")
        site.line(f"        if ({better}) {{")
        site.line(f"            {first} = {v};")
        site.line(f"            {index} = {c};")
        site.line("        }")
        site.line("    }")
    site.line(f"    {out.scalar()} = {index};")
    site.line("}")


def _cumsum(site: KernelSite) -> None:
    spec, source, out = site.spec, site.operand(0), site.operand(1)
    op, axis = spec.op, _axis(spec)
    assert isinstance(op, CumSum)
    count = int(spec.shape[axis])
    narrow, dtype = (state.dtype for state in spec.states)
    kind = dtype.wide
    name = f"cumsum{'_exclusive' * op.exclusive}_{narrow}_{dtype}"
    text = _SUMS.substitute(
        name=name,
        type=narrow.c_name,
        out=dtype.c_name,
        kind=kind.c_name,
        columns=_COLUMNS,
        value=scalar_as(site, "from[i * stride + c]", narrow, kind),
        total=of_values(Add, "before", "v", kind),
        result=scalar_as(site, "before" if op.exclusive else "sum[c]", kind, dtype),
    )
    site.helper(name, text)
    c, some = site.fresh("c"), site.fresh("some")
    steps = [f"({one.stride(axis)})" for one in (source, out)]
    last = f" + {count - 1} * " if op.reverse else ""
    starts = [f"({one.pointer()}) + {c}{last and last + step}" for one, step in zip((source, out), steps, strict=True)]
    sign = "-" * op.reverse
    call = f"{name}({starts[0]}, {sign}{steps[0]}, {count}, {some}, {starts[1]}, {sign}{steps[1]});"
    _by_columns(site, c, some, call)


def _linear(site: KernelSite) -> None:
    spec, axis, operands = site.spec, _axis(site.spec), [site.operand(number) for number in range(3)]
    count = int(spec.shape[axis])
    factor, narrow, dtype = (state.dtype for state in spec.states)
    name, kind = f"linear_scan_{factor}_{narrow}_{dtype}", dtype.wide
    text = _LINEAR.substitute(
        name=name,
        factor=factor.c_name,
        type=narrow.c_name,
        out=dtype.c_name,
        kind=kind.c_name,
        columns=_COLUMNS,
        times=scalar_as(site, "by[i * apart + c]", factor, kind),
        value=scalar_as(site, "from[i * stride + c]", narrow, kind),
        result=scalar_as(site, "sum[c]", kind, dtype),
    )
    site.helper(name, text)
    c, some = site.fresh("c"), site.fresh("some")
    by, source, out = (f"({one.pointer()}) + {c}, {one.stride(axis)}" for one in operands)
    _by_columns(site, c, some, f"{name}({by}, {source}, {count}, {some}, {out});")


def _top(site: KernelSite) -> None:
    spec, axis, dtype, index = site.spec, _axis(site.spec), site.spec.states[0].dtype, site.spec.states[2].dtype
    assert isinstance(spec.op, TopK)
    name, kind = f"top_{dtype}_{index}", dtype.wide
    text = _TOP.substitute(
        name=name,
        type=dtype.c_name,
        index=index.c_name,
        kind=kind.c_name,
        value=scalar_as(site, "from[i * stride]", dtype, kind),
        last=scalar_as(site, "values[held ? (held - 1) * step : 0]", dtype, kind),
        before=scalar_as(site, "values[(j - 1) * step]", dtype, kind),
        better=_better(1, dtype, "v", "b"),
    )
    (source, *found), name = (site.operand(number) for number in range(3)), site.helper(name, text)
    outs = ", ".join(f"{one.pointer()}, {one.stride(axis)}" for one in found)
    site.line(f"{name}({source.pointer()}, {source.stride(axis)}, {spec.shape[axis]}, {spec.op.k}, {outs});")


def _one_row(spec: LogicalSpec) -> Mask:
    source, values, _ = spec.states
    # A move may have cast the source.
    return _columns(spec) == 1 if source.dtype == values.dtype and _in_columns(spec) else False


def _top_cost(spec: LogicalSpec, machine: Machine) -> Num:
    assert isinstance(spec.op, TopK)
    return touching()(spec, machine) + HALF_CYCLE * (6 * spec.shape[_axis(spec)] + 40 * spec.op.k)


def _in_columns(spec: LogicalSpec) -> bool:
    return alike(spec.states, _axis(spec))


def _row(spec: LogicalSpec) -> Mask:
    """Return True for one row whose values are adjacent, long enough for several columns."""
    source = spec.states[0]
    if behind(source, _axis(spec)) != () or not source.contiguous:
        return False
    return (_columns(spec) == 1) & (spec.shape[_axis(spec)] >= 2 * _LANES)


def _bytes(spec: LogicalSpec) -> int:
    """Return the size of a lane: that of the values, or of indices or sums of 64 bits."""
    return max(spec.states[0].dtype.wide.bytes, I64.bytes * (spec.states[1].dtype == I64))


def _cost(widest: int, half_cycles: int, latency: int) -> Callable[[LogicalSpec, Machine], Num]:
    """Return costs of columns: half cycles for each vector of a place, or at least the latency of a place."""

    def cost(spec: LogicalSpec, machine: Machine) -> Num:
        each = half_cycles * ceil_div(_columns(spec) * _bytes(spec), widest) + latency
        return touching()(spec, machine) + HALF_CYCLE * (each * spec.shape[_axis(spec)] + 16)

    return cost


def _row_cost(widest: int) -> Callable[[LogicalSpec, Machine], Num]:
    def cost(spec: LogicalSpec, machine: Machine) -> Num:
        vectors = ceil_div(spec.shape[_axis(spec)] * _bytes(spec), widest)
        return touching()(spec, machine) + HALF_CYCLE * (6 * vectors + 6 * _LANES)

    return cost


_MEMORY = OperandPattern(levels=MEMORIES, contiguous=False)


def kernels(widest: int) -> tuple[Microkernel, ...]:
    """Return the kernels of a core whose widest vectors have `widest` bytes."""
    found: list[Microkernel] = []
    for op in (ArgMax, ArgMin):
        for name, when, cost, emit in (
            ("Row", _row, _row_cost(widest), _arg_row),
            ("Columns", _in_columns, _cost(widest, 6, 2), _arg_columns),
        ):
            kernel = Microkernel(
                name=f"{op.__name__}{name}", op=op, operands=(_MEMORY, _MEMORY), when=when, cost=cost, emit=emit
            )
            found.append(kernel)
    sums = Microkernel(
        name="CumSumColumns",
        op=CumSum,
        operands=(_MEMORY, _MEMORY),
        when=_in_columns,
        cost=_cost(widest, 4, 6),
        emit=_cumsum,
    )
    linear = Microkernel(
        name="LinearScanColumns",
        op=LinearScan,
        operands=(_MEMORY,) * 3,
        when=_in_columns,
        cost=_cost(widest, 6, 16),
        emit=_linear,
    )
    top = Microkernel(name="TopKRow", op=TopK, operands=(_MEMORY,) * 3, when=_one_row, cost=_top_cost, emit=_top)
    return (*found, sums, linear, top)
