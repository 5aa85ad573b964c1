"""Primitives of an instruction set, for the kernels of this package: the C of what GNU vectors have no operator for.

The base class spells all of them in GNU C, so that a target has every kernel without a table of its own. A subclass
overrides those for which its CPU has an instruction that compilers miss. An emitter offers its table as `instructions`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from string import Template
from typing import ClassVar

from morello.ir.dtypes import F32, I32, DType
from morello.kernels.site import KernelSite

#: Products and sums that are rounded once; gcc has a function of vectors for them only lane by lane.
_FUSED = """\
#if __clang_major__ >= 16
    return __builtin_elementwise_fma(%s, b, %s);
#else
    for (int i = 0; i < $n; ++i) {
        a[i] = __builtin_fmaf(%s[i], b[i], %s[i]);
    }
    return a;
#endif"""
_LANES = """\
for (int i = 0; i < $n; ++i) {
        a[i] = __builtin_%s(a[i]);
    }
    return a;"""
_ANY = """\
int found = 0;
    for (int i = 0; i < $n; ++i) {
        found |= where[i];
    }
    return found;"""
#: Functions of vectors of floats ($f; $i are their ints) in GNU C: parameters, and body. `max` and `min` return the
#: second operand if either is NaN; `any` is not 0 if a lane is.
_GNU: Mapping[str, tuple[str, str]] = {
    "fma": ("$f a, $f b, $f c", _FUSED % ("a", "c", "a", "c")),
    "nfma": ("$f a, $f b, $f c", _FUSED % ("-a", "c", "-a", "c")),
    "fms": ("$f a, $f b, $f c", _FUSED % ("a", "-c", "a", "-c")),
    "max": ("$f a, $f b", "const $i first = a > b;\n    return ($f)((($i)a & first) | (($i)b & ~first));"),
    "min": ("$f a, $f b", "const $i first = a < b;\n    return ($f)((($i)a & first) | (($i)b & ~first));"),
    "root": ("$f a", _LANES % "sqrtf"),
    "nearest": ("$f a", _LANES % "rintf"),
    "below": ("$f a", _LANES % "floorf"),
    "above": ("$f a", _LANES % "ceilf"),
    "pick": ("$i first, $f a, $f b", "return ($f)((first & ($i)a) | (~first & ($i)b));"),
    "any": ("$i where", _ANY),
    "splat": ("float a", "return ($f){$splat};"),
    "zero": ("void", "return ($f){0};"),
}
#: The entry of a table's row of $entries for each lane, at the last bits of its `index`.
_ENTRY = """\
static inline $f entry_$f(const float *row, $f index) {
    const $i at = ($i)index & ($entries - 1);
    $f found;
    for (int i = 0; i < $n; ++i) {
        found[i] = row[at[i]];
    }
    return found;
}"""
#: The choice of a where it compares so, and of b elsewhere.
_CHOSEN = """\
const {bits} first = {condition};
    return ({kind})((({bits})a & first) | (({bits})b & ~first));"""
#: The C function that adds up the lanes of a vector of so many values.
Lanes = Callable[[int], str]


def instructions(site: KernelSite) -> Instructions:
    """Return the primitives that the emitter of a target offers."""
    found = site.instructions
    assert isinstance(found, Instructions), "the emitter of a target with these kernels has `instructions`"
    return found


def floats(values: int) -> dict[str, str]:
    """Return the names in C of vectors of `values` floats, ints and unsigned ints, as templates have them."""
    return {"f": f"f32x{values}", "i": f"i32x{values}", "u": f"u32x{values}", "n": str(values)}


