"""Runs what may fail in any way in a process of its own, forked from one that has imported everything."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import attrs

#: Seconds after which a process hangs.
PATIENCE = 60


@attrs.frozen
class Ending:
    """The end of a process: with a result, or `died` of what these words say."""

    result: Any
    died: str = ""


def forked(action: Callable[[], Any]) -> Ending:
    """Return what `action` gives (anything that JSON can say) in a process of its own."""
    hears, says = os.pipe()
    with tempfile.TemporaryFile() as errors:
        sys.stdout.flush()
        child = os.fork()
        if not child:
            _child(action, says, errors.fileno())
        os.close(says)
        with open(hears, "rb") as pipe:
            said = pipe.read()
        _, status = os.waitpid(child, 0)
        errors.seek(0)
        lines = errors.read().decode(errors="replace").splitlines()
    if status or not said:
        return Ending(None, _death(status, lines))
    return Ending(json.loads(said))


def _child(action: Callable[[], Any], says: int, errors: int) -> None:
    """Run `action`, write its result to the pipe, and exit without cleaning up."""
    code = 70
    try:
        signal.alarm(PATIENCE)
        os.dup2(errors, 2)
        found = json.dumps(action()).encode()
        while found:
            found = found[os.write(says, found) :]
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


def _death(status: int, lines: list[str]) -> str:
    """Say what a process died of: how it ended, and the line that says most."""
    words = "hung" if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM else ""
    if not words and os.WIFSIGNALED(status):
        words = f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
    telling = [line for line in lines if line.startswith(("Fatal", "terminate"))] or lines[-1:]
    return ": ".join([words or f"ended with {os.waitstatus_to_exitcode(status)}", *telling[:1]])
