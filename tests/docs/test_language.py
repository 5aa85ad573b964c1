"""The reference of the language lists the operations, data types, layouts, steps and bounds of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from morello.frontend import operands, parse_spec, specs, steps
from morello.ir import dtypes
from morello.ir.layout import NAMED
from morello.ir.limits import lower
from morello.ir.ops import BY_NAME
from morello.ir.spec import MAX_BYTES
from morello.kernels.target import Target
from morello.plugins.registry import installed
from morello.rewrites.base import rewrites_of
from morello.untrusted import MAX_FILE_BYTES

PAGE = (Path(__file__).parents[2] / "docs" / "language.md").read_text(encoding="utf-8")
PICTURES = re.findall(r"^```text\n(layout\[[^\n]*\]) of (\d+)×(\d+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def section(title: str) -> str:
    return re.split(rf"^#+ {title}$", PAGE, flags=re.MULTILINE)[1].split("\n#")[0]


def rows(title: str) -> list[list[str]]:
    """The cells of a section's table, without code marks."""
    lines = re.findall(r"^\| (.*) \|$", section(title), re.MULTILINE)
    return [[cell.strip().replace("`", "") for cell in line.split("|")] for line in lines[1:]]


def test_steps_are_those_of_x86_avx2(avx2: Target) -> None:
    usages = [rewrite.usage() for rewrite in rewrites_of(avx2)]
    extra = ["subschedule [N, ...] { ... }", "synthesize"]
    tables = section("Pipelines") + section("Inner stages of softmax")
    named = re.findall(r"^### `(.+)`$", PAGE, re.MULTILINE) + re.findall(r"^\| `([^`]+)` \|", tables, re.MULTILINE)
    steps = [one.replace(" TO", " to LEVEL [as LAYOUT] [VECTOR]") for one in named if one not in BY_NAME]
    assert sorted(steps) == sorted(usages + extra)
    assert [rewrite.usage() for rewrite in rewrites_of(installed().target("x86_avx512"))] == usages


def test_operations() -> None:
    described = [row for row in rows("Operations") + rows("Inner stages of softmax") if len(row) == 4]
    assert {name for names, *_ in described for name in names.split(", ")} == {*BY_NAME, "Compose"}
    for names, dims, named, _ in described:
        op = BY_NAME.get(names.split(", ")[0])
        if op is None:
            continue
        rank = op.rank or 2
        assert dims.split(",")[0] == ("any" if op.rank is None else "×".join(op.dims(rank)))
        assert [one.split()[0] for one in named.split(", ")] == [one.name for one in op.operands(rank)]


def test_data_types() -> None:
    described = rows("Data types")
    assert [name for name, *_ in described] == [dtype.name for dtype in dtypes.ALL]
    for name, c_name, numpy in described:
        dtype = dtypes.by_name(name)
        assert c_name.split(",")[0] == dtype.c_name
        assert numpy.split()[0] == dtype.numpy.name


def test_named_layouts() -> None:
    text = section("Layouts")
    assert [name for name in NAMED if f"`{name}` is `{NAMED[name](4)}`" in " ".join(text.split())] == list(NAMED)


@pytest.mark.parametrize(("layout", "height", "width", "picture"), PICTURES, ids=[picture[0] for picture in PICTURES])
def test_pictures_of_layouts(layout: str, height: str, width: str, picture: str, avx2: Target) -> None:
    shape = int(height), int(width)
    state = parse_spec(f"FillZero({height}×{width}, (f32, L1, {layout}))", avx2).operands[0].state
    assert state.layout
    assert [[int(number) for number in line.split()] for line in picture.splitlines()] == [
        [state.layout.offset((i, j), shape) for j in range(shape[1])] for i in range(shape[0])
    ]


def test_pictures_show_every_kind_of_layout() -> None:
    drawn = "".join(layout for layout, *_ in PICTURES)
    assert "p" in drawn
    assert "oe" in drawn
    assert len(PICTURES) >= 4


def test_limits_in_normal_form(avx2: Target) -> None:
    """Round limits as the page says, also for one line out of a cache."""
    limits = avx2.limits([67, 100, 20000, 300_000, 9_000_000, 2**40])
    assert limits == (64, 96, 16 << 10, 256 << 10, 8 << 20, 2**31)
    assert parse_spec("(FillZero(4, GL), [3, 31, 3, 0, 0, 0])", avx2).limits == (0, 0, 0, 0, 0, 0)
    assert lower(avx2.full_limits(), (0, 0, 64, 0, 0, 0), avx2.grids) == (64, 512, 28 << 10, 512 << 10, 16 << 20, 2**31)


def test_bounds() -> None:
    assert [limit for _, limit in rows("Bounds")] == [
        f"{MAX_FILE_BYTES >> 20} MiB",
        f"2^{MAX_BYTES.bit_length() - 1}",
        str(specs._MAX_RANK),
        str(operands._MAX_LAYOUT),
        str(steps._MAX_DEPTH),
    ]
