"""Figures of matplotlib, an optional dependency."""

from __future__ import annotations

import importlib
from typing import Any

from morello.errors import MorelloError


def figures() -> Any:
    """Return the module matplotlib.figure. Raises MorelloError if matplotlib is not installed."""
    try:
        # Not imported by name: it is optional. Text stays text, and equal figures are equal files.
        importlib.import_module("matplotlib").rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "morello"})
        return importlib.import_module("matplotlib.figure")
    except ImportError as error:
        raise MorelloError("plots need matplotlib, which is not installed", "pip install 'morello[plot]'") from error


def save(figure: Any, path: str) -> None:
    """Write a figure to a file. Raises MorelloError on failure."""
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise MorelloError(f"cannot write {path}: {reason}", "name a .png file in a folder that exists") from error
