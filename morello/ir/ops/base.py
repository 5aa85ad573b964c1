"""What an operation states about itself: operands, tiling, meaning, FLOPs. One operation a file beside this one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from morello.ir.dtypes import DType
from morello.ir.numbers import product


@attrs.frozen(cache_hash=True)
class Operand:
    """An operand's name, direction and how its dimensions follow from the operation's iteration dimensions.

    Each of its dimensions is a sum of (iteration dimension, coefficient) terms, e.g. row `h·stride + fh` of a
    convolution's image: its size is 1 + Σ c·(n−1), and a tile that starts at o starts at Σ c·o in it.
    """

    name: str
    dims: tuple[tuple[tuple[int, int], ...], ...]
    reads: bool = True
    writes: bool = False

    def shape(self, sizes: Sequence[Any]) -> tuple[Any, ...]:
        """Shape of the operand (or of its tile) where the iteration dimensions have `sizes`."""
        return tuple(1 + sum(c * (sizes[dim] - 1) for dim, c in terms) for terms in self.dims)

    def start(self, starts: Sequence[Any]) -> tuple[Any, ...]:
        """Where the operand's tile starts if the iteration dimensions start at `starts`."""
        return tuple(sum((c * starts[dim] for dim, c in terms), 0) for terms in self.dims)

    def uses(self, dim: int) -> bool:
        return any(dim == other for terms in self.dims for other, _ in terms)


def operand(name: str, dims: Sequence[int], *, reads: bool = True, writes: bool = False) -> Operand:
    """An operand whose dimensions are iteration dimensions themselves."""
    return Operand(name, tuple(((dim, 1),) for dim in dims), reads, writes)


@attrs.frozen(cache_hash=True)
class Operation(ABC):
    """A tensor operation. Instances are values: equal operations are interchangeable."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Its name in the Spec language."""

    @property
    def rank(self) -> int | None:
        """How many iteration dimensions it has; None if any number."""
        return None

    @abstractmethod
    def dims(self, rank: int) -> tuple[str, ...]:
        """Names of the iteration dimensions, used for loop variables and messages."""

    @abstractmethod
    def operands(self, rank: int) -> tuple[Operand, ...]:
        """Its operands, inputs first."""

    @abstractmethod
    def meaning(
        self, shape: tuple[int, ...], inputs: Sequence[np.ndarray], dtypes: Sequence[DType]
    ) -> list[np.ndarray]:
        """The values of the written operands, from those of the operands it reads, in operand order.

        `inputs` have the operands' shapes. Integer results wrap around in the output's type. Floats arrive
        as float64 and are computed in float64, so the result is the exact meaning for all that matters.
        """

    def magnitude(self, shape: tuple[int, ...], inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Per written value, the sum of absolute values of all that is added up: `Σ|a||b|` of a dot product."""
        return [np.abs(value) for value in self.meaning(shape, inputs, [])]

    def roundings(self, shape: tuple[int, ...]) -> int:
        """How many roundings an implementation may make on the way to one output value."""
        return 0

    @abstractmethod
    def flops(self, shape: tuple[int, ...]) -> int:
        """Arithmetic operations on values; 0 for one that only moves them."""

    def volume(self, shape: Sequence[Any]) -> Any:
        """Number of points of the iteration space."""
        return product(shape)

    def accumulating(self) -> Operation | None:
        """The variant that adds to what its output holds, if there is one and this is not it."""
        return None

    def initial(self) -> Operation | None:
        """The Fill that makes the accumulating variant compute this operation."""
        return None

    def check(self, shape: tuple[int, ...], dtypes: Sequence[DType]) -> str | None:
        """Why this shape or these data types cannot be; None if they can."""
        return None

    def reductions(self, rank: int) -> tuple[int, ...]:
        """Iteration dimensions that no written operand has: each point adds to the same outputs."""
        written = [one for one in self.operands(rank) if one.writes]
        return tuple(dim for dim in range(rank) if not any(one.uses(dim) for one in written))

    def untiled(self, rank: int) -> tuple[int, ...]:
        """Iteration dimensions that a tile must keep whole: reductions, unless the operation accumulates."""
        accumulates = all(one.reads for one in self.operands(rank) if one.writes)
        return () if accumulates else self.reductions(rank)

    @property
    def moves_data(self) -> bool:
        """Whether it only copies values: such children are passed over when a step picks its child."""
        return False

    @property
    def initializes(self) -> bool:
        """Whether it only sets values to a constant."""
        return False

    def __str__(self) -> str:
        return self.name
