"""Runners: commands that run programs elsewhere, such as an emulator or another machine."""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO

import attrs

from morello.build.process import ProcessResult, run
from morello.build.toolchain import architecture, is_foreign, timeout_seconds
from morello.errors import ToolchainError
from morello.host import missing_features
from morello.kernels.machine import TargetInfo

_VARIABLE = "MORELLO_RUNNER"
#: Commands that are shells of other machines, and the step there to a folder for programs: Android has no /tmp.
_REMOTE, _FOLDER = ("ssh", "adb"), "cd /data/local/tmp 2>/dev/null || cd /tmp"
#: The line with which a program reports that it runs, and the most bytes that may come before it.
_HELLO, _NOISE = b"morello runs\n", 1 << 16
#: Seconds in which a program ends by itself.
_GRACE = 1.0
_EXAMPLES = "`qemu-ARCHITECTURE` of the package qemu-user, `ssh HOST` or `adb shell`"


@attrs.frozen
class Runner:
    """A command that runs programs: a prefix such as `qemu-aarch64 -cpu max`, or `ssh HOST` or `adb shell`.

    Without words, programs run as they are.
    """

    words: tuple[str, ...]

    def __str__(self) -> str:
        return shlex.join(self.words)

    @property
    def emulator(self) -> str:
        """Return the name of the emulator, whose times say nothing of a real CPU; empty without one."""
        names = map(os.path.basename, self.words)
        return next((name for name in names if name.startswith("qemu-")), "")

    @property
    def is_remote(self) -> bool:
        """Return whether it is a shell of another machine, to which programs are copied."""
        return os.path.basename(self.words[0]) in _REMOTE if self.words else False


def find_runner(info: TargetInfo, command: str | None = None) -> Runner | None:
    """Return the runner of a target's programs: `command`, else the environment's MORELLO_RUNNER, else the target's.

    A target has one only for machines of another architecture: there, it is the first that is installed. Returns None
    without one. Raises ToolchainError for a command that does not exist.
    """
    for origin, text in (("--runner", command), (_VARIABLE, os.environ.get(_VARIABLE))):
        if text:
            return _requested(text, origin)
    installed = (shlex.split(text) for text in (info.runners if is_foreign(info) else ()))
    return next((Runner(tuple(words)) for words in installed if shutil.which(words[0])), None)


def is_native(info: TargetInfo) -> bool:
    """Return whether programs of a target run on this machine without a runner."""
    return not is_foreign(info) and not missing_features(info.cpu_features)


def missing_here(info: TargetInfo, features: Iterable[str], command: str | None = None) -> list[str]:
    """Return the CPU features that programs of a target need, with these `features`, and this machine lacks.

    With a runner, there are none: what its machine has is unknown. Raises ToolchainError if the programs need one.
    """
    return [] if require_runner(info, command) else missing_features((*info.cpu_features, *features))


def require_runner(info: TargetInfo, command: str | None = None) -> Runner | None:
    """Return the runner of a target's programs, None for this process. Raises ToolchainError if they need one."""
    runner = find_runner(info, command)
    if runner is None and is_foreign(info):
        raise no_runner(info)
    return runner


def timing_runner(info: TargetInfo, command: str | None = None) -> Runner | None:
    """Return the runner of a target's programs where their times count, None for this process.

    Raises ToolchainError for an emulator, and if the programs cannot run here.
    """
    runner = require_runner(info, command)
    if runner and runner.emulator:
        raise ToolchainError(
            f"`{runner}` is an emulator, whose times say nothing of a CPU", "use a real machine: --runner 'ssh HOST'"
        )
    return runner


def _requested(text: str, origin: str) -> Runner:
    hint = f"give {origin} a command that runs programs: {_EXAMPLES}"
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ToolchainError(f"{origin} is {text!r}, which is not a command: {error}", hint) from error
    if not words or shutil.which(words[0]) is None:
        raise ToolchainError(f"the runner {text!r} ({origin}) does not exist", hint)
    return Runner(tuple(words))


def no_runner(info: TargetInfo) -> ToolchainError:
    """Return the error for a target whose programs cannot run here."""
    own, named = architecture(""), " or ".join(f"`{one}`" for one in info.runners)
    there = f"{info.name} is for {architecture(info.triple)}, and this machine is {own}"
    hint = f"install {named}, or name another runner" if named else "name a runner"
    return ToolchainError(
        f"{there}, so its programs need a runner", f"{hint} with --runner or {_VARIABLE}: {_EXAMPLES}"
    )


