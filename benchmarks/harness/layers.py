"""The convolutions of networks, and products of few rows, as problems of benchmarks/conv.py."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
from morello_baselines.native.problems import Problem

from harness.models import Builder, layers_of

#: The layouts of images with channels last, by operation.
_CHANNELS_LAST = {"Conv": "nhwc", "GroupedConv": "layout[0, 3, 4, 1, 2]"}
#: The suite of products, the rows of these, and their columns and steps ([Tollenaere2021] Fig. 3).
PRODUCTS, _ROWS, _SIDE = "products", range(8, 51), 128


@attrs.frozen
class Layer:
    """A convolution of f32 by its Spec: row major, as frameworks have it."""

    suite: str
    name: str
    spec: str


def layer(
    suite: str, name: str, filters: int, channels: int, size: int, side: int, stride: int = 1, groups: int = 1
) -> Layer:
    """Return a convolution of an image of `size` squared; the output is `size` / `stride`."""
    build = Builder("f32")
    build.conv(1, channels, filters, size, side, stride, groups)
    (spec,) = build.layers
    sizes = (groups, size) if groups > 1 else (filters, channels, size, side)
    return Layer(suite, f"{name} {','.join(map(str, sizes))}", spec)


def depthwise(suite: str, name: str, groups: int, size: int, stride: int = 1) -> Layer:
    """Return a convolution of each channel by itself, 3×3."""
    return layer(suite, name, groups, groups, size, 3, stride, groups)


def ttile_layers() -> Iterator[Layer]:
    """Yield the layers of Yolo-9000 and ResNet-18 in [Tollenaere2021], filters, channels, pixels and side of each."""
    yolo = {0: (32, 3, 544, 3), 2: (64, 32, 272, 3), 4: (128, 64, 136, 3), 5: (64, 128, 136, 1), 8: (256, 128, 68, 3)}
    yolo |= {9: (128, 256, 68, 1), 12: (512, 256, 34, 3), 13: (256, 512, 34, 1), 18: (1024, 512, 17, 3)}
    yolo |= {19: (512, 1024, 17, 1), 23: (28269, 1024, 17, 1)}
    for number, sizes in yolo.items():
        yield layer("yolo", f"Yolo-{number}", *sizes)
    plain = {2: (64, 64, 56, 3), 3: (64, 64, 56, 1), 6: (128, 128, 28, 3), 8: (256, 128, 28, 3), 9: (256, 256, 14, 3)}
    plain |= {12: (512, 512, 7, 3)}
    strided = {1: (64, 3, 224, 7), 4: (128, 64, 56, 3), 5: (128, 64, 56, 1), 7: (256, 128, 28, 3)}
    strided |= {10: (512, 512, 14, 3), 11: (512, 256, 14, 1)}
    for number in range(1, 13):
        stride = 2 if number in strided else 1
        yield layer("resnet18", f"ResNet18-{number}", *(strided | plain)[number], stride)


def _dense_mobilenet() -> Iterator[Layer]:
    """Yield MobileNet's 3×3 layers, of all channels instead of each."""
    for stride, shapes in (
        (1, ((32, 112), (128, 56), (256, 28), (512, 14), (1024, 7))),
        (2, ((64, 112), (128, 56), (256, 28), (512, 14))),
    ):
        for channels, size in shapes:
            name = "MobileNet" if stride == 1 else "MobileNet strided"
            yield layer("mobilenet", name, channels, channels, size, 3, stride)


def _of_model(model: str, kind: str) -> Iterator[Layer]:
    """Yield the distinct layers of a model of an operation."""
    for spec in layers_of(model, 1, 224, "f32"):
        op, _, rest = spec.partition("(")
        if op.startswith(kind):
            sizes = rest.partition(",")[0].split("×")[1:]
            stride = " strided" if "stride=2" in op else ""
            named = (sizes[0], sizes[3]) if kind == "GroupedConv" else (*sizes[:3], sizes[4])
            yield Layer(model, f"{model}{stride} {','.join(named)}", spec)


def _layers() -> Iterator[Layer]:
    yield from ttile_layers()
    yield from _dense_mobilenet()
    yield from _of_model("mobilenet_v2", "GroupedConv")
    yield from _of_model("resnet50", "Conv")


def problems_of(one: Layer) -> Iterator[Problem]:
    """Yield a layer with plain operands, and with constant filters and channels last, as libraries want to have it."""
    yield _problem(one, one.name, one.spec)
    last = _CHANNELS_LAST[one.spec.partition("[")[0].partition("(")[0]]
    image = f"(f32, GL, {last})"
    if one.suite == "mobilenet_v2":
        yield _problem(one, f"{one.name} nhwc", _operands(one.spec, image, "(f32, GL)"), channels_last=True)
    constant = _operands(one.spec, image, "(f32, GL, constant)")
    yield _problem(one, f"{one.name} constant", constant, packed=True, channels_last=True)


def _operands(spec: str, image: str, filters: str) -> str:
    """Return a Spec with other operands."""
    shape = spec.partition(", (f32")[0]
    return f"{shape}, {image}, {filters}, {image}, serial)"


def _problem(one: Layer, name: str, spec: str, packed: bool = False, channels_last: bool = False) -> Problem:
    made = Problem.of_spec(name, one.suite, "conv", spec, packed=packed, channels_last=channels_last)
    return attrs.evolve(made, flops=made.logical.op.flops(tuple(map(int, made.logical.shape))))


def _products() -> Iterator[Problem]:
    operands = ", ".join(["(f32, GL)"] * 3)
    for rows in _ROWS:
        spec = f"Matmul(1×{rows}×{_SIDE}×{_SIDE}, {operands}, serial)"
        yield Problem.of_spec(f"rows {rows}", PRODUCTS, "matmul", spec, flops=2 * rows * _SIDE**2)


LAYERS = {one.name: one for one in (*(made for each in _layers() for made in problems_of(each)), *_products())}
SUITES = tuple(dict.fromkeys(one.suite for one in LAYERS.values()))
