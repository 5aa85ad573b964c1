"""`morello compile`: every kind of output, and replay of the schedule."""

import os
import resource
import shutil
import subprocess
from pathlib import Path

import pytest

from morello.build.toolchain import find_compiler
from tools.faults.disks import in_child

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_c_by_default(cli, write):
    result = cli("compile", write())
    assert result.exit_code == 0
    assert "void one(const float *restrict lhs" in result.stdout
    assert result.stderr == ""


@pytest.mark.parametrize(
    ("emit", "words"),
    [
        ("c", "void one("),
        ("header", "#ifndef MORELLO_ONE_H"),
        ("impl", "RegisterTile"),
        ("schedule", "schedule one {"),
    ],
)
def test_every_kind_of_text(cli, write, tmp_path, emit, words):
    shown = cli("compile", write(), "--emit", emit, FORCE_COLOR="1")
    assert shown.exit_code == 0
    assert "\x1b" not in shown.stdout
    assert words in shown.stdout
    out = tmp_path / "out"
    written = cli("compile", write(), "--emit", emit, "-o", str(out))
    assert (written.exit_code, written.output) == (0, "")
    assert out.read_bytes() == shown.stdout_bytes


@pytest.mark.parametrize(
    ("name", "words"), [("a.c", "void one("), ("a.h", "#ifndef"), ("a.spec", "schedule one {"), ("a", "void one(")]
)
def test_the_suffix_determines_the_output(cli, write, tmp_path, name, words):
    assert cli("compile", write(), "-o", str(tmp_path / name)).exit_code == 0
    assert words in (tmp_path / name).read_text(encoding="utf-8")


def test_an_unknown_suffix_is_refused(cli, refused, write, tmp_path):
    out = tmp_path / "x.xyz"
    refused(cli("compile", write(), "-o", str(out)), "unknown suffix '.xyz'", ".c, .h, .spec, .o, .a, .so, .s", code=2)
    assert cli("compile", write(), "-o", str(out), "--emit", "impl").exit_code == 0


def test_names_that_are_not_utf_8(cli, write, tmp_path):
    out = os.fsdecode(os.fsencode(tmp_path / "caf") + b"\xe9.c")
    assert cli("compile", write(), "-o", out).exit_code == 0
    assert b'#include "caf\xe9.h"\n' in Path(out).read_bytes()


def test_a_library_is_written_whole_or_not_at_all(cli, write, tmp_path):
    path, library = write(target="reference_c"), tmp_path / "lib"
    assert cli("compile", path, "-d", str(library)).exit_code == 0
    most = max(one.stat().st_size for one in library.iterdir())
    shutil.rmtree(library)

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most - 1, most - 1))
        result = cli("compile", path, "-d", str(library))
        assert "error: cannot write" in result.stderr

    assert in_child(limited) == ""
    assert not library.exists()


def test_shared_object_and_header_link_into_a_program(cli, write, tmp_path):
    path = write("spec one = FillZero(4, GL)\n", target="reference_c")
    assert cli("compile", path, "-o", str(tmp_path / "one.so")).exit_code == 0
    assert cli("compile", path, "-o", str(tmp_path / "one.h")).exit_code == 0
    program = tmp_path / "main.c"
    program.write_text('#include "one.h"\nint main(void) { float x[4] = {1, 2, 3, 4}; one(x); return x[3] != 0; }\n')
    command = [*find_compiler().command, str(program), str(tmp_path / "one.so"), "-o", str(tmp_path / "main")]
    subprocess.run(command, check=True)
    assert subprocess.run([tmp_path / "main"]).returncode == 0


def test_a_file_of_c_includes_the_header_that_is_written_beside_it(cli, write, tmp_path):
    path = write("spec one = FillZero(4, GL)\n", target="reference_c")
    assert cli("compile", path, "-o", str(tmp_path / "zero.c")).exit_code == 0
    assert '#include "zero.h"\n' in (tmp_path / "zero.c").read_text(encoding="utf-8")
    assert (tmp_path / "zero.h").read_bytes() == cli("compile", path, "--emit", "header").stdout_bytes
    command = [*find_compiler().command, "-std=c11", "-Wall", "-Wextra", "-Werror", "-c", "zero.c"]
    subprocess.run(command, cwd=tmp_path, check=True)
    # Printed C is self-contained.
    assert '#include "' not in cli("compile", path).stdout


