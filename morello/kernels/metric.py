"""Metrics: what programs are measured by on targets where time says little, such as models of machines."""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True)
class Metric:
    """A count that a program's library keeps, of which less is better.

    `symbol` names the function of the library that returns the count so far, `uint64_t symbol(void)`: what a call adds
    to it in the calling thread is the call's. `unit` is the word for many of them.
    """

    name: str
    unit: str
    symbol: str
    description: str = ""
