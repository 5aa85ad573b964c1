"""Data sets for verification, random and adversarial: one logical array per operand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import attrs
import numpy as np

from morello.ir.dtypes import DType
from morello.ir.ops.base import Operation
from morello.run.arrays import convert, random_values

#: Special values per operand; each affects rows of the result.
_FEW = 3
#: About the number of nonzero terms of a sum in sparse data: bf16 holds integers up to 2^8 exactly.
_TERMS = 32

Shape: TypeAlias = tuple[int, ...]


@attrs.frozen
class DataSetting:
    """The shapes and data types of operands, the terms of a sum, and whether functions such as exp are involved."""

    shapes: tuple[Shape, ...]
    dtypes: tuple[DType, ...]
    reduction: int
    functions: bool = False

    @classmethod
    def of(cls, op: Operation, shape: Shape, dtypes: Sequence[DType]) -> DataSetting:
        operands = op.operands(len(shape))
        summed = [shape[dim] for dim in op.reductions(len(shape))]
        shapes = tuple(one.shape(shape) for one in operands)
        functions = not (op.error_analysis.whole_numbers or op.error_analysis.copies)
        return cls(shapes, tuple(dtypes), int(np.prod(summed, dtype=np.int64)), functions)

    @property
    def largest(self) -> float:
        """Return the largest finite value that all float types of the operands have."""
        return min(dtype.limits[1] for dtype in self.dtypes if dtype.is_float)

    @property
    def step(self) -> float:
        """Return the smallest positive (subnormal) value that all float types of the operands have."""
        return max(dtype.smallest for dtype in self.dtypes if dtype.is_float)

    @property
    def normal(self) -> float:
        """Return the smallest positive normal value that all float types of the operands have."""
        return max(dtype.smallest_normal for dtype in self.dtypes if dtype.is_float)


#: Returns the values of one operand as a float64 or int64 array, from generator, setting and operand number.
Maker: TypeAlias = Callable[[np.random.Generator, DataSetting, int], np.ndarray]


@attrs.frozen
class DataSet:
    """A named data set. `integral` values are small whole numbers, whose sums are exact."""

    name: str
    floats: Maker | None
    ints: Maker | None
    integral: bool = False

    def arrays(self, seed: int, setting: DataSetting) -> list[np.ndarray]:
        """Return one array per operand, in its data type. The same seed gives the same data."""
        arrays = []
        for index, dtype in enumerate(setting.dtypes):
            rng = np.random.default_rng([seed, index, *self.name.encode()])
            maker = self.floats if dtype.is_float else self.ints
            values = (maker or _full_range)(rng, setting, index)
            arrays.append(_with_all_nans(convert(values, dtype), dtype))
        return arrays


def _with_all_nans(array: np.ndarray, dtype: DType) -> np.ndarray:
    """Replace each NaN by NaN of both signs, quiet and signalling, with the fewest and most bits set."""
    if dtype.is_float and (places := np.flatnonzero(np.isnan(array))).size:
        bits = array.reshape(-1).view(f"u{dtype.bytes}")
        quiet, sign = dtype.bits(np.nan), 1 << (8 * dtype.bytes - 1)
        signalling = [dtype.bits(np.inf) + 1] if dtype.has_infinity else []
        bits[places] = np.resize(np.array([*signalling, sign - 1, quiet, quiet | sign], bits.dtype), places.size)
    return array


def data_sets(setting: DataSetting, thorough: bool) -> Iterator[DataSet]:
    """Yield the data sets for these operands; more of them if `thorough`."""
    floats = any(dtype.is_float for dtype in setting.dtypes)
    for each in (*_DATA_SETS, *(_FUNCTIONS if setting.functions else ()), *(_MORE if thorough else ())):
        if each.ints or floats:
            yield each


def _normal(rng: np.random.Generator, setting: DataSetting, index: int) -> np.ndarray:
    return rng.standard_normal(setting.shapes[index])


def _uniform(rng: np.random.Generator, setting: DataSetting, index: int) -> np.ndarray:
    return rng.uniform(-1, 1, setting.shapes[index])


def _full_range(rng: np.random.Generator, setting: DataSetting, index: int) -> np.ndarray:
    return random_values(rng, setting.shapes[index], setting.dtypes[index])


def _small(rng: np.random.Generator, setting: DataSetting, index: int) -> np.ndarray:
    low = -4 if setting.dtypes[index].is_signed else 0
    return rng.integers(low, 5, setting.shapes[index])


def _sparse(rng: np.random.Generator, setting: DataSetting, index: int) -> np.ndarray:
    """Return small integers, mostly 0 in the first operand, so that sums stay small."""
    values = rng.integers(-1 if setting.dtypes[index].is_signed else 0, 2, setting.shapes[index])
    kept = min(1.0, _TERMS / setting.reduction) if index == 0 else 1.0
    return values * (rng.random(setting.shapes[index]) < kept)


def _constant(value: float) -> Maker:
    return lambda rng, setting, index: np.full(setting.shapes[index], value)


def _signs(shape: Shape) -> np.ndarray:
    """Return alternating +1 and -1 along the last dimension."""
    return np.broadcast_to(1.0 - 2.0 * (np.arange(shape[-1]) % 2), shape) if shape else np.ones(shape)


def _alternating(rng: np.random.Generator, setting: DataSetting, index: int) -> np.ndarray:
    shape = setting.shapes[index]
    values = rng.uniform(0.5, 2, shape)
    return values * _signs(shape) if index == 0 else values


def _cancelling(rng: np.random.Generator, setting: DataSetting, index: int) -> np.ndarray:
    """Return large terms that nearly cancel, so that results depend on the small parts."""
    shape = setting.shapes[index]
    noise = rng.standard_normal(shape)
    large = min(4096, setting.largest / 8)
    return large * _signs(shape) + noise if index == 0 else 1 + noise / 1024


def _extremes(rng: np.random.Generator, setting: DataSetting, index: int) -> np.ndarray:
    choices = [setting.largest, -setting.largest, setting.normal, -setting.normal, 1.0, 0.0]
    return rng.choice(choices, setting.shapes[index])


def _int_extremes(rng: np.random.Generator, setting: DataSetting, index: int) -> np.ndarray:
    low, high = setting.dtypes[index].limits
    return rng.choice(np.array([low, high, high - 1, low + 1], np.int64), setting.shapes[index])


def _sprinkled(*special: float) -> Maker:
    """Return ordinary values with a few special ones, and zeros to combine with them."""

    def make(rng: np.random.Generator, setting: DataSetting, index: int) -> np.ndarray:
        values = rng.standard_normal(setting.shapes[index])
        values[rng.random(values.shape) < 0.05] = 0
        flat = values.reshape(-1)
        flat[rng.integers(0, flat.size, _FEW)] = rng.choice(special, _FEW)
        return flat.reshape(values.shape)

    return make


def _subnormal(rng: np.random.Generator, setting: DataSetting, index: int) -> np.ndarray:
    """Return subnormals in the first and last operand and values around 1 in others: products are subnormal, too."""
    shape = setting.shapes[index]
    if 0 < index < len(setting.shapes) - 1:
        return rng.uniform(0.5, 2, shape)
    return setting.step * rng.integers(-127, 128, shape)


def _negative_zeros(rng: np.random.Generator, setting: DataSetting, index: int) -> np.ndarray:
    return np.where(rng.random(setting.shapes[index]) < 0.5, -0.0, 0.0)


def _exponents(rng: np.random.Generator, setting: DataSetting, index: int) -> np.ndarray:
    """Return values whose exp covers all finite values and a little beyond."""
    return rng.uniform(1.07 * np.log(setting.step), 1.07 * np.log(setting.largest), setting.shapes[index])


def _positive(rng: np.random.Generator, setting: DataSetting, index: int) -> np.ndarray:
    """Return values far above 0: exponentials overflow without subtracting the maximum. Divisors are not 0."""
    return rng.uniform(1, min(1000, setting.largest), setting.shapes[index])


def _masked(rng: np.random.Generator, setting: DataSetting, index: int) -> np.ndarray:
    """Return logits of attention: some are −∞, also all of a row."""
    shape = setting.shapes[index]
    values = np.where(rng.random(shape) < 0.3, -np.inf, rng.standard_normal(shape))
    if index == 0 and len(shape) and shape[0] > 1:
        values[0] = -np.inf
    return values


def _wide(rng: np.random.Generator, setting: DataSetting, index: int) -> np.ndarray:
    """Return magnitudes over 60 powers of two."""
    shape = setting.shapes[index]
    return rng.standard_normal(shape) * 2.0 ** rng.integers(-30, 31, shape)


_DATA_SETS = (
    DataSet("normal", _normal, _full_range),
    DataSet("uniform", _uniform, _full_range),
    DataSet("small integers", _small, _small, integral=True),
    DataSet("sparse integers", _sparse, _sparse, integral=True),
    DataSet("zeros", _constant(0), _constant(0), integral=True),
    DataSet("ones", _constant(1), _constant(1), integral=True),
    DataSet("alternating signs", _alternating, None),
    DataSet("cancellation", _cancelling, None),
    DataSet("extremes", _extremes, _int_extremes),
    DataSet("infinities", _sprinkled(np.inf, -np.inf), None),
    DataSet("NaN", _sprinkled(np.nan), None),
    DataSet("subnormals", _subnormal, None),
    DataSet("negative zeros", _negative_zeros, None),
)

_FUNCTIONS = (
    DataSet("exponents", _exponents, None),
    DataSet("positive", _positive, None),
    DataSet("masked", _masked, None),
)

_MORE = (
    DataSet("normal, again", _normal, _full_range),
    DataSet("small integers, again", _small, _small, integral=True),
    DataSet("wide range", _wide, None),
    DataSet("infinities and NaN", _sprinkled(np.inf, -np.inf, np.nan), None),
    DataSet("infinities, again", _sprinkled(np.inf, -np.inf), None),
    DataSet("subnormals, again", _subnormal, None),
    DataSet("extremes, again", _extremes, _int_extremes),
)
