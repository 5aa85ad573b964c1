"""Completion in shells: the scripts, and completions of each kind of word."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from morello.cli.app import main

#: The program as shells see it: by its name.
PROGRAM = '#!/bin/sh\nexec "{python}" -c "from morello.cli import main; main()" "$@"\n'
#: The actions of bash when these words are typed and the key is pressed.
PRESS = """
eval "$(_MORELLO_COMPLETE=bash_source morello)"
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_morello_completion morello
printf '%s\\n' "${COMPREPLY[@]}"
"""


def completions(**variables: str) -> list[str]:
    """Return the lines that the program prints for a shell."""
    result = CliRunner().invoke(main, prog_name="morello", env=variables)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout.splitlines()


def offered(shell: str, *words: str) -> list[str]:
    """Return the completions in a shell after `words`, whose last one is incomplete."""
    position = words[-1] if shell == "fish" else str(len(words))
    return completions(
        _MORELLO_COMPLETE=f"{shell}_complete", COMP_WORDS=" ".join(["morello", *words]), COMP_CWORD=position
    )


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(shell: str) -> None:
    assert f"_MORELLO_COMPLETE={shell}_complete" in "\n".join(completions(_MORELLO_COMPLETE=f"{shell}_source"))


def test_commands() -> None:
    assert offered("bash", "compi") == ["plain,compile"]
    assert offered("zsh", "tar") == ["plain", "targets", "List the installed targets and their parts."]
    assert offered("fish", "db", "pr")[0].partition("\t")[0] in ("plain", "plain,prune")
    assert offered("bash", "--vers") == ["plain,--version"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("compile", "--target", "x86_avx5"), ["plain,x86_avx512"]),
        (("targets", "reference"), ["plain,reference_c"]),
        (("targets", "new-"), ["plain,new-kernel"]),
        (("targets", "test", "reference"), ["plain,reference_c"]),
        (("compile", "exam"), ["file,exam"]),
        (("compile", "a.spec", "-d", "li"), ["dir,li"]),
        (("run", "a.spec", "--pro"), ["plain,--profile", "plain,--prove"]),
        (("compile", "a.spec", "--emit", "sch"), ["plain,schedule", "plain,scheme"]),
        (("db", "stats", "def"), ["plain,default"]),
        (("db", "stats", "sol"), ["file,sol"]),
    ],
)
def test_words(words: tuple[str, ...], expected: list[str]) -> None:
    assert offered("bash", *words) == expected


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_bash_offers_them(tmp_path: Path) -> None:
    program = tmp_path / "morello"
    program.write_text(PROGRAM.format(python=sys.executable))
    program.chmod(0o755)
    own = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    command = ["bash", "-c", PRESS, "bash", "morello", "compile", "--target", "x86"]
    done = subprocess.run(command, capture_output=True, text=True, env=own, timeout=60)
    assert done.stdout.split() == ["x86_amx", "x86_avx2", "x86_avx512"], done.stderr
