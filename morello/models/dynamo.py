"""The backend "morello" of torch.compile: supported parts of a graph run as models, the others in torch."""

# Without torch, pyright takes morello/torch.py for it.
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter, getitem
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch.export.graph_signature import OutputKind  # pyright: ignore[reportMissingImports]
from torch.fx import Graph as FxGraph  # pyright: ignore[reportMissingImports]
from torch.fx import GraphModule, Node  # pyright: ignore[reportMissingImports]
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner  # pyright: ignore[reportMissingImports]
from torch.fx.passes.operator_support import OperatorSupportBase  # pyright: ignore[reportMissingImports]

from morello.errors import MorelloError
from morello.models.graph import Graph
from morello.models.model import compile_model
from morello.models.modules import from_torch, reason_of
from morello.run.dlpack import to_library_of

#: The combinations of sizes of one graph that are compiled; torch runs others.
_MOST_SIZES = 8


def backend(module: GraphModule, inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None) -> Callable:
    """Compile a graph of Dynamo for inference; `options` are those of `compile_model`.

    Sizes are compiled at their first call, and again after weights change. Raises MorelloError for a graph that
    computes gradients.
    """
    if torch.is_grad_enabled() and any(isinstance(one, torch.Tensor) and one.requires_grad for one in inputs):
        raise MorelloError("the backend morello computes no gradients", "call the model within torch.no_grad()")
    weights = _weights(inputs)
    compiled: dict[object, Callable] = {}
    in_torch = False

    def run(*given: Any) -> Any:
        nonlocal in_torch
        if in_torch:
            return module(*given)
        key = (
            tuple((one.shape, one.dtype) if isinstance(one, torch.Tensor) else one for one in given),
            tuple((given[number].data_ptr(), given[number]._version) for number in weights),
        )
        if key not in compiled and len(compiled) < _MOST_SIZES:
            split = _Split(module, given, weights)
            if split.fault:
                in_torch = True
                warnings.warn(f"torch runs a graph: {split.fault}", stacklevel=2)
                return module(*given)
            if split.faults:
                warnings.warn(f"torch runs what morello lacks: {', '.join(split.faults)}", stacklevel=2)
            compiled[key] = split.compiled(options or {})
        elif key not in compiled:
            message = f"morello has compiled {_MOST_SIZES} sizes of a graph: torch runs it for others"
            warnings.warn(message, stacklevel=2)
            return module(*given)
        return compiled[key](*_free(given, weights))

    return run


def explain(module: torch.nn.Module, *inputs: Any) -> str:
    """Return which operations of a module run as models in torch.compile, and which do not, with the reasons."""
    lines: list[str] = []
    graphs = 0

    def look(graph: GraphModule, given: Sequence[Any]) -> Callable:
        nonlocal graphs
        graphs += 1
        split = _Split(graph, given, _weights(given))
        if split.fault:
            lines.append(f"graph {graphs}: torch runs it: {split.fault}")
            return graph
        lines.append(f"graph {graphs}: {split.count - len(split.faults)} of {split.count} operations run as models")
        lines.extend(f"    {name}: {reason}" for name, reason in split.faults.items())
        return graph

    torch.compiler.reset()
    with torch.no_grad():
        torch.compile(module, backend=look, dynamic=False)(*inputs)
    return "\n".join(lines)


def _weights(inputs: Sequence[Any]) -> list[int]:
    """Return the inputs of a graph that are parameters and buffers of its module."""

    def is_weight(one: Any) -> bool:
        return isinstance(one, torch.nn.Parameter) or bool(getattr(one, "_dynamo_static_input_type", None))

    return [number for number, one in enumerate(inputs) if is_weight(one)]


def _free(given: Sequence[Any], weights: Sequence[int]) -> list[torch.Tensor]:
    """Return the inputs that are tensors and no weights."""
    return [one for number, one in enumerate(given) if isinstance(one, torch.Tensor) and number not in weights]


class _WithWeights(torch.nn.Module):
    """A graph as a function of its tensors that are no weights; weights and numbers are constants."""

    def __init__(self, module: GraphModule, given: Sequence[Any], weights: Sequence[int]):
        super().__init__()
        self._module, self._given, self._weights = module, list(given), weights
        for number in weights:
            self.register_buffer(f"weight{number}", given[number].detach())

    def forward(self, *tensors: torch.Tensor) -> Any:
        rest, given = iter(tensors), list[Any]()
        for number, one in enumerate(self._given):
            if number in self._weights:
                given.append(getattr(self, f"weight{number}"))
            else:
                given.append(next(rest) if isinstance(one, torch.Tensor) else one)
        return self._module(*given)


