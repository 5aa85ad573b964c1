"""benchmarks/databases.py measures a file and a server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import databases
from tools.postgres import programs


@pytest.mark.slow
@pytest.mark.xdist_group("postgres")
def test_every_number_is_there(tmp_path: Path) -> None:
    if not programs():
        pytest.skip("PostgreSQL is not installed")
    options = [*"--kernels 1 --clients 2 --pieces 4 --json".split(), str(tmp_path / "all.json")]
    table = CliRunner(catch_exceptions=False).invoke(databases.main, options).stdout
    found = json.loads((tmp_path / "all.json").read_text())
    assert all(one["value"] > 0 for one in found)
    assert {one["place"] for one in found} == {"file", "server"}
    assert len(table.splitlines()) == 1 + len({(one["name"], one["clients"]) for one in found})
