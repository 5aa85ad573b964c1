"""The convolutional networks have the published numbers of parameters, and few calls when they are models."""

# pyright: reportMissingImports=false

from __future__ import annotations

import numpy as np
import pytest

from morello.models.modules import from_torch
from morello.models.passes import simplified
from morello.models.plan import Plan, plan_of
from morello.models.reference import evaluated

torch = pytest.importorskip("torch")
convnets = pytest.importorskip("convnets")

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("resnet18", 11_689_512),
        ("mobilenet_v2", 3_504_872),
        ("mobilenet_v3", 5_483_032),
        ("efficientnet_b0", 5_288_548),
    ],
)
def test_parameters(name, count):
    with torch.device("meta"):
        assert sum(one.numel() for one in convnets.MODELS[name]().parameters()) == count


def planned(module) -> Plan:
    """Return the plan of a module for an image of 8×8 pixels; compare its graph with the module."""
    pytest.importorskip("onnxscript")
    torch.manual_seed(0)
    image = torch.randn(1, 3, 8, 8)
    whole = convnets.settled(torch.nn.Sequential(convnets.conv(3, 8, act=torch.nn.ReLU6), module), image)
    graph = simplified(from_torch(whole, (image,)))
    found = evaluated(graph, dict(zip(graph.inputs, [image.numpy()], strict=True)))
    with torch.no_grad():
        np.testing.assert_allclose(found[graph.outputs[0]], whole(image), rtol=1e-4, atol=1e-5)
    return plan_of(graph)


def steps(plan: Plan) -> list[str]:
    """Return the operations of each call after the copy of the image to channels last."""
    first, *others = (str(call.step) for call in plan.calls)
    assert first == "Move"
    return others


def test_an_inverted_residual():
    found = planned(convnets.inverted(8, 24, 8, 5, 1, torch.nn.Hardswish))
    swish = "Conv + Add + HardSwish"
    assert steps(found) == ["Conv + Add + Clip", swish, swish, "Conv + Add + Add"]
    # Convolutions of each pixel are products, but where the depthwise one needs a border.
    assert ["Matmul" in call.written.text for call in found.calls[1:]] == [True, False, False, True]


def test_a_squeeze():
    found = planned(convnets.Squeeze(8, 4, torch.nn.ReLU, torch.nn.Hardsigmoid))
    assert steps(found) == ["Conv + Add + Clip", "Mean", "Conv + Add + Relu", "Conv + Add + HardSigmoid", "Mul"]
    assert [call.written.text.count("Matmul") for call in found.calls[1:]] == [1, 0, 1, 1, 0]
