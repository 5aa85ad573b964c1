"""Layouts under which kernels cost least: the optimum is that of brute force, and its plan computes the same."""

from __future__ import annotations

import zlib
from itertools import product
from math import inf
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

import morello
from morello.errors import MorelloError
from morello.models.layouts import LayoutChoices, Term, Value, Variable, cheapest, cost_of
from morello.models.model import CompiledModel, PlannedModel, targets_of
from morello.models.onnx import graph_of
from morello.models.passes import simplified
from morello.models.plan import Call, plan_of
from morello.search.budget import SearchBudget
from tests.models.test_plan import models, run


@st.composite
def problems(draw: st.DrawFn) -> tuple[dict[Variable, list[Value]], list[Term]]:
    """Draw variables, and terms of some, which have costs for some of their values."""
    names = draw(st.lists(st.sampled_from([*product("uvwxyz")]), unique=True, min_size=1))
    domains: dict[Variable, list[Value]] = {name: [*"abc"[: draw(st.integers(1, 3))]] for name in names}
    terms = list[Term]()
    for _ in range(draw(st.integers(0, 7))):
        own = draw(st.lists(st.sampled_from(names), unique=True, max_size=3))
        rows = [row for row in product(*(domains[name] for name in own)) if draw(st.integers(0, 5))]
        costs: dict[tuple[Value, ...], float] = {row: draw(st.integers(0, 20)) for row in rows}
        terms.append((own, costs))
    return domains, terms


@given(problems())
@settings(max_examples=100, deadline=None)
def test_the_optimum_is_that_of_brute_force(problem):
    domains, terms = problem

    def cost(values: dict[Variable, Value]) -> float:
        return sum(costs.get(tuple(values[name] for name in names), inf) for names, costs in terms)

    total, chosen = cheapest(domains, terms)
    assert total == min(cost(dict(zip(domains, values, strict=True))) for values in product(*domains.values()))
    assert total == inf or cost(chosen) == total


@given(models(), st.integers(0, 99))
@settings(max_examples=50, deadline=None)
def test_plans_of_random_costs(model, seed):
    """A plan has the sum of costs that was minimized and computes what ONNX's reference does."""
    x = np.random.default_rng(1).standard_normal([d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim])
    x = x.astype(np.float32)
    expected: Any = ReferenceEvaluator(model).run(None, {"x": x})
    graph = simplified(graph_of(model, "m", {}, "m.onnx"))
    choices, default = LayoutChoices(graph), plan_of(graph)
    costs = {call.written.text: zlib.crc32(f"{seed}{call.written.text}".encode()) % 100 for call in choices.calls}
    total, plan = choices.best(costs)
    assert total == cost_of(plan, costs)
    # By default, readers of an input with borders of different sizes have a copy each.
    assert not {call.written.text for call in default.calls} <= {*costs} or total <= cost_of(default, costs)
    found = run(plan, {"x": x})
    for name, value in zip(graph.outputs, expected, strict=True):
        np.testing.assert_allclose(found[name], value, rtol=1e-3, atol=1e-4 * np.abs(value).max())


PAIR = """
<ir_version: 8, opset_import: ["" : 17]>
pair (float[1, 4, 6, 6] x) => (float[1, 4, 6, 6] y) {
    a = Conv<pads = [1, 1, 1, 1]>(x, w)
    y = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(a)
}
"""

MEAN = """
<ir_version: 8, opset_import: ["" : 17]>
mean (float[1, 4, 4, 4] x) => (float[1, 4, 1, 1] y) {
    a = Conv(x, w)
    y = GlobalAveragePool(a)
}
"""


def pair() -> onnx.ModelProto:
    """Return the model of a convolution and a pool."""
    model = onnx.parser.parse_model(PAIR)
    weights = np.random.default_rng(0).standard_normal((4, 4, 3, 3)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    return model


@pytest.mark.parametrize(
    ("move", "calls"),
    [
        # The cheap convolution has channels first, the cheap pool last: conversions are worth it up to a cost.
        (0, ["Move first first", "Conv first first", "Move first last", "MaxPool last first"]),
        (20, ["Move first first", "Conv first first", "MaxPool first first"]),
    ],
)
def test_conversions_are_weighed(move, calls):
    """A conversion is there where it costs less than it saves."""
    choices = LayoutChoices(simplified(graph_of(pair(), "m", {}, "m.onnx")))

    def words(call: Call) -> str:
        image, result = call.written.places[0], call.written.places[-1]
        layouts = ("last" if one.strides[1] == 1 else "first" for one in (image, result))
        return f"{call.step} {' '.join(layouts)}"

    table = {"Conv first first": 10, "MaxPool last first": 10, "Move first first": 5, "Move first last": move}
    costs = {call.written.text: table.get(words(call), 25) for call in choices.calls}
    total, plan = choices.best(costs)
    assert [words(call) for call in plan.calls] == calls
    assert total == cost_of(plan, costs)


def test_a_convolution_may_read_an_input_as_it_is():
    model = onnx.parser.parse_model(MEAN)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((4, 4, 1, 1), np.float32), "w"))
    choices = LayoutChoices(simplified(graph_of(model, "m", {}, "m.onnx")))
    total, _ = choices.best({call.written.text: 1 for call in choices.calls})
    assert total == len(model.graph.node)


@pytest.mark.slow
def test_a_model_with_the_layouts_that_cost_least():
    """The report has the cost of the kernels and proven bounds; the program computes what ONNX's reference does."""
    model = onnx.parser.parse_model(MEAN)
    x, w = (
        np.random.default_rng(0).standard_normal(shape).astype(np.float32) for shape in ((1, 4, 4, 4), (4, 4, 1, 1))
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
    planned = PlannedModel.of(graph_of(model, "m", {}, "m.onnx"), targets_of(["x86_avx2"]), layouts="exact")
    made = planned.solved(db=False, budget=SearchBudget(expansions=1))
    report, program = made.report, made.program()
    assert report
    assert report.low <= report.cost == sum(kernel.cost for kernel in program.kernels) <= report.default
    assert f"layouts: cost {report.cost:,}, " in str(report)
    assert made.kernels < planned.kernels
    np.testing.assert_allclose(CompiledModel(program)(x), np.asarray(expected), rtol=1e-4, atol=1e-5)


def test_an_unknown_word_for_layouts():
    graph = graph_of(pair(), "m", {}, "m.onnx")
    with pytest.raises(MorelloError, match="layouts='nchw'"):
        morello.compile_model(graph, target="x86_avx2", layouts="nchw")
