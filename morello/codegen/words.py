"""Specs in comments of C, and in reports."""

from __future__ import annotations

from morello.ir.spec import LogicalSpec


def short(logical: LogicalSpec, implicit_dims: int = 0) -> str:
    """Return a Spec in [Kaufman2025]'s short form, for comments: operation, shape, and the operands' levels.

    The shape is without the first `implicit_dims` sizes.
    """
    shape = "×".join(map(str, logical.shape[implicit_dims:]))
    return f"{logical.op}({shape}, {', '.join(state.level for state in logical.states)})"
