"""Models in ONNX: loading, checking, shapes, folding of constants, translation to a graph."""

from __future__ import annotations

import os
import shlex
from collections import deque
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from morello.errors import MorelloError
from morello.models.building import MOST_VALUES, OPERATORS, Builder, Source, Unsupported, dtype_of
from morello.models.graph import Graph, Tensor
from morello.models.onnx_worker import CallError, ProcessEnded, Worker
from morello.models.operators import load_operators

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

_WORKER = Worker()
#: The most values of all constants that folding may make of smaller ones.
_MOST_FOLDED = 1 << 28
#: The bytes of a constant from which it is kept out of the model.
_LARGE = 1 << 12
#: Operators whose further outputs only their bodies compute.
_ONE_OUTPUT = ("LayerNormalization",)
#: Operators whose outputs are not much larger than their inputs.
_NO_LARGER = ("NonZero", "Compress", "Unique")
#: Operators that are computed when they depend on constants alone; their bodies are loops.
_WITHOUT_BODY = {"Range"}
#: Operators whose output has the input's shape, which ONNX does not infer.
_NOT_INFERRED = ("GroupNormalization",)
_RANDOM = {"Bernoulli", "Dropout", "Multinomial"} | {
    f"Random{kind}{like}" for kind in ("Normal", "Uniform") for like in ("", "Like")
}


def from_onnx(path: str | os.PathLike[str], dims: Mapping[str, int] | None = None) -> Graph:
    """Return the graph of a model; `dims` are the sizes of its named dimensions.

    Raises MorelloError for a file that is no model, for a dimension without a size, and for operators that have no
    translation, with all of their nodes.
    """
    _WORKER.start()  # while this process imports the package, too
    onnx = _package()
    place = os.fspath(path)
    try:
        open(place, "rb").close()
        _WORKER.call("checker.check_model", os.path.abspath(place), full_check=False)
        model = onnx.load(place)
    except IsADirectoryError as error:
        raise MorelloError(f"{place}: is a folder", "name a file in ONNX, such as model.onnx") from error
    except FileNotFoundError as error:
        raise MorelloError(f"{place}: there is no such file", "check its name and folder") from error
    except Exception as error:
        raise MorelloError(f"{place}: not a valid ONNX model: {_first_line(error)}", "export it again") from error
    return graph_of(model, Path(place).stem, dims or {}, place)


def graph_of(model: ModelProto, name: str, dims: Mapping[str, int], place: str) -> Graph:
    """Return the graph of a model in memory; messages begin with its `place`."""
    load_operators()
    _fix_dims(model, dims, place)
    constants = _Constants()
    try:
        constants.take(model)
        if _version(model) < _OLDEST:
            model = _WORKER.call("version_converter.convert_version", model, _CONVERTED)
        model = _folded(_expanded(model), constants)
    except ProcessEnded as error:
        raise MorelloError(f"{place}: {error}", "export it again") from error
    except Exception as error:
        message = f"{place}: its shapes contradict each other: {_first_line(error)}"
        raise MorelloError(message, "export it again") from error
    return _translated(model, constants.of(model), name, place)


#: The version of ONNX's format from which constants need not be inputs.
_IR_VERSION = 4
#: Models of operator sets before the first version are converted to the second one.
_OLDEST, _CONVERTED = 7, 9
#: The version of a model that uses no operators of the standard set.
_NEWEST = 21


def _package() -> Any:
    try:
        import onnx
        import onnx.defs
    except ImportError as error:
        raise MorelloError("models in ONNX need the package onnx", "pip install 'morello[onnx]'") from error
    return onnx


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _version(model: ModelProto) -> int:
    return next((one.version for one in model.opset_import if _standard(one.domain)), _NEWEST)


def _fix_dims(model: ModelProto, dims: Mapping[str, int], place: str) -> None:
    """Give the named dimensions of inputs their sizes. Raises MorelloError for those without one."""
    known = _fix_values(model, dims)
    constants = {one.name for one in model.graph.initializer}
    missing: dict[str, str] = {}
    if wrong := next((name for name, size in dims.items() if size < 1 and name not in known), ""):
        raise MorelloError(f"{place}: the size {dims[wrong]} of {wrong}", "give a size of at least 1")
    if wrong := next((name for name, size in dims.items() if size > MOST_VALUES), ""):
        raise MorelloError(f"{place}: the size {dims[wrong]} of {wrong}", "give a smaller size")
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
        example = " ".join(f"--dim {shlex.quote(f'{dim}=1')}" for dim in missing)
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
    model = _WORKER.call("inliner.inline_local_functions", model)
    while True:
        used = {node.op_type for node in model.graph.node if _standard(node.domain) and not _is_translated(node)}
        bodies = [("", op) for op in sorted(used - _WITHOUT_BODY) if _has_body(op, _version(model))]
        if not bodies:
            return model
        # Bodies depend on the types of inputs, also of constants and of those that are left out.
        model = _WORKER.call("shape_inference.infer_shapes", model, data_prop=True)
        model.graph.value_info.extend(
            _package().helper.make_tensor_value_info(one.name, one.data_type, one.dims)
            for one in model.graph.initializer
        )
        model.graph.value_info.add(name="")
        made = _WORKER.call("inliner.inline_selected_functions", model, bodies, False, True)
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


