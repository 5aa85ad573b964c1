"""Worker processes: each is started once, and restarted if it hangs."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from morello_baselines.native.base import Baseline
from morello_baselines.times import undisturbed

_FOLDER = Path(__file__).resolve().parents[1]
#: Prefixes of the variables that set the number of threads of libraries.
_THREADS = ("OMP", "MKL", "OPENBLAS", "BLIS")
_START_SECONDS = 120.0
#: Waiting threads of a runner go to sleep soon, so that they do not disturb the next runner.
_SHARING = {"OMP_PROC_BIND": "close", "OMP_PLACES": "cores", "KMP_BLOCKTIME": "1", "OPENBLAS_THREAD_TIMEOUT": "20"}
#: Seconds until they sleep.
_PAUSE = 0.02


class Worker:
    """A process for one baseline, started when it is first needed. `cpus` are those that it may run on."""

    def __init__(self, baseline: Baseline, cpus: Sequence[int], threads: int):
        self.baseline = baseline
        self._arguments = (baseline.runner, json.dumps(dict(baseline.options)), ",".join(map(str, cpus)), str(threads))
        self._environment = {
            **undisturbed(),
            **{f"{name}_NUM_THREADS": str(threads) for name in _THREADS},
            **(_SHARING if threads > 1 else {}),
            **baseline.environment,
            "PYTHONPATH": str(_FOLDER),
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""
        self._pause = _PAUSE if threads > 1 else 0
        self.missing: str | None = None

    def ask(self, seconds: float, **order: Any) -> dict[str, Any]:
        """Return the answer to a request: `failed` if the process ends, `late` after `seconds`."""
        if self._process is None:
            first = self._start()
            if "ready" not in first:
                self.stop()
                self.missing = first.get("missing") or first.get("failed") or "does not start"
                return {"missing": self.missing}
        time.sleep(self._pause)
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            self.stop()
            return {"failed": "its process ended"}
        return self._answer(seconds)

    def stop(self) -> None:
        """End the process; the next order starts another."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _start(self) -> dict[str, Any]:
        command = [sys.executable, "-m", "harness.worker", *self._arguments]
        self._rest = b""
        self._process = subprocess.Popen(
            command,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if os.environ.get("BENCH_VERBOSE") else subprocess.DEVNULL,
        )
        return self._answer(_START_SECONDS)

    def _answer(self, seconds: float) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        deadline = time.monotonic() + seconds
        while b"\n" not in self._rest:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                self.stop()
                return {"late": seconds}
            chunk = os.read(self._process.stdout.fileno(), 1 << 16)
            if not chunk:
                self.stop()
                return {"failed": "its process ended"}
            self._rest += chunk
        line, self._rest = self._rest.split(b"\n", 1)
        return json.loads(line)
