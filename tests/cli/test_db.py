"""`morello db`, and how commands use databases."""

from __future__ import annotations

import importlib
import json
import os
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs
import numpy as np
import pytest
from click.testing import CliRunner

from morello.cli.app import main
from morello.db.answers import AnswerBlock, AnswerKind
from morello.db.store import SpecStore
from morello.errors import MorelloError
from morello.frontend.parser import parse_spec
from morello.plugins import TargetPlugin
from morello.plugins.discovery import Disabled, PluginInfo
from morello.plugins.registry import Registry, installed

from .conftest import BYTES

TARGET = installed().target("x86_avx2")
LABELS = parse_spec("FillZero(4×8, (f32, L1), serial)", TARGET).logical


@pytest.fixture
def solved(cli, write, tmp_path):
    """A database that a command has filled."""
    path = str(tmp_path / "solved.db")
    assert cli("explain", write(BYTES), "--db", path).exit_code == 0
    return path


def block(cost: int, kind: AnswerKind = AnswerKind.EXACT) -> AnswerBlock:
    """One answer, which need not be right."""
    limits = np.array([TARGET.full_limits()], dtype=np.int64)
    return AnswerBlock(
        LABELS,
        np.array([[2, 2]]),
        limits,
        limits * 0,
        np.array([cost]),
        np.array([kind], dtype=np.int8),
        ("tile [1, 0]",),
        np.array([-1 if kind else 0], dtype=np.int32),
    )


def made(path: Path, *blocks: AnswerBlock) -> str:
    SpecStore(path).add(TARGET, blocks)
    return str(path)


def test_stats(cli, solved):
    (counts,) = json.loads(cli("db", "stats", solved, "--json").stdout)["fingerprints"]
    assert counts["target"] == "x86_avx2"
    assert counts["current"]
    assert (
        counts["specs"]
        == counts["exact"] + counts["none"] + counts["lower"]
        > counts["rectangles"]
        == counts["tables"]
        > 3
    )
    shown = cli("db", "stats", solved, "--tables", "2").stdout
    assert f"{counts['specs']:,}" in shown
    assert len(shown.split("Specs\n")[-1].splitlines()) == 2


def test_stats_separate_bounds_and_answers(cli, tmp_path):
    path = made(tmp_path / "a.db", block(4), attrs.evolve(block(3, AnswerKind.LOWER), shapes=np.array([[4, 4]])))
    (counts,) = json.loads(cli("db", "stats", path, "--json").stdout)["fingerprints"]
    everything = 17 * 17 * 15 * 19 * 21 * 27
    assert (counts["exact"], counts["lower"], counts["none"]) == (everything, everything, 0)


def test_an_empty_database(cli, refused, tmp_path):
    path = made(tmp_path / "a.db")
    assert "nothing is stored" in cli("db", "stats", path).stdout
    assert cli("db", "export", path).stdout == '{"morello database": 9}\n'
    assert "0 of its answers" in cli("db", "verify", path).stdout
    pytest.importorskip("matplotlib")
    refused(cli("db", "stats", path, "--plot", str(tmp_path / "a.png")), "no table 1")


@pytest.mark.slow
def test_plot(cli, solved, refused, tmp_path):
    pytest.importorskip("matplotlib")
    picture = tmp_path / "a.png"
    for options in ((), ("--table", "3", "--axes", "n,L1")):
        assert cli("db", "stats", solved, "--plot", str(picture), *options).exit_code == 0
        assert picture.read_bytes().startswith(b"\x89PNG")
        picture.unlink()
    refused(cli("db", "stats", solved, "--plot", str(picture), "--table", "99"), "no table 99", "--tables")
    refused(cli("db", "stats", solved, "--plot", str(picture), "--axes", "x,y"), "'x,y' are no two axes", "VRF", code=2)
    refused(cli("db", "stats", solved, "--plot", str(tmp_path / "none" / "a.png")), "cannot write")


