"""torch.compile with the backend morello computes what torch does."""

# pyright: reportMissingImports=false

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")
networks = pytest.importorskip("networks")

pytestmark = [
    pytest.mark.slow,
    # torch's own.
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning"),
]
OPTIONS = {"expansions": 1, "target": "x86_avx2"}


class Lacking(torch.nn.Module):
    """A layer before and after an operation that has no translation."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(6, 6), torch.nn.Linear(6, 3)

    def forward(self, x):
        x = torch.relu(self.first(x))
        return self.second(torch.special.i0(x))


@pytest.fixture(autouse=True)
def _fresh():
    torch.compiler.reset()
    torch.manual_seed(0)


def test_several_sizes_and_new_weights():
    module = networks.mlp((6, 4)).eval()
    compiled = torch.compile(module, backend="morello", options=OPTIONS)
    with torch.no_grad():
        for rows in (2, 3):
            x = torch.randn(rows, 6)
            torch.testing.assert_close(compiled(x), module(x))
        module[0].weight.mul_(2)
        torch.testing.assert_close(compiled(x), module(x))


def test_operations_without_a_translation():
    module, x = Lacking().eval(), torch.randn(2, 6)
    compiled = torch.compile(module, backend="morello", options=OPTIONS)
    with torch.no_grad(), pytest.warns(UserWarning, match="torch runs what morello lacks: .*special_i0"):
        torch.testing.assert_close(compiled(x), module(x))


def test_explain():
    from morello.torch import explain

    first, *others = explain(Lacking().eval(), torch.randn(2, 6)).splitlines()
    assert first == "graph 1: 3 of 4 operations run as models"
    assert [line.split(":")[0].strip() for line in others] == ["special_i0 (aten.special_i0.default)"]


def test_graphs_that_write():
    def of_inputs(x):
        x.add_(1)
        return x * 2

    compiled, x = torch.compile(of_inputs, backend="morello", options=OPTIONS), torch.ones(2)
    with pytest.warns(UserWarning, match="it writes its inputs or buffers"):
        assert compiled(x).tolist() == [4, 4]
    assert x.tolist() == [2, 2]
    norm = torch.nn.BatchNorm1d(3).train()
    with torch.no_grad(), pytest.warns(UserWarning, match="it writes its inputs or buffers"):
        torch.compile(norm, backend="morello", options=OPTIONS)(torch.randn(4, 3))
    assert norm.num_batches_tracked.item() == 1


def test_writes_of_results_and_bf16():
    def run(x):
        y = x * 2
        y.add_(1)
        return y, x.float()

    x = torch.randn(3).bfloat16()
    torch.testing.assert_close(torch.compile(run, backend="morello", options=OPTIONS)(x), run(x))


def test_gradients():
    module = networks.mlp((6, 4)).eval()
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="computes no gradients"):
        torch.compile(module, backend="morello", options=OPTIONS)(torch.randn(2, 6))
