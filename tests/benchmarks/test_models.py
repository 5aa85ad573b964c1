"""benchmarks/models.py times a model of its own with all runners that are installed, and compares their results."""

from __future__ import annotations

import json

import numpy as np
import onnx.parser
import pytest
from click.testing import CliRunner

import models

TEXT = """
<ir_version: 8, opset_import: ["" : 17]>
m (float[1, 8] x) => (float[1, 8] y) {
    a = MatMul(x, w)
    y = Relu(a)
}
"""


@pytest.mark.slow
def test_it_reports_times_and_differences(tmp_path):
    pytest.importorskip("onnxruntime")
    model = onnx.parser.parse_model(TEXT)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.eye(8, dtype=np.float32), "w"))
    onnx.save(model, tmp_path / "m.onnx")
    given = [str(tmp_path / "m.onnx"), "--target", "x86_avx2", "--expansions", "100000", "--seconds", "0", "--json"]
    runners = ["--runner", "Morello", "--runner", "ONNX Runtime"]
    result = CliRunner(catch_exceptions=False).invoke(models.main, given + runners)
    ours, peer = json.loads(result.stdout)
    assert ours["runner"] == "Morello"
    assert peer["runner"] == "ONNX Runtime"
    assert all(len(one["seconds"]) >= 7 and min(one["seconds"]) > 0 for one in (ours, peer))
    assert ours["error"] < 1e-5
    assert 0 < ours["facts"]["proven"] <= 1