def test_plot_without_matplotlib(cli, solved, refused, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    refused(cli("db", "stats", solved, "--plot", str(tmp_path / "a.png")), "plots need matplotlib", "morello[plot]")
    monkeypatch.undo()
    refused(cli("db", "stats", solved, "--axes", "m,n"), "give --plot too", code=2)


def test_verify(cli, solved):
    result = cli("db", "verify", solved, "--sample", "5", "--seed", "1")
    assert result.exit_code == 0, result.output
    assert "is not damaged; 5 of its answers were solved again" in result.stdout


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (block(99), "stored is cost 99 with peak [0, 0, 0, 0, 0, 0] by `tile [1, 0]`, solved cost"),
        (block(99, AnswerKind.LOWER), "stored is a cost of at least 99, solved cost"),
        (block(0, AnswerKind.NONE), "stored is no program, solved cost"),
    ],
)
def test_verify_reports_faults(cli, refused, tmp_path, wrong, words):
    path = made(tmp_path / "a.db", wrong)
    refused(cli("db", "verify", path), "FillZero(2×2, (f32, L1, row_major), serial) within", words, "hint:")


def test_verify_reports_damage(cli, refused, solved):
    with sqlite3.connect(solved) as connection:
        connection.execute("UPDATE tables SET crc = crc + 1")
    refused(cli("db", "verify", solved), "damaged: ", "table 'FillZero 3", "table 'Move", "checksum", "hint:")
    refused(cli("db", "stats", solved), "is damaged", "morello db verify")
    refused(cli("db", "export", solved, "-o", f"{solved}.json"), "is damaged")
    assert not Path(f"{solved}.json").exists()


def test_export_and_import(cli, solved, tmp_path):
    text, copy = str(tmp_path / "a.json"), str(tmp_path / "b.db")
    assert cli("db", "export", solved, "-o", text).output == ""
    assert cli("db", "import", "--trust", copy, text).output == ""
    assert cli("db", "export", copy).stdout == Path(text).read_text(encoding="utf-8")
    # Twice changes nothing.
    assert cli("db", "import", copy, text).output == ""
    assert cli("db", "export", copy).stdout == Path(text).read_text(encoding="utf-8")


def test_import_of_a_pipe_and_of_standard_input(cli, solved, tmp_path):
    text = cli("db", "export", solved).stdout
    os.mkfifo(tmp_path / "pipe")
    with ThreadPoolExecutor(1) as pool:
        written = pool.submit((tmp_path / "pipe").write_text, text, "utf-8")
        assert cli("db", "import", "--trust", str(tmp_path / "a.db"), str(tmp_path / "pipe")).output == ""
        written.result()
    CliRunner(catch_exceptions=False).invoke(main, ["db", "import", "--trust", str(tmp_path / "b.db")], input=text)
    assert [cli("db", "export", str(tmp_path / name)).stdout for name in ("a.db", "b.db")] == [text, text]


