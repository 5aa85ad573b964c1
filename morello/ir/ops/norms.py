"""LayerNorm and RMSNorm: Composes that have a name. Both are along the last dimension."""

from __future__ import annotations

from morello.ir.ops.base import Operation

NORMS: dict[str, Operation] = {}
