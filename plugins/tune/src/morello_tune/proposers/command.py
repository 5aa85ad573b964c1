"""command: any program that reads a prompt and writes an answer."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from asyncio.subprocess import PIPE
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import attrs

from morello.build.toolchain import timeout_seconds
from morello.errors import MorelloError
from morello_tune.interface import Proposer, ProposerSession, TuningTask
from morello_tune.proposers.language import LanguageModel, LanguageSession, Unanswered

#: The environment variables with the command and its seconds; characters of answers, and of errors, that are read.
VARIABLE, TIMEOUT = "MORELLO_TUNE_COMMAND", "MORELLO_TUNE_TIMEOUT"
_LARGEST, _SHOWN = 1 << 20, 300


@attrs.define
class CommandModel(LanguageModel):
    """Runs a command for each prompt: the conversation on its standard input, the answer on its standard output."""

    command: Sequence[str]
    seconds: float
    _runs: int = attrs.field(default=0, init=False)

    def facts(self) -> Mapping[str, Any]:
        return {"runs": self._runs}

    async def answer(self, system: str, texts: Sequence[str]) -> str:
        self._runs += 1
        name, prompt = f"`{shlex.join(self.command)}`", "\n\n---\n\n".join([system, *texts])
        try:
            process = await asyncio.create_subprocess_exec(
                *self.command, stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True
            )
        except OSError as error:
            rule = f"{name} cannot be started: {error.strerror or error}"
            raise MorelloError(rule, f"set {VARIABLE} to another command") from error
        try:
            async with asyncio.timeout(self.seconds):
                out, err = await process.communicate(prompt.encode())
        except TimeoutError:
            rule = f"{name} ran for {self.seconds:.3g} s"
            raise Unanswered(rule, f"give it more seconds with {TIMEOUT}") from None
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        if process.returncode:
            text = " ".join(err.decode("utf-8", "replace").split())[:_SHOWN]
            rule = f"{name} ended with exit code {process.returncode}: {text}"
            raise Unanswered(rule, "run it by hand with a prompt on its standard input")
        return out[:_LARGEST].decode("utf-8", "replace")


def _start(task: TuningTask) -> ProposerSession:
    given, seconds = os.environ.get(VARIABLE, ""), timeout_seconds(TIMEOUT)
    try:
        command = shlex.split(given)
    except ValueError as error:
        raise MorelloError(f"{VARIABLE} is {given!r}: {error}", "write it as a shell takes it") from error
    if not command:
        raise MorelloError("the proposer command needs a command", f"set {VARIABLE} to one")
    return LanguageSession(task, CommandModel(command, seconds))


COMMAND = Proposer(
    name="command",
    start=_start,
    description=f"the program in {VARIABLE}: it reads a prompt from standard input, and writes an answer",
)
