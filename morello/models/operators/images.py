"""Convolutions, pools, norms of images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from morello.ir.dtypes import DType
from morello.ir.ops.base import Value
from morello.ir.ops.windows import same_padding
from morello.models.building import Builder, Source, Unsupported, translates


def _windows(node: Source, image: tuple[int, ...], window: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Return stride, dilation and padding (before, then after) of a convolution or pool on an image."""
    count = len(image)
    stride = tuple(node.get("strides", [1] * count))
    dilation = tuple(node.get("dilations", [1] * count))
    pads = tuple(node.get("pads", [0] * 2 * count))
    if {len(stride), len(dilation), len(window)} != {count} or len(pads) != 2 * count or min(*stride, *dilation) < 1:
        raise Unsupported("windows of other dimensions than the image")
    if min(pads) < 0:
        raise Unsupported("negative padding")
    auto = node.get("auto_pad", "NOTSET")
    if auto.startswith("SAME"):
        less, more = same_padding(image, window, stride, dilation)
        pads = (*less, *more) if auto == "SAME_UPPER" else (*more, *less)
    return {"stride": stride, "dilation": dilation, "padding": pads}


#: Parameters of windows with a number for each dimension.
_PER_AXIS = ("stride", "dilation", "window")
_CONVS = {3: "Conv1d", 4: "Conv", 5: "Conv3d"}


@translates("Conv")
def _conv(make: Builder, node: Source) -> None:
    image, filters = node.inputs[:2]
    found = convolved(make, node, image, filters, "" if node.input(2) else node.outputs[0])
    _biased(make, node, found)


def convolved(make: Builder, node: Source, image: str, filters: str, to: str, dtype: DType | None = None) -> str:
    """Add the convolution of an image, with the attributes of a node; return its name."""
    if make.rank(image) not in _CONVS:
        raise Unsupported(f"an image of {make.rank(image)} dimensions")
    op, shape, groups = _CONVS[make.rank(image)], make.shape(node.outputs[0]), node.get("group", 1)
    given: Mapping[str, Value] = _windows(node, make.shape(image)[2:], make.shape(filters)[2:])
    channels, (count, each, *_) = make.shape(image)[1], make.shape(filters)
    if groups < 1 or channels != each * groups or count % groups:
        raise Unsupported(f"{count} filters of {each} channels in {groups} groups on an image of {channels} channels")
    if op != "Conv3d" or groups == 1:
        return make.node(op, image, filters, to=to, shape=shape, dtype=dtype, given=given, groups=groups)
    apart, count = list[str](), count // groups
    for at in range(groups):
        part = make.slice(image, 1, at * each, (at + 1) * each)
        own = make.slice(filters, 0, at * count, (at + 1) * count)
        apart.append(make.node(op, part, own, shape=(shape[0], count, *shape[2:]), given=given))
    return make.node("Concat", *apart, to=to, shape=shape, given={"dim": 1})


def _biased(make: Builder, node: Source, found: str) -> None:
    """Add the bias of a convolution, if it has one."""
    if node.input(2):
        bias = make.reshape(node.inputs[2], (1, -1, *[1] * (make.rank(node.outputs[0]) - 2)))
        make.node("Add", found, bias, to=node.outputs[0])