HEAD = '{"morello database": 9}'
PRINT = '{"fingerprint": "f", "target": "t", "levels": "RF:64/4/16 L1:32768/64/8"}'
TABLE = '{"table": "FillZero 1: f32 L1 layout[0] c1"}'
BOX = '{"kind": "exact", "sizes": [[2, 8]], "limits": [[0, 8], [0, 64]], "cost": "1/2", "step": "tile [1]"}'


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], ":1: no text"),
        (["{}"], ":1: not an exported database"),
        (["[]"], ":1: a line is a JSON object"),
        (["[" * 10**5], ":1: it is nested deeper than 50 levels"),
        ([HEAD, PRINT.replace('"t"', '"\u2028"'), TABLE, BOX], ":4: a text is not one line"),
        ([HEAD, PRINT, TABLE, BOX.replace("[2, 8]", "[2, 8.5]")], ":4: sizes and limits are integers"),
        ([HEAD, PRINT, TABLE, BOX.replace("[0, 8]", "[0, 1e999]")], ":4: 1e999 is not a finite number"),
        ([HEAD, PRINT, TABLE, BOX.replace("[0, 8]", f"[0, {10**19}]")], ":4: sizes and limits are integers"),
        ([HEAD, PRINT, TABLE, BOX.replace("[0, 8]", f"[0, {'9' * 10**6}]")], ":4: a number has 1,000,000 digits"),
        (['{"morello database": 8}'], ":1: not an exported database of format 9"),
        ([HEAD, "{"], ":2: "),
        ([HEAD, BOX], ":2: a rectangle before"),
        ([HEAD, PRINT, BOX], ":3: a rectangle before"),
        ([HEAD, PRINT, TABLE, BOX.replace("exact", "right")], ":4: no 'RIGHT'"),
        ([HEAD, PRINT, TABLE, BOX.replace("[0, 64]", "[0, 63]")], "are not in normal form"),
        ([HEAD, PRINT, TABLE, BOX.replace(", [0, 64]", "")], ":4: a rectangle has a range for each"),
        ([HEAD, PRINT, TABLE, BOX.replace("[2, 8]", "[8, 2]")], ":4: a range ends before"),
        ([HEAD, PRINT, TABLE, BOX.replace("[2, 8]", "[0, 2]")], ":4: sizes are at least 1"),
        ([HEAD, PRINT, TABLE, BOX.replace("[2, 8]", "[2, 7]").replace("1/2", "1/1")], ":4: a size is out of range"),
        ([HEAD, PRINT, TABLE, BOX.replace("[2, 8]", "[2, 8], [1, 1]")], ":4: a rectangle has a range for each"),
        ([HEAD, PRINT, TABLE, BOX.replace("tile [1]", "tile [1]\\n")], ":4: a text is not one line"),
        ([HEAD, PRINT, TABLE, BOX.replace('"}', '", "unverified": 1}')], "`unverified` is true or false"),
        ([HEAD, PRINT, TABLE.replace("layout[0]", "\\u001b"), BOX], ":4: a text is not one line"),
        ([HEAD, PRINT.replace("/4/", "/5/"), TABLE, BOX], ":4: 'RF:64/5/16 L1:32768/64/8' are not levels"),
        ([HEAD, PRINT.replace("/8", ""), TABLE, BOX], "are not levels"),
        ([HEAD, PRINT, TABLE, BOX.replace("1/2", "2/4")], ":4: a cost is not a fraction"),
        ([HEAD, PRINT, TABLE, BOX.replace("1/2", "1")], ":4: a cost is a fraction"),
        ([HEAD, PRINT, TABLE, BOX.replace("1/2", f"{2**53 - 1}/1")], ":4: a cost is more than 9,007,199,254,740,991"),
        ([HEAD, PRINT, TABLE, BOX.replace("1/2", "9" * 30 + "/1")], ":4: "),
        ([HEAD, PRINT, TABLE, BOX.replace("1/2", "1/3")], ":4: a cost is not whole"),
        ([HEAD, PRINT, TABLE, BOX.replace(', "step": "tile [1]"', "")], ":4: an answer has no step"),
        (
            [HEAD, PRINT, TABLE, BOX.replace("exact", "lower").replace("[0, 64]", "[64, 64]")],
            ":4: an answer without a program",
        ),
    ],
)
def test_text_that_is_no_database(cli, refused, tmp_path, lines, words):
    path = tmp_path / "bad.json"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    refused(cli("db", "import", str(tmp_path / "a.db"), str(path)), f"error: {path}", words, "morello db export")
    assert not (tmp_path / "a.db").exists()


def test_import_of_many_answers_that_contradict_each_other(cli, refused, tmp_path):
    """Of the 44,850 pairs, few are collected."""
    boxes = [BOX.replace("[2, 8]", "[3, 9]").replace("1/2", f"{cost}/1") for cost in range(1, 301)]
    (tmp_path / "bad.json").write_text("\n".join([HEAD, PRINT, TABLE, *boxes]), encoding="utf-8")
    result = cli("db", "import", str(tmp_path / "a.db"), str(tmp_path / "bad.json"))
    refused(result, ": 100 or more answers contradict others, so nothing was stored", "3 within", "morello db verify")


