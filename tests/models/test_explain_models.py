"""`morello explain` of models in ONNX."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import attrs
import onnx
import pytest
from click.testing import CliRunner

from morello.api.goals import Goal
from morello.cli.app import main
from morello.search.budget import SearchBudget

TEXT = """
<ir_version: 8, opset_import: ["" : 17]>
branches (float[n, 16] x) => (float[n, 16] y) {
    low = Exp(x)
    sums = Softmax(low)
    high = Softmax(x)
    y = MatMul(sums, high)
}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "branches.onnx"
    onnx.save(onnx.parser.parse_model(TEXT), path)
    return path


def explained(*options: str) -> str:
    result = CliRunner(catch_exceptions=False).invoke(main, ["explain", *options])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.slow
def test_a_page_has_the_steps_and_their_kernels(path: Path) -> None:
    page = path.with_suffix(".html")
    explained(str(path), "--dim", "n=16", "--target", "x86_avx2", "--no-db", "--effort", "1", "--html", str(page))
    shown = page.read_text(encoding="utf-8")
    rows = re.findall(r'<tr id="s(\d)">.*?href="#k(\d)">(\w+)</a></th><td>(\w+)</td>.*<td>(.*)</td></tr>', shown)
    assert rows == [
        ("1", "1", "low", "Exp", "–"),
        ("2", "2", "sums", "Softmax", "1"),
        ("3", "2", "high", "Softmax", "–"),
        ("4", "3", "y", "Matmul", "2, 3"),
    ]
    assert shown.count('<section class="kernel"') == 3
    assert 'Steps that call it: <a href="#s2">2</a>, <a href="#s3">3</a>.' in shown


def test_dimensions_have_sizes(path: Path) -> None:
    def refused(*options: str) -> str:
        return CliRunner().invoke(main, ["explain", *options]).output

    assert "--dim n=1" in refused(str(path))
    assert "'n' is not a name and a size such as batch=1" in refused(str(path), "--dim", "n")
    path.with_suffix(".spec").write_text("target x86_avx2\nspec one = Relu(8×8, GL, GL, serial)\n", encoding="utf-8")
    assert "--dim is for models in ONNX" in refused(str(path.with_suffix(".spec")), "--dim", "n=1")


def test_threads_share_loops(path: Path) -> None:
    large = '<ir_version: 8, opset_import: ["" : 17]> m (float[1024, 256] x) => (float[1024, 256] y) { y = Relu(x) }'
    onnx.save(onnx.parser.parse_model(large), path)
    given = str(path), "--target", "x86_avx2", "--no-db", "--effort", "20000"
    assert [" parallel" in explained(*given, "--threads", n) for n in ("1", "2")] == [False, True]
    path.with_suffix(".spec").write_text("target x86_avx2\nspec one = Relu(8×8, GL, GL)\n", encoding="utf-8")
    refused = CliRunner().invoke(main, ["explain", str(path.with_suffix(".spec")), "--threads", "2"])
    assert "--threads is for models in ONNX" in refused.output


def test_explain_searches_as_build_does(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    budgets: dict[str, list[SearchBudget]] = {}
    search = Goal.synthesize

    def recorded(goal: Goal, db: Any, progress: Any, budget: SearchBudget, *more: Any) -> Goal:
        budgets.setdefault(goal.name, []).append(attrs.evolve(budget, memory=None))
        return search(goal, db, progress, attrs.evolve(budget, expansions=1), *more)

    monkeypatch.setattr(Goal, "synthesize", recorded)
    given = (str(path), "--dim", "n=16", "--target", "reference_c", "--no-db")
    explained(*given)
    result = CliRunner(catch_exceptions=False).invoke(main, ["build", *given, "-d", str(path.with_suffix(""))])
    assert result.exit_code == 0, result.output
    assert len(budgets) == 3
    assert all(first == second for first, second in budgets.values())
    assert len({first.expansions for first, _ in budgets.values()}) > 1
