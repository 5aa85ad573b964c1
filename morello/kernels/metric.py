"""Metrics: what programs are measured by on targets where time says little, such as models of machines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs


@attrs.frozen(kw_only=True)
class Metric:
    """A number that programs are measured by, of which less is better; `unit` is the word for many of it.

    Either the program's library counts: its function `uint64_t symbol(void)` returns the count so far, and what a call
    adds to it in the calling thread is the call's. Or `measure` gives the number, the same whenever it is asked: it is
    handed the `morello.runtime.Kernel`, which can be called, and knows its program, C and library.
    """

    name: str
    unit: str
    symbol: str = ""
    measure: Callable[[Any], float] | None = None
    description: str = ""
