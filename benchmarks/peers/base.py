"""Peers: each is a class that prepares problems, in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import attrs
import numpy as np

from harness.problems import Problem

#: Peers that may use 256-bit vectors only, and those that may use all but matrix units.
CLASSES = ("avx2", "any")


class Missing(Exception):
    """Tells why a peer is not there."""


class NotOffered(Exception):
    """Tells why a peer does not do a problem."""


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
    """Prepares problems. Its constructor takes the options of its `Peer` and raises Missing."""

    def prepare(self, problem: Problem, inputs: list[np.ndarray], threads: int) -> Prepared:
        """Raise NotOffered for a problem that it does not do."""
        ...


@attrs.frozen
class Peer:
    """A way to have problems computed: the runner's `module:class` and options, its class, its environment.

    `packs` says that weights are packed before the clock starts.
    """

    name: str
    runner: str
    group: str
    options: Mapping[str, str] = attrs.field(factory=dict)
    environment: Mapping[str, str] = attrs.field(factory=dict)
    packs: bool = False

    @property
    def ours(self) -> bool:
        return self.runner.startswith("peers.ours:")
