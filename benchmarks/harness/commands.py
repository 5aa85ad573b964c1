"""Runs benchmarks as commands."""

from __future__ import annotations

from collections.abc import Callable

from morello.errors import MorelloError


def run(main: Callable[[], object]) -> None:
    """Run a command; print a MorelloError as one line."""
    try:
        main()
    except MorelloError as error:
        raise SystemExit(f"error: {error}") from error
