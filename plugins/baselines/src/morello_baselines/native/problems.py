"""The problems that programs and baselines are timed on: Spec text, data, and the result in float64."""

from __future__ import annotations

import itertools
import zlib

import attrs
import numpy as np

from morello import api
from morello.ir.dtypes import BY_NAME
from morello.ir.spec import LogicalSpec
from morello.run.arrays import workspace_bytes

NUMPY = {name: dtype.numpy for name, dtype in BY_NAME.items()}
Shape = tuple[int, ...]
#: Bytes of a page, and those by which each array starts further into its page than the one before it: stores delay
#: later loads if the last twelve bits of their addresses agree, some programs by a factor of two.
_PAGE, _APART = 4096, 17 * 64
_NUMBERS = itertools.count()


@attrs.frozen
class Problem:
    """Something to compute: `what` says it to baselines, `specs` to Morello.

    `shapes` are those of the inputs, in the order of the Spec's operands, `types` theirs and the output's. `specs`
    are one, or several, and the cheapest is used; each ends with `serial`, which is left out for several threads.
    `flops` are operations of one call, 0 where moving the operands is all. `columns` says that the second operand of
    a product lies column by column, `packed` that it may be laid out in any way before the clock starts.
    """

    name: str
    suite: str
    what: str
    specs: tuple[str, ...]
    shapes: tuple[Shape, ...]
    shape: Shape
    types: tuple[str, ...]
    flops: int = 0
    columns: bool = False
    packed: bool = False

    def texts(self, target: str, threads: int) -> list[str]:
        """Return Spec files for a target, serial for one thread."""
        ends = [spec if threads == 1 else spec.replace(", serial)", ")") for spec in self.specs]
        return [f"target {target}\nspec problem = {spec}\n" for spec in ends]

    def inputs(self) -> list[np.ndarray]:
        """Return the same random values for every process: floats from -1 to 1, bytes of half their range, rows in i32.

        Pairs of products of bytes then fit 16 bits, in which AVX2 adds them. Where all are added up in 16 bits, bytes
        are so small that these suffice.
        """
        rng = np.random.default_rng(zlib.crc32(self.name.encode()))
        small = self.types[-1] == "i16"
        arrays = [
            _draw(rng, shape, kind, small, self.shapes[0][0])
            for shape, kind in zip(self.shapes, self.types, strict=False)
        ]
        if self.columns:
            arrays[1] = np.swapaxes(aligned(np.swapaxes(arrays[1], -1, -2)), -1, -2)
        return [array if self.columns and place == 1 else aligned(array) for place, array in enumerate(arrays)]

    def expected(self) -> np.ndarray:
        """Return the result by the semantics of the Spec, on float64, in its logical shape."""
        logical, inputs = self.logical, [each.astype(np.float64) for each in self.inputs()]
        dtypes = [state.dtype for state in logical.states]
        (result,) = logical.op.evaluate(tuple(map(int, logical.shape)), inputs, dtypes)
        return result.reshape(self.shape)

    @property
    def logical(self) -> LogicalSpec:
        """Return the first of the Specs; all targets have the level of its operands."""
        (goal,) = api.parse(self.texts("reference_c", 1)[0]).values()
        return goal.spec.logical

    @property
    def bytes(self) -> int:
        """Return the bytes of inputs and output."""
        counts = [int(np.prod(shape)) for shape in (*self.shapes, self.shape)]
        return sum(count * NUMPY[kind].itemsize for count, kind in zip(counts, self.types, strict=True))

    @property
    def f32(self) -> bool:
        """Return if all operands are f32 and row major."""
        return set(self.types) == {"f32"} and not self.columns

    @property
    def product(self) -> tuple[int, int, int, int]:
        """Return batch, m, k and n of a product."""
        (batch, m, k), n = self.shapes[0], self.shapes[1][-1]
        return batch, m, k, n

    def output(self, kind: str = "") -> np.ndarray:
        """Return an array for the result, of its own type unless another is given; column by column for a transpose."""
        array = empty(self.shape, NUMPY[kind or self.types[-1]])
        return array.T if self.what == "transpose" else array


def _draw(rng: np.random.Generator, shape: Shape, kind: str, small: bool, rows: int) -> np.ndarray:
    dtype = NUMPY[kind]
    if kind == "i32":
        return rng.integers(rows, size=shape, dtype=dtype)
    if BY_NAME[kind].is_float:
        return rng.uniform(-1, 1, shape).astype(np.float32).astype(dtype)
    low, high = (0, 255) if kind == "u8" else (-64, 64)
    return rng.integers(max(low, -7) if small else low, 7 if small else high, shape, dtype, endpoint=True)


def aligned(array: np.ndarray) -> np.ndarray:
    """Return a copy, row major, that starts at a cache line."""
    return placed(np.ascontiguousarray(array))


def placed(array: np.ndarray) -> np.ndarray:
    """Return a copy with the same strides, which have no gaps, in memory as that of `empty`."""
    copy = np.ndarray(array.shape, array.dtype, empty((array.nbytes,), np.dtype(np.uint8)).data, 0, array.strides)
    copy[...] = array
    return copy


def empty(shape: Shape, dtype: np.dtype) -> np.ndarray:
    """Return an array, not initialized, that starts at a cache line; in huge pages if it is large."""
    size, into = int(np.prod(shape)) * dtype.itemsize, next(_NUMBERS) * _APART % _PAGE
    memory = workspace_bytes(size + 2 * _PAGE)
    start = -memory.ctypes.data % _PAGE + into
    return memory[start : start + size].view(dtype).reshape(shape)


def difference(values: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest difference, relative to the largest value expected; NaN where there is one."""
    with np.errstate(all="ignore"):
        largest = np.max(np.abs(values.astype(np.float64) - expected))
        return float(largest / max(np.max(np.abs(expected)), 1e-30))
