"""The program as a process: Ctrl-C before and after the command itself, and streams that cannot be written."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

MORELLO = [sys.executable, "-m", "morello"]
#: Runs the program, and presses Ctrl-C when a module is looked for, or at the very end.
PRESSED = """
import atexit, os, signal, sys
class Press:
    def find_spec(self, name, path=None, target=None):
        if name == MOMENT:
            press()
def press():
    os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Press())
if MOMENT == "the end":
    atexit.register(press)
from morello.cli import main
main()
"""


def _handles(handler: signal.Handlers | Callable) -> Callable[[], object]:
    # Shells start background jobs with SIGINT ignored, and these tests may run in one.
    return lambda: signal.signal(signal.SIGINT, handler)


@pytest.mark.parametrize(
    "moment",
    [
        "morello.cli.app",
        "click",
        *(pytest.param(one, marks=pytest.mark.slow) for one in ("numpy", "morello.cli.commands.targets", "the end")),
    ],
)
def test_ctrl_c_outside_of_commands(moment: str) -> None:
    command = [sys.executable, "-c", f"MOMENT = {moment!r}\n{PRESSED}", "targets"]
    press = _handles(signal.default_int_handler)
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=press, timeout=60)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")
    assert bool(done.stdout) == (moment == "the end")


def test_ctrl_c_that_is_ignored() -> None:
    command = [sys.executable, "-c", f"MOMENT = 'click'\n{PRESSED}", "--version"]
    done = subprocess.run(
        command, capture_output=True, text=True, preexec_fn=_handles(signal.Handlers.SIG_IGN), timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_import_morello_imports_nothing_else() -> None:
    code = "import sys, morello, morello.cli\nassert not {'numpy', 'click', 'rich', 'cffi', 'lark'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
    names = "import morello\nassert callable(morello.goal) and morello.Goal and morello.__version__\nmorello.nothing"
    done = subprocess.run([sys.executable, "-c", names], capture_output=True, text=True)
    assert done.stderr.strip().endswith("AttributeError: module 'morello' has no attribute 'nothing'")


@pytest.mark.parametrize(
    "arguments",
    ["--version", *(pytest.param(one, marks=pytest.mark.slow) for one in ("--help", "cache --help", "targets"))],
)
def test_output_that_cannot_be_written(arguments: str) -> None:
    with open("/dev/full", "wb") as out:
        done = subprocess.run([*MORELLO, *arguments.split()], stdout=out, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (1, "error: standard output: No space left on device\n")


@pytest.mark.parametrize(("closed", "stderr"), [(1, "error: standard output: Bad file descriptor\n"), (2, "")])
def test_streams_that_are_closed(closed: int, stderr: str) -> None:
    done = subprocess.run(
        [*MORELLO, "--version"], capture_output=True, text=True, preexec_fn=lambda: os.close(closed), timeout=60
    )
    assert (done.returncode, done.stderr) == (1 if stderr else 0, stderr)
    assert bool(done.stdout) == (not stderr)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [("--version", 0), ("nosuch", 2), pytest.param("run /nowhere/a.spec", 1, marks=pytest.mark.slow)],
)
def test_messages_that_cannot_be_written(arguments: str, code: int) -> None:
    with open("/dev/full", "wb") as err:
        done = subprocess.run([*MORELLO, *arguments.split()], stdout=subprocess.PIPE, stderr=err, timeout=60)
    assert done.returncode == code
    assert bool(done.stdout) == (code == 0)


def test_help_imports_no_command() -> None:
    code = "import sys\nfrom morello.cli.app import main\nmain(['--help'], standalone_mode=False)\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert re.search("  precompute +Fill a database", done.stdout)
    assert not {"numpy", "rich", "lark", "morello.cli.commands.run"} & {*done.stdout.splitlines()[-1].split()}
