"""command: any program that reads a prompt and writes an answer."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import attrs

from morello.build.toolchain import timeout_seconds
from morello.errors import MorelloError
from morello_tune.interface import Proposer, ProposerSession, TuningTask
from morello_tune.proposers.language import LARGEST, LanguageModel, LanguageSession, Unanswered

#: The environment variables with the command and its seconds, and the characters of errors.
VARIABLE, TIMEOUT = "MORELLO_TUNE_COMMAND", "MORELLO_TUNE_TIMEOUT"
_SHOWN = 300


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
            transport, run = await asyncio.get_running_loop().subprocess_exec(
                _Run, *self.command, start_new_session=True
            )
        except OSError as error:
            rule = f"{name} cannot be started: {error.strerror or error}"
            raise MorelloError(rule, f"set {VARIABLE} to another command") from error
        try:
            async with asyncio.timeout(self.seconds):
                stdin: Any = transport.get_pipe_transport(0)
                stdin.write(prompt.encode("utf-8", "replace"))
                stdin.write_eof()
                await run.ended
        except TimeoutError:
            rule = f"{name} ran for {self.seconds:.3g} s"
            raise Unanswered(rule, f"give it more seconds with {TIMEOUT}") from None
        finally:
            # With all that it has started, which may hold its pipes.
            with suppress(ProcessLookupError):
                os.killpg(transport.get_pid(), signal.SIGKILL)
            await run.exited
            transport.close()
        if len(run.output[1]) > LARGEST:
            raise Unanswered(f"{name} wrote more than {LARGEST >> 10} KiB", "let it write its answer only")
        if code := transport.get_returncode():
            text = " ".join(run.output[2].decode("utf-8", "replace").split())[:_SHOWN]
            rule = f"{name} ended with exit code {code}: {text}"
            raise Unanswered(rule, "run it by hand with a prompt on its standard input")
        return run.output[1].decode("utf-8", "replace")


class _Run(asyncio.SubprocessProtocol):
    """A run of a command: the first bytes of its `output`, and whether it has `exited`, and `ended` its output."""

    def __init__(self) -> None:
        self.output = {1: b"", 2: b""}
        self.exited, self.ended = asyncio.Future[None](), asyncio.Future[None]()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.output[fd] = (self.output[fd] + data)[: LARGEST + 1]
        if len(self.output[1]) > LARGEST:
            _set(self.ended)

    def process_exited(self) -> None:
        _set(self.exited)

    def connection_lost(self, exc: Exception | None) -> None:
        _set(self.ended)


def _set(event: asyncio.Future[None]) -> None:
    # An interrupt cancels those that are awaited.
    if not event.done():
        event.set_result(None)


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
