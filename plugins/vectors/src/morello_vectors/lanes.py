"""Kernels that do the same to every lane: over vector registers, or in a loop over memory.

An operand has all values, or a single one that every lane gets. Lanes are f64 for f64, and f32 for all other float
types: these are converted where they are read and written. Kernels with an operand in vector registers are printed once
per register. Others are a loop over memory, whose last vector may be partly filled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import attrs

from morello.ir.dtypes import BF16, DType
from morello.ir.numbers import Mask, Num, ceil_div
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import TensorSpec
from morello.kernels.site import KernelSite, OperandSite
from morello.kernels.template import names_in, setting
from morello.plugins import OperandPattern
from morello_vectors.convert import scalar_as, vector_as
from morello_vectors.instructions import instructions
from morello_vectors.values import literal

#: Where an operand of a lanewise kernel may be: a single value in RF or L1, all values in VRF or L1.
ANYWHERE = ("RF", "L1", "VRF")
#: The types that functions compute in lanes of f32.
FLOATS = ("f32", "bf16", "f16")
#: The levels from which nothing is prefetched.
NEAR_CORE = ("RF", "VRF", "L1", "L2")
#: Values of vectors narrower than the widest.
_NARROWER = (4, 8)
FLOAT_ANYWHERE = OperandPattern(levels=ANYWHERE, dtypes=FLOATS)
ANY_FLOAT = OperandPattern(levels=ANYWHERE, dtypes=(*FLOATS, "f64"))


def whole(spec: LogicalSpec) -> TensorSpec:
    """Return the last operand that is as large as the iteration space."""
    used = [all(one.uses(dim) for dim in range(len(spec.shape))) for one in spec.declared]
    return max(zip(spec.operands, used, strict=True), key=lambda pair: pair[1])[0]


def lane(spec: LogicalSpec) -> DType:
    """Return the type of lanes: that of numbers, if there are any, which truth values are in as bytes."""
    kinds = [state.dtype.wide for state in reversed(spec.states)]
    return next((kind for kind in kinds if not kind.is_bool), kinds[0])


def width(spec: LogicalSpec, widest: int) -> int:
    """Return values per vector: those of the vector registers, or of vectors of `widest` bytes without these."""
    sizes = [state.vector for state in spec.states if state.vector]
    return sizes[0] if sizes else widest // lane(spec).bytes


def fit_lanes(spec: LogicalSpec, widest: int) -> bool:
    """Return True if all operands can be in lanes of one type, in vectors with equally many values."""
    kinds = {state.dtype.wide for state in spec.states if not state.dtype.is_bool} or {lane(spec)}
    counts = {state.vector for state in spec.states if state.vector}
    return (
        len(kinds) == 1 and len(counts) < 2 and all(count * kind.bytes <= widest for count in counts for kind in kinds)
    )


def conversions(spec: LogicalSpec) -> int:
    """Return the half cycles that conversions from and to bf16 and other bits add for each vector."""
    return sum(conversion(state.dtype) for state in spec.states)


def conversion(dtype: DType) -> int:
    """Return the half cycles that converting a vector from or to a type of which programs see the bits takes."""
    return (2 if dtype == BF16 else 8) if dtype.is_bits else 0


def in_lanes(spec: LogicalSpec, widest: int, singles: Sequence[int] = ()) -> Mask:
    """Return True if all operands but `singles` have the same places in the same order, in vectors of one size.

    Operands in `singles` have one value, or are like the others.
    """
    return fit_lanes(spec, widest) and alike(spec, singles)


def alike(spec: LogicalSpec, singles: Sequence[int]) -> Mask:
    """Return True if all operands but `singles` have the same places in the same order, whatever their types."""
    main = whole(spec)
    valid: Mask = main.volume > 1
    for index, tensor in enumerate(spec.operands):
        same = tensor.state.layout == main.state.layout and tensor.state.level != "RF"
        equal = (tensor.volume == main.volume) if same else False
        single = (tensor.volume == 1) if index in singles and tensor.state.level != "VRF" else False
        valid = valid & (equal | single)
    return valid


def vectors(spec: LogicalSpec, widest: int) -> Num:
    """Return the number of vectors; the last one may be partly filled."""
    return ceil_div(whole(spec).volume, width(spec, widest))


@attrs.frozen
class Place:
    """A kernel's position in its operands: one vector of each, whose first `rest` lanes count (0: all).

    `at` is a position in registers, or an offset in C from the operands' pointers. `turn` counts the vectors that one
    round of a loop handles. `fixed` are the operands that have a single value, in all lanes. What `streams` is stored
    past the caches, at an address that is aligned.
    """

    site: KernelSite
    values: int
    at: int | str
    pointers: Mapping[int, str]
    fixed: Mapping[int, str]
    turn: int = 0
    rest: int = 0
    streams: bool = False

    @property
    def dtype(self) -> DType:
        """Return the type of lanes."""
        return lane(self.site.spec)

    def read(self, index: int, fill: float | int = 0) -> str:
        """Return the C expression of an operand's vector; lanes that do not count are `fill`."""
        if index in self.fixed:
            return self.fixed[index]
        one = self.site.operand(index)
        dtype = one.tensor.state.dtype
        if one.in_registers:
            value = one.register(int(self.at))
        elif self.rest:
            value = load_rest(self.site, dtype, self.values, self._address(index), self.rest, fill)
        else:
            value = f"{self.site.load(dtype, self.values)}({self._address(index)})"
        return vector_as(self.site, value, dtype, dtype.wide, self.values)

    def write(self, index: int, value: str) -> None:
        """Set an operand's vector."""
        operand = self.site.operand(index)
        dtype = operand.tensor.state.dtype
        value = vector_as(self.site, value, dtype.wide, dtype, self.values)
        if operand.in_registers:
            self.line(f"{operand.register(int(self.at))} = {value};")
        elif self.rest:
            store = store_rest(self.site, dtype, self.values)
            self.line(f"{store}({self._address(index)}, {value}, {self.rest});")
        else:
            store = instructions(self.site).stream if self.streams else KernelSite.store
            self.line(f"{store(self.site, dtype, self.values)}({self._address(index)}, {value});")

    def fetch_next_row(self, index: int) -> None:
        """Prefetch the same place of the next row, if an operand that is a row lies beyond L2."""
        tensor = self.site.operand(index).tensor
        if tensor.state.level not in NEAR_CORE and index not in self.fixed and not self.rest:
            self.line(instructions(self.site).prefetch(f"{self._address(index)} + {tensor.volume}", 1))

    def constant(self, value: float | int) -> str:
        """Return the C expression of a constant in all lanes."""
        return f"{repeat(self.site, self.dtype, self.values)}({literal(value, self.dtype)})"

    def print(self, template: str) -> None:
        """Print lines in which names of operands in braces stand for their vectors; one that sets an operand stores."""
        indices = {one.name: index for index, one in enumerate(self.site.spec.declared)}
        for line in template.splitlines():
            found = setting(line)
            text = found[1] if found else line
            filled = text.format(**{name: self.read(indices[name]) for name in names_in(text)})
            if found:
                self.write(indices[found[0]], filled)
            else:
                self.line(filled)

    def line(self, text: str) -> None:
        self.site.line(f"{'    ' if isinstance(self.at, int) else '        '}{text}")

    def _address(self, index: int) -> str:
        return (
            self.site.operand(index).pointer(self.at)
            if isinstance(self.at, int)
            else f"{self.pointers[index]} + {self.at}"
        )