def test_an_unwritable_header_is_reported_before_the_search(cli, write, tmp_path):
    (tmp_path / "one.h").mkdir()
    result = cli("compile", write(), "-o", str(tmp_path / "one.c"))
    assert result.exit_code == 1
    assert "one.h: it is a directory" in result.stderr
    assert not (tmp_path / "one.c").exists()


def test_output_replaces_an_existing_file(cli, write, tmp_path):
    real, link = tmp_path / "real.c", tmp_path / "link.c"
    real.write_text("old")
    link.symlink_to(real)
    assert cli("compile", write(), "-o", str(link)).exit_code == 0
    assert "void one(" in real.read_text(encoding="utf-8")
    assert link.is_symlink()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["link.c", "link.h", "real.c", "test.spec"]


def _round_trip(cli, tmp_path: Path, path: str, *options: str) -> None:
    spec = str(tmp_path / "scheduled.spec")
    source = cli("compile", path, *options)
    assert source.exit_code == 0
    assert cli("compile", path, *options, "--emit", "schedule", "-o", spec).exit_code == 0
    again = cli("compile", spec)
    assert again.stdout_bytes == source.stdout_bytes
    assert "nothing to search" in cli("explain", spec).stdout
    assert cli("compile", spec, "--emit", "schedule").stdout_bytes == Path(spec).read_bytes()


@pytest.mark.parametrize(
    "spec",
    [
        "Matmul(1×1×1×1, GL, GL, GL, serial)",
        "(Matmul(1×1×1×1, GL, GL, GL, serial), [64, 512, 256, 0, 0, 0])",
        "Move(2×3, (f32, GL, row_major), (f32, GL, col_major))",
        "Move(2×2, (bf16, L1, row_major, ua, c0), (bf16, L1, row_major))",
        "FillZero(4×4, GL)",
    ],
)
def test_schedule_gives_the_same_c_again(cli, write, tmp_path, spec):
    _round_trip(cli, tmp_path, write(f"spec one = {spec}\n"))


@pytest.mark.parametrize("name", ["figure1", "gemm_6x16"])
def test_schedule_of_examples_gives_the_same_c_again(cli, tmp_path, name):
    _round_trip(cli, tmp_path, str(EXAMPLES / f"{name}.spec"))


def test_schedule_of_a_file_with_several_specs(cli, write, tmp_path):
    path = write("spec one = Matmul(1×1×1×1, GL, GL, GL)\nspec zero = FillZero(4×4, GL)\n")
    assert cli("compile", path, "--emit", "schedule", "-o", str(tmp_path / "all.spec")).exit_code == 0
    for name in ("one", "zero"):
        again = cli("compile", str(tmp_path / "all.spec"), "--spec", name)
        assert again.stdout_bytes == cli("compile", path, "--spec", name).stdout_bytes


def test_target_option_overrides_the_file(cli, write):
    assert "in plain loops" in cli("compile", write(), "--target", "reference_c").stdout


def test_without_a_search_programs_have_holes(cli, write, tmp_path):
    path = write("spec one = Matmul(1×4×4×4, L1, L1, L1)\nschedule one { to_accum; synthesize }\n")
    tree = cli("compile", path, "--no-search", "--emit", "impl")
    assert (tree.exit_code, tree.stderr) == (0, "")
    assert "hole: MatmulAccum(1×4×4×4, L1, L1, L1)" in tree.stdout
    assert "/* hole: (MatmulAccum(1×4×4×4, " in cli("compile", path, "--no-search").stdout
    assert "synthesize" not in cli("compile", path, "--no-search", "--emit", "schedule").stdout
    for output in (["-o", str(tmp_path / "one.so")], ["-d", str(tmp_path / "lib")]):
        refused = cli("compile", path, "--no-search", *output)
        assert refused.exit_code == 1
        assert refused.stderr.startswith(
            "error: one has 2 holes: FillZero(1×4×4, L1), MatmulAccum(1×4×4×4, L1, L1, L1)"
        )
        assert "`synthesize`" in refused.stderr
    assert "hole" not in cli("compile", path).stdout


def test_no_compiler_is_needed_for_c(cli, write):
    assert cli("compile", write(), MORELLO_CC="no-such-compiler").exit_code == 0
    result = cli("compile", write(), "--emit", "so", "-o", write(name="x.so"), MORELLO_CC="no-such-compiler")
    assert result.exit_code == 1
