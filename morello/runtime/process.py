"""Runs a program as a process group of its own, so that a hang can be ended with all that it started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs


@attrs.frozen
class Outcome:
    """What a process left: exit code (negative for a signal), standard output and standard error."""

    code: int
    out: str
    err: str


def run(
    command: Sequence[str], timeout: float, cwd: Path | None = None, environment: Mapping[str, str] | None = None
) -> Outcome:
    """Run `command` for at most `timeout` seconds; `environment` is added to this process's own.

    Raises TimeoutError after having killed the whole group, and OSError for a program that cannot be started.
    """
    with subprocess.Popen(
        list(command),
        cwd=cwd,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
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
    return Outcome(process.returncode, out, err)
