"""The benchmark of convolutions: its layers are those of networks, its peers compute them, its sums add up."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest
from morello_baselines import native
from morello_baselines.native.base import NotInstalled, NotOffered
from morello_baselines.native.onednn import OneDnnRunner
from morello_baselines.native.onnx_runtime import OnnxRuntime
from morello_baselines.native.problems import Problem, difference, images
from morello_baselines.native.pytorch import TorchRunner
from morello_baselines.native.xnnpack import Xnnpack

import conv
from harness import report
from harness.layers import LAYERS, PRODUCTS, SUITES, depthwise, layer, problems_of
from harness.limits import FOOTPRINTS, VECTORS, multiply_adds, reading
from harness.measure import Result
from harness.suite import PROBLEMS
from morello import api

LIMITS = {
    **{multiply_adds("f32", vectors): 100.0 for vectors in VECTORS},
    **{reading(footprint, vectors): 1000.0 for footprint in FOOTPRINTS for vectors in VECTORS},
}
#: Strides, unequal padding, and groups, in all kinds of operands.
SMALL = [
    one
    for each in (
        layer("yolo", "plain", 16, 8, 7, 3),
        layer("yolo", "pointwise", 16, 8, 6, 1, 2),
        attrs.evolve(depthwise("mobilenet_v2", "deep", 16, 6, 2)),
    )
    for one in problems_of(each)
]


def timed(problem: str, runner: str, seconds: float, group: str = "any", **facts: float) -> Result:
    ours = runner.startswith("x86")
    return Result(LAYERS[problem], runner, group, ours, "packed" in runner, (seconds,), facts=facts)


def test_layers_are_those_of_networks() -> None:
    names = [one.name for one in LAYERS.values() if not one.packed]
    counts = {suite: sum(LAYERS[name].suite == suite for name in names) for suite in SUITES}
    layers = {"yolo": 11, "resnet18": 12, "mobilenet": 9, "resnet50": 23}
    assert counts == {**layers, "mobilenet_v2": 20, PRODUCTS: 43}
    assert not {*LAYERS} & {*PROBLEMS}
    constant = [one for one in LAYERS.values() if one.packed]
    assert len(constant) == sum(layers.values()) + 10
    # [Tollenaere2021] has the first twelve as layers of its Figs. 8 and 10.
    flops = {"Yolo-12 512,256,34,3": 2.7273, "Yolo-23 28269,1024,17,1": 16.7316, "ResNet18-2 64,64,56,3": 0.2312}
    for name, expected in (flops | {"ResNet18-1 64,3,224,7": 0.2360}).items():
        assert LAYERS[name].flops / 1e9 == pytest.approx(expected, abs=5e-5)


@pytest.mark.parametrize("problem", SMALL, ids=lambda one: one.name)
def test_data_lies_as_the_spec_says(problem: Problem) -> None:
    (goal,) = api.parse(problem.texts("x86_avx2", 1)[0]).values()
    tensors = goal.spec.operands
    arrays = [*problem.inputs(), problem.output()]
    assert [tuple(map(int, one.shape)) for one in tensors] == [one.shape for one in arrays]
    channels_last = [one.shape[1] > 1 and images(one).strides[1] == one.itemsize for one in (arrays[0], arrays[2])]
    assert channels_last == [problem.channels_last] * 2
    assert goal.spec.op.constants == ((1,) if problem.packed else ())


@pytest.mark.parametrize(
    "runner",
    [OneDnnRunner, lambda: OneDnnRunner("any"), OnnxRuntime, lambda: OnnxRuntime("initializers"), TorchRunner, Xnnpack],
    ids=["oneDNN", "oneDNN packed", "ONNX Runtime", "ONNX Runtime packed", "torch", "XNNPACK"],
)
def test_libraries_compute_convolutions(runner: Any) -> None:
    try:
        made = runner()
    except NotInstalled as error:
        pytest.skip(str(error))
    computed = 0
    for problem in SMALL:
        try:
            found = made.prepare(problem, problem.inputs(), 1)
        except NotOffered:
            continue
        found.run(1)
        assert difference(found.output(), problem.expected()) < 1e-5, problem.name
        computed += 1
    assert computed == (len(SMALL) if runner is not Xnnpack else sum(one.channels_last for one in SMALL))


def test_libraries_that_pack_compete_where_filters_are_constant() -> None:
    runners = {one.name: one for one in (*native.chosen(()), *native.ttile_runners(["x86_avx2"]))}
    plain, constant = LAYERS["Yolo-4 128,64,136,3"], LAYERS["Yolo-4 128,64,136,3 constant"]
    apart = {"oneDNN": (True, False), "oneDNN packed": (False, True), "torch": (True, True), "XNNPACK": (False, True)}
    apart |= {"ttile x86_avx2": (False, True), "ONNX Runtime packed": (False, True)}
    for name, expected in apart.items():
        assert (conv.takes_part(runners[name], plain), conv.takes_part(runners[name], constant)) == expected
    results = [
        timed("Yolo-4 128,64,136,3", "x86_avx512", 2.0, search_seconds=1.0, gap=0.1),
        timed("Yolo-4 128,64,136,3", "torch", 1.0),
        timed("Yolo-8 256,128,68,3", "x86_avx512", 1.0, search_seconds=1.0, gap=0.0),
        timed("Yolo-8 256,128,68,3", "torch", 2.0),
        timed("Yolo-4 128,64,136,3 constant", "x86_avx512", 1.0, search_seconds=1.0, gap=0.0),
        timed("Yolo-4 128,64,136,3 constant", "torch", 2.0),
        timed("Yolo-4 128,64,136,3 constant", "oneDNN packed", 0.9),
    ]
    compared = report.comparisons(results)
    assert [(one.baseline.runner, one.ratio) for one in compared] == [
        *[("torch", 0.5), ("torch", 2.0)],
        ("oneDNN packed", 0.9),
    ]
    first, second = conv.tables(results, LIMITS, 1)
    assert [*first.columns[0].cells][:2] == ["Yolo-4 128,64,136,3", "Yolo-8 256,128,68,3"]
    assert [*first.columns[5].cells] == ["0.50", "2.00", "1.00", "1.00"]
    assert [*first.columns[6].cells][:2] == ["10.0%", "0.0%"]
    assert [*second.columns[5].cells] == ["0.90"] * 3


def test_rates_of_products_are_percents_of_the_limit() -> None:
    """Fig. 3 of [Tollenaere2021]: mean, least and deviation over rows."""
    flops = LAYERS["rows 8"].flops
    results = [timed("rows 8", "x86_avx2", flops / 90e9), timed("rows 16", "x86_avx2", 2 * flops / 80e9)]
    assert conv.spread([90.0, 80.0]) == (85.0, 80.0, 5.0)
    (table,) = conv.rates(results, LIMITS, 1)
    assert [[*column.cells] for column in table.columns] == [["x86_avx2"], ["85.0"], ["80.0"], ["5.0"], ["16, 8"]]


def test_panels_are_drawn(tmp_path: Any) -> None:
    pytest.importorskip("matplotlib")
    names = ["Yolo-4 128,64,136,3", "Yolo-4 128,64,136,3 constant", "rows 8"]
    results = [timed(name, runner, 0.1) for name in names for runner in ("x86_avx2", "torch")]
    conv.draw(results, LIMITS, 1, str(tmp_path / "figure.png"))
    assert (tmp_path / "figure.png").stat().st_size > 1000
    assert np.isfinite(report.percent(results[0], LIMITS, 1))
