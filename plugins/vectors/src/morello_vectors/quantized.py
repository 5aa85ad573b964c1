"""Weights of 4 and 8 bits: their values as a matrix, and a few rows times them as they stream by."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from string import Template

import attrs

from morello.ir.dtypes import F32, I32, U32, DType
from morello.ir.numbers import Mask, Num, ceil_div
from morello.ir.ops.quantized import LARGEST, Dequantize, QMatmul, Quantized
from morello.ir.spec import LogicalSpec
from morello.kernels.site import KernelSite, OperandSite
from morello.plugins import Combined, Machine, Microkernel, OperandPattern, touching
from morello_vectors.common import HALF_CYCLE, MEMORIES, SCALAR
from morello_vectors.convert import scalar_as, vector_as
from morello_vectors.core import LINE
from morello_vectors.instructions import floats as floats_in_c
from morello_vectors.instructions import instructions
from morello_vectors.lanes import FLOATS, conversion, load_rest, repeat, store_rest
from morello_vectors.multiply_add import F32_FMA
from morello_vectors.register_tiles import PLAIN, side_by_side
from morello_vectors.tile_cost import Taken, overlapping
from morello_vectors.tile_tables import cycles_of

_ROW, _COLUMN = 1, 2
_BYTES = ("u8", "i8")
#: Tenths of a cycle for a vector of values, and for a vector of scales and zero points; for a value alone.
_VECTOR, _SCALES, _VALUE = 25, 20, 20
#: Rows of bytes that are read side by side: the whole of a group of 32 weights of 4 bits.
_TAKEN = 16
#: Rows of the left-hand side at most.
_MOST = 8
#: Tenths of a cycle to make a vector of bytes floats, by bits and bytes of a vector; its multiply-adds come on top.
_WIDENING = {4: {16: 20, 32: 20, 64: 25}, 8: {16: 10, 32: 10, 64: 10}}
#: Tenths of a cycle for a call.
_CALL = 60


@attrs.frozen
class _Rows:
    """An operand in C: vectors of its rows, from a pointer to its first value."""

    site: KernelSite
    name: str
    dtype: DType
    stride: str
    values: int

    def at(self, row: str, column: str) -> str:
        """Return a pointer to a value."""
        return f"{self.name} + {row} * {self.stride} + {column}"

    def load(self, place: str, tail: int) -> str:
        """Return a vector as it is stored, or its first `tail` values."""
        if tail:
            return load_rest(self.site, self.dtype, self.values, place, tail, 0)
        return f"{self.site.load(self.dtype, self.values)}({place})"

    def floats(self, place: str, tail: int) -> str:
        """Return the same as f32."""
        return vector_as(self.site, self.load(place, tail), self.dtype, F32, self.values)

    def store(self, place: str, value: str, tail: int) -> str:
        """Return the statement that stores a vector of f32, or its first `tail` values."""
        value = vector_as(self.site, value, F32, self.dtype, self.values)
        if tail:
            return f"{store_rest(self.site, self.dtype, self.values)}({place}, {value}, {tail});"
        return f"{self.site.store(self.dtype, self.values)}({place}, {value});"


@attrs.frozen
class _Code:
    """The operands in C and the loop over columns, which the kernels of vectors share."""

    site: KernelSite
    values: int

    @property
    def op(self) -> Quantized:
        op = self.site.spec.op
        assert isinstance(op, Quantized)
        return op

    def declared(self, operand: OperandSite, const: str = "const ") -> tuple[str, _Rows]:
        """Return the declaration of a pointer to an operand, and its rows."""
        dtype, name = operand.tensor.state.dtype, self.site.fresh(operand.name)
        rows = _Rows(self.site, name, dtype, operand.stride(_ROW).grouped(), self.values)
        return f"    {const}{dtype.c_name} *const {name} = {operand.pointer()};", rows

    def columns(
        self, margin: str, count: int, together: int, body: Callable[[str, Sequence[int]], Iterator[str]]
    ) -> Iterator[str]:
        """Yield a loop over columns, `together` vectors at a time, and the rest.

        `body` gets the first column, and for each vector its number of values if it is not full, else 0.
        """
        wide = together * self.values
        whole, column = count // wide * wide, self.site.fresh("n")
        if whole:
            yield f"{margin}for (ptrdiff_t {column} = 0; {column} < {whole}; {column} += {wide}) {{"
            yield from (f"{margin}    {line}" for line in body(column, [0] * together))
            yield f"{margin}}}"
        if left := count - whole:
            tails = [0] * (left // self.values) + [left % self.values] * (left % self.values > 0)
            yield f"{margin}{{"
            yield from (f"{margin}    {line}" for line in body(str(whole), tails))
            yield f"{margin}}}"

    def weights(self, stored: _Rows, place: str, tail: int, names: Sequence[str]) -> Iterator[str]:
        """Yield the declarations of the weights in a vector of bytes as floats: those of the lower halves first."""
        floats = self.site.vector_type(F32, self.values)
        if self.op.bits == 8:
            yield f"const {floats} {names[0]} = {stored.floats(place, tail)};"
            return
        words, packed = self.site.vector_type(I32, self.values), self.site.fresh("packed")
        wide = vector_as(self.site, stored.load(place, tail), stored.dtype, U32, self.values)
        yield f"const {words} {packed} = ({words}){wide};"
        if own := instructions(self.site).special("nibble", self.values):
            text = Template(own).safe_substitute(floats_in_c(self.values))
            halves = [f"{self.site.helper(f'nibble_{floats}', text)}({each})" for each in (packed, f"({packed} >> 4)")]
        else:
            parts = f"{packed} & {LARGEST}", f"{packed} >> 4"
            halves = [f"__builtin_convertvector({each}, {floats})" for each in parts]
        yield from (f"const {floats} {name} = {half};" for name, half in zip(names, halves, strict=True))

    def scaled(self, scales: _Rows, zeros: _Rows, group: str, column: str, tail: int) -> tuple[list[str], str, str]:
        """Return the declarations of a vector of scales and of zero points as floats, and their names."""
        floats, scale, zero = self.site.vector_type(F32, self.values), self.site.fresh("scale"), self.site.fresh("zero")
        lines = [
            f"const {floats} {name} = {rows.floats(rows.at(group, column), tail)};"
            for name, rows in ((scale, scales), (zero, zeros))
        ]
        return lines, scale, zero


def _dequantize(size: int) -> Callable[[KernelSite], None]:
    def emit(site: KernelSite) -> None:
        code = _Code(site, size // 4)
        _, groups, n = map(int, site.spec.shape)
        names = [code.declared(site.operand(index), "const " * (index < 3)) for index in range(4)]
        weights, scales, zeros, out = (rows for _, rows in names)
        g, i = site.fresh("g"), site.fresh("i")
        rows = code.op.block // code.op.pack

        def body(column: str, tails: Sequence[int]) -> Iterator[str]:
            (tail,) = tails
            lines, scale, zero = code.scaled(scales, zeros, g, column, tail)
            yield from lines
            yield f"for (ptrdiff_t {i} = 0; {i} < {rows}; ++{i}) {{"
            values = [site.fresh("weight") for _ in range(code.op.pack)]
            place = weights.at(f"({g} * {rows} + {i})", column)
            yield from (f"    {line}" for line in code.weights(weights, place, tail, values))
            for half, value in enumerate(values):
                to = out.at(f"({g} * {code.op.block} + {half * rows} + {i})", column)
                yield f"    {out.store(to, f'({value} - {zero}) * {scale}', tail)}"
            yield "}"

        site.line("{")
        for line, _ in names:
            site.line(line)
        site.line(f"    for (ptrdiff_t {g} = 0; {g} < {groups}; ++{g}) {{")
        for line in code.columns("        ", n, 1, body):
            site.line(line)
        site.line("    }")
        site.line("}")

    return emit


def _dequantize_value(site: KernelSite) -> None:
    op, (weights, scales, zeros, out) = site.spec.op, [site.operand(index) for index in range(4)]
    assert isinstance(op, Dequantize)
    rows = op.block // op.pack
    types = [one.tensor.state.dtype for one in (weights, scales, zeros, out)]
    i, byte, scale, zero, from_, to = (site.fresh(name) for name in ("i", "byte", "scale", "zero", "from", "to"))
    site.line("{")
    site.line(f"    const {types[0].c_name} *const {from_} = {weights.pointer()};")
    site.line(f"    {types[3].c_name} *const {to} = {out.pointer()};")
    site.line(f"    const float {scale} = {scalar_as(site, scales.scalar(), types[1], F32)};")
    site.line(f"    const int {zero} = {zeros.scalar()};")
    site.line(f"    for (ptrdiff_t {i} = 0; {i} < {rows}; ++{i}) {{")
    site.line(f"        const int {byte} = {from_}[{i} * {weights.stride(_ROW).grouped()}];")
    halves = [byte] if op.bits == 8 else [f"({byte} & {LARGEST})", f"({byte} >> 4)"]
    for half, weight in enumerate(halves):
        value = scalar_as(site, f"((float)({weight} - {zero}) * {scale})", F32, types[3])
        site.line(f"        {to}[({half * rows} + {i}) * {out.stride(_ROW).grouped()}] = {value};")
    site.line("    }")
    site.line("}")


def _value_cost(spec: LogicalSpec, machine: Machine) -> Num:
    op = spec.op
    assert isinstance(op, Quantized)
    return touching(_VALUE * op.block)(spec, machine)


SCALARS = (
    Microkernel(
        name="ValueDequantize",
        op=Dequantize,
        shape=1,
        operands=(
            OperandPattern(levels=("L1",), contiguous=False, layouts=PLAIN),
            SCALAR,
            SCALAR,
            OperandPattern(levels=("L1",), contiguous=False, layouts=PLAIN),
        ),
        cost=_value_cost,
        emit=_dequantize_value,
    ),
)


@attrs.frozen
class _Product(_Code):
    """The C of a few rows times weights: sums of a few rows of bytes are scaled and added to those in L1."""

    registers: int

    @property
    def rows(self) -> int:
        return int(self.site.spec.shape[1])

    @property
    def together(self) -> int:
        """Return the vectors of columns side by side: a line of bytes, if registers hold their sums."""
        return max(1, min(LINE // self.values, self.registers // 2 // self.rows))

    def print(self) -> None:
        site, op = self.site, self.op
        names = [self.declared(site.operand(index), "const " * (index < 4)) for index in range(5)]
        site.line("{")
        for line, _ in names:
            site.line(line)
        g, count = site.fresh("g"), int(site.spec.shape[2])
        groups, rows = (count, op.block // op.pack) if op.group else (1, count)
        site.line(f"    for (ptrdiff_t {g} = 0; {g} < {groups}; ++{g}) {{")
        taken = min(rows, _TAKEN)
        turn = site.fresh("turn")
        whole = rows // taken * taken
        operands = [one for _, one in names]
        site.line(f"        for (ptrdiff_t {turn} = 0; {turn} < {whole}; {turn} += {taken}) {{")
        ahead = f"{turn} + {2 * taken - 1} < {rows} || {g} + 1 < {groups}"
        self._turn(operands, g, rows, turn, taken, ahead)
        site.line("        }")
        if rows > whole:
            site.line("        {")
            self._turn(operands, g, rows, str(whole), rows - whole, "0")
            site.line("        }")
        site.line("    }")
        site.line("}")

    def _turn(self, operands: Sequence[_Rows], g: str, rows: int, first: str, taken: int, ahead: str) -> None:
        """Print the products of `taken` rows of bytes of a group with all columns."""
        (lhs, weights, scales, zeros, out), site, op = operands, self.site, self.op
        values, sums, i = site.fresh("values"), site.fresh("total"), site.fresh("i")
        along = site.operand(0).stride(_COLUMN).grouped()
        site.line(f"            float {values}[{self.rows}][{op.pack * taken}], {sums}[{self.rows}] = {{0}};")
        # Both halves of a byte, by its row in the group.
        starts = [f"{g} * {op.block} + {half * rows} + " if op.group else "" for half in range(op.pack)]
        step = 1 if op.group else op.pack
        site.line(f"            for (ptrdiff_t {i} = 0; {i} < {taken}; ++{i}) {{")
        for row in range(self.rows):
            for half, start in enumerate(starts):
                column = f"({start}({first} + {i}) * {step} + {0 if op.group else half}) * {along}"
                value = scalar_as(site, f"*({lhs.at(str(row), column)})", lhs.dtype, F32)
                name = f"{values}[{row}][{half * taken} + {i}]"
                site.line(f"                {name} = {value};")
                site.line(f"                {sums}[{row}] += {name};")
        site.line("            }")
        distance = ""
        if site.spec.states[1].level in ("L3", "GL") and ahead != "0":
            distance = site.fresh("ahead")
            site.line(f"            const ptrdiff_t {distance} = {ahead} ? {taken} * {weights.stride} : 0;")

        def body(column: str, tails: Sequence[int]) -> Iterator[str]:
            floats = site.vector_type(F32, self.values)
            parts = [[site.fresh("part") for _ in tails] for _ in range(self.rows)]
            zero = f"({floats}){{0}}"
            yield from (f"{floats} {part} = {zero};" for each in parts for part in each)
            yield f"for (ptrdiff_t {i} = 0; {i} < {taken}; ++{i}) {{"
            start = site.fresh("row")
            place = weights.at(f"({g} * {rows} + {first} + {i})", column)
            yield f"    const {weights.dtype.c_name} *const {start} = {place};"
            if distance:
                yield f"    {instructions(site).prefetch(f'{start} + {distance}', 2)}"
            for at, tail in enumerate(tails):
                names = [site.fresh("weight") for _ in range(op.pack)]
                place = f"{start} + {at * self.values}"
                yield from (f"    {line}" for line in self.weights(weights, place, tail, names))
                for row in range(self.rows):
                    for half, weight in enumerate(names):
                        every = self._every(f"{values}[{row}][{half * taken} + {i}]")
                        part = parts[row][at]
                        yield f"    {part} = {instructions(site).call(site, 'fma', self.values, every, weight, part)};"
            yield "}"
            for at, tail in enumerate(tails):
                here = f"{column} + {at * self.values}"
                lines, scale, zero = self.scaled(scales, zeros, g, here, tail)
                yield from lines
                for row in range(self.rows):
                    place = out.at(str(row), here)
                    call = instructions(site).call
                    apart = call(site, "nfma", self.values, zero, self._every(f"{sums}[{row}]"), parts[row][at])
                    total = call(site, "fma", self.values, scale, apart, out.floats(place, tail))
                    yield out.store(place, total, tail)

        for line in self.columns("            ", int(site.spec.shape[3]), self.together, body):
            site.line(line)

    def _every(self, value: str) -> str:
        return f"{repeat(self.site, F32, self.values)}({value})"


def _product_cost(size: int) -> Combined:
    """Return the cost: computing overlaps with what streams by."""

    def computing(spec: LogicalSpec, machine: Machine) -> Num:
        op = spec.op
        assert isinstance(op, QMatmul)
        _, m, g, n = spec.shape
        rows, adds = g * (op.block // op.pack), 5 * op.pack
        vectors = ceil_div(n, size // 4)
        turns = ceil_div(rows, _TAKEN) if not op.group else g * ceil_div(op.block // op.pack, _TAKEN)
        return vectors * (rows * (_WIDENING[op.bits][size] + adds * m) + turns * (_SCALES + 20 * m))

    def stream(index: int) -> Callable[[LogicalSpec, Machine], Taken]:
        return lambda spec, machine: cycles_of(machine, F32_FMA, size).reading(spec, index)

    return overlapping(computing, *(stream(index) for index in range(4)), lambda spec, machine: (0, _CALL))


def _few_rows(size: int) -> Callable[[LogicalSpec], Mask]:
    def fits(spec: LogicalSpec) -> Mask:
        _, m, _, n = spec.shape
        return (m <= _MOST) & (n >= size // 4)

    return fits


def kernels(widest: int, registers: int) -> tuple[Microkernel, ...]:
    """Return the kernels of a core whose widest vectors have `widest` bytes, with this many vector registers."""
    rows = OperandPattern(levels=MEMORIES, contiguous=False, layout="row_major", when=side_by_side)
    stored = (attrs.evolve(rows, dtypes=_BYTES), attrs.evolve(rows, dtypes=FLOATS), attrs.evolve(rows, dtypes=_BYTES))

    def cost(spec: LogicalSpec, machine: Machine) -> Num:
        op = spec.op
        assert isinstance(op, Quantized)
        vectors = ceil_div(spec.shape[2], widest // 4)
        scales, out = (HALF_CYCLE * conversion(spec.states[index].dtype) for index in (1, 3))
        each = (_VECTOR + out) * op.block + _SCALES + scales
        return touching(_VECTOR)(spec, machine) + spec.shape[1] * vectors * each

    def product(site: KernelSite) -> None:
        _Product(site, widest // 4, registers).print()

    return (
        Microkernel(
            name="VectorDequantize",
            op=Dequantize,
            shape=(1, None, None),
            operands=(*stored, attrs.evolve(rows, dtypes=FLOATS)),
            cost=cost,
            registers={"VRF": 8},
            emit=_dequantize(widest),
        ),
        Microkernel(
            name="RowsTimesQuantizedAccum",
            op=QMatmul,
            only=lambda op: op.accumulating() is None,
            shape=(1, None, None, None),
            operands=(
                attrs.evolve(rows, dtypes=FLOATS, layout="any", layouts=PLAIN, when=None),
                *stored,
                attrs.evolve(rows, dtypes=("f32",), levels=("L1",)),
            ),
            when=_few_rows(widest),
            cost=_product_cost(widest),
            registers={"VRF": registers},
            emit=product,
        ),
    )
