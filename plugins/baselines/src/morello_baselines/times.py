"""Times libraries, each in a process of its own with as many threads as it is to use."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from types import MappingProxyType

import attrs

from morello.build import process
from morello.errors import MorelloError, UnknownName
from morello.ir.spec import LogicalSpec
from morello.run.timing import Times, measurement_seconds
from morello_baselines.calls import NotOffered
from morello_baselines.worker import TimingRequest

#: Libraries that programs can be compared with, and the package that each takes.
LIBRARIES: Mapping[str, str] = MappingProxyType({"numpy": "numpy", "torch": "torch", "onednn": "torch"})
#: Prefixes of the variables that set the number of threads.
_THREADS = ("OMP", "OPENBLAS", "MKL", "BLIS", "VECLIB_MAXIMUM")
#: Variables by which libraries are held to lesser CPUs and caches.
_HOLDING_BACK = (
    *("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "NPY_DISABLE_CPU_FEATURES", "MKL_ENABLE_INSTRUCTIONS"),
    *("ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY", "BLIS_ARCH_TYPE", "LIBXSMM_TARGET"),
)
#: Seconds that a library may take to start, and the factor by which its timing may exceed the request.
_START, _PATIENCE = 120.0, 20.0


@attrs.frozen
class BaselineReport:
    """Times of a library's calls for a Spec, in seconds: CPU time of the calling thread and wall-clock time.

    `call` is the overhead: the time of the same calls at the smallest sizes, CPU time if `threads` is 1, else
    wall-clock time. `note` names the variant of the call.
    """

    library: str
    version: str
    note: str
    cpu: Times
    wall: Times
    call: float
    threads: int

    @property
    def times(self) -> Times:
        """Return CPU times for one thread, wall-clock times for several."""
        return self.cpu if self.threads == 1 else self.wall

    @property
    def name(self) -> str:
        """Return the name of the library with the variant of the call."""
        return f"{self.library} ({self.note})" if self.note else self.library


def undisturbed() -> dict[str, str]:
    """Return this process's environment without what makes libraries use lesser kernels than the CPU has."""
    return {name: value for name, value in os.environ.items() if name not in _HOLDING_BACK}


def require(library: str) -> None:
    """Raise MorelloError for an unknown library, or one whose package is not installed."""
    if library not in LIBRARIES:
        raise UnknownName(f"unknown library {library!r}", "compare with numpy, torch, onednn or none")
    package = LIBRARIES[library]
    if find_spec(package) is None:
        what = f"cannot compare with {library}: {package} is not installed"
        raise MorelloError(what, f"pip install {package}, or compare with --against numpy or none")


def compare(
    logical: LogicalSpec, library: str, threads: int = 1, min_time: float = 0.3, repeats: int = 5, seed: int = 0
) -> BaselineReport:
    """Time the library's calls for a Spec on random data, in a process of its own.

    Raises NotOffered if the library has no equivalent call; MorelloError for a library that is not
    installed, or one that failed.
    """
    require(library)
    order = TimingRequest(library, logical, seed, threads, min_time, repeats, measurement_seconds(min_time, repeats))
    environment = {**undisturbed(), **{f"{name}_NUM_THREADS": str(threads) for name in _THREADS}}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    command = [sys.executable, "-P", "-m", "morello_baselines.worker", order.text()]
    try:
        outcome = process.run(command, _START + _PATIENCE * min_time, environment=environment)
    except TimeoutError as error:
        raise MorelloError(f"{library} did not end in time for {logical.op}", "leave it out: --against none") from error
    if outcome.code:
        raise MorelloError(f"{library} failed on {logical.op}:\n{outcome.excerpt()}", "leave it out: --against none")
    found = json.loads(outcome.out)
    if "none" in found:
        raise NotOffered(found["none"])
    cpu, wall = Times(tuple(found["cpu"])), Times(tuple(found["wall"]))
    return BaselineReport(library, found["version"], found["note"], cpu, wall, found["call"], threads)
