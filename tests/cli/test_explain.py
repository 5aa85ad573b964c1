"""`morello explain`, and the tree that it shares with other commands."""

import json
import re

import pytest

from morello.report.words import size

from .conftest import BYTES

SCHEDULED = """spec gemm = Matmul(1×2×3×8, L1, L1, L1, serial)
schedule gemm {
    to_accum
    subschedule [0] { select MemsetZero }
    tile [1, 1, 1, 8]
    move 1 to VRF as row_major v8
    subschedule [0] { select VectorMove }
    move 2 to VRF as row_major v8
    subschedule [0] { select VectorMove }
    subschedule [2] { select VectorMove }
    select BroadcastVecMultAdd
}
"""
SPECS = ["spec one = Matmul(1×1×1×1, GL, GL, GL, serial)\n", "spec move = Move(2×3, GL, (GL, col_major))\n", SCHEDULED]


def _nodes(node):
    yield node
    for child in node["children"]:
        yield from _nodes(child)


@pytest.mark.parametrize("text", SPECS)
def test_json_adds_up(cli, write, text):
    result = cli("explain", write(text), "--json")
    assert result.exit_code == 0
    (explained,) = json.loads(result.stdout)
    nodes = list(_nodes(explained["program"]))
    assert sum(node["share"] for node in nodes) == pytest.approx(100)
    assert sum(node["own"] * node["runs"] for node in nodes) == explained["cost"] == explained["program"]["cost"]
    for node in nodes:
        below = sum(child["cost"] * child["runs"] // node["runs"] for child in node["children"])
        assert node["cost"] == node["own"] + below
        assert bool(node["kernel"]) == (not node["children"])
        for level in ("RF", "VRF", "L1", "L2", "GL"):
            assert node["peak"][level] >= max(child["peak"][level] for child in [node, *node["children"]])


def test_the_cost_of_a_scheduled_program(cli, write):
    (explained,) = json.loads(cli("explain", write(SCHEDULED), "--json").stdout)
    kernels = {node["kernel"]: node for node in _nodes(explained["program"]) if node["kernel"]}
    assert set(kernels) == {"MemsetZero", "VectorMove", "BroadcastVecMultAdd"}
    assert kernels["BroadcastVecMultAdd"]["runs"] == 6
    assert kernels["BroadcastVecMultAdd"]["spec"] == "MatmulAccum(1×1×1×8, L1, VRF, VRF)"
    assert explained["peak"]["VRF"] >= 64
    (tile,) = (node for node in _nodes(explained["program"]) if node["step"].startswith("tile"))
    (move,) = tile["children"]
    assert move["holds"] == {"RF": 0, "VRF": 32, "L1": 0, "L2": 0, "L3": 0, "GL": 0}


def test_text_has_every_node(cli, write):
    shown = cli("explain", write(SCHEDULED)).stdout
    assert "scheduled in full, nothing to search" in shown
    assert "gemm for x86_avx2: Matmul(1×2×3×8, (f32, L1, row_major)" in shown
    for words in ("├ initialize: MemsetZero", "load: VectorMove", "store: VectorMove", "BroadcastVecMultAdd"):
        assert words in shown
    assert "move 0 to L1 (view)" in cli("explain", write(BYTES)).stdout


def test_colour_is_optional(cli, write):
    assert "\x1b" not in cli("explain", write()).output
    assert "\x1b[1m" in cli("explain", write(), FORCE_COLOR="1", TERM="xterm").stdout


def test_database_saves_the_search(cli, write, tmp_path, monkeypatch):
    db = str(tmp_path / "solved.db")
    first = cli("explain", write(), "--db", db, "--runner-ups", "0")
    assert "searched" in first.stdout

    def fail(*_: object) -> None:
        raise AssertionError("searched again")

    monkeypatch.setattr("morello.search.session.SearchSession.programs", fail)
    second = cli("explain", write(), "--db", db)
    assert second.exit_code == 0
    assert "solved before, nothing to search" in second.stdout
    assert second.stdout.splitlines()[2:] == first.stdout.splitlines()[2:]
    assert cli("compile", write(), "--db", db).exit_code == 0


@pytest.mark.parametrize(
    ("amount", "text"), [(0, "0 B"), (480, "480 B"), (1024, "1 KiB"), (1536, "1536 B"), (1 << 50, "1024 TiB")]
)
def test_sizes_are_exact(amount, text):
    assert size(amount) == text


NESTED = """spec nested = Move(8×8, L1, L1, serial)
schedule nested {
    tile [4, 8]
    tile [2, 8]
    tile [2, 4]
    tile [2, 1]
    tile [1, 1]
    select Assign
}
"""
#: The lines of its tree.
LINES = ["tile [4, 8] to [2, 8]", "tile [2, 4] to [2, 1]", "tile [1, 1]", "Assign"]


def test_loops_over_one_dimension_are_a_line(cli, write):
    path = write(NESTED)
    for arguments in (["explain"], ["compile", "--emit", "impl"]):
        shown = cli(*arguments, path).stdout
        rows = [re.split("  +", line) for line in shown.splitlines() if line.startswith(("tile", "Assign"))]
        assert [row[0] for row in rows] == LINES
        assert [row[2] for row in rows] == ["1", "4", "32", "64"]
    (explained,) = json.loads(cli("explain", path, "--json").stdout)
    steps = [(node["step"], node["continued"]) for node in _nodes(explained["program"])]
    assert steps == [
        ("tile [4, 8]", True),
        ("tile [2, 8]", False),
        ("tile [2, 4]", True),
        ("tile [2, 1]", False),
        ("tile [1, 1]", False),
        ("select Assign", False),
    ]


@pytest.mark.slow
def test_loops_are_lines_of_their_own_where_they_have_runner_ups(cli, write):
    path = write("spec move = Move(64×4, L1, (L1, col_major), serial)\n")
    (explained,) = json.loads(cli("explain", path, "--json", "--runner-ups", "1").stdout)
    assert any(node["continued"] and node["runner_ups"] for node in _nodes(explained["program"]))
    assert " to [" in cli("explain", path, "--runner-ups", "0").stdout
    assert " to [" not in cli("explain", path, "--runner-ups", "1", "--noise", "0").stdout


def test_the_loop_whose_tiles_threads_share_is_a_line_of_its_own(cli, write):
    schedule = "tile [8, 64] parallel\n tile [4, 64]\n tile [2, 64]\n tile [2, 1]\n tile [1, 1]\n select Assign"
    text = f"spec shared = Move(64×64, L1, L1)\nschedule shared {{ {schedule} }}\n"
    rows = [line.split("  ")[0] for line in cli("explain", write(text)).stdout.splitlines() if line.startswith("tile")]
    assert rows == ["tile [8, 64] parallel", "tile [4, 64] to [2, 64]", "tile [2, 1]", "tile [1, 1]"]
