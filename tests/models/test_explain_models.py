"""`morello explain` of models in ONNX."""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import pytest
from click.testing import CliRunner

from morello.cli.app import main

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
