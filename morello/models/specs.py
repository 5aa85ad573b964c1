"""Steps as Specs: the text of the language, and the places of the operands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

import attrs
import numpy as np

from morello.errors import SpecError
from morello.frontend.infer import iteration_shape
from morello.ir.ops import BY_NAME
from morello.ir.ops.base import Value
from morello.ir.ops.named_graphs import NAMED_GRAPHS
from morello.models.graph import Graph, Node, Step
from morello.models.places import Place

#: Operations whose second input is packed if it is constant.
_PACKED = ("Conv", "GroupedConv", "Conv1d", "Conv3d", "Matmul")
#: The most weights that stay in a cache while all rows are computed: 1 MiB of f32. On a core of Zen 4, layers of 7×7
#: pixels with at most as many are as fast as products as they are as convolutions, up to 8 % faster, or 1.5 % slower;
#: those with more are up to 20 % slower.
_CACHED = 1 << 18
#: The spatial dimensions of images, of operations that slide windows over them.
WINDOWS = {"Conv1d": (2,), "Conv": (2, 3), "Conv3d": (2, 3, 4), "MaxPool": (2, 3), "AvgPool": (2, 3)}


class NeedsCopy(Exception):
    """A tensor of which an operand needs a contiguous copy, repeated to `shape` if it is given."""

    def __init__(self, tensor: str, shape: tuple[int, ...] | None = None):
        super().__init__(tensor)
        self.tensor, self.shape = tensor, shape


@attrs.frozen(eq=False)
class Written:
    """A Spec as text, and its operands in call order: the tensors and their places."""

    text: str
    tensors: tuple[str, ...]
    places: tuple[Place, ...]


def spec_of(graph: Graph, step: Step, place_of: Callable[[str], Place]) -> Written:
    """Return the Spec of a step whose tensors have these places.

    Raises NeedsCopy for a tensor whose places the operation cannot take.
    """
    tensors = (*step.inputs, *step.outputs)
    nodes, places = _canonical(graph, step, {name: place_of(name) for name in tensors})
    labels = {name: f"x{number}" for number, name in enumerate(step.inputs)}
    labels |= {name: f"t{number}" for number, node in enumerate(nodes) for name in node.outputs}
    labels |= {name: f"y{number}" for number, name in enumerate(step.outputs)}
    packed = {node.inputs[1] for node in nodes if node.op in _PACKED and graph.is_constant(node.inputs[1])}
    packed -= {name for node in nodes for name in (node.inputs[0], *node.inputs[2:])}
    states = {
        name: f"{graph.tensors[name].dtype}, GL{places[name].text}{', constant' * (name in packed)}" for name in tensors
    }
    shapes = {name: "×".join(map(str, places[name].shape)) for name in tensors}
    ordered = tuple(places[name] for name in tensors)
    if len(nodes) == 1 and nodes[0].op not in NAMED_GRAPHS:
        (node,) = nodes
        # One tensor may be several inputs.
        called = (*node.inputs, *node.outputs)
        operands = ", ".join(f"({states[name]})" for name in called)
        names = ", ".join(f"x{number}" for number in range(len(called)))
        text = f"{_applied(graph, node, places)}, {operands}, serial)({names})"
        return Written(text, called, tuple(places[name] for name in called))
    equations = []
    for node in reversed(nodes):
        inputs = ", ".join(labels[name] for name in node.inputs)
        equations.append(f"{labels[node.outputs[0]]} = {node.op}{_listed(node.parameters)}({inputs})")
    listed = ", ".join(f"{labels[name]}: ({shapes[name]}, {states[name]})" for name in tensors)
    return Written(f"Compose([{', '.join(equations)}], [{listed}], serial)", tensors, ordered)


def _applied(graph: Graph, node: Node, places: Mapping[str, Place]) -> str:
    """Return the start of the Spec of one operation: its name, parameters and sizes."""
    shapes = [places[name].shape for name in (*node.inputs, *node.outputs)]
    op = BY_NAME[node.op].configured(node.parameters, None, shapes[: len(node.inputs)])
    rank = op.rank or max(map(len, shapes)) + (node.op == "Gather")
    operands = op.operands(rank)
    shapes = [(1,) * (len(one.dims) - len(shape)) + shape for one, shape in zip(operands, shapes, strict=True)]
    sizes = iteration_shape(op, rank, shapes)
    if sizes is None:
        raise SpecError(f"{node}: the shapes {', '.join(map(str, shapes))} do not fit", "this is a bug: report it")
    return f"{op}({'×'.join(map(str, sizes))}"


def _listed(parameters: Mapping[str, Value]) -> str:
    """Return parameters as text."""
    given = {name: value for name, value in parameters.items() if value is not False}
    words = [name if value is True else f"{name}={_value(value)}" for name, value in given.items()]
    return f"[{', '.join(words)}]" if words else ""


def _value(value: Value) -> str:
    return f"[{', '.join(map(str, value))}]" if isinstance(value, tuple) else str(value)


def _canonical(graph: Graph, step: Step, places: dict[str, Place]) -> tuple[list[Node], dict[str, Place]]:
    """Return the nodes and places in the dimensions that the operations of the language have."""
    nodes = [_windowed(node, places) if node.op in WINDOWS else node for node in step.nodes]
    for name, place in places.items():
        if not place.shape:
            places[name] = place.reshaped((1,))
    for node in nodes:
        if found := _pointwise(node, places):
            return [attrs.evolve(one, op="Matmul", parameters={}) if one is node else one for one in nodes], found
        if node.groups > 1:
            return _grouped(nodes, node, graph, places)
        if node.op == "Matmul":
            return nodes, _matrices(graph, node, nodes, places)
    return nodes, places


def _windowed(node: Node, places: dict[str, Place]) -> Node:
    """Fit the image to what the windows cover, and return the node without the padding that is in memory."""
    image, dims, given = places[node.inputs[0]], WINDOWS[node.op], dict(node.parameters)
    window = given.pop("window", None) or places[node.inputs[1]].shape[2:]
    padding = given.pop("padding")
    count, out = len(dims), places[node.outputs[0]].shape if node.outputs[0] in places else None
    stride, dilation = given["stride"], given["dilation"]
    assert isinstance(window, tuple)
    assert isinstance(padding, tuple)
    assert isinstance(stride, tuple)
    assert isinstance(dilation, tuple)
    before, after = [0] * len(image.shape), [0] * len(image.shape)
    kept = list(padding)
    for number, dim in enumerate(dims):
        size, low, high = image.shape[dim], padding[number], padding[count + number]
        reach = dilation[number] * (window[number] - 1) + 1
        windows = out[dim] if out else (size + low + high - reach) // stride[number] + 1
        high = stride[number] * (windows - 1) + reach - low - size
        if node.op in ("MaxPool", "AvgPool", "Conv3d"):
            # Their padding is no memory; rows that no window reaches are left out.
            after[dim], kept[number], kept[count + number] = min(high, 0), low, max(high, 0)
        else:
            before[dim], after[dim] = low, high
            kept[number] = kept[count + number] = 0
    if any(kept):
        given["padding"] = tuple(kept)
    given = {
        name: value for name, value in given.items() if value != (1,) * count or name not in ("stride", "dilation")
    }
    places[node.inputs[0]] = image.grown(before, after)
    return attrs.evolve(node, parameters=given)


def _pointwise(node: Node, places: Mapping[str, Place]) -> dict[str, Place] | None:
    """Return the places of a convolution of each pixel, and the nodes after it, as those of a product of matrices.

    Pixels are rows, and groups are a batch: a search of products proves in a second what one of convolutions does not
    in twenty. None if pixels are not evenly apart in memory, as in an image with a border, or the convolution is of
    more than each pixel, or of single channels. Without groups, an odd number of rows would leave one for which all
    weights are read again, which takes long where no cache holds them.
    """
    if node.op not in ("Conv", "Conv1d") or node.parameters:
        return None
    groups, (image, filters) = node.groups, (places[name] for name in node.inputs)
    if prod(filters.shape[2:]) > 1 or (groups > 1 and min(filters.shape[0] // groups, filters.shape[1]) == 1):
        return None
    batch, _, *pixels = image.shape
    if groups == 1 and prod(pixels) > 1 and batch * prod(pixels) % 2 and prod(filters.shape) > _CACHED:
        return None
    found = dict[str, Place]()
    for name, place in places.items():
        own = (*(1,) * (len(image.shape) - len(place.shape)), *place.shape)
        rows = own[0], *own[2:]
        batches = 1 if own[1] == 1 else groups
        try:
            if name == node.inputs[1]:
                each = (groups, filters.shape[0] // groups, filters.shape[1])
                found[name] = place.reshaped(each).seen(lambda array: array.swapaxes(1, 2))
            elif rows in ((batch, *pixels), (1,) * len(rows)):
                split = place.reshaped((own[0], batches, own[1] // batches, *own[2:]))
                last = split.seen(lambda array: np.moveaxis(array, (1, 2), (0, -1)))
                found[name] = last.reshaped((batches, prod(rows), own[1] // batches))
            else:
                return None
        except ValueError:
            return None
    return found


def _grouped(
    nodes: list[Node], conv: Node, graph: Graph, places: dict[str, Place]
) -> tuple[list[Node], dict[str, Place]]:
    """Return a convolution of groups and the nodes after it, with the dimension of groups."""
    filters = conv.inputs[1]
    for name, place in places.items():
        shape = place.shape
        if name == filters:
            split = (conv.groups, shape[0] // conv.groups, *shape[1:])
        else:
            shape = (1,) * (len(graph.tensors[conv.inputs[0]].shape) - len(shape)) + shape
            channels = (1, 1) if shape[1] == 1 else (conv.groups, shape[1] // conv.groups)
            split = (shape[0], *channels, *shape[2:])
        places[name] = _reshaped(name, place, split if len(split) == 5 else (*split[:-1], 1, split[-1]))
    items = conv.parameters.items()
    given = {name: (1, *value) if isinstance(value, tuple) and len(value) == 1 else value for name, value in items}
    grouped = attrs.evolve(conv, op=f"Grouped{conv.op.removesuffix('1d')}", parameters=given)
    return [grouped if node is conv else node for node in nodes], places


def _matrices(graph: Graph, product: Node, nodes: Sequence[Node], places: dict[str, Place]) -> dict[str, Place]:
    """Return the places of a product and the nodes after it with one dimension of batches."""
    left, right = (places[name].shape for name in product.inputs)
    batch = graph.tensors[product.outputs[0]].shape[:-2]
    # Rows of all batches are those of one matrix if they share the other.
    rows = prod(right[:-2]) == 1
    for name, place in places.items():
        own = (*(1,) * (len(batch) + 2 - len(place.shape)), *place.shape)
        if rows and name == product.inputs[1]:
            shape = (1, *own[-2:])
        elif rows:
            shape = (1, prod(own[:-1]), own[-1])
            if shape[1] != 1 and own[:-1] != (*batch, left[-2]):
                raise NeedsCopy(name, (*batch, *own[-2:]))
        else:
            if own[:-2] != batch and (name in product.inputs or prod(own[:-2]) != 1):
                own = (*batch, *own[-2:])
                place = place.seen_as(own)
            shape = (prod(own[:-2]), *own[-2:])
        places[name] = _reshaped(name, place, shape)
    return places


def _reshaped(name: str, place: Place, shape: Sequence[int]) -> Place:
    try:
        return place.reshaped(shape)
    except ValueError:
        raise NeedsCopy(name, place.shape) from None