@attrs.define
class _Constants:
    """The values of large constants, which the model has without data: calls of the package copy models."""

    values: dict[str, np.ndarray] = attrs.field(factory=dict[str, np.ndarray])
    #: The most values of all of them.
    most: int = _MOST_FOLDED

    def take(self, model: ModelProto) -> None:
        """Take the constants of a file out of it."""
        onnx = _package()
        listed = [*model.graph.initializer]
        del model.graph.initializer[:]
        for one in listed:
            self.add(model, one.name, onnx.numpy_helper.to_array(one))
        # Folding may make others of all of them.
        self.most += 2 * sum(value.size for value in self.values.values())

    def add(self, model: ModelProto, name: str, value: np.ndarray) -> None:
        """Add a constant to a model."""
        onnx = _package()
        if value.nbytes < _LARGE or value.dtype == object:
            model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
            return
        self.values[name] = np.ascontiguousarray(value)
        kind = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
        model.graph.initializer.append(onnx.TensorProto(name=name, data_type=kind, dims=value.shape))

    def of(self, model: ModelProto) -> dict[str, np.ndarray]:
        """Return the values of all constants of a model."""
        onnx = _package()
        return {
            one.name: self.values[one.name] if one.name in self.values else onnx.numpy_helper.to_array(one)
            for one in model.graph.initializer
        }

    @property
    def room(self) -> int:
        """Return the number of values that may be added."""
        return self.most - sum(value.size for value in self.values.values())


def _folded(model: ModelProto, constants: _Constants) -> ModelProto:
    """Return the model with the shapes of all tensors, and without nodes that compute constants."""
    # In older versions constants without an input have no shape.
    model.ir_version = max(model.ir_version, _IR_VERSION)
    while True:
        # Sizes that were inferred for named dimensions would stay.
        del model.graph.value_info[:]
        model = _with_shapes(model)
        if not _fold_once(model, constants):
            return model


def _with_shapes(model: ModelProto) -> ModelProto:
    """Return the model with the shapes of all tensors that can be known."""
    while True:
        model, before = _inferred(model), len(model.graph.value_info)
        shapes, types = _shapes(model), _types(model)
        for node in model.graph.node:
            source, made = (*node.input, "")[0], (*node.output, "")[0]
            if node.op_type in _NOT_INFERRED and source in shapes and made not in shapes:
                info = _package().helper.make_tensor_value_info(made, types[source], shapes[source])
                model.graph.value_info.append(info)
        if len(model.graph.value_info) == before:
            return model


def _inferred(model: ModelProto) -> ModelProto:
    try:
        return _WORKER.call("shape_inference.infer_shapes", model, strict_mode=True, data_prop=True)
    except ProcessEnded:
        raise
    except CallError:
        # Bodies of some operators have faults of their own; tensors without a shape are reported.
        return _with_some_shapes(model)


def _with_some_shapes(model: ModelProto) -> ModelProto:
    """Return the model with the shapes that ONNX infers. Raises ValueError for outputs that the model gives others."""
    onnx = _package()
    given = {one.name: onnx.ValueInfoProto.FromString(one.SerializeToString()) for one in model.graph.output}
    before = _shapes(model)
    for one in model.graph.output:
        if one.type.HasField("tensor_type"):
            one.type.tensor_type.ClearField("shape")
    model = _WORKER.call("shape_inference.infer_shapes", model, data_prop=True)
    found = _shapes(model)
    for one in model.graph.output:
        name = one.name
        if name not in found:
            one.CopyFrom(given[name])
        elif name in before and found[name] != before[name]:
            raise ValueError(f"{name} has the shape {found[name]}, and the model gives {before[name]}")
    return model


