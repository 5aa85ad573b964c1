"""Packages whose names are imported at their first use: imports take long, and Ctrl-C must be handled before them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence


def lazy(package: str, modules: Mapping[str, Sequence[str]]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package.

    `modules` lists names by the module that defines them; the last module of a name counts.
    """
    module_of = {name: module for module, names in modules.items() for name in names}

    def attribute(name: str) -> object:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if name == "__version__":
            from importlib.metadata import version

            return version(package)
        from importlib import import_module

        value = getattr(import_module(module_of[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return attribute, lambda: sorted({*vars(sys.modules[package]), *module_of})
