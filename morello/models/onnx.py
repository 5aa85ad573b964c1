"""Models in ONNX: loading, checking, shapes, folding of constants, translation to a graph."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from morello.errors import MorelloError
from morello.models.building import OPERATORS, Builder, Source, Unsupported, dtype_of
from morello.models.graph import Graph, Tensor
from morello.models.operators import load_operators

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

#: The largest constant, in values, that folding may make of smaller ones.
_MOST_FOLDED = 1 << 28
#: The most values of a tensor.
_MOST_VALUES = 1 << 34
#: Operators whose further outputs only their bodies compute.
_ONE_OUTPUT = ("LayerNormalization",)
#: Operators whose result depends on nothing but shapes.
_OF_SHAPES = ("Shape", "Size", "EyeLike")
#: Operators whose outputs are not much larger than their inputs.
_NO_LARGER = ("NonZero", "Compress", "Unique")
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
    except Exception as error:
        raise MorelloError(f"{place}: not a valid ONNX model: {_first_line(error)}", "export it again") from error
    return graph_of(model, Path(place).stem, dims or {}, place)


def graph_of(model: ModelProto, name: str, dims: Mapping[str, int], place: str) -> Graph:
    """Return the graph of a model in memory; messages begin with its `place`."""
    onnx = _package()
    load_operators()
    _check_equations(model, place)
    _fix_dims(model, dims, place)
    try:
        model = onnx.version_converter.convert_version(model, _CONVERTED) if _version(model) < _OLDEST else model
        model = _folded(_expanded(model))
    except Exception as error:
        message = f"{place}: its shapes contradict each other: {_first_line(error)}"
        raise MorelloError(message, "export it again") from error
    return _translated(model, name, place)


#: The version of ONNX's format from which constants need not be inputs.
_IR_VERSION = 4
#: Models of operator sets before the first version are converted to the second one.
_OLDEST, _CONVERTED = 7, 9
#: The version of a model that uses no operators of the standard set.
_NEWEST = 21


def _package() -> Any:
    try:
        import onnx
        import onnx.checker
        import onnx.defs
        import onnx.inliner
        import onnx.reference
        import onnx.shape_inference
        import onnx.version_converter
    except ImportError as error:
        raise MorelloError("models in ONNX need the package onnx", "pip install 'morello[onnx]'") from error
    return onnx


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _version(model: ModelProto) -> int:
    return next((one.version for one in model.opset_import if _standard(one.domain)), _NEWEST)


def _check_equations(model: ModelProto, place: str) -> None:
    """Raise MorelloError for equations on which ONNX's inference of shapes does not end."""
    for graph in (model.graph, *model.functions):
        for node in graph.node:
            for one in node.attribute:
                if node.op_type == "Einsum" and not re.fullmatch(rb"[A-Za-z., ]*(->[A-Za-z. ]*)?", one.s):
                    reason = f"{place}: {node.name or 'a node'} (Einsum): {one.s!r} is no equation"
                    raise MorelloError(reason, "write letters for dimensions, such as ij,jk->ik")


def _fix_dims(model: ModelProto, dims: Mapping[str, int], place: str) -> None:
    """Give the named dimensions of inputs their sizes. Raises MorelloError for those without one."""
    known = _fix_values(model, dims)
    constants = {one.name for one in model.graph.initializer}
    missing: dict[str, str] = {}
    if wrong := next((name for name, size in dims.items() if size < 1 and name not in known), ""):
        raise MorelloError(f"{place}: the size {dims[wrong]} of {wrong}", "give a size of at least 1")
    for one in model.graph.input:
        if one.name in constants:
            continue
        for number, dim in enumerate(one.type.tensor_type.shape.dim):
            name = dim.dim_param or ("" if dim.HasField("dim_value") else f"{one.name}.{number}")
            if not name:
                if dim.dim_value < 0:
                    raise MorelloError(f"{place}: the input {one.name} has the size {dim.dim_value}", "export it again")
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