def _fold_once(model: ModelProto, constants: _Constants) -> bool:
    """Replace nodes whose inputs are constants by their values; return whether there were any."""
    onnx = _package()
    values, room = constants.of(model), constants.room
    shapes, types = _shapes(model), _types(model)
    kept, made = list["NodeProto"](), dict[str, np.ndarray]()
    branches = False
    waiting = deque(model.graph.node)
    while waiting:
        node = waiting.popleft()
        if node.op_type == "CastLike" and node.input[1] in types:
            node = onnx.helper.make_node("Cast", node.input[:1], node.output, node.name, to=types[node.input[1]])
        known = _value_of(model, node, values, shapes, types, room)
        if known is None and node.op_type == "If" and node.input[0] in values:
            branches = True
            inner: dict[str, np.ndarray] = {}
            waiting.extendleft(reversed(_branch(node, bool(values[node.input[0]].item()), inner)))
            made |= inner
            values |= inner
        elif known is None:
            kept.append(node)
        else:
            made |= known
            values |= known
            room -= sum(value.size for value in known.values())
    del model.graph.node[:]
    model.graph.node.extend(kept)
    for name, value in made.items():
        constants.add(model, name, value)
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
    room: int,
) -> dict[str, np.ndarray] | None:
    """Return the outputs of a node that is a constant, of up to `room` values each; None for another."""
    onnx = _package()
    kind_of = onnx.helper.tensor_dtype_to_np_dtype
    shape = shapes.get(node.input[0]) if node.input else None
    if shape is not None and node.op_type == "Shape":
        ends = {one.name: one.i for one in node.attribute}
        return {node.output[0]: np.array(shape[ends.get("start") : ends.get("end")], np.int64)}
    if shape is not None and node.op_type == "Size":
        return {node.output[0]: np.array(prod(shape), np.int64)}
    if shape is not None and node.op_type == "EyeLike" and prod(shape) <= room:
        values = {node.input[0]: np.zeros(shape, kind_of(types[node.input[0]]))}
    if node.op_type in _RANDOM or any(name and name not in values for name in node.input) or _has_graphs(node):
        return None
    if any(name and not _is_small(node, shapes.get(name), room) for name in node.output):
        return None
    given = {name: values[name] for name in node.input if name}
    kind, info = onnx.helper.np_dtype_to_tensor_dtype, onnx.helper.make_tensor_value_info
    inputs = [info(name, kind(value.dtype), value.shape) for name, value in given.items()]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = onnx.helper.make_graph([node], "constant", inputs, outputs)
    single = onnx.helper.make_model(graph, opset_imports=model.opset_import)
    try:
        found = _WORKER.call("evaluated", single, given)
    except ProcessEnded:
        raise
    except CallError:
        return None  # translation reports it
    names = [name for name in node.output if name]
    return {name: np.asarray(value) for name, value in zip(names, found, strict=True)}


def _is_small(node: NodeProto, shape: tuple[int, ...] | None, room: int) -> bool:
    """Return whether an output may be computed: no more values than the limit, or than inputs have."""
    return node.op_type in _NO_LARGER if shape is None else prod(shape) <= room


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


def _translated(model: ModelProto, constants: Mapping[str, np.ndarray], name: str, place: str) -> Graph:
    onnx = _package()
    graph, builder, shapes = model.graph, Builder(), _shapes(model)
    kinds = _types(model)
    used = {name for node in graph.node for name in node.input} | {one.name for one in graph.output}
    faults: list[str] = []
    unknown: set[str] = set()
    for tensor, shape in shapes.items():
        if 0 in shape and any(one.name == tensor for one in graph.output):
            faults.append(f"the output {tensor} is empty")
        if prod(shape) > MOST_VALUES or min(shape, default=0) < 0:
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
        if source.op in OPERATORS and unknown.intersection(source.inputs):
            # Its shapes follow from those of a part that is reported.
            unknown.update(name for name in source.outputs if name and name not in builder.tensors)
            continue
        try:
            _translate(builder, source)
        except Unsupported as error:
            faults.append(f"{source.name} ({source.op}): {error}")
            unknown.update(name for name in source.outputs if name and name not in builder.tensors)
    if faults:
        listed = "".join(f"\n    {fault}" for fault in faults)
        parts = f"{len(faults)} parts have" if len(faults) > 1 else "1 part has"
        hint = "replace these nodes before the export, or run them outside of the model"
        raise MorelloError(f"{place}: {parts} no translation:{listed}", hint)
    inputs = [one.name for one in graph.input if one.name not in constants]
    if wrong := next((name for name in inputs if name not in builder.tensors), ""):
        raise MorelloError(f"{place}: the input {wrong} is no tensor", "remove it before the export")
    return builder.graph(name, inputs, [one.name for one in graph.output])


def _translate(builder: Builder, source: Source) -> None:
    if source.op not in OPERATORS:
        raise Unsupported("a condition that is not constant" if source.op == "If" else "no such operator")
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
    except (ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError) as error:
        raise Unsupported(f"its attributes, types and shapes contradict each other: {_first_line(error)}") from error