def test_import_of_many_rectangles_that_intersect(cli, refused, tmp_path, monkeypatch):
    monkeypatch.setattr("morello.db.boxes._MOST_INTERSECTIONS", 1000)
    path = tmp_path / "many.json"
    boxes = [BOX.replace("tile [1]", f"tile [{size}]") for size in range(1, 34)]
    path.write_text("\n".join([HEAD, PRINT, TABLE, *boxes[1:]]), encoding="utf-8")
    assert cli("db", "import", str(tmp_path / "a.db"), str(path)).output == ""
    path.write_text("\n".join([HEAD, PRINT, TABLE, *boxes]), encoding="utf-8")
    result = cli("db", "import", str(tmp_path / "b.db"), str(path))
    refused(result, "rectangles of a table intersect more than 1,000 times", "store fewer at once")


@pytest.mark.slow
def test_export_to_a_reader_that_goes_away(cli, tmp_path):
    path, db = tmp_path / "many.json", str(tmp_path / "a.db")
    boxes = [BOX.replace("[2, 8]", f"[{size}, {size}]").replace("1/2", "1/1") for size in range(3, 2003, 2)]
    path.write_text("\n".join([HEAD, PRINT, TABLE, *boxes]), encoding="utf-8")
    assert cli("db", "import", db, str(path)).output == ""
    command = [sys.executable, "-m", "morello", "db", "export", db]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout
        assert running.stderr
        running.stdout.readline()
        running.stdout.close()
        assert running.stderr.read() == ""


def test_import_of_databases(cli, refused, tmp_path):
    one = made(tmp_path / "one.db", block(4))
    two = made(tmp_path / "two.db", attrs.evolve(block(8), shapes=np.array([[4, 2]])))
    for name, files in {"a.db": (one, two), "b.db": (two, one), "c.db": (one, two, one)}.items():
        assert cli("db", "import", str(tmp_path / name), *files).output == ""
    texts = {cli("db", "export", str(tmp_path / name)).stdout for name in ("a.db", "b.db", "c.db")}
    assert len(texts) == 1
    assert '"sizes": [[2, 4], [2, 2]]' in texts.pop()
    before = cli("db", "export", one).stdout
    other = made(tmp_path / "other.db", block(5), attrs.evolve(block(9), shapes=np.array([[16, 16]])))
    refused(cli("db", "import", one, two, other), "contradict", "2×2 within", "EXACT 4 and EXACT 5")
    assert cli("db", "export", one).stdout == before


def test_imported_answers_are_unverified_until_recomputed(cli, refused, solved, tmp_path):
    marked = str(tmp_path / "marked.db")
    assert cli("db", "import", marked, solved).output == ""
    (counts,) = json.loads(cli("db", "stats", marked, "--json").stdout)["fingerprints"]
    assert counts["unverified"] == counts["rectangles"] > 3
    assert '"unverified": true}' in cli("db", "export", marked).stdout
    first = cli("db", "verify", marked, "--recompute", "--limit", "2")
    assert (first.exit_code, "2 unverified rectangles are right, 0 wrong" in first.stdout) == (0, True)
    assert f"{counts['rectangles'] - 2} are left" in first.stdout
    assert cli("db", "verify", marked, "--recompute").exit_code == 0
    assert cli("db", "export", marked).stdout == cli("db", "export", solved).stdout
    refused(cli("db", "verify", marked, "--limit", "2"), "give --recompute too", code=2)


@pytest.mark.parametrize(
    ("wrong", "words"), [(block(99), "stored is cost 99"), (block(0, AnswerKind.NONE), "no program")]
)
def test_wrong_imported_answers_are_listed_and_removed(cli, refused, tmp_path, wrong, words):
    path = str(tmp_path / "a.db")
    assert cli("db", "import", path, made(tmp_path / "theirs.db", wrong)).output == ""
    refused(cli("db", "verify", path, "--recompute"), "FillZero(2×2", words, "1 wrong and removed", "hint:")
    assert "nothing is stored" in cli("db", "stats", path).stdout or '"kind"' not in cli("db", "export", path).stdout


