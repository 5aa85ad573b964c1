"""Plans of convolutions, with a bias, a residual and an activation in the same kernel."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral

import attrs
import numpy as np

from morello.api.functions.calls import FunctionPlan
from morello.api.functions.views import ArrayView, result_like
from morello.errors import ArgumentError
from morello.ir.ops import BY_NAME, ComposeStage, Operation, arranged
from morello.ir.ops.binary import Add
from morello.ir.ops.conv import Conv, GroupedConv
from morello.ir.ops.windows import same_padding

#: The axes of images by their layout.
_LAYOUTS = {"nchw": "bcHW", "nhwc": "bHWc"}
_ACTIVATIONS = ("Relu", "Gelu", "Silu", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "Mish")


def plan_conv2d(
    stride: object,
    padding: object,
    dilation: object,
    groups: int,
    activation: object,
    layout: object,
    names: tuple[str, ...],
    arrays: Sequence[np.ndarray],
    out: np.ndarray | None,
) -> FunctionPlan:
    """Return the plan of `conv2d` for arrays of these names: x, w, and bias and residual if they are given.

    Raises ArgumentError for shapes and parameters that do not fit.
    """
    views = {name: ArrayView.of(array, f"conv2d: {name}") for array, name in zip(arrays, names, strict=True)}
    letters = _letters(layout)
    _check_ranks(views["x"].shape, views["w"].shape, letters)
    axes = [*map(letters.index, "bcHW")]
    x, w = views["x"].ordered(axes), views["w"]
    _check_shapes(x.shape, w.shape, groups)
    (b, _, *image), (filters, c, *size) = x.shape, w.shape
    windows = _Windows.of(image, size, stride, padding, dilation)
    views["x"] = x.parted((slice(None), slice(None), *(slice(max(0, end)) for end in windows.ends)))
    sizes = dict(zip("bcHW", (b, filters, *windows.sizes), strict=True))
    result = result_like("conv2d", x.dtype, tuple(map(sizes.__getitem__, letters)), out)
    y, shapes = result.ordered(axes), {"bias": (filters,), "residual": result.shape}
    for name in names[2:]:
        if views[name].shape != shapes[name]:
            raise ArgumentError(f"conv2d: {name} has shape {views[name].shape}", f"pass one of {shapes[name]}")
    if "residual" in views:
        views["residual"] = views["residual"].ordered(axes)
    made, kind, channel = y, Conv, [filters]
    if groups > 1:
        views = {name: one.split(0 if name in ("w", "bias") else 1, groups) for name, one in views.items()}
        made, kind, channel = y.split(1, groups), GroupedConv, [groups, filters // groups]
    conv = kind(stride=windows.strides, padding=windows.padding, dilation=windows.dilations)
    rank = len(made.shape)
    if "bias" in views:
        views["bias"] = views["bias"].grouped([[], *([axis] for axis in range(rank - 3)), [], []])
    inputs = tuple(enumerate(views.values()))
    later = _later(names, rank, activation)
    if not later:
        return FunctionPlan("conv2d", conv, (b, *channel, c, *windows.sizes, *size), inputs, made, result.shape)
    stages = [ComposeStage(op, rank, (~at, *more)) for at, (op, more) in enumerate(reversed(later), 1)]
    graph = arranged([*stages, ComposeStage(conv, rank + 3, (0, 1))])
    order = (*graph.inputs, len(names))
    iterated = (b, *channel, *windows.sizes, c, *size)
    return FunctionPlan("conv2d", graph.compose, iterated, inputs, made, result.shape, (*names, "y"), order)


def _letters(layout: object) -> str:
    """Return the axes of images in a layout. Raises ArgumentError for another word."""
    found = _LAYOUTS.get(str(layout).lower())
    if found is None:
        raise ArgumentError(f"conv2d: layout is {layout!r}", f"it is one of {', '.join(_LAYOUTS)}")
    return found


def _check_ranks(x: tuple[int, ...], w: tuple[int, ...], letters: str) -> None:
    """Raise ArgumentError for images and filters without four axes."""
    if (len(x), len(w)) != (4, 4):
        hint = f"x is {'×'.join(letters)} and w f×c×fh×fw: add axes, as in x[None]"
        raise ArgumentError(f"conv2d: x has shape {x} and w {w}", hint)


def _check_shapes(x: tuple[int, ...], w: tuple[int, ...], groups: object) -> None:
    """Raise ArgumentError for shapes b×c×H×W and f×c×fh×fw, and a number of groups, that do not fit."""
    channels, (filters, c, *size) = x[1], w
    if 0 in size:
        raise ArgumentError(f"conv2d: w has shape {w}", "its filters have at least one row and column")
    if not isinstance(groups, Integral) or groups < 1 or channels != c * groups or filters % groups:
        raise ArgumentError(
            f"conv2d: {channels} channels of x, {c} of each of {filters} filters and groups={groups!r}",
            "x needs groups times the channels of a filter, and the number of filters must be a multiple of groups",
        )


@attrs.frozen
class _Windows:
    """The parameters of a convolution of images of a size, and the sizes of its output.

    The image is read up to `ends`, as in other frameworks: rows and columns that no filter reaches are ignored.
    """

    strides: tuple[int, int]
    padding: tuple[int, ...]
    dilations: tuple[int, int]
    sizes: list[int]
    ends: list[int]

    @classmethod
    def of(cls, image: list[int], size: list[int], stride: object, padding: object, dilation: object) -> _Windows:
        """Raise ArgumentError for other parameters than numbers, and for filters that are larger than the image."""
        strides, dilations = _pair("stride", stride, 1), _pair("dilation", dilation, 1)
        reach = [apart * (length - 1) + 1 for apart, length in zip(dilations, size, strict=True)]
        axes = [*zip(image, reach, strides, strict=True)]
        word = padding.lower() if isinstance(padding, str) else ""
        if word == "same":
            before, after = same_padding(image, size, strides, dilations)
        else:
            before = after = _pair("padding", 0 if word == "valid" else padding, 0, ", or same or valid")
        sizes = [(n + low + high - r) // step + 1 for (n, r, step), low, high in zip(axes, before, after, strict=True)]
        if min(sizes) < 1:
            raise ArgumentError(
                f"conv2d: filters over {_times(reach)} pixels leave no output of an image of {_times(image)}",
                "pass a larger padding, or smaller filters or dilations",
            )
        ends = [step * (n - 1) + r - low for (_, r, step), n, low in zip(axes, sizes, before, strict=True)]
        beyond = [max(0, end - n) for end, n in zip(ends, image, strict=True)]
        return cls(strides, (*before, *beyond), dilations, sizes, ends)


def _later(names: Sequence[str], rank: int, activation: object) -> list[tuple[Operation, tuple[int, ...]]]:
    """Return the operations on the sums of a convolution, with the numbers of their other inputs."""
    later: list[tuple[Operation, tuple[int, ...]]] = []
    if "bias" in names:
        later.append((Add(over=(0, rank - 2, rank - 1)), (2,)))
    if "residual" in names:
        later.append((Add(), (len(names) - 1,)))
    if activation is not None:
        later.append((_activation(activation), ()))
    return later


def _activation(name: object) -> Operation:
    """Return an operation on values by its name in lower case. Raises ArgumentError for another."""
    found = {one.lower(): BY_NAME[one] for one in _ACTIVATIONS}
    found["relu6"] = BY_NAME["Clip"].configured({"low": 0, "high": 6})
    if name not in found:
        raise ArgumentError(f"conv2d: activation is {name!r}", f"it is None or one of {', '.join(found)}")
    return found[str(name)]


def _pair(name: str, given: object, least: int, words: str = "") -> tuple[int, int]:
    """Return a parameter as a pair for rows and columns. Raises ArgumentError for other values."""
    pair = given if isinstance(given, tuple | list) else (given, given)
    found = tuple(int(one) for one in pair if isinstance(one, Integral))
    if len(pair) != 2 or len(found) != 2 or min(found) < least:
        hint = f"it is a number of at least {least}, or a pair of them{words}"
        raise ArgumentError(f"conv2d: {name} is {given!r}", hint)
    return found[0], found[1]


def _times(sizes: Sequence[int]) -> str:
    return "×".join(map(str, sizes))