def _fix_values(model: ModelProto, dims: Mapping[str, int]) -> set[str]:
    """Make the inputs of one integer that `dims` names constants; return their names."""
    onnx = _package()
    fixed: set[str] = set()
    for one in [*model.graph.input]:
        kind = one.type.tensor_type
        if one.name not in dims or kind.elem_type not in (onnx.TensorProto.INT32, onnx.TensorProto.INT64):
            continue
        shape = [dim.dim_value for dim in kind.shape.dim]
        if int(np.prod(shape)) == 1:
            value = np.full(shape, dims[one.name], onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))
            model.graph.initializer.append(onnx.numpy_helper.from_array(value, one.name))
            model.graph.input.remove(one)
            fixed.add(one.name)
    return fixed


def _expanded(model: ModelProto) -> ModelProto:
    """Return the model with the bodies of functions in place of their calls, but for operators with translations."""
    onnx = _package()
    model = onnx.inliner.inline_local_functions(model)
    while True:
        used = {node.op_type for node in model.graph.node if _standard(node.domain) and not _is_translated(node)}
        bodies = [("", op) for op in sorted(used) if _has_body(op, _version(model))]
        if not bodies:
            return model
        # Bodies depend on the types of inputs.
        model = onnx.shape_inference.infer_shapes(model, data_prop=True)
        made = onnx.inliner.inline_selected_functions(model, bodies, False, True)
        if [node.op_type for node in made.graph.node] == [node.op_type for node in model.graph.node]:
            return made  # translation reports it
        model = made


def _standard(domain: str) -> bool:
    return domain in ("", "ai.onnx")


def _is_translated(node: NodeProto) -> bool:
    several = sum(map(bool, node.output)) > 1
    return node.op_type in OPERATORS and not (several and node.op_type in _ONE_OUTPUT)


def _has_body(op: str, version: int) -> bool:
    onnx = _package()
    try:
        schema = onnx.defs.get_schema(op, version)
    except onnx.defs.SchemaError:
        return False
    return schema.has_function or schema.has_context_dependent_function


def _folded(model: ModelProto) -> ModelProto:
    """Return the model with the shapes of all tensors, and without nodes that compute constants."""
    # In older versions constants without an input have no shape.
    model.ir_version = max(model.ir_version, _IR_VERSION)
    while True:
        # Sizes that were inferred for named dimensions would stay.
        del model.graph.value_info[:]
        model = _with_shapes(model)
        if not _fold_once(model):
            return model


def _with_shapes(model: ModelProto) -> ModelProto:
    onnx = _package()
    try:
        return onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    except onnx.shape_inference.InferenceError:
        # Bodies of some operators have faults of their own; tensors without a shape are reported.
        return onnx.shape_inference.infer_shapes(model, data_prop=True)


def _fold_once(model: ModelProto) -> bool:
    """Replace nodes whose inputs are constants by their values; return whether there were any."""
    onnx = _package()
    values = {one.name: onnx.numpy_helper.to_array(one) for one in model.graph.initializer}
    shapes, types = _shapes(model), _types(model)
    kept, made = list["NodeProto"](), dict[str, np.ndarray]()
    branches = False
    waiting = deque(model.graph.node)
    while waiting:
        node = waiting.popleft()
        if node.op_type == "CastLike" and node.input[1] in types:
            node = onnx.helper.make_node("Cast", node.input[:1], node.output, node.name, to=types[node.input[1]])
        known = _value_of(model, node, values, shapes, types)
        if known is None and node.op_type == "If" and node.input[0] in values:
            branches = True
            constants: dict[str, np.ndarray] = {}
            waiting.extendleft(reversed(_branch(node, bool(values[node.input[0]].item()), constants)))
            made |= constants
            values |= constants
        elif known is None:
            kept.append(node)
        else:
            made |= known
            values |= known
    del model.graph.node[:]
    model.graph.node.extend(kept)
    for name, value in made.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.ascontiguousarray(value), name))
    return bool(made) or branches


def _branch(node: NodeProto, condition: bool, constants: dict[str, np.ndarray]) -> list[NodeProto]:
    """Return the nodes of a branch of an If, with names of their own, and add its constants."""
    onnx = _package()
    graph = next(one.g for one in node.attribute if one.name == ("then_branch" if condition else "else_branch"))
    own = {name for part in graph.node for name in part.output} | {one.name for one in graph.initializer}
    names = {name: f"{node.output[0]}.{name}" for name in own if name}
    constants |= {names[one.name]: onnx.numpy_helper.to_array(one) for one in graph.initializer}
    made = [_renamed(one, names) for one in graph.node]
    ends = zip(graph.output, node.output, strict=True)
    return made + [
        onnx.helper.make_node("Identity", [names.get(one.name, one.name)], [end]) for one, end in ends if end
    ]


