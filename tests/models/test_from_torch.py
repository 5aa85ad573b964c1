"""Modules of torch become graphs that compute the same."""

# pyright: reportMissingImports=false

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from morello import MorelloError, from_torch
from morello.models.passes import simplified
from morello.models.plan import plan_of
from morello.models.reference import evaluated

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")
networks = pytest.importorskip("networks")

pytestmark = pytest.mark.slow


def check(module, *inputs):
    """Compare the graph of a module after passes with the module."""
    module.eval()
    graph = simplified(from_torch(module, inputs))
    found = evaluated(graph, {name: one.numpy() for name, one in zip(graph.inputs, inputs, strict=True)})
    with torch.no_grad():
        expected = module(*inputs)
    for name, value in zip(graph.outputs, expected if isinstance(expected, tuple) else (expected,), strict=True):
        np.testing.assert_allclose(found[name], value.numpy(), rtol=1e-4, atol=1e-5)
    return graph


def test_an_encoder_of_text():
    graph = check(networks.Bert(layers=1, width=32, heads=2, rows=8, words=20), torch.randint(0, 20, (1, 8)))
    # Heads are views, also of the result.
    assert "Move" not in {node.op for call in plan_of(graph).calls for node in call.step.nodes}


def test_a_transformer_on_images():
    vit = networks.ViT(layers=1, width=32, heads=2, size=16, patch=8, classes=5)
    graph = check(vit, torch.randn(1, 3, 16, 16))
    # The image gets channels last, and the token is put before the patches, which are computed in place.
    assert [node.op for call in plan_of(graph).calls for node in call.step.nodes].count("Move") == 2


@pytest.mark.parametrize("rows", [1, 4])
def test_a_decoder_with_a_cache(rows):
    cache = torch.randn(1, 2, 8 - rows, 16)
    check(networks.Gpt(32, 2), torch.randn(1, rows, 32), cache, cache + 1)


def test_a_classifier():
    check(networks.mlp((12, 8, 4)), torch.randn(3, 12))


class Branches(torch.nn.Module):
    def forward(self, x):
        return x + 1 if x.sum() > 0 else x


def test_what_torch_cannot_export():
    with pytest.raises(MorelloError, match="Branches: torch cannot export it"):
        from_torch(Branches().eval(), (torch.randn(2),))
    with pytest.raises(MorelloError, match="training mode"):
        from_torch(Branches(), (torch.randn(2),))


def test_the_page():
    text = (Path(__file__).parents[2] / "docs/torch.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for block in re.findall(r"^( *)```python\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL):
        exec(textwrap.dedent(block[1]).replace("1_000_000", "1"), names)
    np.testing.assert_allclose(names["y"], names["module"](names["x"]).detach(), rtol=1e-4, atol=1e-5)