class ProgramEnded(Exception):
    """A program ended during a call, or was ended after so many seconds: `late`, else None."""

    def __init__(self, result: ProcessResult, late: float | None):
        super().__init__(result, late)
        self.result, self.late = result, late

    @property
    def how(self) -> str:
        """Return the end in words."""
        code = self.result.code
        if self.late is not None:
            return f"does not end: it ran for {self.late:g} s"
        if code >= 0:
            return f"ended with exit code {code}"
        with contextlib.suppress(ValueError):
            return f"was ended by {signal.Signals(-code).name}"
        return f"was ended by signal {-code}"

    @property
    def hint(self) -> str:
        """Return a remedy."""
        if self.late is not None:
            return "MORELLO_CC_TIMEOUT (seconds) gives it more time, if it only takes long"
        if self.result.code in (-signal.SIGILL, 128 + signal.SIGILL):
            return "the CPU there may lack instructions that the target's code needs"
        return "the emitter or a microkernel is probably wrong"


class Session:
    """A process that runs a program of `runner.c`; it starts at the first call, and again after one that ended it."""

    def __init__(
        self,
        runner: Runner,
        program: Path,
        environment: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
    ):
        self._runner, self._program, self._arguments = runner, program, arguments
        self._environment = os.environ | (environment or {})
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        self._end = lambda: None

    def call(self, request: Sequence[bytes], sizes: Sequence[int]) -> list[bytes]:
        """Send a request, and return the parts of the answer, which have these sizes.

        Raises ToolchainError if the program does not start, and ProgramEnded if it ends or takes too long.
        """
        seconds = timeout_seconds()
        with self._lock:
            late = threading.Event()
            timer = threading.Timer(seconds, lambda: late.set() or _end(self._process))
            timer.start()
            try:
                streams = self._streams()
                for part in request:
                    streams[0].write(part)
                streams[0].flush()
                return [_read(streams[1], size) for size in sizes]
            except (EOFError, BrokenPipeError):
                raise ProgramEnded(self._result(), seconds if late.is_set() else None) from None
            except BaseException:
                self.close()
                raise
            finally:
                timer.cancel()

    def close(self) -> None:
        """End the process."""
        self._end()
        self._process = None

    def _streams(self) -> tuple[IO[bytes], IO[bytes]]:
        process = self._process or self._started()
        assert process.stdin
        assert process.stdout
        return process.stdin, process.stdout

    def _started(self) -> subprocess.Popen[bytes]:
        """Start the program. Raises ToolchainError."""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        process = self._process = subprocess.Popen(
            self._command(),
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )
        self._end = weakref.finalize(self, _close, process, self._errors, os.getpid())
        assert process.stdout
        left, line = _NOISE, b""
        while line != _HELLO:
            line = process.stdout.readline(left)
            left -= len(line)
            if not line:
                done = self._result()
                said = done.excerpt() or f"  exit code {done.code}"
                raise ToolchainError(
                    f"the runner `{self._runner}` did not start the program:\n{said}",
                    "it runs a program that is built for the target, and passes on its input and output",
                )
        return process

    def _command(self) -> list[str]:
        """Return the command that runs the program; it is copied to another machine first. Raises ToolchainError."""
        words, name = self._runner.words, f"./morello-{secrets.token_hex(8)}"
        if not self._runner.is_remote:
            return [*words, str(self._program), *self._arguments]
        with self._program.open("rb") as file:
            script = f"{_FOLDER}; umask 077; cat > {name} && chmod 700 {name}"
            copied = run([*words, script], timeout_seconds(), stdin=file)
        if copied.code:
            raise ToolchainError(
                f"the runner `{self._runner}` cannot copy a program:\n{copied.excerpt()}",
                f"`{self._runner} true` should succeed without a question",
            )
        return [*words, f"{_FOLDER}; {name}; code=$?; rm -f {name}; exit $code"]

    def _result(self) -> ProcessResult:
        """Return the end of the process and what it wrote to standard error."""
        process, errors = self._process, self._errors
        assert process
        assert process.stdin
        assert errors
        with contextlib.suppress(OSError):
            process.stdin.close()
        code = process.wait()
        errors.seek(0)
        said = errors.read().decode(errors="replace")
        self.close()
        return ProcessResult(code, "", said)


def _read(stream: IO[bytes], size: int) -> bytes:
    """Return so many bytes. Raises EOFError."""
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return data


def _end(process: subprocess.Popen[bytes] | None) -> None:
    """End a process with its children."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if process:
            os.killpg(process.pid, signal.SIGKILL)


def _close(process: subprocess.Popen[bytes], errors: IO[bytes], owner: int) -> None:
    """End a process, at best by ending its input, unless another one, that forked this one, owns it."""
    if os.getpid() != owner:
        return
    with contextlib.suppress(subprocess.TimeoutExpired, OSError):
        if process.stdin:
            process.stdin.close()
        process.wait(_GRACE)
    _end(process)
    if process.stdout:
        process.stdout.close()
    errors.close()
    process.wait()
