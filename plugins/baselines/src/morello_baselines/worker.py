"""A process that times a library, with its own environment: python -m morello_baselines.worker ORDER

ORDER is a pickled `TimingRequest`, in base64. It prints a line of JSON: times, or the reason why there are none.
"""

from __future__ import annotations

import base64
import contextlib
import importlib
import json
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import attrs

from morello.ir.spec import LogicalSpec
from morello_baselines.calls import CallLibrary, NotOffered, calls_for, least


@attrs.frozen
class TimingRequest:
    """A Spec to time with a library, in `repeats` measurements or more that take `min_time` seconds in all.

    Each lasts about `measurement` seconds.
    """

    library: str
    logical: LogicalSpec
    seed: int
    threads: int
    min_time: float
    repeats: int
    measurement: float

    def text(self) -> str:
        """Return it as an argument of a command."""
        return base64.b64encode(pickle.dumps(self)).decode("ascii")


def answer(order: TimingRequest) -> dict[str, Any]:
    """Return the times of the fastest variant; `none` holds the reason for a missing call."""
    try:
        found = [_timed(order, library, note) for library, note in _ways(order)]
    except NotOffered as error:
        return {"none": str(error)}
    return min(found, key=lambda one: min(one["wall" if order.threads > 1 else "cpu"]))


def _ways(order: TimingRequest) -> Iterator[tuple[CallLibrary, str]]:
    """Yield each variant of the library with its note."""
    if order.library == "numpy":
        from morello_baselines.numpy_calls import Numpy

        yield Numpy(), ""
        return
    from morello_baselines.torch_calls import OneDnn, Torch

    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(order.threads)
    with torch.inference_mode():
        if order.library == "onednn":
            yield OneDnn(), ""
            return
        for on in (True, False):
            with torch.backends.mkldnn.flags(enabled=on):
                yield Torch(), f"oneDNN {'on' if on else 'off'}"


def _timed(order: TimingRequest, library: CallLibrary, note: str) -> dict[str, Any]:
    calls = calls_for(order.logical, library, order.seed)
    nothing = calls_for(least(order.logical), library, order.seed)
    count, few = _count(calls.run, order.measurement), _count(nothing.run, order.measurement)
    spent, overhead = list[tuple[float, float]](), list[tuple[float, float]]()
    end = time.monotonic() + order.min_time
    while len(spent) < order.repeats or time.monotonic() < end:
        spent.append(seconds(calls.run, count))
        # In turn, so that both run at the same clock rate.
        overhead.append(seconds(nothing.run, few))
    cpu, wall = zip(*spent, strict=True)
    call = min(pair[order.threads > 1] for pair in overhead)
    module = importlib.import_module("numpy" if order.library == "numpy" else "torch")
    return {"cpu": cpu, "wall": wall, "call": call, "note": note, "version": module.__version__}


def _count(run: Callable[[], None], least: float) -> int:
    """Return the number of calls, a power of two, that last `least` seconds. Also warms up."""
    run()
    calls = 1
    while calls * seconds(run, calls)[1] < least:
        calls *= 2
    return calls


def seconds(run: Callable[[], None], calls: int) -> tuple[float, float]:
    """Return the seconds of a call: CPU time of this thread, and wall-clock time."""
    wall, cpu = time.perf_counter(), time.thread_time()
    for _ in range(calls):
        run()
    return (time.thread_time() - cpu) / calls, (time.perf_counter() - wall) / calls


def main() -> None:
    """Answer the order on the command line."""
    # Output of libraries must not precede the answer.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    import numpy as np

    with contextlib.closing(out), np.errstate(all="ignore"):
        out.write(json.dumps(answer(pickle.loads(base64.b64decode(sys.argv[1])))))


if __name__ == "__main__":
    # Pickle needs the class under its module's name.
    importlib.import_module("morello_baselines.worker").main()
