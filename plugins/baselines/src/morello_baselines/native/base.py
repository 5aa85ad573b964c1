"""Baselines: each is a class that prepares problems, in a process of its own."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

import attrs
import numpy as np

from morello_baselines import NotOffered
from morello_baselines.native.problems import Problem

__all__ = ["PATIENCE", "Baseline", "NotInstalled", "NotOffered", "Prepared", "Runner", "unpinned"]

#: How long a baseline may take to prepare, and longer than its calls should take, before it is ended.
PATIENCE = 120.0


class NotInstalled(Exception):
    """The baseline is not installed; the message says why."""


#: The largest differences from float64 of results in types of 16 bits, by roundoff, relative to the largest value.
TOLERANCES = {"bf16": 2**-8, "f16": 2**-10}


@attrs.frozen
class Prepared:
    """A problem that is ready to run: seconds of n calls, and the output of the last call in its logical shape.

    `tolerance` is the largest difference from float64 that is allowed, relative to the largest value. `note` is shown.
    """

    run: Callable[[int], float]
    output: Callable[[], np.ndarray]
    note: str = ""
    tolerance: float = 1e-5
    facts: Mapping[str, float] = attrs.field(factory=dict)


class Runner(Protocol):
    """Prepares problems. Its constructor takes the options of its `Baseline` and raises NotInstalled."""

    def prepare(self, problem: Problem, inputs: list[np.ndarray], threads: int) -> Prepared:
        """Raise NotOffered for a problem that it does not do."""
        ...


@attrs.frozen
class Baseline:
    """A way to have problems computed: the runner's `module:class` and options, its class, its environment.

    `packs` says that weights are packed before the clock starts, `asked` that it takes part only when it is named.
    `patience` is how many seconds it may take to prepare a problem.
    """

    name: str
    runner: str
    group: str
    options: Mapping[str, str] = attrs.field(factory=dict)
    environment: Mapping[str, str] = attrs.field(factory=dict)
    packs: bool = False
    asked: bool = False
    patience: float = PATIENCE

    @property
    def ours(self) -> bool:
        return self.runner.startswith("morello_baselines.native.ours:")


@contextlib.contextmanager
def unpinned() -> Iterator[None]:
    """Search on all CPUs."""
    pinned = os.sched_getaffinity(0)
    os.sched_setaffinity(0, range(os.cpu_count() or 1))
    try:
        yield
    finally:
        os.sched_setaffinity(0, pinned)
