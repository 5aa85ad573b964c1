"""Compilers that misbehave."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], str]:
    """Makes an executable shell script, such as a compiler that misbehaves."""

    def write(body: str) -> str:
        path = tmp_path / "fakecc"
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return str(path)

    return write
