"""Bases of operations: operands, tiling, reference semantics, FLOPs, error analysis."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, Generic, Self, TypeAlias, TypeVar, cast, overload

import attrs
import numpy as np

from morello.errors import SpecError
from morello.ir.dtypes import DType
from morello.ir.index import IndexExpr
from morello.ir.numbers import Num, NumT, product

Shape: TypeAlias = tuple[int, ...]
Arrays: TypeAlias = Sequence[np.ndarray]
F = TypeVar("F", bound=Callable[..., Any])


def memoized(method: F) -> F:
    """Cache the results of a method of operations by their values."""
    return cast(F, cache(method))


@attrs.frozen
class SearchHints:
    """Steps that search does not try for an operation, though schedules may use them."""

    #: Operands that search moves to registers before this is rewritten to other operations; None: all.
    in_registers: tuple[int, ...] | None = None
    #: Iteration dimensions that search tiles by 1 or not at all.
    unit_tiles_only: tuple[int, ...] = ()
    #: Whether search moves operands before this is rewritten to other operations.
    moved: bool = True

    def to_registers(self, operand: int) -> bool:
        """Return True if search moves an operand to registers."""
        return self.in_registers is None or operand in self.in_registers

    @property
    def all_to_registers(self) -> bool:
        """Return True if search moves every operand to registers."""
        return self.in_registers is None


@attrs.frozen(cache_hash=True)
class Operand:
    """An operand's name, direction, and dimensions in terms of the operation's iteration dimensions.

    Each dimension is a sum of (iteration dimension, coefficient) terms, e.g. row `h·stride + fh` of a convolution's
    image: its size is 1 + Σ c·(n−1), and a tile that starts at o starts at Σ c·o in it. No terms mean size 1.
    `shrink` is subtracted from each size, as for an image that padding surrounds; empty for none. It is negative where
    a step has several values: `k` results, or the rows of a block of weights. Where it makes tiles differ from the
    whole, `untiled` keeps their dimensions.
    """

    name: str
    dims: tuple[tuple[tuple[int, int], ...], ...]
    reads: bool = True
    writes: bool = False
    shrink: tuple[int, ...] = ()

    def shape(self, sizes: Sequence[NumT]) -> tuple[NumT, ...]:
        """Return the shape of the operand, or of its tile, for these iteration sizes."""
        less = self.shrink or (0,) * len(self.dims)
        return tuple(
            # Most dimensions are iteration dimensions themselves.
            sizes[terms[0][0]]
            if cut == 0 and len(terms) == 1 and terms[0][1] == 1
            else 1 - cut + sum(c * (sizes[dim] - 1) for dim, c in terms)
            for terms, cut in zip(self.dims, less, strict=True)
        )

    @overload
    def start(self, starts: Sequence[int]) -> tuple[int, ...]: ...
    @overload
    def start(self, starts: Sequence[Num]) -> tuple[Num, ...]: ...
    @overload
    def start(self, starts: Sequence[IndexExpr]) -> tuple[IndexExpr | int, ...]: ...
    def start(self, starts: Sequence[Any]) -> tuple[Any, ...]:
        """Return the start of the operand's tile if the iteration dimensions start at `starts`."""
        return tuple(sum((c * starts[dim] for dim, c in terms), 0) for terms in self.dims)

    @property
    def sliding(self) -> tuple[bool, ...]:
        """Return, for each dimension, whether its tiles may overlap or leave gaps."""
        return tuple(len(terms) > 1 or any(c != 1 for _, c in terms) for terms in self.dims)

    def uses(self, dim: int) -> bool:
        return any(dim == other for terms in self.dims for other, _ in terms)


def operand(name: str, dims: Sequence[int], *, reads: bool = True, writes: bool = False) -> Operand:
    """Return an operand whose dimensions are iteration dimensions themselves."""
    return Operand(name, tuple(((dim, 1),) for dim in dims), reads, writes)


