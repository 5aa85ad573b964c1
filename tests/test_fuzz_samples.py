"""Samples of the long checks in `tools/`: each draws the same few cases every time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tool", "options", "expected"),
    [
        ("tools.fuzz.campaign", "--specs 8 --seconds 0.4 --seed 1", "8 of 8 Specs examined, 0 failed"),
        ("tools.fuzz.random_programs", "--count 12 --seed 1", "12 programs: 0 failed"),
        ("tools.fuzz.random_programs", "--count 8 --seed 2 --sanitize", "8 programs"),
    ],
)
def test_a_sample_passes(tool: str, options: str, expected: str, tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    command = [sys.executable, "-m", tool, *options.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert expected in done.stdout
    assert not [*tmp_path.rglob("*crash*")]