def places(
    site: KernelSite, values: int, operands: Sequence[int], most: int = 1, narrower: bool = False
) -> Iterator[Place]:
    """Yield the places of all vectors of operands, printing the loop over them, if one is needed.

    Single values are put in all lanes first. A round of the loop has several turns, at most `most`. If `narrower`, a
    rest that fills a narrower vector is one: the next load of what a masked store wrote would wait for it.
    """
    sites = {index: site.operand(index) for index in operands}
    total = max(int(one.tensor.volume) for one in sites.values())
    if narrower and total < values and total in _NARROWER:
        values = total
    fixed = {i: splat(site, one, values) for i, one in sites.items() if one.tensor.volume < total}
    moving = [i for i in operands if i not in fixed]
    if any(sites[i].in_registers for i in moving):
        for position in range(0, total, values):
            yield Place(site, values, position, {}, fixed)
        return
    pointers = {i: _pointer(site, i) for i in moving}
    turns = max(1, min(total // values, most))
    index = site.fresh("i")
    full, rest = total // values * values, total % values
    looped = full // (turns * values) * turns * values
    if looped:
        site.line(f"    for (ptrdiff_t {index} = 0; {index} < {looped}; {index} += {turns * values}) {{")
        for turn in range(turns):
            at = f"{index} + {turn * values}" if turn else index
            yield Place(site, values, at, pointers, fixed, turn)
        site.line("    }")
    for turn, at in enumerate(range(looped, full, values)):
        site.line("    {")
        yield Place(site, values, str(at), pointers, fixed, turn)
        site.line("    }")
    if rest:
        site.line("    {")
        if narrower and rest in _NARROWER:
            yield Place(site, rest, str(full), pointers, {i: splat(site, sites[i], rest) for i in fixed})
        else:
            yield Place(site, values, str(full), pointers, fixed, 0, rest)
        site.line("    }")


def streamed_places(site: KernelSite, values: int, operands: Sequence[int]) -> Iterator[Place]:
    """Yield the places of all vectors of operands in memory. The last operand is written past the caches.

    The first vector ends before or in the first that is aligned, and the last one overlaps others, so that nothing is
    left over.
    """
    sites = {index: site.operand(index) for index in operands}
    out = operands[-1]
    total, dtype = int(sites[out].tensor.volume), sites[out].tensor.state.dtype
    fixed = {i: splat(site, one, values) for i, one in sites.items() if one.tensor.volume < total}
    pointers = {i: _pointer(site, i) for i in operands if i not in fixed}
    size, index = dtype.bytes * values, site.fresh("i")

    def at(place: str) -> Iterator[Place]:
        site.line("    {")
        yield Place(site, values, place, pointers, fixed)
        site.line("    }")

    yield from at("0")
    site.line(f"    ptrdiff_t {index} = {values} - (ptrdiff_t)((uintptr_t){pointers[out]} % {size} / {dtype.bytes});")
    site.line(f"    for (; {index} <= {total - values}; {index} += {values}) {{")
    yield Place(site, values, index, pointers, fixed, streams=True)
    site.line("    }")
    yield from at(str(total - values))
    site.line(f"    {instructions(site).fence}")


#: C for one vector of each operand, as in templates of microkernels, or a function that returns it for a place.
VectorTemplate = str | Callable[[Place], str]


def lanewise(template: VectorTemplate, widest: int, past_caches: bool = False) -> Callable[[KernelSite], None]:
    """Return an `emit` that prints a template for every vector; outputs in memory may be stored past the caches."""

    def emit(site: KernelSite) -> None:
        values, operands = width(site.spec, widest), range(len(site.spec.states))
        site.line("{")
        found = streamed_places(site, values, operands) if past_caches else places(site, values, operands, 1, True)
        for place in found:
            place.print(template if isinstance(template, str) else template(place))
        site.line("}")

    return emit


def _pointer(site: KernelSite, index: int) -> str:
    """Return a C variable that points to the first value of an operand in memory."""
    one = site.operand(index)
    written = site.spec.op.operands(len(site.spec.shape))[index].writes
    name = site.fresh(f"{one.name}_at")
    site.line(f"    {'' if written else 'const '}{one.tensor.state.dtype.c_name} *const {name} = {one.pointer()};")
    return name


def splat(site: KernelSite, operand: OperandSite, values: int) -> str:
    """Return a C variable with a single value of an operand in all lanes."""
    dtype = operand.tensor.state.dtype
    name, lane = site.fresh(f"{operand.name}_all"), dtype.wide
    value = scalar_as(site, operand.scalar(), dtype, lane)
    site.line(f"    const {site.vector_type(lane, values)} {name} = {repeat(site, lane, values)}({value});")
    return name


def repeat(site: KernelSite, dtype: DType, values: int) -> str:
    """Return the C function that makes a vector of one value."""
    kind = site.vector_type(dtype, values)
    lanes = ", ".join(["value"] * values)
    head = f"static inline {kind} repeat_{kind}({dtype.c_name} value)"
    return site.helper(f"repeat_{kind}", f"{head} {{\n    return ({kind}){{{lanes}}};\n}}")


def load_rest(site: KernelSite, dtype: DType, values: int, place: str, count: int, fill: float | int) -> str:
    """Return the first `count` values of a vector, and `fill` in the lanes beyond them, which are not read."""
    kind = site.vector_type(dtype, values)
    head = f"static inline {kind} load_rest_{kind}(const {dtype.c_name} *from, int count, {kind} v)"
    text = instructions(site).load_first(site, dtype, values)
    name = site.helper(f"load_rest_{kind}", f"{head} {{\n    {text}\n}}")
    return f"{name}({place}, {count}, {repeat(site, dtype, values)}({literal(fill, dtype)}))"


def spread(site: KernelSite, dtype: DType, values: int, step: int) -> str:
    """Return the C function that loads every `step`-th value, and reads none beyond the last one."""
    kind = site.vector_type(dtype, values)
    name = f"spread{step}_{kind}"
    order = ", ".join(str(lane) for lane in (*range(0, values, 2), *range(values + 1, 2 * values, 2)))
    text = f"for (int i = 0; i < {values}; ++i) {{\n        v[i] = from[i * {step}];\n    }}\n    return v;"
    text = f"{kind} v;\n    {text}"
    if step == 2:
        load = site.load(dtype, values)
        text = f"return __builtin_shufflevector({load}(from), {load}(from + {values - 1}), {order});"
    head = f"static inline {kind} {name}(const {dtype.c_name} *from)"
    return site.helper(name, f"{head} {{\n    {text}\n}}")


def separated(site: KernelSite, dtype: DType, values: int, odd: int) -> str:
    """Return the C function that loads two vectors, and returns their even or odd values."""
    kind, name = site.vector_type(dtype, values), "odd" if odd else "even"
    load, order = site.load(dtype, values), ", ".join(map(str, range(odd, 2 * values, 2)))
    text = f"return __builtin_shufflevector({load}(from), {load}(from + {values}), {order});"
    head = f"static inline {kind} {name}_{kind}(const {dtype.c_name} *from)"
    return site.helper(f"{name}_{kind}", f"{head} {{\n    {text}\n}}")


def store_rest(site: KernelSite, dtype: DType, values: int) -> str:
    """Return the C function that stores the first values of a vector."""
    kind = site.vector_type(dtype, values)
    head = f"static inline void store_rest_{kind}({dtype.c_name} *to, {kind} v, int count)"
    text = instructions(site).store_first(site, dtype, values)
    return site.helper(f"store_rest_{kind}", f"{head} {{\n    {text}\n}}")
