"""Runs the quick tests of tools with those of everything else."""

from __future__ import annotations

import sys

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out slow tests of tools, which take minutes, unless the command line names `tools`."""
    command = getattr(config, "workerinput", {"mainargv": sys.argv})["mainargv"]
    if any("tools" in argument for argument in command[1:]):
        return
    slow = [one for one in items if "tools/tests" in one.path.as_posix() and one.get_closest_marker("slow")]
    config.hook.pytest_deselected(items=slow)
    items[:] = [one for one in items if one not in slow]
