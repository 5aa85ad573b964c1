"""Rows of small values are packed into strips of two or four, whatever their lengths and wherever they lie."""

from __future__ import annotations

import pytest
from morello_x86_avx2.plugin import PLUGIN as AVX2
from morello_x86_avx512.plugin import PLUGIN as AVX512

from morello import api
from morello.ir.impl import Node
from morello.plugins.registry import Registry
from morello.testing import Trials


@pytest.mark.slow
@pytest.mark.parametrize("plugin", [AVX2, AVX512], ids=lambda plugin: plugin.info.name)
def test_rows_become_strips(plugin) -> None:
    registry = Registry.of(x86=plugin)
    text = f"target {plugin.info.name}\n"
    number = 0
    for dtype, taken in (("i8", 4), ("u8", 2), ("bf16", 2), ("i16", 2)):
        bits = 8 if dtype.endswith("8") and dtype != "bf16" else 16
        for rows, columns in ((2, 64), (3, 115), (1, 7), (2, 33)):
            layout = f"layout[0, 1, 2, 1p{taken}]"
            shape = f"1×{rows * taken}×{columns}"
            spec = f"Move({shape}, ({dtype}, GL, row_major, c1, ua), ({dtype}, GL, {layout}, c2, ua), serial)"
            text += f"spec p{number} = {spec}\nschedule p{number} {{\nselect Pack{taken}Of{bits}Bits\n}}\n"
            number += 1
    impls = [goal.impl for goal in api.parse(text, registry=registry).values() if isinstance(goal.impl, Node)]
    assert len(impls) == number
    trials = Trials(impls, registry.target(plugin.info.name), sanitize=True)
    for each in range(number):
        trials.check(each)
