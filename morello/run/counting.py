"""Instructions that emulated programs execute, counted by a plugin of qemu."""

from __future__ import annotations

import re
import tempfile
from functools import cache
from pathlib import Path

from morello.build.library import build
from morello.build.process import run
from morello.build.toolchain import find_compiler, timeout_seconds
from morello.errors import ToolchainError
from morello.run.runner import Runner

_SOURCE = Path(__file__).with_name("instructions.c")
#: The first version of qemu without version 1 of its API for plugins; version 2 is the same for this one.
_API_2 = 9


def counting(runner: Runner, plugin: Path, file: str) -> Runner:
    """Return the runner with a plugin that counts instructions in a file of eight bytes."""
    return Runner((*runner.words, "-plugin", f"{plugin},count={file}"))


@cache
def counting_plugin(runner: Runner) -> Path | None:
    """Return the plugin that counts the instructions of a runner's programs; None if it is not a qemu with plugins."""
    if not runner.emulator or runner.is_remote:
        return None
    try:
        said = run([*runner.words, "--version"], timeout_seconds()).out
        found = re.search(r"version (\d+)", said)
        if found is None:
            return None
        version = 2 if int(found[1]) >= _API_2 else 1
        plugin = build({"instructions.c": _SOURCE.read_text("utf-8")}, [f"-DVERSION={version}"], find_compiler())
        with tempfile.NamedTemporaryFile(prefix="morello-count-") as file:
            file.write(b"\xff" * 8)
            file.flush()
            # There is no such program: qemu loads plugins first.
            run([*counting(runner, plugin, file.name).words, "/"], timeout_seconds())
            file.seek(0)
            return plugin if file.read() == bytes(8) else None
    except (OSError, TimeoutError, ToolchainError):
        return None
