"""The light models of the package onnx with random weights, and graphs as functions of torch."""

from __future__ import annotations

import importlib.util
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from morello.models.graph import Graph, Node, View

NAMES = (
    "squeezenet",
    "shufflenet",
    "resnet50",
    "inception_v1",
    "inception_v2",
    "densenet121",
    "bvlc_alexnet",
    "zfnet512",
    "vgg19",
)


def light_model(name: str) -> Path:
    """Return the file of a light model with random weights, which is made once in the folder for temporary files."""
    import onnx

    path = Path(tempfile.gettempdir(), f"morello-light-{name}.onnx")
    if path.exists():
        return path
    package = importlib.util.find_spec("onnx")
    assert package
    assert package.origin
    model = onnx.load(Path(package.origin).parent / f"backend/test/data/light/light_{name}.onnx")
    random, graph = np.random.default_rng(0), model.graph
    sizes = {one.name: onnx.numpy_helper.to_array(one) for one in graph.initializer}
    nodes = []
    for node in graph.node:
        if node.op_type == "ConstantOfShape" and node.input[0] in sizes:
            shape = tuple(map(int, sizes[node.input[0]]))
            # Sums of products, and sums of these in residual blocks, keep about the same size.
            value = random.standard_normal(shape) / math.sqrt(max(1, math.prod(shape[1:])))
            value = value if len(shape) > 1 else 0.15 + 0.3 * random.random(shape)
            graph.initializer.append(onnx.numpy_helper.from_array(value.astype(np.float32), node.output[0]))
        else:
            nodes.append(node)
    used = {name for node in nodes for name in node.input}
    kept = [one for one in graph.initializer if one.name in used]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    del graph.node[:]
    graph.node.extend(nodes)
    # Older versions list the weights among the inputs.
    model.ir_version = max(model.ir_version, 4)
    constants = {one.name for one in graph.initializer}
    inputs = [one for one in graph.input if one.name in used - constants]
    del graph.input[:]
    graph.input.extend(inputs)
    partial = path.with_suffix(".part")
    onnx.save(model, partial)
    partial.rename(path)
    return path


def torch_function(graph: Graph) -> Callable[..., Any]:
    """Return a graph of nodes as a function of torch. Raises KeyError for an operation without one here."""
    import torch  # pyright: ignore[reportMissingImports]
    from torch.nn import functional  # pyright: ignore[reportMissingImports]

    def windowed(node: Node, image: Any, value: float) -> tuple[Any, dict[str, Any]]:
        """Return an image with a border that torch's windows cannot have, and the parameters of these."""
        given: dict[str, Any] = {**node.parameters}
        padding = given["padding"]
        low, high = padding[: len(padding) // 2], padding[len(padding) // 2 :]
        if low == high:
            return image, {**given, "padding": low}
        sizes = [size for pair in zip(reversed(low), reversed(high), strict=True) for size in pair]
        return functional.pad(image, sizes, value=value), {**given, "padding": 0}

    def conv(node: Node, image: Any, filters: Any) -> Any:
        image, given = windowed(node, image, 0.0)
        shape = given["stride"], given["padding"], given["dilation"], node.groups
        return functional.conv2d(image, filters, None, *shape)

    def max_pool(node: Node, image: Any) -> Any:
        image, given = windowed(node, image, -math.inf)
        return functional.max_pool2d(image, given["window"], given["stride"], given["padding"])

    def mean_pool(node: Node, image: Any) -> Any:
        image, given = windowed(node, image, 0.0)
        counted = bool(given.get("count_include_pad"))
        shape = given["window"], given["stride"], given["padding"]
        return functional.avg_pool2d(image, *shape, count_include_pad=counted)

    def norm(node: Node, image: Any) -> Any:
        alpha, beta, k = (float(node.parameters[one]) for one in ("alpha", "beta", "k"))  # type: ignore[arg-type]
        return functional.local_response_norm(image, int(node.parameters["size"]), alpha, beta, k)  # type: ignore[call-overload]

    functions: dict[str, Callable[..., Any]] = {
        "Conv": conv,
        "MaxPool": max_pool,
        "AvgPool": mean_pool,
        "LocalResponseNorm": norm,
        "Matmul": lambda _, a, b: a @ b,
        "Add": lambda _, a, b: a + b,
        "Mul": lambda _, a, b: a * b,
        "Relu": lambda _, a: torch.relu(a),
        "Clip": lambda node, a: torch.clamp(a, node.parameters["low"], node.parameters["high"]),
        "Sigmoid": lambda _, a: torch.sigmoid(a),
        "Silu": lambda _, a: functional.silu(a),
        "HardSigmoid": lambda _, a: functional.hardsigmoid(a),
        "HardSwish": lambda _, a: functional.hardswish(a),
        "Softmax": lambda _, a: torch.softmax(a, -1),
        "Mean": lambda node, a: a.mean(node.parameters["dim"], keepdim=True),
        "Concat": lambda node, *all_of: torch.cat(all_of, node.parameters["dim"]),
    }
    views: dict[str, Callable[..., Any]] = {
        "reshape": lambda a, given: a.reshape(given),
        "transpose": lambda a, given: a.permute(given),
        "slice": lambda a, given: a[given],
        "expand": lambda a, given: a.expand(given),
    }
    for part in graph.parts:
        if isinstance(part, Node) and part.op not in functions:
            raise KeyError(part.op)
    constants = {
        name: torch.from_numpy(one.value.copy()) for name, one in graph.tensors.items() if one.value is not None
    }

    def call(*arrays: Any) -> Any:
        found = {**constants, **dict(zip(graph.inputs, arrays, strict=True))}
        for part in graph.parts:
            given = [found[name] for name in part.inputs]
            if isinstance(part, View):
                found[part.output] = views[part.kind](given[0], part.given)
            else:
                assert isinstance(part, Node)
                found[part.outputs[0]] = functions[part.op](part, *given)
        return found[graph.outputs[0]]

    return call
