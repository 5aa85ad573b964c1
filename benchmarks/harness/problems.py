"""The problems that programs and peers are timed on: Spec text, data, and the result in float64."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import attrs
import ml_dtypes
import numpy as np

from morello.runtime.arrays import aligned_bytes

NUMPY = {
    "f32": np.dtype(np.float32),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "u8": np.dtype(np.uint8),
    "i8": np.dtype(np.int8),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
}


@attrs.frozen
class Problem:
    """Something to compute. `what` and `sizes` say it to peers, `spec` to Morello.

    Products have sizes (batch, m, k, n). `types` are those of the inputs, then of the output. `flops` are
    operations of one call. `spec` ends with `serial`, which is left out for several threads. `packed`
    says that weights may be laid out before the clock starts.
    """

    name: str
    suite: str
    what: str
    sizes: tuple[int, ...]
    spec: str
    flops: int
    types: tuple[str, ...] = ("f32", "f32", "f32")
    packed: bool = False

    def text(self, target: str, threads: int) -> str:
        """Return the Spec file for a target, serial for one thread."""
        spec = self.spec if threads == 1 else self.spec.replace(", serial)", ")")
        return f"target {target}\nspec problem = {spec}\n"

    def shapes(self) -> list[tuple[int, ...]]:
        """Return the shapes of the inputs."""
        batch, m, k, n = self.sizes
        return [(batch, m, k), (batch, k, n)]

    def inputs(self) -> list[np.ndarray]:
        """Return the same random values for every process: floats from -1 to 1, bytes of all values."""
        rng = np.random.default_rng(zlib.crc32(self.name.encode()))
        return [aligned(_draw(rng, shape, kind)) for shape, kind in zip(self.shapes(), self.types, strict=False)]

    def expected(self) -> np.ndarray:
        """Return the result in float64."""
        return np.matmul(*(each.astype(np.float64) for each in self.inputs()))

    @property
    def bytes(self) -> int:
        """Return the bytes of inputs and output."""
        counts = [*map(np.prod, self.shapes()), self.expected_size]
        return int(sum(count * NUMPY[kind].itemsize for count, kind in zip(counts, self.types, strict=True)))

    @property
    def expected_size(self) -> int:
        batch, m, _, n = self.sizes
        return batch * m * n

    @property
    def output(self) -> np.dtype:
        return NUMPY[self.types[-1]]


def _draw(rng: np.random.Generator, shape: tuple[int, ...], kind: str) -> np.ndarray:
    dtype = NUMPY[kind]
    if kind in ("f32", "bf16"):
        return rng.uniform(-1, 1, shape).astype(np.float32).astype(dtype)
    bounds = np.iinfo(dtype)
    return rng.integers(bounds.min, bounds.max, shape, dtype, endpoint=True)


def aligned(array: np.ndarray) -> np.ndarray:
    """Return a copy, row major, that starts at a cache line."""
    copy = empty(array.shape, array.dtype)
    copy[...] = array
    return copy


def empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return an array that starts at a cache line, not initialized."""
    return aligned_bytes(int(np.prod(shape)) * dtype.itemsize).view(dtype).reshape(shape)


def _matmul(name: str, suite: str, batch: int, m: int, k: int, n: int) -> Problem:
    spec = f"Matmul({batch}×{m}×{k}×{n}, GL, GL, GL, serial)"
    return Problem(name, suite, "matmul", (batch, m, k, n), spec, 2 * batch * m * k * n)


def _named(suite: str, sizes: Sequence[tuple[int, int, int]]) -> list[Problem]:
    return [_matmul("×".join(map(str, each)), suite, 1, *each) for each in sizes]


def _cube(suite: str, size: int) -> Problem:
    return _matmul(f"{size}³", suite, 1, size, size, size)


_ALL = [
    *(_cube("squares", size) for size in (16, 32, 64, 128, 256, 512, 1024, 2048)),
    *(_cube("odd", size) for size in (17, 100, 1000)),
    *_named("odd", [(197, 768, 768), (49, 2048, 512), (3, 1000, 7), (37, 101, 53), (127, 255, 63)]),
    *_named("thin", [(1, 1024, 1024), (8, 2048, 2048), (2048, 2048, 8), (32, 784, 128)]),
    _matmul("16×64³", "batches", 16, 64, 64, 64),
    _matmul("12×197×64×197", "batches", 12, 197, 64, 197),
]
PROBLEMS = {problem.name: problem for problem in _ALL}
SUITES = tuple(dict.fromkeys(problem.suite for problem in _ALL))
