"""The problems that programs and baselines are timed on: Spec text, data, and the result in float64."""

from __future__ import annotations

import itertools
import zlib
from typing import Any

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
    a product lies column by column, `packed` that it may be laid out in any way before the clock starts,
    `channels_last` that images of a convolution are.
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
    channels_last: bool = False

    @classmethod
    def of_spec(cls, name: str, suite: str, what: str, spec: str, **options: Any) -> Problem:
        """Return the problem of a Spec; the rest of it follows from the text."""
        (goal,) = api.parse(f"target reference_c\nspec problem = {spec}\n").values()
        *inputs, output = goal.spec.logical.operands
        types = tuple(str(tensor.state.dtype) for tensor in (*inputs, output))
        shapes = tuple(tuple(map(int, tensor.shape)) for tensor in inputs)
        return cls(name, suite, what, (spec,), shapes, tuple(map(int, output.shape)), types, **options)

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
        return [placed(self._ordered(place, array)) for place, array in enumerate(arrays)]

    def _ordered(self, place: int, array: np.ndarray) -> np.ndarray:
        """Return the values of an operand as it lies in memory."""
        if self.columns and place == 1:
            return np.swapaxes(np.ascontiguousarray(np.swapaxes(array, -1, -2)), -1, -2)
        return _channels_last(array) if self.channels_last and place == 0 else np.ascontiguousarray(array)

    def expected(self) -> np.ndarray:
        """Return the result by the semantics of the Spec, on float64, in its logical shape."""
        logical, inputs = self.logical, [each.astype(np.float64) for each in self.inputs()]
        dtypes = [state.dtype for state in logical.states]
        (result,) = logical.op.evaluate(tuple(map(int, logical.shape)), inputs, dtypes)
        return result.reshape(self.shape)

    @property
    def logical(self) -> LogicalSpec:
        """Return the first of the Specs, without constants; all targets have the level of its operands."""
        (goal,) = api.parse(self.texts("reference_c", 1)[0].replace(", constant", "")).values()
        return goal.spec.logical

    @property
    def bytes(self) -> int:
        """Return the bytes of inputs and output."""
        counts = [int(np.prod(shape)) for shape in (*self.shapes, self.shape)]
        return sum(count * NUMPY[kind].itemsize for count, kind in zip(counts, self.types, strict=True))

    @property
    def f32(self) -> bool:
        """Return if all operands are f32 and row major."""
        return set(self.types) == {"f32"} and not self.columns and not self.channels_last

    @property
    def product(self) -> tuple[int, int, int, int]:
        """Return batch, m, k and n of a product."""
        (batch, m, k), n = self.shapes[0], self.shapes[1][-1]
        return batch, m, k, n

    def output(self, kind: str = "") -> np.ndarray:
        """Return an array for the result, of its own type unless another is given; column by column for a transpose."""
        array = empty(self.shape, NUMPY[kind or self.types[-1]])
        if self.channels_last:
            return placed(_channels_last(array))
        return array.T if self.what == "transpose" else array


def _draw(rng: np.random.Generator, shape: Shape, kind: str, small: bool, rows: int) -> np.ndarray:
    dtype = NUMPY[kind]
    if kind == "i32":
        return rng.integers(rows, size=shape, dtype=dtype)
    if BY_NAME[kind].is_float:
        return rng.uniform(-1, 1, shape).astype(np.float32).astype(dtype)
    low, high = (0, 255) if kind == "u8" else (-64, 64)
    return rng.integers(max(low, -7) if small else low, 7 if small else high, shape, dtype, endpoint=True)


def _channels_last(array: np.ndarray) -> np.ndarray:
    """Return a batch of images, or of groups of them, with rows and columns outside of the channels."""
    inner = np.ascontiguousarray(np.moveaxis(array, (-2, -1), (1, 2)))
    return np.moveaxis(inner, (1, 2), (-2, -1))


def images(array: np.ndarray) -> np.ndarray:
    """Return a view of images or of groups of them, with groups among the channels."""
    if array.ndim == 4:
        return array
    # To reshape a batch of one would change its strides, which libraries recognize layouts by.
    return array[:, :, 0] if array.shape[2] == 1 else array.reshape(len(array), -1, *array.shape[-2:])


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
