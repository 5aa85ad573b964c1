"""The reference semantics of graphs equal those of ONNX, before and after passes."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
from onnx.reference import ReferenceEvaluator

from morello.models.onnx import graph_of
from morello.models.passes import simplified
from morello.models.reference import evaluated

MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
m (float[1, 3, 6, 6] x, float[4, 3, 3, 3] w, float[4] b) =>
(float[1, 4, 4] y, float[1, 8, 3, 3] z, float[1, 3, 6, 6] x2) {
    a = Conv<pads = [1, 1, 1, 1], strides = [2, 2]>(x, w, b)
    r = Relu(a)
    z = Concat<axis = 1>(r, a)
    shape = Constant<value = int64[3] {1, 4, 9}>()
    flat = Reshape(r, shape)
    turned = Transpose<perm = [0, 2, 1]>(flat)
    scores = MatMul(flat, turned)
    y = Softmax<axis = -1>(scores)
    x2 = Identity(x)
}
"""


def test_as_onnx_before_and_after_passes():
    model = onnx.parser.parse_model(MODEL)
    rng = np.random.default_rng(0)
    shapes = {"x": (1, 3, 6, 6), "w": (4, 3, 3, 3), "b": (4,)}
    given = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    expected = dict(zip("y z x2".split(), ReferenceEvaluator(model).run(None, given), strict=True))
    graph = graph_of(model, "m", {}, "m.onnx")
    for one in (graph, simplified(graph)):
        found = evaluated(one, given)
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], np.asarray(value), rtol=1e-4, atol=1e-5)