def _renamed(node: NodeProto, names: Mapping[str, str]) -> NodeProto:
    """Return a node that uses other names of tensors, also in its graphs."""
    made = type(node)()
    made.CopyFrom(node)
    for listed in (made.input, made.output):
        listed[:] = [names.get(name, name) for name in listed]
    for attribute in made.attribute:
        for graph in (attribute.g, *attribute.graphs) if _has_graphs(made) else ():
            inner = [_renamed(one, names) for one in graph.node]
            del graph.node[:]
            graph.node.extend(inner)
            for one in graph.output:
                one.name = names.get(one.name, one.name)
    return made


def _value_of(
    model: ModelProto,
    node: NodeProto,
    values: Mapping[str, np.ndarray],
    shapes: Mapping[str, tuple[int, ...]],
    types: Mapping[str, int],
) -> dict[str, np.ndarray] | None:
    """Return the outputs of a node that is a constant; None for another."""
    onnx = _package()
    kind_of = onnx.helper.tensor_dtype_to_np_dtype
    if node.op_type in _OF_SHAPES and node.input[0] in shapes:
        values = {node.input[0]: np.zeros(shapes[node.input[0]], kind_of(types[node.input[0]]))}
    if node.op_type in _RANDOM or any(name and name not in values for name in node.input) or _has_graphs(node):
        return None
    if any(name and not _is_small(node, shapes.get(name)) for name in node.output):
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


def _is_small(node: NodeProto, shape: tuple[int, ...] | None) -> bool:
    """Return whether an output may be computed: no more values than the limit, or than inputs have."""
    return node.op_type in _NO_LARGER if shape is None else prod(shape) <= _MOST_FOLDED


def _has_graphs(node: NodeProto) -> bool:
    return any(one.HasField("g") or one.graphs for one in node.attribute)


def _types(model: ModelProto) -> dict[str, int]:
    """Return ONNX's number of the type of each tensor."""
    graph = model.graph
    found = {one.name: one.data_type for one in graph.initializer}
    return {
        one.name: one.type.tensor_type.elem_type for one in (*graph.value_info, *graph.input, *graph.output)
    } | found


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
    kinds = _types(model)
    used = {name for node in graph.node for name in node.input} | {one.name for one in graph.output}
    faults: list[str] = []
    for tensor, shape in shapes.items():
        if 0 in shape and any(one.name == tensor for one in graph.output):
            faults.append(f"the output {tensor} is empty")
        if prod(shape) > _MOST_VALUES or min(shape, default=0) < 0:
            raise MorelloError(f"{place}: the tensor {tensor} has the shape {shape}", "give smaller sizes")
        try:
            value = constants.get(tensor)
            numpy = value.dtype if value is not None else onnx.helper.tensor_dtype_to_np_dtype(kinds[tensor])
            builder.tensors[tensor] = Tensor(tensor, shape, dtype_of(numpy), value)
        except Unsupported as error:
            faults.append(f"the tensor {tensor}: {error}")
        except KeyError:
            faults.append(f"the tensor {tensor}: values of an unknown type")
    for node in graph.node:
        source = Source(
            node.name or next(filter(None, node.output)),
            node.op_type if _standard(node.domain) else f"{node.domain}.{node.op_type}",
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
            faults.append(f"{source.name} ({source.op}): {error}")
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
    # Empty parts of a tensor are left out.
    empty = {name for name in (*source.inputs, *source.outputs) if name and 0 in builder.shape(name)}
    if all(name in empty or not name for name in source.outputs):
        return
    if source.op == "Concat":
        source = attrs.evolve(source, inputs=tuple(name for name in source.inputs if name not in empty))
    if empty := next((name for name in source.inputs if name in empty), ""):
        raise Unsupported(f"{empty} is empty")
    source = attrs.evolve(source, outputs=tuple("" if name in empty else name for name in source.outputs))
    try:
        OPERATORS[source.op](builder, source)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise Unsupported(f"its attributes, types and shapes contradict each other: {_first_line(error)}") from error
