"""The stages of norms."""

from __future__ import annotations

from morello.ir.ops.base import Operation
from morello.ir.ops.binary import Add, Mul, Sub
from morello.ir.ops.compose import Compose, ComposeStage, arranged
from morello.ir.ops.reduce import Mean
from morello.ir.ops.unary import Rsqrt, Shift


def layer_norm(rank: int, eps: float = 1e-5) -> Compose:
    """Return LayerNorm as a Compose; its operands are beta, gamma, x, out."""
    return arranged(layer_norm_stages(rank, eps)).compose


def rms_norm(rank: int, eps: float = 1e-5) -> Compose:
    """Return RMSNorm as a Compose; its operands are gamma, x, out."""
    return arranged(rms_norm_stages(rank, eps)).compose


def layer_norm_stages(rank: int, eps: float) -> list[ComposeStage]:
    """Return (x − mean x) / √(mean (x − mean x)² + eps) · gamma + beta; gamma and beta have a value per column."""
    last, others = (rank - 1,), tuple(range(rank - 1))
    x, gamma, beta = range(3)
    _, scaled, normed, root, shifted, variance, squares, centred, mean = (~stage for stage in range(9))
    return _stages(
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


def rms_norm_stages(rank: int, eps: float) -> list[ComposeStage]:
    """Return x / √(mean x² + eps) · gamma; gamma has a value per column."""
    last, others = (rank - 1,), tuple(range(rank - 1))
    x, gamma = range(2)
    _, normed, root, shifted, mean, squares = (~stage for stage in range(6))
    return _stages(
        rank,
        (Mul(over=others), normed, gamma),
        (Mul(over=last), x, root),
        (Rsqrt(), shifted),
        (Shift(by=eps), mean),
        (Mean(), squares),
        (Mul(), x, x),
    )


def _stages(rank: int, *stages: tuple[Operation, *tuple[int, ...]]) -> list[ComposeStage]:
    return [ComposeStage(op, rank, tuple(inputs)) for op, *inputs in stages]
