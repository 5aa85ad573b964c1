"""`morello precompute` fills a database for all sizes up to a bound."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from morello.api import precomputing
from morello.api.precomputing import groups, parse_sizes
from morello.db.answers import AnswerKind
from morello.db.store import SpecStore
from morello.errors import MorelloError
from morello.frontend.parser import families, family, parse_spec
from morello.plugins.registry import installed
from morello.search.budget import MemoryLimitReached
from morello.search.session import SearchSession

TRANSPOSE = "Move({}, GL, (GL, col_major), serial)"
PACK = "Move({}, GL, (GL, layout[0, 1, 0p4]), serial)"


@pytest.fixture
def fill(cli, tmp_path):
    """Runs the command on x86_avx2 and a database, whose path it gives."""

    def run(what: str, bound: str, *more: str, code: int = 0) -> tuple[str, SpecStore]:
        db = str(tmp_path / "solved.db")
        result = cli("precompute", what, "--up-to", bound, "--db", db, "--target", "x86_avx2", *more)
        assert result.exit_code == code, result.output
        return result.output, SpecStore(db)

    return run


@pytest.mark.parametrize(("spec", "bound", "axes"), [(TRANSPOSE, "2x3", ([1, 2], [1, 2, 3]))])
def test_all_sizes_are_answered(fill, avx2, spec, bound, axes):
    said, store = fill(spec.format("1×1"), bound)
    assert "6 Specs, 0 solved before, 6 now, in " in said
    for shape in itertools.product(*axes):
        goal = parse_spec(spec.format("×".join(map(str, shape))), avx2)
        impl = store.program(avx2, goal)
        assert impl is not None
        assert impl == SearchSession(avx2).synthesize(goal)


def test_products_without_a_batch(fill):
    said, store = fill("Matmul(1×1×1, L1, L1, L1, serial)", "1x2x2")
    assert "4 Specs, 0 solved before, 4 now" in said
    goal = parse_spec("Matmul(1×1×2×2, L1, L1, L1, serial)", installed().target("x86_avx2"))
    assert store.program(installed().target("x86_avx2"), goal) is not None
    said, _ = fill("Matmul(1×1×1, L1, L1, L1, serial)", "1x1x2x2", code=1)
    assert "one size for each of m×k×n" in said


def test_compiles_without_a_search(fill, cli, write, monkeypatch):
    _, store = fill(TRANSPOSE.format("1×1"), "4x4")

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("searched again")

    monkeypatch.setattr("morello.search.session.SearchSession.solve_all", fail)
    for shape in ("1×1", "2×4", "4×4"):
        path = write(f"spec move = {TRANSPOSE.format(shape)}\n")
        assert cli("compile", path, "--db", str(store.path)).exit_code == 0
    said, _ = fill(TRANSPOSE.format("1×1"), "4x4")
    assert "9 Specs, 9 solved before, 0 now" in said


def test_a_larger_bound_goes_on(fill):
    fill(TRANSPOSE.format("1×1"), "2x2")
    said, _ = fill(TRANSPOSE.format("1×1"), "2x4")
    assert "6 Specs, 4 solved before, 2 now" in said


def test_interrupted_run_goes_on(fill, monkeypatch):
    monkeypatch.setattr(precomputing, "_TOGETHER", 2)
    solve_all, runs = SearchSession.solve_all, []

    def interrupt(self, specs):
        runs.append(len(specs))
        if len(runs) == 3:
            raise KeyboardInterrupt
        solve_all(self, specs)

    with monkeypatch.context() as patch:
        patch.setattr(SearchSession, "solve_all", interrupt)
        said, store = fill(TRANSPOSE.format("1×1"), "4x4", code=130)
    done = sum(runs[:2])
    assert f"interrupted: {done} of 9 goals are done; solved Specs are stored in {store.path}" in said
    said, _ = fill(TRANSPOSE.format("1×1"), "4x4")
    assert f"9 Specs, {done} solved before, {9 - done} now" in said


def test_specs_that_small_sizes_do_not_have_are_left_out(fill):
    """Strips of 4 do not divide 1 and 2."""
    said, _ = fill(PACK.format("4×4"), "4x2")
    assert "2 Specs" in said
    said, _ = fill(PACK.format("4×4"), "6x2", code=1)
    assert "layout[0, 1, 0p4]" in said


def test_specs_without_a_program_are_counted(fill, avx2):
    text = "(Matmul(1×1×1×1, GL, GL, GL, serial), [0, 0, 0, 0, 0, 1024])"
    said, store = fill(text, "1x1x1x1")
    assert "1 now (1 without a program)" in said
    entry = store.find(avx2, parse_spec(text, avx2))
    assert entry is None or entry.kind != AnswerKind.EXACT


def test_file_with_several_specs(cli, write, tmp_path):
    path = write("spec a = FillZero(4×4, GL)\nspec b = FillZero(4×4, L1)\nschedule b { tile [2, 2]; synthesize }\n")
    db = str(tmp_path / "solved.db")
    assert "18 Specs, 0 solved before" in cli("precompute", path, "--up-to", "4x4", "--db", db).stdout
    assert "9 Specs, 9 solved before" in cli("precompute", path, "--up-to", "4x4", "--spec", "b", "--db", db).stdout


@pytest.mark.parametrize(
    ("bound", "words"),
    [
        ("4", "1 sizes for the 2 dimensions of FillZero"),
        ("4x4x4", "3 sizes for the 2 dimensions"),
        ("4x", "is not a list of sizes"),
        ("4xfour", "is not a list of sizes"),
        ("-4x4", "is not a list of sizes"),
        ("0x4", "sizes are at least 1"),
        ("99999999999999x1", "bytes, more than 2^47"),
    ],
)
def test_bad_bounds(cli, write, refused, tmp_path, bound, words):
    path = write("spec zero = FillZero(4×4, GL)\n")
    refused(cli("precompute", path, f"--up-to={bound}", "--db", str(tmp_path / "solved.db")), "error: ", words)
    assert not (tmp_path / "solved.db").exists()


def test_too_many_sizes(cli, refused, tmp_path):
    text = f"FillZero({'×'.join('1' * 12)}, GL)"
    given = "--up-to", "x".join(["16"] * 12), "--target", "x86_avx2", "--db", str(tmp_path / "solved.db")
    refused(cli("precompute", text, *given), "more than 1,000,000")


def test_other_errors(cli, write, refused, tmp_path):
    path = write("spec zero = FillZero(4×4, GL)\n")
    db = "--up-to", "4x4", "--db", str(tmp_path / "solved.db")
    refused(cli("precompute", "FillZero(4×4, GL)", *db), "a Spec needs a target", "--target NAME")
    refused(cli("precompute", "FillZero(4×4", *db, "--target", "x86_avx2"), "SPEC:1:", "error:")
    refused(cli("precompute", path, *db, "--target", "z80"), "unknown target 'z80'", code=2)
    refused(cli("precompute", path, *db, "--spec", "zro"), "no Spec 'zro'", "did you mean 'zero'?", code=2)
    refused(cli("precompute", str(tmp_path / "none.spec"), *db), "cannot read")
    refused(
        cli("precompute", path, "--up-to", "4x4", MORELLO_DB="off"),
        "the default database is switched off",
        "give a path",
    )
    refused(cli("precompute", path, "--up-to", "4x4", "--db", path), "error: database")
    compose = write("spec two = Compose([Matmul, Matmul], [(1×4×4, GL), (1×4×4, GL), (1×4×4, GL), (1×4×4, GL)])\n")
    refused(cli("precompute", compose, *db, "--target", "x86_avx2"), "2 sizes for the 5 dimensions", "b0×m0×k0×n0×k1")
    refused(cli("precompute", "FillZero(4, GL)", *db, "--spec", "a", "--target", "x86_avx2"), "--spec", code=2)


def test_memory_is_limited(fill, monkeypatch):
    said, _ = fill(TRANSPOSE.format("1×1"), "4x4", "--memory", "1KiB", code=1)
    assert "takes more than 1,024 bytes of memory" in said
    assert "--memory" in said
    # Fewer Specs at once need less.
    solve_all, tried = SearchSession.solve_all, []

    def full(self, specs):
        tried.append(len(specs))
        if len(specs) > 2:
            raise MemoryLimitReached("too much")
        solve_all(self, specs)

    monkeypatch.setattr(SearchSession, "solve_all", full)
    said, _ = fill(TRANSPOSE.format("1×1"), "4x4")
    assert "9 Specs, 0 solved before, 9 now, in " in said
    assert max(tried) == 9


def test_specs_beyond_the_memory_are_reported(fill, monkeypatch):
    monkeypatch.setattr(precomputing, "_TOGETHER", 3)
    solve_all = SearchSession.solve_all

    def full(self, specs):
        if specs and specs[0].shape[0] == 4:
            raise MemoryLimitReached("too much")
        solve_all(self, specs)

    monkeypatch.setattr(SearchSession, "solve_all", full)
    said, _ = fill(TRANSPOSE.format("1×1"), "4x4", code=1)
    assert "9 Specs, 0 solved before, 6 now, in " in said
    assert "error: Move(4×4, " in said
    assert "and smaller Specs of its group: too much" in said


def test_an_unwritable_database_is_an_error(cli, refused, tmp_path, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise MorelloError("database: no space left")

    monkeypatch.setattr(SpecStore, "add", fail)
    given = "--up-to", "2x2", "--target", "x86_avx2", "--db", str(tmp_path / "solved.db")
    refused(cli("precompute", "FillZero(1×1, GL)", *given), "error: ", "no space left")


def test_groups_of_neighbours_begin_with_the_largest(avx2):
    one = family("Matmul(1×1×1×1, GL, GL, GL, serial)", avx2)
    shapes = [(1, m, k, n) for m in range(1, 9) for k in range(1, 9) for n in range(1, 9)]
    assert groups({one: shapes}, 1) == [(one, shapes)]
    found = [group for _, group in groups({one: shapes}, 2)]
    assert found == [shapes[start : start + 64] for start in range(448, -1, -64)]
    assert groups({}, 1) == []


def test_sizes_are_listed_by_ranges(cli, refused, fill):
    assert parse_sizes("8-24/8, 1-5/2,7") == [1, 3, 5, 7, 8, 16, 24]
    assert parse_sizes("2-4") == [2, 3, 4]
    said, _ = fill(TRANSPOSE.format("1×1"), "3x8", "--sizes", "8-24/8,1-5/2")
    assert "8 Specs, 0 solved before, 8 now" in said
    for text, words in (("0", "'0' is neither"), ("4-2", "has no sizes"), ("1-9000000", "too many"), ("a", "'a' is")):
        said, _ = fill(TRANSPOSE.format("1×1"), "4x4", "--sizes", text, code=1)
        assert words in said
    said, _ = fill(TRANSPOSE.format("1×1"), "4x7", "--sizes", "5", code=1)
    assert "no size is at most 4" in said


def test_families_of_several_ranks(cli, write, tmp_path):
    path = write("spec a = FillZero(4×4, GL)\nspec b = FillZero(8, GL)\n")
    given = "precompute", path, "--db", str(tmp_path / "solved.db"), "--up-to"
    assert "13 Specs, 0 solved before, 13 now" in cli(*given, "4x4", "--up-to", "8").stdout
    assert "2 sizes for the 1 dimensions" in cli(*given, "4x4").stderr


PRODUCT = "Matmul(1×1×1×1, GL, GL, GL, serial)"


@pytest.mark.slow
def test_several_processes_store_the_same(cli, tmp_path):
    found = []
    for jobs in ("1", "2"):
        db = str(tmp_path / f"{jobs}.db")
        given = "precompute", PRODUCT, "--up-to", "1x4x8x8", "--db", db, "--target", "x86_avx2", "--jobs", jobs
        assert "48 Specs, 0 solved before, 48 now" in cli(*given).stdout
        assert "48 Specs, 48 solved before, 0 now" in cli(*given).stdout
        avx2, store = installed().target("x86_avx2"), SpecStore(db)
        one = family(PRODUCT, avx2)
        shapes = itertools.product([1], [1, 2, 4], [1, 2, 4, 8], [1, 2, 4, 8])
        found.append([store.program(avx2, one.at(shape)) for shape in shapes])
    assert found[0] == found[1]
    assert None not in found[0]


@contextmanager
def precomputing_in_processes(*given: str) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """Yield a command with two workers, and these once they search."""
    command = [sys.executable, "-m", "morello", "precompute", PRODUCT, "--target", "x86_avx2", *given, "--jobs", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        started, workers = time.monotonic(), list[int]()
        while len(workers) < 2 and time.monotonic() < started + 60:
            time.sleep(0.1)
            children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
            workers = [int(one) for one in children if _searches(int(one))]
        assert len(workers) == 2
        yield running, workers


def _searches(process: int) -> bool:
    """Return whether a worker has begun: it has loaded the compiled search."""
    return "morello/search" in Path(f"/proc/{process}/maps").read_text()


SIZES = "--up-to", "1x48x48x48", "--sizes", "1-48"


@pytest.mark.slow
def test_tasks_of_killed_processes_begin_again(tmp_path):
    given = "--db", str(tmp_path / "solved.db"), "--up-to", "1x8x24x24", "--sizes", "1-24"
    with precomputing_in_processes(*given) as (running, workers):
        os.kill(workers[0], signal.SIGKILL)
        out, err = running.communicate(timeout=300)
    assert running.returncode == 0, err
    assert "4,608 Specs, 0 solved before, 4,608 now" in out


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_stored(tmp_path):
    db = tmp_path / "solved.db"
    given = "--db", str(db), *SIZES
    with precomputing_in_processes(*given) as (running, workers):
        while not SpecStore(db).has_any(installed().target("x86_avx2")):
            time.sleep(0.2)
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "of 110,592 goals are done; solved Specs are stored in" in err
    assert "Traceback" not in err
    assert not [one for one in workers if Path(f"/proc/{one}").exists()]


def test_families_keep_all_but_sizes(avx2):
    text = "target x86_avx2\nspec a = (Move(8×1, (f32, L1, c0, ua), (f32, GL, col_major)), [0, 0, 128, 0, 0, 1024])\n"
    (one,) = families(text)
    made = one.at((4, 16))
    assert made == parse_spec("(Move(4×16, (f32, L1, c0, ua), (f32, GL, col_major)), [0, 0, 128, 0, 0, 1024])", avx2)


def test_families_of_a_compose(avx2):
    text = "Compose([y = Add(h, x), h = Matmul(x, w)], [w: (1×{k}×{k}, L1), x: (1×{m}×{k}, GL), y: (1×{m}×{k}, GL)])"
    one = family(text.format(m=8, k=4), avx2)
    assert one.spec.logical.dims == ("i0_0", "i1_0", "i2_0")
    assert one.at((1, 16, 2)) == parse_spec(text.format(m=16, k=2), avx2)
