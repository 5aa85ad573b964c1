"""The emitter's side of a kernel's site: lines, names, helper functions, and the C types of vectors."""

from __future__ import annotations

from collections.abc import Iterable

from morello.codegen.parallel import FunctionCode
from morello.codegen.style import CStyle
from morello.codegen.writer import CWriter, Names
from morello.ir.dtypes import DType


class SitePrinter:
    """Prints what kernels ask of a site, into the current function and the head of the file."""

    def __init__(self, emitter: CStyle, taken: Iterable[str]):
        self.emitter = emitter
        #: The emitter's table of primitives.
        self.instructions = emitter.instructions
        self._function, self.names = FunctionCode(), Names(taken)
        self._helpers: dict[str, str] = {}
        self._vectors: dict[str, str] = {}

    @property
    def writer(self) -> CWriter:
        """Return the lines of the current function."""
        return self._function.writer

    def line(self, text: str) -> None:
        """Add one line of C."""
        self.writer.line(text)

    def fresh(self, name: str) -> str:
        """Return a free name for a C variable, like `name`."""
        return self.names.fresh(name)

    def helper(self, name: str, text: str) -> str:
        """Define the static function `name` as `text` in the file; return its name."""
        known = self._helpers.setdefault(name, text)
        assert known == text, f"two functions are named {name}"
        return name

    def enclose(self, first: str, last: str) -> None:
        """Begin the current function, or a thread's share of a loop, with one statement and end it with another."""
        self._function.around[first, last] = None

    def uses(self, names: Iterable[str]) -> None:
        """Record names that code uses, for the function of a parallel loop to capture."""
        self._function.names.update(names)

    def vector(self, dtype: DType, values: int) -> str:
        """Return the C type of a vector, defined in the preamble."""
        kind = self.emitter.vector_type(dtype, values)
        self._vectors[kind] = f"typedef {dtype.c_name} {kind} __attribute__((vector_size({dtype.bytes * values})));"
        return kind

    def load(self, dtype: DType, values: int) -> str:
        """Return the function that loads a vector from any address."""
        kind = self.vector(dtype, values)
        head = f"static inline {kind} load_{kind}(const {dtype.c_name} *from)"
        return self.helper(
            f"load_{kind}", f"{head} {{\n    {kind} v;\n    memcpy(&v, from, sizeof v);\n    return v;\n}}"
        )

    def store(self, dtype: DType, values: int) -> str:
        """Return the function that stores a vector to any address."""
        kind = self.vector(dtype, values)
        head = f"static inline void store_{kind}({dtype.c_name} *to, {kind} v)"
        return self.helper(f"store_{kind}", f"{head} {{\n    memcpy(to, &v, sizeof v);\n}}")
