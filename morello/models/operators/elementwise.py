"""Functions of each value."""

from __future__ import annotations

from functools import partial, reduce

import numpy as np

from morello.ir.ops.base import Value
from morello.models.building import Builder, Source, Unsupported, translates

_SAME = {
    "Relu": "Relu",
    "Sigmoid": "Sigmoid",
    "Tanh": "Tanh",
    "Exp": "Exp",
    "Log": "Log",
    "Sqrt": "Sqrt",
    "Abs": "Abs",
    "Neg": "Neg",
    "Round": "Round",
    "Floor": "Floor",
    "Ceil": "Ceil",
    "Erf": "Erf",
    "Sin": "Sin",
    "Cos": "Cos",
    "Softplus": "Softplus",
    "Mish": "Mish",
    "HardSwish": "HardSwish",
    "Selu": "Selu",
    "Not": "Not",
}
_BINARY = {
    "Add": "Add",
    "Sub": "Sub",
    "Mul": "Mul",
    "Div": "Div",
    "Max": "Maximum",
    "Min": "Minimum",
    "Sum": "Add",
    "Less": "Less",
    "LessOrEqual": "LessEqual",
    "Greater": "Greater",
    "GreaterOrEqual": "GreaterEqual",
    "Equal": "Equal",
    "And": "And",
    "Or": "Or",
    "Xor": "Xor",
    "PRelu": "PRelu",
    "Pow": "Pow",
}


def _unary(op: str, make: Builder, node: Source) -> None:
    make.node(op, node.inputs[0], to=node.outputs[0])


def _binary(op: str, make: Builder, node: Source) -> None:
    """Translate a function of two tensors, or of several one after another."""
    *first, last = node.inputs

    def both(one: str, other: str) -> str:
        return make.node(op, one, other, shape=np.broadcast_shapes(make.shape(one), make.shape(other)))

    if not first:
        make.node("Move", last, to=node.outputs[0])
    else:
        make.node(op, reduce(both, first), last, to=node.outputs[0])


for _name, _op in _SAME.items():
    translates(_name)(partial(_unary, _op))
for _name, _op in _BINARY.items():
    translates(_name)(partial(_binary, _op))


@translates("Identity", "Dropout")
def _identity(make: Builder, node: Source) -> None:
    if any(node.outputs[1:]):
        raise Unsupported("a mask of dropout")
    make.reshape(node.inputs[0], make.shape(node.inputs[0]), node.outputs[0])


@translates("Cast")
def _cast(make: Builder, node: Source) -> None:
    make.node("Move", node.inputs[0], to=node.outputs[0])


@translates("Clip")
def _clip(make: Builder, node: Source) -> None:
    given = {"low": node.get("min"), "high": node.get("max")}
    for number, name in enumerate(("low", "high"), start=1):
        if node.input(number):
            given[name] = make.value(node.input(number), f"a limit ({name})").item()
    limits: dict[str, Value] = {key: float(one) for key, one in given.items() if one is not None}
    make.node("Clip", node.inputs[0], to=node.outputs[0], given=limits)


@translates("LeakyRelu")
def _leaky(make: Builder, node: Source) -> None:
    make.node("LeakyRelu", node.inputs[0], to=node.outputs[0], given={"by": float(node.get("alpha", 0.01))})


@translates("HardSigmoid")
def _hard_sigmoid(make: Builder, node: Source) -> None:
    by, shift = float(node.get("alpha", 0.2)), float(node.get("beta", 0.5))
    make.node("HardSigmoid", node.inputs[0], to=node.outputs[0], given={"by": by, "shift": shift})


@translates("Gelu")
def _gelu(make: Builder, node: Source) -> None:
    form = "tanh" if node.get("approximate", "none") == "tanh" else "erf"
    make.node("Gelu", node.inputs[0], to=node.outputs[0], given={"form": form})
