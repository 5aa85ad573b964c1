"""Calls of the package onnx, which may hang or crash on hostile models, in a process with limits of time and memory.

The process runs this file alone, without Morello. Calls and answers are pickles on its standard input and output.
"""

from __future__ import annotations

import atexit
import importlib
import math
import os
import pickle
import resource
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

#: The status of a process whose memory is too little.
_NO_MEMORY = 3


class CallError(Exception):
    """An error that a function raises."""


class ProcessEnded(CallError):
    """The end of a process before it answered."""


class Worker:
    """A process, started when it is needed, for calls of so many seconds on a CPU.

    Its memory is limited to these bytes and four times those that a call reads.
    """

    def __init__(self, seconds: int = 30, size: int = 3 << 30):
        self._seconds, self._size, self._lock = seconds, size, threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def start(self) -> None:
        """Start the process if it does not run."""
        if self._process and self._process.poll() is None and self._owner == os.getpid():
            return
        command = [sys.executable, "-P", __file__, str(self._seconds), str(self._size)]
        # One thread: each reserves memory.
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        pipe, null = subprocess.PIPE, subprocess.DEVNULL
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=null, env=environment)
        self._owner = os.getpid()
        atexit.register(self.stop)

    def stop(self) -> None:
        """End the process."""
        if self._process and self._owner == os.getpid():
            self._process.kill()
            self._process.communicate()
        self._process = None
        atexit.unregister(self.stop)

    def call(self, function: str, *given: Any, **named: Any) -> Any:
        """Return what a function of the package returns, by its name. Raises CallError."""
        with self._lock:
            self.start()
            process = self._process
            assert process
            assert process.stdin
            assert process.stdout
            try:
                pickle.dump(pickle.dumps((function, given, named), 5), process.stdin, 5)
                process.stdin.flush()
                fault, result = pickle.load(process.stdout)
            except (EOFError, BrokenPipeError, pickle.UnpicklingError):
                status = process.wait()
                names = {
                    -signal.SIGXCPU: f"takes more than {self._seconds} seconds",
                    _NO_MEMORY: "takes too much memory",
                }
                reason = names.get(status, f"crashes (status {status})")
                raise ProcessEnded(f"{function} of the package onnx {reason}") from None
            except BaseException:
                self.stop()  # an interrupted call: the next one must not get its answer
                raise
        if fault:
            raise CallError(fault)
        return result


def _evaluated(model: Any, given: dict[str, Any]) -> list[Any]:
    """Return the outputs of a model by ONNX's reference semantics."""
    evaluator = importlib.import_module("onnx.reference").ReferenceEvaluator
    return evaluator(model).run(None, given)


def _function(name: str) -> Any:
    """Return a function of this file, or of a module of the package."""
    if name == "evaluated":
        return _evaluated
    module, _, name = name.rpartition(".")
    return getattr(importlib.import_module(f"onnx.{module}"), name)


def _limit(seconds: int, size: int) -> None:
    """Limit the time and the memory of the next call."""
    used = math.ceil(time.process_time())
    resource.setrlimit(resource.RLIMIT_CPU, (used + seconds, resource.RLIM_INFINITY))
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    with suppress(ValueError):  # macOS limits no memory
        resource.setrlimit(resource.RLIMIT_AS, (size if most == resource.RLIM_INFINITY else min(size, most), most))


def _main(seconds: int, size: int) -> None:
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # the package may print
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    importlib.import_module("onnx")
    while True:
        try:
            data = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            name, given, named = pickle.loads(data)
            paths = [Path(one) for one in given if isinstance(one, str)]
            _limit(seconds, size + 4 * (len(data) + sum(one.stat().st_size for one in paths)))
            answer = "", _function(name)(*given, **named)
        except MemoryError:
            sys.exit(_NO_MEMORY)
        except Exception as error:
            answer = str(error).strip() or type(error).__name__, None
        pickle.dump(answer, out, 5)
        out.flush()


if __name__ == "__main__":
    _main(*map(int, sys.argv[1:]))
