"""LayerNorm and RMSNorm: Composes that have a name. Both are along the last dimension."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import attrs

from morello.errors import SpecError
from morello.ir.ops.base import Operation, Value
from morello.ir.ops.binary import Add, Mul, Sub
from morello.ir.ops.compose import Arranged, Compose, ComposeStage, arranged
from morello.ir.ops.reduce import Mean
from morello.ir.ops.unary import Rsqrt, Shift


def layer_norm(rank: int, eps: float = 1e-5) -> Compose:
    """(x − mean x) / √(mean (x − mean x)² + eps) · gamma + beta; gamma and beta have size 1 but for the last dimension.

    The operands are beta, gamma, x, out.
    """
    return _layer_norm(rank, eps).compose


def rms_norm(rank: int, eps: float = 1e-5) -> Compose:
    """x / √(mean x² + eps) · gamma; gamma has size 1 but for the last dimension. The operands are gamma, x, out."""
    return _rms_norm(rank, eps).compose


def _layer_norm(rank: int, eps: float) -> Arranged:
    last, others = (rank - 1,), tuple(range(rank - 1))
    x, gamma, beta = range(3)
    _, scaled, normed, root, shifted, variance, squares, centred, mean = (~stage for stage in range(9))
    return _arranged(
        rank,
        (Add(over=others), scaled, beta),
        (Mul(over=others), normed, gamma),
        (Mul(over=last), centred, root),
        (Rsqrt(), shifted),
        (Shift(by=eps), variance),
        (Mean(), squares),
        (Mul(), centred, centred),
        (Sub(over=last), x, mean),
        (Mean(), x),
    )


def _rms_norm(rank: int, eps: float) -> Arranged:
    last, others = (rank - 1,), tuple(range(rank - 1))
    x, gamma = range(2)
    _, normed, root, shifted, mean, squares = (~stage for stage in range(6))
    return _arranged(
        rank,
        (Mul(over=others), normed, gamma),
        (Mul(over=last), x, root),
        (Rsqrt(), shifted),
        (Shift(by=eps), mean),
        (Mean(), squares),
        (Mul(), x, x),
    )


def _arranged(rank: int, *stages: tuple[Operation, *tuple[int, ...]]) -> Arranged:
    return arranged([ComposeStage(op, rank, tuple(inputs)) for op, *inputs in stages])


@attrs.frozen
class Norm:
    """A name that the Spec language reads as a Compose, with `operands` in the order of the text."""

    name: str
    operands: tuple[str, ...]
    build: Callable[[int, float], Arranged]
    eps: float = 1e-5

    @property
    def parameters(self) -> tuple[str, ...]:
        return ("eps",)

    def arranged(self, rank: int) -> Arranged:
        """Return the Compose on tensors of this rank. External inputs are numbered like `operands`."""
        return self.build(rank, self.eps)

    def configured(
        self,
        given: Mapping[str, Value],
        shape: Sequence[int] | None = None,
        operands: Sequence[Sequence[int] | None] = (),
    ) -> Norm:
        """Return the norm with this `eps`. Raises SpecError unless it is a finite number of at least 0."""
        eps = given.get("eps", self.eps)
        if isinstance(eps, (bool, str, tuple)) or not math.isfinite(eps) or eps < 0:
            raise SpecError(f"{self.name}: eps is a number of at least 0, not {eps!r}", "for example eps=1e-5")
        return attrs.evolve(self, eps=float(eps))


NORMS = {
    norm.name: norm
    for norm in (
        Norm("LayerNorm", ("x", "gamma", "beta", "out"), _layer_norm),
        Norm("RMSNorm", ("x", "gamma", "out"), _rms_norm),
    )
}