class _Part(torch.nn.Module):
    """A model as a module."""

    def __init__(self, graph: Graph, is_tuple: bool, options: Mapping[str, Any]):
        super().__init__()
        self._model, self._is_tuple = compile_model(graph, **options), is_tuple

    def forward(self, *given: torch.Tensor) -> Any:
        made = self._model(*(one.detach() for one in given))
        export = to_library_of(torch.empty(0))
        assert export
        listed = made if isinstance(made, tuple) else (made,)
        tensors = [one if isinstance(one, torch.Tensor) else export(one) for one in listed]
        return tuple(tensors) if self._is_tuple else tensors[0]


class _Split(OperatorSupportBase):
    """A graph for certain sizes; `faults` are the operations that have no translation, with the reasons.

    Its operations write no memory of others. A graph that cannot be split has a `fault`.
    """

    def __init__(self, module: GraphModule, given: Sequence[Any], weights: Sequence[int]):
        inputs = [one.detach() for one in _free(given, weights)]
        self.fault, self.faults = "", dict[str, str]()
        try:
            exported = torch.export.export(_WithWeights(module, given, weights).eval(), tuple(inputs))
            exported = exported.run_decompositions({})
        except Exception as error:
            self.fault = f"torch.export cannot trace it: {reason_of(error)}"
            return
        if any(one.kind != OutputKind.USER_OUTPUT for one in exported.graph_signature.output_specs):
            self.fault = "it writes its inputs or buffers"
            return
        self._module: Any = exported.module()
        self._eager: set[Node] = set()
        self._known: dict[str, str] = {}
        nodes = [node for node in self._module.graph.nodes if node.op == "call_function"]
        self.count = len(nodes)
        self._graph: Graph | None = None
        try:
            self._graph = from_torch(exported, inputs)
        except MorelloError:
            for node in nodes:
                if node.target is getitem:
                    if node.args[0] in self._eager:
                        self._eager.add(node)
                elif reason := self._fault(node):
                    self._eager.add(node)
                    self.faults[f"{node.name} ({node.target})"] = reason
            if not self.faults:
                raise

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: Node) -> bool:
        return node.op == "call_function" and node not in self._eager

    def compiled(self, options: Mapping[str, Any]) -> Callable:
        """Return the graph with its supported parts as models."""
        if self._graph:
            return _Part(self._graph, True, options)
        split = CapabilityBasedPartitioner(self._module, self, allows_single_node_partition=True).partition_and_fuse()
        for call in split.graph.find_nodes(op="call_module"):
            part = split.get_submodule(call.target)
            if isinstance(part, GraphModule):
                _fix_weights(split, call, part)
                given = [_like(one.meta["val"]) for one in call.args]
                graph = from_torch(part.eval(), given)
                is_tuple = isinstance(part.graph.output_node().args[0], tuple | list)
                setattr(split, call.target, _Part(graph, is_tuple, options))
        split.recompile()
        return split

    def _fault(self, node: Node) -> str:
        """Return why a node has no translation; empty if it has one."""
        values = [one.meta.get("val") for one in node.all_input_nodes]
        key = f"{node.target} {values} {node.args} {node.kwargs}"
        if key not in self._known:
            self._known[key] = self._tried(node, values)
        return self._known[key]

    def _tried(self, node: Node, values: Sequence[Any]) -> str:
        if not all(isinstance(one, torch.Tensor) for one in values):
            return "an input that is no tensor"
        graph = FxGraph()
        copies = {one: graph.placeholder(one.name) for one in node.all_input_nodes}
        graph.output(graph.node_copy(node, copies.__getitem__))
        try:
            from_torch(GraphModule({}, graph).eval(), [_like(one) for one in values])
        except MorelloError as error:
            return (error.message.splitlines() or [""])[-1].strip()
        return ""


def _fix_weights(module: GraphModule, call: Node, part: GraphModule) -> None:
    """Make constants of a part's inputs that are attributes of the whole."""
    for one, given in zip(part.graph.find_nodes(op="placeholder"), call.args, strict=True):
        if isinstance(given, Node) and given.op == "get_attr":
            part.register_buffer(one.name, attrgetter(str(given.target))(module).detach())
            with part.graph.inserting_before(one):
                fixed = part.graph.get_attr(one.name)
            one.replace_all_uses_with(fixed)
            part.graph.erase_node(one)
    call.args = tuple(one for one in call.args if not (isinstance(one, Node) and one.op == "get_attr"))
    part.recompile()


def _like(value: torch.Tensor) -> torch.Tensor:
    """Return a tensor of the size and type of another."""
    return torch.ones(value.shape, dtype=value.dtype)