class Instructions:
    """The primitives in GNU C, for vectors of any size."""

    #: Bodies of functions of floats in place of those in GNU C, by name: `return vfmaq_f32(c, a, b);`.
    bodies: ClassVar[Mapping[str, str]] = {}
    #: The statement after stores past the caches.
    fence: ClassVar[str] = "(void)0;"

    def function(self, name: str, values: int) -> tuple[str, str]:
        """Return the C name of a function of vectors of floats, and its definition: empty if compilers have it."""
        words = floats(values)
        parameters, body = _GNU[name]
        kind = "int" if name == "any" else "$f"
        text = f"static inline {kind} {name}_$f({parameters}) {{\n    {self.body(name, values) or body}\n}}"
        return f"{name}_{words['f']}", Template(text).substitute(words, splat=", ".join(["a"] * values))

    def body(self, name: str, values: int) -> str | None:
        """Return the body of a function of vectors of `values` floats in place of that in GNU C, if there is one."""
        return self.bodies.get(name)

    def entries(self, values: int) -> int:
        """Return the number of entries in a row of a table that vectors of `values` floats look up: 8 or 32."""
        return 8

    def special(self, name: str, values: int) -> str | None:
        """Return the C of a function of `vector_math` on vectors of `values` floats if it has one of its own."""
        return Template(_ENTRY).safe_substitute(entries=self.entries(values)) if name == "entry" else None

    def call(self, site: KernelSite, name: str, values: int, *arguments: str) -> str:
        """Return the C expression of a call of a function, and define it."""
        found, text = self.function(name, values)
        if text:
            for dtype in (F32, I32):
                site.vector_type(dtype, values)
            site.helper(found, text)
        return f"{found}({', '.join(arguments)})"

    def extremum(self, site: KernelSite, values: int, larger: bool) -> str:
        """Return the body of a function of vectors of floats a and b: the larger or smaller ones, NaN if one is NaN."""
        kind, bits = site.vector_type(F32, values), site.vector_type(I32, values)
        return _CHOSEN.format(kind=kind, bits=bits, condition=f"(a {'>' if larger else '<'} b) | (a != a)")

    def widened(self, site: KernelSite, value: str, source: DType, out: DType, values: int) -> str:
        """Return a vector of integers of type `source` in a wider type, with zeros or copies of signs in front."""
        return f"__builtin_convertvector({value}, {site.vector_type(out, values)})"

    def converted(self, site: KernelSite, value: str, source: DType, out: DType, values: int) -> str | None:
        """Return a float, or a vector of `values` floats, in another type if there are instructions for that."""
        return None

    def halves(self, values: int) -> tuple[str, str, str] | None:
        """Return C's calls to convert `values` f16 to f32, and f32 to f16, of the vector `v`, and the macro with which
        compilers have them; None without such instructions."""
        return None

    def load_first(self, site: KernelSite, dtype: DType, values: int) -> str:
        """Return the body of a function: load `count` values at `from` into the vector `v`, and return it."""
        return "memcpy(&v, from, (size_t)count * sizeof *from);\n    return v;"

    def store_first(self, site: KernelSite, dtype: DType, values: int) -> str:
        """Return the body of a function: store the first `count` values of the vector `v` at `to`."""
        return "memcpy(to, &v, (size_t)count * sizeof *to);"

    def prefetch(self, place: str, level: int) -> str:
        """Return the statement that fetches a line into the cache of this level, 1 or 2."""
        return f"__builtin_prefetch({place}, 0, {4 - level});"

    def stream(self, site: KernelSite, dtype: DType, values: int) -> str:
        """Return the C function that stores a vector past the caches at an aligned address, if there is one."""
        return site.store(dtype, values)

    def square(self, dtype: DType, rows: int) -> str:
        """Return the lines of C that transpose vectors r0, r1, … of as many values into the array c, of type {kind}."""
        names, lines = [f"r{row}" for row in range(rows)], list[str]()
        for stage in range(rows.bit_length() - 1):
            pairs = [(names[row], names[row + rows // 2]) for row in range(rows // 2)]
            names = [f"t{stage}_{row}" for row in range(rows)]
            for row, pair in enumerate(pairs):
                for half in range(2):
                    lines.append(f"    const {{kind}} {names[2 * row + half]} = {interleaved(*pair, rows, half)};")
        return "\n".join([*lines, *(f"    c[{row}] = {name};" for row, name in enumerate(names))])

    def pairs(self, dtype: DType, values: int) -> str:
        """Return the lines of C that put the pairs of values of the vectors r0 and r1 into the array c."""
        return "\n".join(f"    c[{half}] = {interleaved('r0', 'r1', values, half)};" for half in range(2))

    def sums_of_four(self, site: KernelSite, dtype: DType, values: int, vectors: Sequence[str], lanes: Lanes) -> str:
        """Return the C expression of a vector of the sums over the lanes of four vectors of `values` of 32 bits.

        `lanes` returns the function that adds up the lanes of one.
        """
        return f"({site.vector_type(dtype, 4)}){{{', '.join(f'{lanes(values)}({one})' for one in vectors)}}}"


def interleaved(first: str, second: str, values: int, half: int) -> str:
    """Return the C of the values of the lower or upper halves of two vectors, by turns."""
    start = half * values // 2
    order = ", ".join(f"{start + at}, {values + start + at}" for at in range(values // 2))
    return f"__builtin_shufflevector({first}, {second}, {order})"
