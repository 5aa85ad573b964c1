"""Convolutions, pools, norms of images."""

from __future__ import annotations

import numpy as np

from morello.ir.ops.base import Value
from morello.models.building import Builder, Source, Unsupported, translates


def _windows(node: Source, image: tuple[int, ...], window: tuple[int, ...]) -> dict[str, Value]:
    """Return stride, dilation and padding (before, then after) of a convolution or pool on an image."""
    count = len(image)
    stride = tuple(node.get("strides", [1] * count))
    dilation = tuple(node.get("dilations", [1] * count))
    pads = tuple(node.get("pads", [0] * 2 * count))
    auto = node.get("auto_pad", "NOTSET")
    if auto.startswith("SAME"):
        reach = [d * (w - 1) + 1 for d, w in zip(dilation, window, strict=True)]
        total = [max(0, (-(-size // s) - 1) * s + r - size) for size, s, r in zip(image, stride, reach, strict=True)]
        less, more = [one // 2 for one in total], [one - one // 2 for one in total]
        pads = (*less, *more) if auto == "SAME_UPPER" else (*more, *less)
    return {"stride": stride, "dilation": dilation, "padding": pads}


_CONVS = {3: "Conv1d", 4: "Conv", 5: "Conv3d"}


@translates("Conv")
def _conv(make: Builder, node: Source) -> None:
    image, filters = node.inputs[:2]
    if make.rank(image) not in _CONVS:
        raise Unsupported(f"an image of {make.rank(image)} dimensions")
    groups = node.get("group", 1)
    given = _windows(node, make.shape(image)[2:], make.shape(filters)[2:])
    biased = bool(node.input(2))
    shape = make.shape(node.outputs[0])
    to = "" if biased else node.outputs[0]
    found = make.node(_CONVS[make.rank(image)], image, filters, to=to, shape=shape, given=given, groups=groups)
    if biased:
        bias = make.reshape(node.inputs[2], (1, -1, *[1] * (len(shape) - 2)))
        make.node("Add", found, bias, to=node.outputs[0])


@translates("MaxPool", "AveragePool")
def _pool(make: Builder, node: Source) -> None:
    image, window = node.inputs[0], tuple(node.get("kernel_shape"))
    if make.rank(image) != 4:
        raise Unsupported(f"an image of {make.rank(image)} dimensions")
    if any(node.outputs[1:]):
        raise Unsupported("indices of a pool")
    given = _windows(node, make.shape(image)[2:], window)
    given["window"] = window
    if node.op == "AveragePool":
        given["count_include_pad"] = bool(node.get("count_include_pad", 0))
    make.node("MaxPool" if node.op == "MaxPool" else "AvgPool", image, to=node.outputs[0], given=given)


@translates("GlobalAveragePool", "GlobalMaxPool")
def _global_pool(make: Builder, node: Source) -> None:
    dims = tuple(range(2, make.rank(node.inputs[0])))
    make.node("Mean" if "Average" in node.op else "Max", node.inputs[0], to=node.outputs[0], given={"dim": dims})


@translates("BatchNormalization")
def _batch_norm(make: Builder, node: Source) -> None:
    if node.get("training_mode", 0) or len([name for name in node.outputs if name]) > 1:
        raise Unsupported("statistics of training")
    scale, shift, mean, variance = (make.value(name, "a parameter") for name in node.inputs[1:5])
    factor = scale / np.sqrt(variance.astype(np.float64) + node.get("epsilon", 1e-5))
    shape = (1, -1, *[1] * (make.rank(node.inputs[0]) - 2))
    dtype = make.tensors[node.inputs[0]].dtype.numpy
    by = make.constant(factor.astype(dtype).reshape(shape))
    add = make.constant((shift - mean * factor).astype(dtype).reshape(shape))
    scaled = make.node("Mul", node.inputs[0], by, shape=make.shape(node.outputs[0]))
    make.node("Add", scaled, add, to=node.outputs[0])


@translates("LRN")
def _lrn(make: Builder, node: Source) -> None:
    names = {"alpha": ("alpha", 1e-4), "beta": ("beta", 0.75), "k": ("bias", 1.0)}
    given: dict[str, Value] = {one: float(node.get(name, default)) for one, (name, default) in names.items()}
    given["size"] = int(node.get("size"))
    make.node("LocalResponseNorm", node.inputs[0], to=node.outputs[0], given=given)
