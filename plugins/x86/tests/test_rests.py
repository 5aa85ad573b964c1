"""Rests of rows that fill a narrower vector: they are loaded and stored as one, also beside a value in all lanes."""

from __future__ import annotations

import pytest
from morello_x86_avx512.plugin import PLUGIN as AVX512

from morello.plugins.registry import Registry

from .scheduled import check


@pytest.mark.slow
def test_rests_are_narrower_vectors() -> None:
    chosen = {
        "SumAccum(1×24×1, (f32, L1), (f32, L1), serial)": "select VectorSumLanes",
        "Relu(1×8, (f32, L1), (f32, L1), serial)": "select VectorRelu",
        "Gelu(1×20, (bf16, L1), (f32, L1), serial)": "select VectorGelu",
        "Mul[over=[0, 1]](3×8, (f32, L1), (f32, L1), (f32, L1), serial)": "select VectorMul",
        "Add(1×72, (u8, L1), (u8, L1), (u8, L1), serial)": "select VectorAdd",
        "Add[over=[0, 1]](1×12, (f64, L1), (f64, L1), (f64, L1), serial)": "select VectorAdd",
    }
    check(Registry.of(x86=AVX512), AVX512.target, chosen)