def flattened(name: str, rank: int, axes: Collection[int], *, reads: bool = True, writes: bool = False) -> Operand:
    """Return an operand with all iteration dimensions, of size 1 along `axes`."""
    return Operand(name, tuple(() if dim in axes else ((dim, 1),) for dim in range(rank)), reads, writes)


@attrs.frozen(cache_hash=True)
class Operation(ABC):
    """A tensor operation. Instances are values: equal operations are interchangeable."""

    #: Arithmetic operations for each point of the iteration space.
    flops_per_point: ClassVar[int] = 0
    #: The class that bounds rounding errors; `ErrorAnalysis` sets it with `of=`.
    analysis: ClassVar[type[ErrorAnalysis[Any]]]

    @property
    def name(self) -> str:
        """Return the name in the Spec language, without parameters."""
        return type(self).__name__

    @property
    def rank(self) -> int | None:
        """Return the number of iteration dimensions; None for any number."""
        return None

    @abstractmethod
    def dims(self, rank: int) -> tuple[str, ...]:
        """Return the names of the iteration dimensions, for loop variables and messages."""

    @abstractmethod
    def operands(self, rank: int) -> tuple[Operand, ...]:
        """Return the operands, inputs first."""

    @abstractmethod
    def evaluate(self, shape: Shape, inputs: Arrays, dtypes: Sequence[DType]) -> list[np.ndarray]:
        """Return the written operands, computed in numpy from those that are read: the reference semantics.

        Both are in operand order and have the operands' shapes. Floats are float64, so that their rounding is
        negligible. Integer results wrap around in the output's type.
        """

    @property
    def error_analysis(self) -> ErrorAnalysis[Operation]:
        """Return the bounds on how far an implementation may be off from `evaluate`."""
        return self.analysis(self)

    def flops(self, shape: Shape) -> int:
        """Return the number of arithmetic operations."""
        return self.flops_per_point * self.volume(shape)

    def implied(self, shape: Shape) -> str:
        """Return, as text, the sizes of operands that neither shape nor parameters show; empty if they show all."""
        return ""

    def volume(self, shape: Sequence[NumT]) -> NumT:
        """Return the number of points of the iteration space."""
        return product(shape)

    def accumulating(self) -> Operation | None:
        """Return the variant that adds to its output, or None for that variant itself and for others."""
        return None

    def initials(self) -> tuple[Operation | None, ...]:
        """Return, for each written operand, the Fill that goes before the accumulating variant.

        None for an operand that the accumulating variant does not read.
        """
        return ()

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        """Return the error for an invalid shape or invalid data types; None if both are valid."""
        return None

    @property
    def takes_bool(self) -> bool:
        """Return True if operands may be bool, as those of copies: all other operations are for numbers."""
        return self.error_analysis.copies

    @property
    def makes(self) -> DType | None:
        """Return the data type of intermediates, whatever the operands are; None for types that operands decide."""
        return None

    def refusal(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        """Return the error for an invalid shape or invalid data types, bool among them; None if both are valid."""
        if any(dtype.is_bool for dtype in dtypes) and not self.takes_bool:
            return SpecError("it is defined for numbers, not for bool", "convert with a Move first: to 0 and 1")
        return self.check(shape, dtypes)

    def reductions(self, rank: int) -> tuple[int, ...]:
        """Return the iteration dimensions that some written operand does not have."""
        written = [one for one in self.operands(rank) if one.writes]
        return tuple(dim for dim in range(rank) if not all(one.uses(dim) for one in written))

    def writes_apart(self, rank: int, dim: int) -> bool:
        """Return True if tiles along an iteration dimension write different values, so that threads can share them."""
        written = [one for one in self.operands(rank) if one.writes]
        return all(any([each for each, _ in terms] == [dim] for terms in one.dims) for one in written)

    def untiled(self, rank: int) -> tuple[int, ...]:
        """Return the iteration dimensions that a tile must keep whole: reductions that do not accumulate."""
        written = [one for one in self.operands(rank) if one.writes and not one.reads]
        return tuple(dim for dim in range(rank) if not all(one.uses(dim) for one in written))

    def tile_multiple(self, dim: int) -> int:
        """Return the number that sizes and starts of tiles along `dim` are multiples of."""
        return 1

    @property
    def only_types(self) -> tuple[DType, ...] | None:
        """Return the only possible data types of the operands, or usual ones where few are possible; else None."""
        return None

    @property
    def reads_types(self) -> tuple[DType | None, ...]:
        """Return the types of intermediates of a Compose as its inputs; None, or () for all, if the Compose decides."""
        return ()

    @property
    def indirect(self) -> tuple[int, ...]:
        """Return the operands that programs may replace by tensors computed from them beforehand."""
        return ()

    @property
    def search_hints(self) -> SearchHints:
        """Return the steps that search does not try."""
        return SearchHints()

    @property
    def constants(self) -> tuple[int, ...]:
        """Return the operands of a goal that are packed once, before calls."""
        return ()

    @property
    def without_constants(self) -> Operation:
        """Return the operation on operands that are not constant."""
        return self

    @property
    def optional_batch(self) -> bool:
        """Return True if a Spec may omit the first dimension, shared by all operands, where its size is 1."""
        return False

    @property
    def variadic(self) -> bool:
        """Return True if parameters decide the number of operands."""
        return False

    @property
    def moves_data(self) -> bool:
        """Return True if it only copies a tensor."""
        return False

    @property
    def initializes(self) -> bool:
        """Return True if it only sets values to a constant."""
        return False

    def __str__(self) -> str:
        values = [(field, getattr(self, field.name)) for field in self._parameters()]
        given = [_written(field.name, value) for field, value in values if value != field.default]
        return f"{self.name}[{', '.join(given)}]" if given else self.name

    def normal(self, rank: int) -> Operation:
        """Return the normal form on `rank` dimensions: equal for operations that differ only in spelling."""
        return self

    @classmethod
    def _parameters(cls) -> list[attrs.Attribute[object]]:
        return [field for field in attrs.fields(cls) if PARAMETER in field.metadata]

    @property
    def parameters(self) -> tuple[str, ...]:
        """Return the names of the parameters that `configured` takes."""
        return tuple(field.name for field in self._parameters())

    def configured(self, given: Parameters, shape: Sequence[int] | None = None, operands: KnownShapes = ()) -> Self:
        """Return the operation with these parameters, by name. Raises SpecError for an unknown one.

        Parameters may follow from sizes: from `shape`, the iteration sizes, or from the shapes of the read `operands`,
        as far as they are known.
        """
        allowed = {field.name: field.metadata[PARAMETER] for field in self._parameters()}
        # A float parameter accepts an int.
        given = {
            name: float(value)
            if type(value) is int and float in (kinds := allowed.get(name, ())) and int not in kinds
            else value
            for name, value in given.items()
        }
        for name, value in given.items():
            if name not in allowed:
                takes = ", ".join(self.parameters) or "no parameters"
                raise SpecError(f"{self.name} has no parameter {name!r}", f"{self.name} takes {takes}")
            if type(value) not in allowed[name]:
                what = " or ".join(_KINDS[kind] for kind in allowed[name])
                raise SpecError(f"{self.name}: {name} is {what}, not {value!r}")
        return attrs.evolve(self, **given)


OperationT = TypeVar("OperationT", bound=Operation, covariant=True)


@attrs.frozen
class ErrorAnalysis(Generic[OperationT]):
    """Bounds on how far rounding may take an implementation of `op` from its reference semantics.

    This is forward error analysis: the error of a result is the propagated error of the inputs (`propagate_error`),
    plus its own roundings, relative to `magnitude`, plus `underflow_loss`. Lists have one entry for each written
    operand, of its shape. Inputs and errors are float64, one for each operand that is read, in operand order.
    """

    op: OperationT

    #: Whether whole inputs give whole results, exactly as long as they are small.
    whole_numbers: ClassVar[bool] = False
    #: Whether integers wrap around, and are not clamped to the range of their type.
    wraps: ClassVar[bool] = True
    #: Whether an implementation may return any value where the reference is NaN.
    any_for_nan: ClassVar[bool] = False

    def __init_subclass__(cls, of: type[Operation] | None = None) -> None:
        if of:
            of.analysis = cls

    @property
    def copies(self) -> bool:
        """Return True if every written value is a constant or a copy, and so exact to the bit."""
        return self.op.moves_data or self.op.initializes

    def magnitude(self, shape: Shape, inputs: Arrays) -> list[np.ndarray]:
        """Return the sums of the absolute values of all terms: `Σ|a||b|` of a dot product."""
        return [np.abs(value) for value in self.op.evaluate(shape, inputs, [])]

    def largest_intermediate(self, shape: Shape, inputs: Arrays) -> list[np.ndarray]:
        """Return the largest absolute values of intermediates, which may overflow."""
        return self.magnitude(shape, inputs)

    def roundings(self, shape: Shape) -> int:
        """Return the number of roundings to the output's type for one output value.

        With n roundings, unit roundoff u and magnitude M, the error is at most ((1 + u)^n − 1)·M.
        """
        return 0

    def inner_roundings(self, shape: Shape) -> int:
        """Return the number of further roundings to f32, or to f64 for it: inside functions like exp."""
        return 0

    def underflow_loss(self, shape: Shape, inputs: Arrays, smallest: float) -> Sequence[np.ndarray | float]:
        """Return the absolute error due to underflow of intermediates.

        `smallest` is the smallest positive value of the output's type, the most that a rounding loses.
        """
        loss = (self.roundings(shape) + self.inner_roundings(shape)) * smallest
        return [loss] * sum(one.writes for one in self.op.operands(len(shape)))

    def propagate_error(self, shape: Shape, inputs: Arrays, errors: Arrays) -> list[np.ndarray]:
        """Return upper bounds on the change of results if each input changes by at most its error.

        Raises SpecError if the operation does not define them.
        """
        raise SpecError(
            f"{self.op} does not define how errors of its inputs propagate, so it cannot be part of a Compose",
            "write it as a separate Spec, or let its plugin define `propagate_error` in its `error_analysis`",
        )


#: Values of parameters: `stride=2`, `by=0.5`, `form=tanh`, `over=[0, 1]`, or just `saturating`.
Value: TypeAlias = int | float | str | bool | tuple[int, ...]
#: Parameters by name, and the shapes of operands as far as they are known.
Parameters: TypeAlias = Mapping[str, Value]
KnownShapes: TypeAlias = Sequence[Sequence[int] | None]
PARAMETER = "parameter"
_KINDS = {int: "a whole number", float: "a number", str: "a word", bool: "written alone", tuple: "a list of numbers"}


def parameter(
    *kinds: type,
    default: Any,
    validator: Callable[[Any, attrs.Attribute[Any], Any], None] | None = None,
    converter: Callable[[Any], Any] | None = None,
) -> Any:
    """Declare a parameter, written `Name[field=value]` in the Spec language; `kinds` are the types of its values."""
    return attrs.field(default=default, validator=validator, converter=converter, metadata={PARAMETER: kinds})


def _written(name: str, value: Value) -> str:
    if value is True:
        return name
    return f"{name}=[{', '.join(map(str, value))}]" if isinstance(value, tuple) else f"{name}={value}"


@cache
def source_and_output(rank: int) -> tuple[Operand, ...]:
    """Return the operands of an operation from `src` to `out`, both with all iteration dimensions."""
    return (operand("src", range(rank)), operand("out", range(rank), reads=False, writes=True))


Operation.analysis = ErrorAnalysis
