"""Run a program in a process group of its own, so that a timeout ends it together with its children."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import attrs

#: Lines of an excerpt, and characters of each.
_FIRST, _LAST, _WIDTH = 10, 3, 300


@attrs.frozen
class ProcessResult:
    """The exit code of a process (negative for a signal), its standard output and standard error."""

    code: int
    out: str
    err: str

    def excerpt(self) -> str:
        """Return the first and last lines of its messages."""
        said = (self.err or self.out).strip().splitlines()
        more = len(said) - _FIRST - _LAST
        if more > 1:
            said = [*said[:_FIRST], f"({more:,} more lines)", *said[-_LAST:]]
        return "\n".join(f"  {_printable(line)}" for line in said)


def _printable(line: str) -> str:
    cut = line if len(line) <= _WIDTH else f"{line[:_WIDTH]}…"
    return "".join(each if each.isprintable() else " " if each == "\t" else "�" for each in cut)


def run(
    command: Sequence[str],
    timeout: float,
    cwd: Path | None = None,
    environment: Mapping[str, str] = os.environ,
    stdin: int | IO[bytes] = subprocess.DEVNULL,
) -> ProcessResult:
    """Run `command` for at most `timeout` seconds in an environment, by default this process's.

    Raises TimeoutError after killing the process group, and OSError for a program that cannot be started.
    """
    with subprocess.Popen(
        list(command),
        cwd=cwd,
        env=environment,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise TimeoutError(f"`{' '.join(command)}` ran for {timeout:g} s") from error
            raise
    return ProcessResult(process.returncode, out.decode(errors="replace"), err.decode(errors="replace"))