@pytest.mark.slow
def test_prune(cli, tmp_path):
    path = made(tmp_path / "a.db", block(4), attrs.evolve(block(3, AnswerKind.LOWER), shapes=np.array([[4, 4]])))
    other = attrs.evolve(TARGET, kernels=TARGET.kernels[1:])
    SpecStore(path).add(other, [block(7)])
    assert "(not as installed)" in cli("db", "stats", path).stdout
    assert "dropped 1 fingerprints and 1 rectangles" in cli("db", "prune", path, "--yes").stdout
    assert "dropped 0 fingerprints and 1 rectangles" in cli("db", "prune", path, "--lower", "--yes").stdout
    assert "dropped 0 fingerprints and 0 rectangles" in cli("db", "prune", path).stdout
    (counts,) = json.loads(cli("db", "stats", path, "--json").stdout)["fingerprints"]
    assert (counts["rectangles"], counts["lower"]) == (1, 0)
    assert "is not damaged" in cli("db", "verify", path, "--sample", "0").stdout


def test_prune_lists_and_confirms(cli, monkeypatch, tmp_path):
    path = made(tmp_path / "a.db", block(4), attrs.evolve(block(3, AnswerKind.LOWER), shapes=np.array([[4, 4]])))
    SpecStore(path).add(attrs.evolve(TARGET, kernels=TARGET.kernels[1:]), [block(7)])
    before = cli("db", "export", path).stdout
    shown = cli("db", "prune", path, "--lower", "--dry-run").stdout
    assert "bounds" in shown
    assert "x86_avx2 (not as installed)" in shown
    unconfirmed = cli("db", "prune", path, "--lower")
    assert (unconfirmed.exit_code, "give --yes to drop it, or --dry-run" in unconfirmed.stderr) == (1, True)
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda self: self.name == "<stdin>")
    monkeypatch.setattr("click.confirm", lambda question: False)
    assert cli("db", "prune", path, "--lower").stdout == shown
    assert cli("db", "export", path).stdout == before
    monkeypatch.setattr("click.confirm", lambda question: True)
    assert "dropped 1 fingerprints and 2 rectangles" in cli("db", "prune", path, "--lower").stdout


def test_prune_waits_for_plugins_to_be_mended(cli, refused, monkeypatch, tmp_path):
    left_out = Disabled(PluginInfo("other", "", ""), None, MorelloError("it fails"))
    monkeypatch.setattr(installed(), "disabled", [left_out])
    refused(cli("db", "prune", made(tmp_path / "a.db", block(4)), "--yes"), "plugins are disabled", "other", "repair")


@pytest.mark.slow
def test_a_faulty_target_stops_only_prune(cli, refused, monkeypatch, tmp_path):
    faulty = TargetPlugin(info=attrs.evolve(TARGET.info, name="faulty"))
    plugin = importlib.import_module("morello_x86_avx2.plugin").PLUGIN
    registry = Registry.of(x86_avx2=plugin, faulty=faulty)
    monkeypatch.setattr("morello.api.databases.installed", lambda: registry)
    path = made(tmp_path / "a.db", block(4))
    shown = cli("db", "stats", path)
    assert ("x86_avx2" in shown.stdout, "(not as installed)" in shown.stdout) == (True, False)
    assert (
        "warning: going on without target faulty: plugin 'faulty', target faulty: a target has at least" in shown.stderr
    )
    refused(cli("db", "prune", path, "--yes"), "error: plugin 'faulty', target faulty: a target has")


@pytest.mark.parametrize("name", ["stats", "verify", "export", "prune"])
def test_files_that_are_no_database(cli, refused, write, tmp_path, name):
    refused(cli("db", name, str(tmp_path / "none.db")), "does not exist", "none.db")
    refused(cli("db", name, write()), "is not a database", "hint:")
    refused(cli("db", name, str(tmp_path)), "error: ")
    refused(cli("db", name, "default"), "switched off")


