"""A process that runs one baseline: it reads lines of JSON on standard input and answers each with one.

    python -m harness.worker RUNNER OPTIONS CPUS THREADS

{"prepare": problem, "expected": file} returns the error of the result, {"calls": n} the seconds of n calls of the
problem that was prepared last.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import sys
import traceback
from typing import Any

import numpy as np
from morello_baselines.native.base import NotInstalled, NotOffered, Prepared, Runner
from morello_baselines.native.problems import difference

from harness.layers import LAYERS
from harness.limits import Limits
from harness.suite import PROBLEMS


class Session:
    """A baseline and its prepared problem."""

    def __init__(self, runner: str, options: dict[str, str], threads: int):
        module, name = runner.split(":")
        self._runner: Runner = getattr(importlib.import_module(module), name)(**options)
        self._threads = threads
        self._inputs: list[np.ndarray] = []
        self._prepared: Prepared | None = None

    def answer(self, order: dict[str, Any]) -> dict[str, Any]:
        if "prepare" in order:
            return self._prepare(order["prepare"], order["expected"])
        assert self._prepared is not None
        # Wake the threads, and fetch what other contenders evicted from caches.
        self._prepared.run(1)
        return {"seconds": self._prepared.run(order["calls"])}

    def _prepare(self, name: str, expected: str) -> dict[str, Any]:
        self._prepared = None
        problem = PROBLEMS.get(name) or LAYERS[name]
        self._inputs = problem.inputs()
        prepared = self._runner.prepare(problem, self._inputs, self._threads)
        prepared.run(1)
        error = difference(prepared.output(), np.load(expected))
        if not error <= prepared.tolerance:
            return {"wrong": f"differs from float64 by {error:.1e} of the largest value"}
        self._prepared = prepared
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return {"error": error, "note": prepared.note, "facts": {**prepared.facts, "peak_bytes": memory}}


def main(runner: str, options: str, cpus: str, threads: str) -> None:
    # Output of libraries must not mix with answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    os.sched_setaffinity(0, [int(cpu) for cpu in cpus.split(",")])

    def say(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    try:
        session: Any = Limits() if runner == "limits" else Session(runner, json.loads(options), int(threads))
    except NotInstalled as error:
        say({"missing": str(error)})
        return
    except Exception as error:
        say({"failed": f"{type(error).__name__}: {error}"})
        return
    say({"ready": True})
    for line in sys.stdin:
        try:
            say(session.answer(json.loads(line)))
        except NotOffered as error:
            say({"not_offered": str(error)})
        except Exception as error:
            traceback.print_exc()
            say({"failed": f"{type(error).__name__}: {error}"})


if __name__ == "__main__":
    main(*sys.argv[1:])
