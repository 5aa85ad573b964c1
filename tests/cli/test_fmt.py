"""`morello fmt`: files, standard input, --check, errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

USUAL = "target x86_avx2\nspec a = Relu(4×4, GL, GL)\n"
OTHER = "target x86_avx2\nspec a = Relu(4x4,GL,GL)\n"


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Return a file in another form, one in the usual form, and one with an error."""
    made = [tmp_path / f"{name}.spec" for name in ("other", "usual", "wrong")]
    for file, text in zip(made, (OTHER, USUAL, "spec"), strict=True):
        file.write_text(text, encoding="utf-8")
    return made


def test_files_are_written(cli, files):
    assert cli("fmt", *map(str, files[:2])).exit_code == 0
    assert [file.read_text(encoding="utf-8") for file in files[:2]] == [USUAL, USUAL]


def test_check_names_what_would_change(cli, files):
    done = cli("fmt", "--check", *map(str, files[:2]))
    assert done.exit_code == 1
    assert done.stderr == f"error: not in the usual form: {files[0]}\n  hint: morello fmt {files[0]}\n"
    assert files[0].read_text(encoding="utf-8") == OTHER
    assert cli("fmt", "--check", str(files[1])).exit_code == 0


def test_no_file_is_written_if_one_has_an_error(cli, files):
    assert cli("fmt", *map(str, files)).exit_code == 1
    assert files[0].read_text(encoding="utf-8") == OTHER


@pytest.mark.slow
def test_standard_input():
    command = [sys.executable, "-P", "-m", "morello", "fmt", "-"]
    assert subprocess.run(command, input=OTHER.encode(), stdout=subprocess.PIPE, check=True).stdout.decode() == USUAL