def test_import_needs_its_sources(cli, refused, tmp_path):
    refused(cli("db", "import", str(tmp_path / "a.db"), str(tmp_path / "none.db")), "none.db")
    refused(cli("db", "import", str(tmp_path / "a.db"), str(tmp_path / "none.json")), "none.json")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    refused(cli("db", "import", str(tmp_path / "a.db"), str(tmp_path / "bytes")), "bytes:1: not UTF-8")
    refused(cli("db", "import", str(tmp_path / "a.db"), "/dev/zero"), "/dev/zero:1: a line has more than 64 MiB")
    assert not (tmp_path / "a.db").exists()


def test_the_default_database(cli, write, tmp_path):
    folder = tmp_path / "cache"
    own = {"MORELLO_DB": "", "MORELLO_CACHE_DIR": str(folder)}
    assert "searched" in cli("explain", write(), **own).stdout
    assert (folder / "specs.db").exists()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert "solved before" in cli("explain", write(), **own).stdout
    assert "searched" in cli("explain", write(), "--no-db", **own).stdout
    assert "searched" in cli("explain", write(), **{**own, "MORELLO_DB": "off"}).stdout
    assert "searched" in cli("explain", write(), **{**own, "MORELLO_DB": str(tmp_path / "other.db")}).stdout
    assert "solved before" in cli("explain", write(), "--db", str(tmp_path / "other.db"), **own).stdout
    assert str(folder / "specs.db") in cli("db", "stats", "default", **own).stdout


def test_db_or_no_db(cli, refused, write, tmp_path):
    refused(cli("explain", write(), "--no-db", "--db", str(tmp_path / "a.db")), "exclude each other", code=2)


@pytest.mark.parametrize("trouble", ["folder", "no database", "newer", "damaged"])
def test_a_default_database_that_cannot_be_used(cli, write, tmp_path, trouble):
    path = tmp_path / "specs.db"
    text = "spec one = Matmul(1×1×1×1, GL, GL, GL, serial)\nspec two = FillZero(4, GL)\n"
    own = {"MORELLO_DB": str(path)}
    if trouble == "folder":
        (tmp_path / "file").touch()
        own = {"MORELLO_DB": str(tmp_path / "file" / "specs.db")}
    elif trouble == "no database":
        path.write_bytes(b"something else" * 100)
    else:
        assert cli("explain", write(text), **own).exit_code == 0
        change = "PRAGMA user_version = 99" if trouble == "newer" else "UPDATE tables SET crc = crc + 1"
        with sqlite3.connect(path) as connection:
            connection.execute(change)
    result = cli("explain", write(text), **own)
    assert result.exit_code == 0, result.output
    assert result.stdout.count("searched") == 2
    assert result.stderr.count("warning: going on without a database: ") == 1
    assert "hint" in result.stderr


def test_a_database_of_an_earlier_format_is_set_aside(cli, write, tmp_path):
    path = tmp_path / "specs.db"
    assert cli("explain", write(), "--db", str(path)).exit_code == 0
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 8")
    result = cli("explain", write(), "--db", str(path))
    assert "searched" in result.stdout
    words = f"warning: database {path} has format 8, not 9: renamed to specs.db.old-1, and made again"
    assert result.stderr.splitlines()[0] == words


@pytest.mark.slow
def test_results_that_cannot_be_saved_are_printed(cli, write, solved, monkeypatch):
    def full(self: SpecStore, *_: object, **__: object) -> None:
        with self.file.messages():
            raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(SpecStore, "add_tables", full)
    text = "spec one = Move(1×8, GL, L1)\nspec two = FillZero(4, GL)\n"
    result = cli("explain", write(text), "--db", solved)
    assert result.exit_code == 0, result.output
    assert result.stdout.count("searched") == 2
    assert result.stderr.count("warning: answers are not saved: database") == 1


def test_a_damaged_database_of_an_option_is_an_error(cli, refused, write, solved):
    with sqlite3.connect(solved) as connection:
        connection.execute("UPDATE tables SET crc = crc + 1")
    refused(cli("explain", write(BYTES), "--db", solved), "is damaged", "delete the file")
