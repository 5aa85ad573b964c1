"""Operators of ONNX, a family a file: functions that translate a node to nodes and views of a graph."""

import pkgutil
from functools import cache
from importlib import import_module


@cache
def load_operators() -> None:
    """Register the translations of all files."""
    for module in pkgutil.iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
