"""Models in ONNX: loading, checking, shapes, folding of constants, translation to a graph."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from morello.errors import MorelloError
from morello.models.building import OPERATORS, Builder, Source, Unsupported, dtype_of
from morello.models.graph import Graph, Tensor
from morello.models.operators import load_operators

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

#: The largest constant, in values, that folding may make of smaller ones.
_MOST_FOLDED = 1 << 28
_RANDOM = {"Bernoulli", "Dropout", "Multinomial"} | {
    f"Random{kind}{like}" for kind in ("Normal", "Uniform") for like in ("", "Like")
}


def from_onnx(path: str | os.PathLike[str], dims: Mapping[str, int] | None = None) -> Graph:
    """Return the graph of a model; `dims` are the sizes of its named dimensions.

    Raises MorelloError for a file that is no model, for a dimension without a size, and for operators that have no
    translation, with all of their nodes.
    """
    onnx = _package()
    place = os.fspath(path)
    try:
        model = onnx.load(place)
        onnx.checker.check_model(place, full_check=False)
    except MorelloError:
        raise
    except Exception as error:
        raise MorelloError(f"{place}: not a valid ONNX model: {_first_line(error)}", "export it again") from error
    return graph_of(model, Path(place).stem, dims or {}, place)


def graph_of(model: ModelProto, name: str, dims: Mapping[str, int], place: str) -> Graph:
    """Return the graph of a model in memory; messages begin with its `place`."""
    onnx = _package()
    load_operators()
    _fix_dims(model, dims, place)
    try:
        model = onnx.version_converter.convert_version(model, _CONVERTED) if _version(model) < _OLDEST else model
        model = _folded(model)
    except Exception as error:
        message = f"{place}: its shapes contradict each other: {_first_line(error)}"
        raise MorelloError(message, "export it again") from error
    return _translated(model, name, place)


#: The version of ONNX's format from which constants need not be inputs.
_IR_VERSION = 4
#: Models of operator sets before the first version are converted to the second one.
_OLDEST, _CONVERTED = 7, 9


def _package() -> Any:
    try:
        import onnx
        import onnx.checker
        import onnx.reference
        import onnx.shape_inference
        import onnx.version_converter
    except ImportError as error:
        raise MorelloError("models in ONNX need the package onnx", "pip install 'morello[onnx]'") from error
    return onnx


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _version(model: ModelProto) -> int:
    return next((one.version for one in model.opset_import if one.domain in ("", "ai.onnx")), 1)


def _fix_dims(model: ModelProto, dims: Mapping[str, int], place: str) -> None:
    """Give the named dimensions of inputs their sizes. Raises MorelloError for those without one."""
    constants = {one.name for one in model.graph.initializer}
    missing: dict[str, str] = {}
    known: set[str] = set()
    for one in model.graph.input:
        if one.name in constants:
            continue
        for number, dim in enumerate(one.type.tensor_type.shape.dim):
            name = dim.dim_param or (f"{one.name}.{number}" if not dim.dim_value else "")
            if not name:
                continue
            known.add(name)
            if name in dims:
                dim.dim_value = dims[name]
            else:
                missing[name] = one.name
    if missing:
        named = ", ".join(f"{dim} (of the input {name})" for dim, name in missing.items())
        example = " ".join(f"--dim {dim}=1" for dim in missing)
        raise MorelloError(f"{place}: dimensions without a size: {named}", f"give each one, for example {example}")
    if unknown := [name for name in dims if name not in known]:
        names = f"it has {', '.join(sorted(known))}" if known else "all of its dimensions have sizes"
        raise MorelloError(f"{place}: no input has the dimension {unknown[0]}", names)


def _folded(model: ModelProto) -> ModelProto:
    """Return the model with the shapes of all tensors, and without nodes that compute constants."""
    onnx = _package()
    # In older versions constants without an input have no shape.
    model.ir_version = max(model.ir_version, _IR_VERSION)
    while True:
        # Sizes that were inferred for named dimensions would stay.
        del model.graph.value_info[:]
        model = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
        if not _fold_once(model):
            return model


def _fold_once(model: ModelProto) -> bool:
    """Replace nodes whose inputs are constants by their values; return whether there were any."""
    onnx = _package()
    values = {one.name: onnx.numpy_helper.to_array(one) for one in model.graph.initializer}
    shapes = _shapes(model)
    kept, made = list["NodeProto"](), dict[str, np.ndarray]()
    for node in model.graph.node:
        known = _value_of(model, node, values, shapes)
        if known is None:
            kept.append(node)
        else:
            made |= known
            values |= known
    del model.graph.node[:]
    model.graph.node.extend(kept)
    for name, value in made.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.ascontiguousarray(value), name))
    return bool(made)


def _value_of(
    model: ModelProto, node: NodeProto, values: Mapping[str, np.ndarray], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, np.ndarray] | None:
    """Return the outputs of a node that is a constant; None for another."""
    onnx = _package()
    if node.op_type == "Shape" and node.input[0] in shapes:
        of = {one.name: one.i for one in node.attribute}
        return {node.output[0]: np.array(shapes[node.input[0]][of.get("start", 0) : of.get("end")], np.int64)}
    if node.op_type == "Size" and node.input[0] in shapes:
        return {node.output[0]: np.array(int(np.prod(shapes[node.input[0]])), np.int64)}
    if node.op_type in _RANDOM or any(name and name not in values for name in node.input) or _has_graphs(node):
        return None
    if any(int(np.prod(shapes.get(name, ()), dtype=object)) > _MOST_FOLDED for name in node.output):
        return None
    given = {name: values[name] for name in node.input if name}
    kind, info = onnx.helper.np_dtype_to_tensor_dtype, onnx.helper.make_tensor_value_info
    inputs = [info(name, kind(value.dtype), value.shape) for name, value in given.items()]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = onnx.helper.make_graph([node], "constant", inputs, outputs)
    single = onnx.helper.make_model(graph, opset_imports=model.opset_import)
    try:
        found = onnx.reference.ReferenceEvaluator(single).run(None, given)
    except Exception:
        return None  # translation reports it
    names = [name for name in node.output if name]
    return {name: np.asarray(value) for name, value in zip(names, found, strict=True)}


def _has_graphs(node: NodeProto) -> bool:
    return any(one.HasField("g") or one.graphs for one in node.attribute)


def _shapes(model: ModelProto) -> dict[str, tuple[int, ...]]:
    """Return the shapes that are known, by tensor."""
    graph = model.graph
    found = {one.name: tuple(one.dims) for one in graph.initializer}
    for one in (*graph.value_info, *graph.input, *graph.output):
        kind = one.type.tensor_type
        if kind.HasField("shape") and all(dim.HasField("dim_value") for dim in kind.shape.dim):
            found.setdefault(one.name, tuple(dim.dim_value for dim in kind.shape.dim))
    return found


def _translated(model: ModelProto, name: str, place: str) -> Graph:
    onnx = _package()
    graph, builder, shapes = model.graph, Builder(), _shapes(model)
    constants = {one.name: onnx.numpy_helper.to_array(one) for one in graph.initializer}
    kinds = {one.name: one.type.tensor_type.elem_type for one in (*graph.value_info, *graph.input, *graph.output)}
    used = {name for node in graph.node for name in node.input} | {one.name for one in graph.output}
    faults: list[str] = []
    for tensor, shape in shapes.items():
        try:
            value = constants.get(tensor)
            numpy = value.dtype if value is not None else onnx.helper.tensor_dtype_to_np_dtype(kinds[tensor])
            builder.tensors[tensor] = Tensor(tensor, shape, dtype_of(numpy), value)
        except Unsupported as error:
            faults.append(f"the tensor {tensor}: {error}")
    for node in graph.node:
        source = Source(
            node.name or next(filter(None, node.output)),
            node.op_type,
            tuple(node.input),
            tuple(name if name in used else "" for name in node.output),
            {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute},
            _version(model),
        )
        builder.source = source.name
        if not any(source.outputs):
            continue
        try:
            _translate(builder, source)
        except Unsupported as error:
            faults.append(f"{source.name} ({node.op_type}): {error}")
    if faults:
        listed = "".join(f"\n    {fault}" for fault in faults)
        hint = "replace these nodes before the export, or run them outside of the model"
        raise MorelloError(f"{place}: {len(faults)} parts have no translation:{listed}", hint)
    inputs = [one.name for one in graph.input if one.name not in constants]
    return builder.graph(name, inputs, [one.name for one in graph.output])


def _translate(builder: Builder, source: Source) -> None:
    if source.op not in OPERATORS:
        raise Unsupported("no such operator")
    for name in (*source.inputs, *source.outputs):
        if name and name not in builder.tensors:
            raise Unsupported(f"{name} has no shape before it runs")
        if name and 0 in builder.shape(name):
            raise Unsupported(f"{name} is empty")
    OPERATORS[source.op](builder, source)
