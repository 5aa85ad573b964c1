"""Moves between layouts of every kind are synthesized, and right."""

from __future__ import annotations

import itertools

import pytest

import morello
from morello.host import missing_features
from morello.plugins.registry import installed

#: Per shape: layouts, moved between in pairs, and data types, used in turns like the targets.
LAYOUTS = {
    "4×8": (("row_major", "col_major", "layout[1, 0, 1p4]", "layout[0, 1, 1oe8]"), ("f32", "bf16", "i8", "u16")),
    "2×2×8": (("row_major", "layout[2, 0, 1]", "layout[0, 2, 1, 2p4]"), ("i32", "u8", "f32")),
    "1×16×2×2": (("row_major", "nhwc", "nchw8c", "layout[3, 1, 0, 2]"), ("f32", "i8", "u16")),
    "3×5": (("row_major", "col_major"), ("u8", "i16")),
    "3×5×2×2": (("row_major", "nhwc"), ("u32", "bf16")),
}
TARGETS = ("x86_avx2", "x86_avx512")
CASES = [
    (shape, source, out, dtypes[number % len(dtypes)], TARGETS[number // 2 % 2])
    for shape, (layouts, dtypes) in LAYOUTS.items()
    for number, (source, out) in enumerate(itertools.permutations(layouts, 2))
]


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "source", "out", "dtype", "target"), CASES)
def test_relayouts(shape: str, source: str, out: str, dtype: str, target: str) -> None:
    text = f"Move({shape}, ({dtype}, GL, {source}), ({dtype}, GL, {out}), serial)"
    kernel = morello.compile(morello.goal(text, target=target))
    if not missing_features(installed().target(target).info.cpu_features):
        kernel.check()


@pytest.mark.parametrize("out", ["nhwc", "nchw8c"])
def test_images_are_transposed_in_vector_registers(out: str) -> None:
    """Else the cheapest program copies value by value, at seven and more each."""
    goal = morello.goal(f"Move(1×8×8×8, GL, (GL, {out}), serial)", target="x86_avx2").synthesize()
    assert "select Transpose8x8" in goal.schedule
