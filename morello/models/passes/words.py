"""Replaces functions that are spelled out by those of the language: Gelu, Silu, HardSwish."""

from __future__ import annotations

from collections.abc import Collection
from math import pi, sqrt

import numpy as np
from numpy.polynomial import Polynomial

from morello.ir.ops.base import Value
from morello.models.building import Builder
from morello.models.graph import Graph, Node
from morello.models.passes.rewriting import by_of, maker, rewritten, with_constant

#: The argument of each function in Gelu's forms, as a polynomial.
_ARGUMENTS = {"Erf": Polynomial([0, sqrt(0.5)]), "Tanh": Polynomial([0, sqrt(2 / pi), 0, 0.044715 * sqrt(2 / pi)])}
_FORMS = {"Erf": "erf", "Tanh": "tanh"}
#: The most tensors of a product, and the deepest polynomial: others are no function of the language.
_MOST, _DEEPEST = 16, 8


def words(graph: Graph) -> Graph:
    """Return the graph with the functions of the language that products of x and a function of x are."""
    return rewritten(graph, _product)


def _product(graph: Graph, node: Node, make: Builder) -> bool:
    if node.op not in ("Mul", "Scale"):
        return False
    tree: list[str] = []
    _, leaves = _factors(graph, node.outputs[0], (), tree)
    for function in leaves:
        for x in tree:
            by, both = _factors(graph, node.outputs[0], (x, function), [])
            if x != function and sorted(both) == sorted((x, function)) and (found := _word(graph, by, x, function)):
                op, given = found
                make.node(op, x, to=node.outputs[0], given=given)
                return True
    return False


def _factors(graph: Graph, name: str, stop: Collection[str], tree: list[str]) -> tuple[float, list[str]]:
    """Return a number and the tensors whose product a tensor is; add all tensors on the way to `tree`."""
    tree.append(name)
    node = None if name in stop or len(tree) > _MOST else maker(graph, name, "Mul", "Scale")
    if node is None:
        return 1.0, [name]
    found = [_factors(graph, one, stop, tree) for one in node.inputs]
    by = float(np.prod([number for number, _ in found])) * (by_of(node) if node.op == "Scale" else 1)
    return by, [one for _, leaves in found for one in leaves]


def _word(graph: Graph, by: float, x: str, function: str) -> tuple[str, dict[str, Value]] | None:
    """Return the function that `by` · x · a function of x is, with its parameters."""
    source, line = function, Polynomial([0, by])
    while node := maker(graph, source, "Scale", "Shift"):
        line = line(Polynomial([0, by_of(node)] if node.op == "Scale" else [by_of(node), 1]))
        source = node.inputs[0]
    node = maker(graph, source, *_ARGUMENTS, "Sigmoid", "HardSigmoid", "Clip")
    argument = node and _polynomial(graph, node.inputs[0], x)
    if not node or argument is None:
        return None
    if node.op in _ARGUMENTS:
        is_gelu = _close(line, Polynomial([0.5, 0.5])) and _close(argument, _ARGUMENTS[node.op])
        return ("Gelu", {"form": _FORMS[node.op]}) if is_gelu else None
    if node.op == "Sigmoid":
        return ("Silu", {}) if _close(line, _X) and _close(argument, _X) else None
    if node.op == "HardSigmoid":
        given = [node.parameters.get("shift", 0.5), node.parameters.get("by", 0.2)]
        found = _close(line, _X) and _close(argument, _X) and np.allclose(given, [1 / 2, 1 / 6])
    else:
        limits = (node.parameters.get("low"), node.parameters.get("high"))
        found = limits == (0, 6) and _close(line, _X / 6) and _close(argument, _X + 3)
    return ("HardSwish", {}) if found else None


_X = Polynomial([0, 1])


def _polynomial(graph: Graph, name: str, x: str, deep: int = 0) -> Polynomial | None:
    """Return a tensor as a polynomial of another; None if it is none."""
    if name == x:
        return _X
    node = maker(graph, name, "Scale", "Shift", "Add", "Mul", "Pow") if deep < _DEEPEST else None
    if not node:
        return None
    if node.op == "Pow":
        source, exponent = with_constant(graph, node) or ("", "")
        value = graph.tensors[exponent].value if source == node.inputs[0] else None
        if value is None or value.size != 1 or value.item() not in (2, 3):
            return None
        base = _polynomial(graph, source, x, deep + 1)
        return base ** int(value.item()) if base is not None else None
    parts = [_polynomial(graph, one, x, deep + 1) for one in node.inputs]
    known = [one for one in parts if one is not None]
    if len(known) < len(parts):
        return None
    if node.op in ("Scale", "Shift"):
        return known[0] * by_of(node) if node.op == "Scale" else known[0] + by_of(node)
    return known[0] + known[1] if node.op == "Add" else known[0] * known[1]


def _close(one: Polynomial, other: Polynomial) -> bool:
    degree = max(len(one), len(other)) - 1
    coefficients = [np.pad(each.coef, (0, degree + 1 - len(each))) for each in (one, other)]
    return bool(np.allclose(*coefficients, rtol=1e-4, atol=1e-7))
