"""The statements of an operation about itself: operands, tiling, meaning, FLOPs. Each operation has a file here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, Generic, Self, TypeVar, overload

import attrs
import numpy as np

from morello.errors import SpecError
from morello.ir.dtypes import DType
from morello.ir.index import IndexExpr
from morello.ir.numbers import Num, product
from morello.ir.ops.hints import SearchHints


@attrs.frozen(cache_hash=True)
class Operand:
    """An operand's name, direction and how its dimensions follow from the operation's iteration dimensions.

    Each of its dimensions is a sum of (iteration dimension, coefficient) terms, e.g. row `h·stride + fh` of a
    convolution's image: its size is 1 + Σ c·(n−1), and a tile that starts at o starts at Σ c·o in it. No terms
    stand for a dimension of size 1. `shrink` is what each dimension is smaller by, as a padded image is than what
    a convolution reads; empty where that is nothing. Iteration dimensions of one that shrinks are not tiled.
    """

    name: str
    dims: tuple[tuple[tuple[int, int], ...], ...]
    reads: bool = True
    writes: bool = False
    shrink: tuple[int, ...] = ()

    @overload
    def shape(self, sizes: Sequence[int]) -> tuple[int, ...]: ...
    @overload
    def shape(self, sizes: Sequence[Num]) -> tuple[Num, ...]: ...
    def shape(self, sizes: Sequence[Num]) -> tuple[Num, ...]:
        """Shape of the operand (or of its tile) where the iteration dimensions have `sizes`."""
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
        """Per dimension, whether tiles of it may overlap or leave gaps: they start at no multiple of their size."""
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

    @property
    @abstractmethod
    def name(self) -> str:
        """Return the name in the Spec language, without parameters."""

    @property
    def rank(self) -> int | None:
        """Return the number of iteration dimensions; None if there may be any number."""
        return None

    @abstractmethod
    def dims(self, rank: int) -> tuple[str, ...]:
        """Names of the iteration dimensions, used for loop variables and messages."""

    @abstractmethod
    def operands(self, rank: int) -> tuple[Operand, ...]:
        """Return its operands, inputs first."""

    @abstractmethod
    def evaluate(
        self, shape: tuple[int, ...], inputs: Sequence[np.ndarray], dtypes: Sequence[DType]
    ) -> list[np.ndarray]:
        """Return the written operands in operand order, from those that it reads: float64, each in its operand's shape.

        `inputs` have the operands' shapes. Integer results wrap around in the output's type. Floats arrive
        as float64 and are computed in float64, so the result is the exact meaning for all that matters.
        """

    @property
    def error_analysis(self) -> ErrorAnalysis[Operation]:
        """Return the analysis of how far an implementation may be off from `evaluate`."""
        return ErrorAnalysis(self)

    @abstractmethod
    def flops(self, shape: tuple[int, ...]) -> int:
        """Arithmetic operations on values; 0 for one that only moves them."""

    def implied(self, shape: tuple[int, ...]) -> str:
        """Return in words the sizes of operands that neither shape nor parameters show; empty if they show all."""
        return ""

    @overload
    def volume(self, shape: Sequence[int]) -> int: ...
    @overload
    def volume(self, shape: Sequence[Num]) -> Num: ...
    def volume(self, shape: Sequence[Num]) -> Num:
        """Return the number of points of the iteration space."""
        return product(shape)

    def accumulating(self) -> Operation | None:
        """Return the variant that adds to what its output holds, if there is one and this is not it."""
        return None

    def initials(self) -> tuple[Operation | None, ...]:
        """Per written operand, the Fill that makes the accumulating variant compute this operation.

        None for an operand that the accumulating variant does not read.
        """
        return ()

    def check(self, shape: tuple[int, ...], dtypes: Sequence[DType]) -> SpecError | None:
        """Return the error for a shape or data types that cannot be; None if they can."""
        return None

    def reductions(self, rank: int) -> tuple[int, ...]:
        """Return iteration dimensions that some written operand does not have: several points give one value of it."""
        written = [one for one in self.operands(rank) if one.writes]
        return tuple(dim for dim in range(rank) if not all(one.uses(dim) for one in written))

    def writes_apart(self, rank: int, dim: int) -> bool:
        """Return True if tiles along an iteration dimension write different values, so that they can be shared out."""
        written = [one for one in self.operands(rank) if one.writes]
        return all(any([each for each, _ in terms] == [dim] for terms in one.dims) for one in written)

    def untiled(self, rank: int) -> tuple[int, ...]:
        """Return iteration dimensions that a tile must keep whole: reductions, unless what lacks them accumulates."""
        written = [one for one in self.operands(rank) if one.writes and not one.reads]
        return tuple(dim for dim in range(rank) if not all(one.uses(dim) for one in written))

    def tile_multiple(self, dim: int) -> int:
        """Return what sizes and starts of tiles of iteration dimension `dim` are multiples of."""
        return 1

    @property
    def only_types(self) -> tuple[DType, ...] | None:
        """Return the data types of its operands, if there is one choice of them; None if there are several."""
        return None

    @property
    def indirect(self) -> tuple[int, ...]:
        """Return operands that programs need not have at hand at each point: others may be made of them before."""
        return ()

    @property
    def search_hints(self) -> SearchHints:
        """Return what search may leave untried."""
        return SearchHints()

    @property
    def optional_batch(self) -> bool:
        """Return True if texts may lack the first dimension, which is that of all operands, where it is 1."""
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
        """Return the same operation on `rank` dimensions as all others that differ only in how they are written."""
        return self

    @classmethod
    def _parameters(cls) -> list[attrs.Attribute[object]]:
        return [field for field in attrs.fields(cls) if PARAMETER in field.metadata]

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters that `configured` takes."""
        return tuple(field.name for field in self._parameters())

    def configured(
        self,
        given: Mapping[str, Value],
        shape: Sequence[int] | None = None,
        operands: Sequence[Sequence[int] | None] = (),
    ) -> Self:
        """Return the operation with these parameters, by name. Raises SpecError for one that it does not take.

        Parameters may follow from sizes: `shape` has those of its iteration dimensions, where they are known, else
        `operands` the shapes of those that it reads, where these are known.
        """
        allowed = {field.name: field.metadata[PARAMETER] for field in self._parameters()}
        # A whole number will do where a parameter is a number.
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
    """Bounds on how far rounding may lead an implementation of `op` from its meaning.

    It is forward error analysis: a result is off by what errors of the inputs come to (`propagate_error`), by its
    own roundings, relative to `magnitude`, and by `underflow_loss`. Lists have an entry per written operand, of its
    shape. Inputs and errors are float64, those of the operands that are read, in operand order.
    """

    op: OperationT

    #: Whether it makes whole numbers of whole numbers, exactly as long as they are small.
    whole_numbers: ClassVar[bool] = False
    #: Whether an implementation may give any value where the meaning is NaN.
    any_for_nan: ClassVar[bool] = False

    @property
    def copies(self) -> bool:
        """Return True if every value that it writes is a constant or one that it reads: right to the bit."""
        return self.op.moves_data or self.op.initializes

    def magnitude(self, shape: tuple[int, ...], inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the sums of absolute values of all that is added up: `Σ|a||b|` of a dot product."""
        return [np.abs(value) for value in self.op.evaluate(shape, inputs, [])]

    def largest_intermediate(self, shape: tuple[int, ...], inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the largest absolute values that may come up on the way, and overflow."""
        return self.magnitude(shape, inputs)

    def roundings(self, shape: tuple[int, ...]) -> int:
        """Return how often an implementation may round to the output's type on the way to one output value.

        With n roundings, unit roundoff u and magnitude M, a result may be off by ((1 + u)^n − 1)·M.
        """
        return 0

    def inner_roundings(self, shape: tuple[int, ...]) -> int:
        """Return how often more it may round to f32, whatever the output's type: inside functions like exp."""
        return 0

    def underflow_loss(
        self, shape: tuple[int, ...], inputs: Sequence[np.ndarray], smallest: float
    ) -> Sequence[np.ndarray | float]:
        """Return what may be lost where values on the way are too small for their type.

        `smallest` is the smallest positive value of the output's type. A rounding loses at most that.
        """
        loss = (self.roundings(shape) + self.inner_roundings(shape)) * smallest
        return [loss] * sum(one.writes for one in self.op.operands(len(shape)))

    def propagate_error(
        self, shape: tuple[int, ...], inputs: Sequence[np.ndarray], errors: Sequence[np.ndarray]
    ) -> list[np.ndarray]:
        """Return upper bounds on how far results move if each input moves by at most its error.

        Raises SpecError where the operation does not say.
        """
        raise SpecError(
            f"{self.op} does not say how errors of its inputs propagate, so it cannot be part of a Compose",
            "write it as a Spec of its own, or let its plugin define `propagate_error` in its `error_analysis`",
        )


#: What parameters of operations can be: `stride=2`, `by=0.5`, `form=tanh`, `over=[0, 1]`, or just `saturating`.
Value = int | float | str | bool | tuple[int, ...]
PARAMETER = "parameter"
_KINDS = {int: "a whole number", float: "a number", str: "a word", bool: "written alone", tuple: "a list of numbers"}


def parameter(
    *kinds: type,
    default: Any,
    validator: Callable[[Any, attrs.Attribute[Any], Any], None] | None = None,
    converter: Callable[[Any], Any] | None = None,
) -> Any:
    """Declare a field that the Spec language writes as `Name[field=value]`; `kinds` are the types of its values."""
    return attrs.field(default=default, validator=validator, converter=converter, metadata={PARAMETER: kinds})


def _written(name: str, value: Value) -> str:
    if value is True:
        return name
    return f"{name}=[{', '.join(map(str, value))}]" if isinstance(value, tuple) else f"{name}={value}"