@translates("ConvTranspose")
def _conv_transpose(make: Builder, node: Source) -> None:
    image, filters = node.inputs[:2]
    count = make.rank(image) - 2
    if count not in (1, 2):
        raise Unsupported(f"an image of {count + 2} dimensions")
    shape, sizes = make.shape(node.outputs[0]), make.shape(image)[2:]
    stride, dilation = (node.get(name) or [1] * count for name in ("strides", "dilations"))
    window = make.shape(filters)[2:]
    whole = [s * (n - 1) + d * (w - 1) + 1 for s, n, d, w in zip(stride, sizes, dilation, window, strict=True)]
    auto, extra = node.get("auto_pad", "NOTSET"), node.get("output_padding") or [0] * count
    low = list((node.get("pads") or [0] * count)[:count])
    if node.get("output_shape") or auto.startswith("SAME"):
        total = [max(0, full + more - size) for full, more, size in zip(whole, extra, shape[2:], strict=True)]
        low = [one - one // 2 if auto != "SAME_UPPER" else one // 2 for one in total]
    high = [full - size - before for full, size, before in zip(whole, shape[2:], low, strict=True)]
    # Beyond the products are zeros.
    beyond = [max(0, -one) for one in high]
    high = [max(0, one) for one in high]
    if count == 1:
        image, filters = (make.reshape(one, (*make.shape(one)[:2], 1, -1)) for one in (image, filters))
        stride, dilation = [1, *stride], [1, *dilation]
        low, high, beyond = [0, *low], [0, *high], [0, *beyond]
    given: dict[str, Value] = {"stride": (*stride,), "dilation": (*dilation,), "padding": (*low, *high)}
    given = {name: value for name, value in given.items() if value not in ((1, 1), (0,) * 4)}
    rows, columns = shape[-2:] if count == 2 else (1, shape[-1])
    last = not node.input(2) and count == 2
    made = (shape[0], shape[1], rows - beyond[0], columns - beyond[1])
    to = node.outputs[0]
    found = make.node(
        "ConvTranspose",
        image,
        filters,
        to=to if last and not any(beyond) else "",
        shape=made,
        given=given,
        groups=node.get("group", 1),
    )
    if any(beyond):
        found = make.node(
            "Pad", found, to=to if last else "", shape=(*shape[:2], rows, columns), given={"padding": (0, 0, *beyond)}
        )
    if count == 1:
        found = make.reshape(found, shape, "" if node.input(2) else to)
    _biased(make, node, found)


@translates("MaxPool", "AveragePool", "LpPool")
def _pool(make: Builder, node: Source) -> None:
    image, to = node.inputs[0], node.outputs[0]
    sizes, made = make.shape(image)[2:], make.shape(to)
    window = tuple(node.get("kernel_shape"))
    if len(sizes) not in (1, 2, 3):
        raise Unsupported(f"an image of {len(sizes) + 2} dimensions")
    if any(node.outputs[1:]):
        raise Unsupported("indices of a pool")
    given = {**_windows(node, sizes, window), "window": window}
    if node.op == "MaxPool":
        _pooled(make, "MaxPool", image, given, {}, made, to)
        return
    counted: dict[str, Value] = {"count_include_pad": True} if node.get("count_include_pad", 0) else {}
    if node.op == "AveragePool":
        _pooled(make, "AvgPool", image, given, counted, made, to)
        return
    # The mean of powers, times their number, is their sum.
    power, count = node.get("p", 2), int(np.prod(window))
    powers = make.node("Mul", image, image) if power == 2 else _power(make, make.node("Abs", image), power)
    sums = make.scaled(_pooled(make, "AvgPool", powers, given, {"count_include_pad": True}, made), count)
    if power == 2:
        make.node("Sqrt", sums, to=to)
    else:
        make.reshape(_power(make, sums, 1 / power), made, to)


def _power(make: Builder, source: str, power: float) -> str:
    return source if power == 1 else make.node("Pow", source, make.number(power, source))


def _pooled(
    make: Builder,
    op: str,
    image: str,
    windows: Mapping[str, tuple[int, ...]],
    more: Mapping[str, Value],
    shape: Sequence[int],
    to: str = "",
) -> str:
    """Add a pool of one to three dimensions; those of two run first, then that of the others."""

    def of_two(source: str, shape: Sequence[int], given: Mapping[str, tuple[int, ...]], to: str = "") -> str:
        size, padding = make.shape(source), given["padding"]
        for axis, (stride, dilation, window) in enumerate(zip(*map(given.get, _PER_AXIS), strict=True)):
            last = stride * (shape[2 + axis] - 1) + dilation * (window - 1) + 1
            if more and last > padding[axis] + size[2 + axis] + padding[2 + axis]:
                raise Unsupported("windows beyond the padding that counts (ceil_mode)")
        return make.node(op, source, to=to, shape=shape, given={**given, **more})

    if len(shape) == 4:
        return of_two(image, shape, windows, to)
    low, high = windows["padding"][: len(shape) - 2], windows["padding"][len(shape) - 2 :]
    if len(shape) == 3:
        flat = {name: (1, *windows[name]) for name in _PER_AXIS} | {"padding": (0, *low, 0, *high)}
        found = of_two(make.reshape(image, (*shape[:2], 1, -1)), (*shape[:2], 1, shape[2]), flat)
        return make.reshape(found, shape, to)
    n, c, depth, *sizes = make.shape(image)
    planes = {name: windows[name][1:] for name in _PER_AXIS} | {"padding": (*low[1:], *high[1:])}
    found = of_two(make.reshape(image, (n, c * depth, *sizes)), (n, c * depth, *shape[3:]), planes)
    column = {name: (windows[name][0], 1) for name in _PER_AXIS} | {"padding": (low[0], 0, high[0], 0)}
    found = of_two(make.reshape(found, (n, c, depth, -1)), (n, c, shape[2], shape[3] * shape[4]), column)
    return make.reshape(found, shape, to)


@translates("GlobalAveragePool", "GlobalMaxPool")
def _global_pool(make: Builder, node: Source) -> None:
    dims = tuple(range(2, make.rank(node.inputs[0])))
    make.node("Mean" if "Average" in node.op else "Max", node.inputs[0], to=node.outputs[0], given={"dim": dims})


@translates("BatchNormalization")
def _batch_norm(make: Builder, node: Source) -> None:
    if node.get("training_mode", 0) or len([name for name in node.outputs if name]) > 1:
        raise Unsupported("statistics of training")
    source, *given = node.inputs
    shape = (1, -1, *[1] * (make.rank(source) - 2))
    epsilon = float(node.get("epsilon", 1e-5))
    if any(make.tensors[name].value is None for name in given):
        scale, shift, mean, variance = (make.reshape(name, shape) for name in given)
        factor = make.node("Mul", make.node("Rsqrt", make.node("Shift", variance, given={"by": epsilon})), scale)
        make.node("Add", make.node("Mul", make.node("Sub", source, mean), factor), shift, to=node.outputs[0])
        return
    scale, shift, mean, variance = (make.value(name, "a parameter") for name in given)
    factor = scale / np.sqrt(variance.astype(np.float64) + epsilon)
    dtype = make.tensors[source].dtype.numpy
    by = make.constant(factor.astype(dtype).reshape(shape))
    add = make.constant((shift - mean * factor).astype(dtype).reshape(shape))
    make.node("Add", make.node("Mul", source, by), add, to=node.outputs[0])


@translates("LRN")
def _lrn(make: Builder, node: Source) -> None:
    names = {"alpha": ("alpha", 1e-4), "beta": ("beta", 0.75), "k": ("bias", 1.0)}
    given: dict[str, Value] = {one: float(node.get(name, default)) for one, (name, default) in names.items()}
    given["size"] = int(node.get("size"))
    make.node("LocalResponseNorm", node.inputs[0], to=node.outputs[0], given=given)
