"""`morello import MODEL -o FILE` writes Specs that people schedule, and `morello build --schedules FILE` uses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import morello

MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
graph (float[4, 8] x) => (float[4, 8] y) {
    one = Relu(x)
    two = Abs(one)
    three = MatMul(two, w)
    four = Relu(three)
    y = MatMul(four, w)
}
"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    made = onnx.parser.parse_model(MODEL)
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((8, 8), np.float32), "w"))
    onnx.save(made, tmp_path / "net.onnx")
    return str(tmp_path / "net.onnx")


def test_specs_and_their_layers(cli, model, tmp_path):
    path = tmp_path / "net.spec"
    result = cli("import", model, "-o", str(path), "--target", "x86_avx2")
    assert result.exit_code == 0, result.output
    goals = morello.parse(path)
    assert [*goals] == ["net_0_relu_abs", "net_1_matmul_relu", "net_2_matmul"]
    text = path.read_text()
    assert "# one\n# calls: 1, " in text
    assert "# three\n# calls: 1, 48" in text
    assert "calls" in result.stdout
    assert "net_2_matmul" in result.stdout


@pytest.mark.slow
def test_schedules_replace_searches(cli, model, tmp_path):
    path, full = str(tmp_path / "net.spec"), str(tmp_path / "full.spec")
    target = ("--target", "x86_avx2", "--profile", "zen4")
    cli("import", model, "-o", path, *target)
    assert cli("compile", path, "-o", full, "--effort", "1", "--profile", "zen4").exit_code == 0
    # Without the search's database, an effort of 1 finds other programs than these schedules of plain loops.
    text = Path(full).read_text()
    start = text.index("schedule net_0_relu_abs")
    Path(full).write_text(text[:start] + text[text.index("spec net_1") :])
    result = cli("build", model, "-d", str(tmp_path / "out"), "--schedules", full, "--effort", "1", *target)
    assert result.exit_code == 0, result.output
    goal = morello.parse(Path(full), profile="zen4")["net_2_matmul"]
    code = (tmp_path / "out" / "net_2_matmul.c").read_text()
    assert goal.schedule.splitlines()[-1].strip() in code
    # The cost in the head of the file is that of the profile.
    assert f"Cost {goal.program.source.split(' * Cost ')[1].split(';')[0]};" in code


def test_errors(cli, model, tmp_path, refused, write):
    refused(cli("import", model, "-o", model), "it is the Spec file itself")
    refused(cli("import", model, "--target", "x86_avx2", "--target", "x86_avx512"), "for one target", code=2)
    other = write("spec other = Add(4×4, GL, GL, GL, serial)\n")
    refused(
        cli("build", model, "-d", str(tmp_path / "out"), "--schedules", other, "--target", "x86_avx2"),
        "no kernel of net has the Spec other",
        "morello import",
    )
