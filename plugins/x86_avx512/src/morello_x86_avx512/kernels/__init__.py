"""Microkernels that only AVX-512 has: dot products of small types in one instruction, and masked tails."""

from __future__ import annotations

from morello_x86_avx512.kernels import dot, masks, tiles

#: Dot products first: of programs that cost the same, the one whose kernel comes first is chosen.
KERNELS = (*dot.KERNELS, *tiles.KERNELS, *masks.KERNELS)

__all__ = ["KERNELS"]
