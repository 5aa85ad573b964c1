"""`morello sensitivity`: its table and JSON, and what goes wrong."""

import importlib
import json
from typing import Any

import pytest

SPEC = "spec one = Matmul(1×64×512×128, (f32, GL), (f32, GL), (f32, GL), serial)\n"
FEW = ("--samples", "8", "--profile", "base")


def test_the_table_agrees_with_json(cli, write):
    path = write(SPEC)
    result = cli("sensitivity", path, *FEW)
    assert result.exit_code == 0, result.stderr
    (told,) = json.loads(cli("sensitivity", path, *FEW, "--json").stdout)
    shown = {tuple(line.split()[:2]): line.split() for line in result.stdout.splitlines() if line.endswith("%")}
    assert len(told["inputs"]) == 9
    assert (told["samples"], told["seed"], told["of"]) == (8, 0, "bound")
    for one in told["inputs"]:
        assert float(shown[one["name"], one["kind"]][6]) == pytest.approx(100 * max(0, one["in_all"]), abs=0.51)


def test_tiles(cli, write):
    result = cli("sensitivity", write(SPEC), "--of", "tiles", *FEW)
    assert result.exit_code == 0, result.stderr
    assert "first loop in L1" in result.stdout


def test_what_goes_wrong(cli, write, refused, monkeypatch):
    refused(cli("sensitivity", write(SPEC), "--samples", "7"), "7 samples are no power of two")
    genuine = importlib.import_module

    def missing(name: str, *rest: Any) -> Any:
        if name.startswith("SALib"):
            raise ImportError(name)
        return genuine(name, *rest)

    monkeypatch.setattr("morello_bounds.sensitivity.importlib.import_module", missing)
    refused(
        cli("sensitivity", write(SPEC), *FEW), "sensitivity needs SALib", "pip install 'morello-bounds[sensitivity]'"
    )
