"""A copy of a process tells what it finds, and starting one never loses an interrupt."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

from tools.children import forked

ROOT = Path(__file__).parents[2]


def test_a_copy_tells_what_it_finds() -> None:
    found = [1, 2]
    process, hears = forked(lambda says: says.send(found))
    assert hears.recv() == [1, 2]
    process.join()
    assert process.exitcode == 0


def test_an_interrupt_in_the_middle_of_a_fork_is_not_lost() -> None:
    program = """
        import os, signal
        from tools.children import forked

        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), signal.SIGINT))
        try:
            forked(lambda says: None)
        except KeyboardInterrupt:
            print("interrupted")
    """
    ended = subprocess.run(
        [sys.executable, "-c", dedent(program)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.stdout == "interrupted\n", ended.stderr
