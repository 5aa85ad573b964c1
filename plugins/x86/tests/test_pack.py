"""Rows of small values are packed into strips of two or four, whatever their lengths and wherever they lie."""

from __future__ import annotations

import pytest
from morello_x86_avx2.plugin import PLUGIN as AVX2
from morello_x86_avx512.plugin import PLUGIN as AVX512

from morello.plugins.registry import Registry

from .scheduled import check


@pytest.mark.slow
@pytest.mark.parametrize("plugin", [AVX2, AVX512], ids=lambda plugin: plugin.target)
def test_rows_become_strips(plugin) -> None:
    specs: dict[str, str] = {}
    for dtype, taken in (("i8", 4), ("u8", 2), ("bf16", 2), ("i16", 2)):
        bits = 8 if dtype.endswith("8") and dtype != "bf16" else 16
        for rows, columns in ((3, 115), (1, 7)):
            layout = f"layout[0, 1, 2, 1p{taken}]"
            shape = f"1×{rows * taken}×{columns}"
            spec = f"Move({shape}, ({dtype}, GL, row_major, c1, ua), ({dtype}, GL, {layout}, c2, ua), serial)"
            specs[spec] = f"select Pack{taken}Of{bits}Bits"
    check(Registry.of(x86=plugin), plugin.target, specs)
