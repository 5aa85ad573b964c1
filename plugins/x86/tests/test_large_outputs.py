"""Transposes in memory and streamed outputs: any extents, rows anywhere, addresses of any alignment, and by cost."""

from __future__ import annotations

from itertools import cycle

import pytest
from morello_x86_avx2.plugin import PLUGIN as AVX2
from morello_x86_avx512.plugin import PLUGIN as AVX512

from morello import api
from morello.build.toolchain import Compiler
from morello.errors import MorelloError
from morello.plugins import TargetPlugin
from morello.plugins.registry import Registry
from morello.schedule import lines, schedule_of

from .scheduled import check, in_turns

#: Images and filters whose rows or columns are of several dimensions.
IMAGES = (
    ("1×17×5×4", "row_major", "nhwc"),
    ("1×17×5×4", "nhwc", "row_major"),
    ("17×3×3×2", "row_major", "chwn"),
    ("17×3×3×2", "row_major, c3, ua", "chwn"),
    ("17×16×3×2", "chwn", "row_major"),
    ("18×5×2×3", "nhwc", "layout[2, 3, 1, 0]"),
    ("4×5×4×5", "row_major", "layout[2, 3, 0, 1]"),
)

PLUGINS = pytest.mark.parametrize("plugin", [AVX2, AVX512], ids=lambda plugin: plugin.target)


def transposes() -> dict[str, str]:
    """Return the kernel for each Spec: whole and overlapping blocks, rows one after another and apart."""
    specs: dict[str, str] = {}
    states, levels = cycle(["", ", c1, ua"]), cycle([("L2", ""), ("GL", "Streamed")])
    for (rows, columns), dtype in (((16, 16), "f32"), ((17, 33), "i32"), ((64, 145), "u32")):
        for (level, name), state in zip((("L1", ""), ("GL", "Streamed")), states, strict=False):
            source, out = f"{dtype}, {level}, row_major{state}", f"{dtype}, {level}, col_major{state}"
            specs[f"Move({rows}×{columns}, ({source}), ({out}), serial)"] = f"TransposeMatrix{name}"
            specs[f"Move(1×{columns}×{rows}, ({out}), ({source}), serial)"] = f"TransposeMatrix{name}"
        next(states)
    small = (((81, 17), "i8"), ((17, 33), "u8"), ((17, 33), "bf16"), ((64, 145), "u16"))
    for ((rows, columns), dtype), state in zip(small, states, strict=False):
        source, out = f"{dtype}, L2, row_major{state}", f"{dtype}, L1, col_major{state}"
        bits = 8 if dtype in ("u8", "i8") else 16
        specs[f"Move({rows}×{columns}, ({source}), ({out}), serial)"] = f"TransposeMatrixOf{bits}Bits"
    for (shape, source, out), (level, name) in zip(IMAGES, levels, strict=False):
        specs[f"Move({shape}, (f32, {level}, {source}), (f32, {level}, {out}), serial)"] = f"TransposeMatrix{name}"
    return specs


def streams() -> dict[str, str]:
    """Return the kernel for each Spec: from one vector on, with and without values left over."""
    specs: dict[str, str] = {}
    for count in (16, 31, 1003):
        for state in ("", ", row_major, ua"):
            one = f"(f32, GL{state})"
            specs[f"Move({count}, {one}, {one}, serial)"] = "MoveStreamed"
            specs[f"Gelu({count}, {one}, {one}, serial)"] = "VectorGeluStreamed"
            specs[f"Sub({count}, {one}, {one}, {one}, serial)"] = "VectorSubStreamed"
    return specs


@pytest.mark.slow
@pytest.mark.parametrize("specs", [transposes(), streams()], ids=["transposes", "streams"])
@in_turns("plugin", [AVX2, AVX512])
def test_outputs_are_written_whole(plugin: TargetPlugin, specs: dict[str, str], compiler: Compiler) -> None:
    schedules = {spec: f"select {kernel}" for spec, kernel in specs.items()}
    check(Registry.of(x86=plugin), plugin.target, schedules, compiler)


@pytest.mark.parametrize(("rows", "streamed"), [(2048, True), (1024, False)])
@PLUGINS
def test_outputs_from_16_mib_on_are_streamed(plugin: TargetPlugin, rows: int, streamed: bool) -> None:
    found, shape = Registry.of(x86=plugin), f"{rows}×2048"
    for spec in (f"Relu({shape}, (f32, GL), (f32, GL), serial)", f"Move({shape}, (f32, GL), (f32, GL), serial)"):
        goal = api.goal(spec, target=plugin.target, registry=found).synthesize()
        assert any("Streamed" in line for line in lines(schedule_of(goal.impl))) == streamed


@pytest.mark.parametrize(
    "spec",
    [
        # Rows of one side are not rows of the other.
        "Move(16×4×4×4, (f32, L2), (f32, L2, layout[1, 3, 2, 0]), serial)",
        # Rows lie at two distances.
        "Move(4×4×4×4, (f32, L2, row_major, c2), (f32, L2, layout[2, 3, 0, 1]), serial)",
        "Move(1×16×4×4, (f32, L2), (f32, L2, nhwc, c1), serial)",
    ],
)
@PLUGINS
def test_what_is_no_matrix_is_not_transposed_at_once(plugin: TargetPlugin, spec: str) -> None:
    goal = api.goal(spec, target=plugin.target, registry=Registry.of(x86=plugin))
    with pytest.raises(MorelloError, match="TransposeMatrix"):
        goal.apply("select TransposeMatrix")
