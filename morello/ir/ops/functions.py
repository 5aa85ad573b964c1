"""Functions of each value, as a table, and those with parameters: Clip, LeakyRelu, Elu and HardSigmoid."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

from morello.errors import SpecError
from morello.ir.dtypes import DType
from morello.ir.ops.base import Arrays, Operation, Shape, parameter
from morello.ir.ops.common import (
    ERF_ROUNDINGS,
    EXP_ROUNDINGS,
    LOG_ROUNDINGS,
    SIN_ROUNDINGS,
    convertible,
    erf,
    exp,
    finite,
    tiny,
)
from morello.ir.ops.unary import Unary, UnaryErrors

Elementwise = Callable[[np.ndarray], np.ndarray]


@attrs.frozen
class Facts:
    """The function `of` float64 values (and int64 ones, where `integers`), its FLOPs, and what bounds its errors.

    A result has `roundings` of the output's type and `inner` ones to f32, of a `magnitude` that depends on the
    argument, by default of the result. `slope` is the largest there is; None for functions that never fall or never
    rise, but for a pole at 0 or where they begin there (`from_zero`). Results differ by at most `span`. Where
    exponentials underflow, results may be 0 (`underflows`).
    """

    of: Elementwise
    flops: int = 1
    roundings: int = 1
    inner: int = 0
    slope: float | None = 1.0
    magnitude: Elementwise | None = None
    from_zero: bool = False
    span: float = math.inf
    underflows: bool = False
    integers: bool = False


@attrs.frozen(cache_hash=True)
class Tabled(Unary):
    """A function given by its facts."""

    @property
    @abstractmethod
    def facts(self) -> Facts:
        """Return meaning and error bounds."""

    @property
    def rounded(self) -> tuple[float, ...]:
        """Return the values of the parameters, rounded to f32."""
        return tuple(float(np.float32(getattr(self, name))) for name in self.parameters)

    def function(self, values: np.ndarray) -> np.ndarray:
        return self.facts.of(values)

    def flops(self, shape: Shape) -> int:
        return self.facts.flops * self.volume(shape)

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        return convertible(dtypes[:1], dtypes[1]) if self.facts.integers else super().check(shape, dtypes)


class TabledErrors(UnaryErrors[Tabled], of=Tabled):
    """Errors by the facts of a function."""

    def magnitude(self, shape: Shape, inputs: Arrays) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            facts = self.op.facts
            return [np.abs(facts.of(inputs[0])) if facts.magnitude is None else facts.magnitude(inputs[0])]

    def roundings(self, shape: Shape) -> int:
        return self.op.facts.roundings

    def inner_roundings(self, shape: Shape) -> int:
        return self.op.facts.inner

    def underflow_loss(self, shape: Shape, inputs: Arrays, smallest: float) -> Sequence[np.ndarray | float]:
        loss = super().underflow_loss(shape, inputs, smallest)
        return [tiny(smallest) + loss[0]] if self.op.facts.underflows else loss

    def error_bound(self, values: np.ndarray, errors: np.ndarray) -> np.ndarray:
        facts = self.op.facts
        if facts.slope is not None:
            return np.minimum(facts.slope * errors, facts.span)
        middle, low, high = (facts.of(values + change) for change in (0, -errors, errors))
        bound = np.fmax(np.abs(low - middle), np.abs(high - middle))
        outside = facts.from_zero & (values - errors <= 0) & (values + errors >= 0)
        return np.where(errors == 0, 0.0, np.where(outside | np.isnan(bound), np.inf, bound))


_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772, 1.0507009873554805


def elu(values: np.ndarray, by: float) -> np.ndarray:
    return np.where(values < 0, by * np.expm1(np.minimum(values, 0)), values)


def softplus(values: np.ndarray) -> np.ndarray:
    return np.maximum(values, 0) + np.log1p(exp(-np.abs(values)))


def mish(values: np.ndarray) -> np.ndarray:
    # Far below 0, e^x is 0 in every type.
    return np.maximum(values, -1e4) * np.tanh(softplus(values))


def hard_swish(values: np.ndarray) -> np.ndarray:
    return np.where(values > 3, values, np.maximum(values, -3) * np.clip(values + 3, 0, 6) / 6)


#: Those without parameters, by name.
FUNCTIONS: dict[str, Facts] = {
    "Abs": Facts(np.abs, roundings=0, integers=True),
    "Neg": Facts(np.negative, roundings=0, integers=True),
    "Sqrt": Facts(np.sqrt, slope=None, from_zero=True),
    "Reciprocal": Facts(np.reciprocal, slope=None, from_zero=True),
    "Log": Facts(np.log, inner=LOG_ROUNDINGS, slope=None, from_zero=True),
    "Sin": Facts(np.sin, inner=SIN_ROUNDINGS, magnitude=np.ones_like, span=2.0),
    "Cos": Facts(np.cos, inner=SIN_ROUNDINGS, magnitude=np.ones_like, span=2.0),
    "Erf": Facts(erf, inner=ERF_ROUNDINGS, magnitude=np.ones_like, slope=1.13, span=2.0),
    "Round": Facts(np.rint, slope=None),
    "Floor": Facts(np.floor, slope=None),
    "Ceil": Facts(np.ceil, slope=None),
    "Selu": Facts(lambda x: _SELU_SCALE * elu(x, _SELU_ALPHA), 3, inner=EXP_ROUNDINGS + 4, slope=1.76),
    "HardSwish": Facts(hard_swish, 5, 4, slope=1.5, magnitude=lambda x: np.abs(x) * np.minimum(np.abs(x) + 3, 6) / 6),
    "Softplus": Facts(softplus, 3, inner=EXP_ROUNDINGS + LOG_ROUNDINGS, underflows=True),
    "Mish": Facts(mish, 6, inner=EXP_ROUNDINGS + 4, slope=1.1, underflows=True),
}


def _check_kind(_op: object, _field: object, kind: str) -> None:
    if kind not in FUNCTIONS:
        raise SpecError(f"unknown function {kind!r}", f"functions are {', '.join(FUNCTIONS)}")


@attrs.frozen(cache_hash=True)
class Function(Tabled):
    """out = f(src), for a function of the table: `Function("Log")`."""

    kind: str = attrs.field(validator=_check_kind)

    @property
    def name(self) -> str:
        return self.kind

    @property
    def facts(self) -> Facts:
        return FUNCTIONS[self.kind]


def _number(default: float) -> Any:
    """Declare a parameter that is a number, by default this one."""
    return parameter(int, float, default=default, converter=float, validator=finite)


@attrs.frozen(cache_hash=True)
class Clip(Tabled):
    """out = the nearest value from `low` to `high`, both rounded to f32; NaN stays NaN."""

    low: float = parameter(int, float, default=-math.inf, converter=float)
    high: float = parameter(int, float, default=math.inf, converter=float)

    def __attrs_post_init__(self) -> None:
        if not self.low <= self.high:
            raise SpecError(f"Clip: low={self.low} is not at most high={self.high}", "exchange them")

    @property
    def facts(self) -> Facts:
        low, high = self.rounded
        return Facts(lambda x: np.clip(x, low, high), 2, span=high - low)


@attrs.frozen(cache_hash=True)
class LeakyRelu(Tabled):
    """out = x, or by·x below 0, with `by` rounded to f32."""

    by: float = _number(0.01)

    @property
    def facts(self) -> Facts:
        (by,) = self.rounded
        return Facts(lambda x: np.where(x < 0, by * x, x), 2, slope=max(1.0, abs(by)))


@attrs.frozen(cache_hash=True)
class Elu(Tabled):
    """out = x, or by·(e^x − 1) below 0, with `by` rounded to f32."""

    by: float = _number(1.0)

    @property
    def facts(self) -> Facts:
        (by,) = self.rounded
        return Facts(lambda x: elu(x, by), 3, inner=EXP_ROUNDINGS + 3, slope=max(1.0, abs(by)))


@attrs.frozen(cache_hash=True)
class HardSigmoid(Tabled):
    """out = by·x + shift, but at least 0 and at most 1; both parameters are rounded to f32."""

    by: float = _number(1 / 6)
    shift: float = _number(0.5)

    @property
    def facts(self) -> Facts:
        by, shift = self.rounded
        # Beyond this product, results are 0 or 1, exactly.
        most = 1 + abs(shift)
        return Facts(
            lambda x: np.clip(by * x + shift, 0, 1),
            4,
            2,
            slope=abs(by),
            magnitude=lambda x: np.minimum(np.abs(by * x), most) + abs(shift),
            span=1.0,
        )


OPERATIONS: tuple[Operation, ...] = (*map(Function, FUNCTIONS), Clip(), LeakyRelu(), Elu(), HardSigmoid())
