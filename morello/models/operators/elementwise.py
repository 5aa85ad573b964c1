"""Functions of each value."""

from __future__ import annotations

import math
from functools import partial, reduce

from morello.ir.dtypes import BOOL
from morello.ir.ops.base import Value
from morello.models.building import Builder, Source, Unsupported, translates

#: Functions of one tensor, and of two or more, that the language has by the same names.
_UNARY = ["Relu", "Sigmoid", "Tanh", "Exp", "Log", "Sqrt", "Abs", "Neg", "Round", "Floor", "Ceil", "Erf", "Sin", "Cos"]
_UNARY += ["Softplus", "Mish", "HardSwish", "Reciprocal", "Not"]
_BINARY = ["Add", "Sub", "Mul", "Div", "Less", "Greater", "Equal", "And", "Or", "Xor"]
#: Those of two or more that it has by others.
_RENAMED = {"Max": "Maximum", "Min": "Minimum", "Sum": "Add"}
_RENAMED |= {"LessOrEqual": "LessEqual", "GreaterOrEqual": "GreaterEqual"}
#: The defaults of `alpha`.
_ALPHA = {"LeakyRelu": 0.01, "Elu": 1.0}
#: Powers that are other functions.
_POWERS = {0.5: "Sqrt", -0.5: "Rsqrt", -1.0: "Reciprocal"}


@translates(*_UNARY)
def _unary(make: Builder, node: Source) -> None:
    make.node(node.op, node.inputs[0], to=node.outputs[0])


@translates(*_BINARY, *_RENAMED)
def _binary(make: Builder, node: Source) -> None:
    """Translate a function of two tensors, or of several one after another."""
    op, (*first, last) = _RENAMED.get(node.op, node.op), node.inputs
    if first:
        make.node(op, reduce(partial(make.node, op), first), last, to=node.outputs[0])
    else:
        make.reshape(last, make.shape(last), node.outputs[0])


@translates(*_ALPHA)
def _with_alpha(make: Builder, node: Source) -> None:
    given = {"by": float(node.get("alpha", _ALPHA[node.op]))}
    make.node(node.op, node.inputs[0], to=node.outputs[0], given=given)


@translates("Selu")
def _selu(make: Builder, node: Source) -> None:
    alpha, gamma = node.get("alpha", 1.67326319217681884765625), node.get("gamma", 1.05070102214813232421875)
    elu = make.node("Elu", node.inputs[0], given={"by": float(alpha)})
    make.scaled(elu, gamma, node.outputs[0])


@translates("Swish")
def _swish(make: Builder, node: Source) -> None:
    source, alpha = node.inputs[0], node.get("alpha", 1.0)
    if alpha == 1:
        make.node("Silu", source, to=node.outputs[0])
    else:
        make.node("Mul", source, make.node("Sigmoid", make.scaled(source, alpha)), to=node.outputs[0])


@translates("Mean")
def _mean(make: Builder, node: Source) -> None:
    make.scaled(reduce(partial(make.node, "Add"), node.inputs), 1 / len(node.inputs), node.outputs[0])


@translates("PRelu")
def _prelu(make: Builder, node: Source) -> None:
    source, slope = node.inputs
    if make.rank(slope) == 1 and make.rank(source) > 2 and make.shape(slope) not in ((1,), make.shape(source)[-1:]):
        # Up to version 6, slopes are those of channels.
        slope = make.reshape(slope, (-1, *[1] * (make.rank(source) - 2)))
    make.node("PRelu", source, slope, to=node.outputs[0])


@translates("Pow")
def _pow(make: Builder, node: Source) -> None:
    (source, power), to = node.inputs, node.outputs[0]
    value = make.tensors[power].value
    by = float(value.item()) if value is not None and value.size == 1 and make.shape(to) == make.shape(source) else None
    if by == 2:
        make.node("Mul", source, source, to=to)
    elif by in _POWERS and make.tensors[source].dtype.is_float:
        make.node(_POWERS[by], source, to=to)
    else:
        make.node("Pow", source, power, to=to)


@translates("Sign")
def _sign(make: Builder, node: Source) -> None:
    source = node.inputs[0]
    zero = make.number(0, source)
    dtype = make.tensors[source].dtype
    above, below = (
        make.node("Move", make.node(op, source, zero, dtype=BOOL), dtype=dtype) for op in ("Greater", "Less")
    )
    make.node("Sub", above, below, to=node.outputs[0])


@translates("IsNaN")
def _is_nan(make: Builder, node: Source) -> None:
    make.node("NotEqual", node.inputs[0], node.inputs[0], to=node.outputs[0])


@translates("IsInf")
def _is_inf(make: Builder, node: Source) -> None:
    source, above, below = node.inputs[0], node.get("detect_positive", 1), node.get("detect_negative", 1)
    if not above and not below:
        raise Unsupported("neither of the infinities")
    size = make.node("Abs", source) if above and below else source
    make.node("Equal", size, make.number(math.inf if above else -math.inf, source), to=node.outputs[0])


@translates("Where")
def _where(make: Builder, node: Source) -> None:
    make.node("Where", *node.inputs, to=node.outputs[0])


@translates("Identity", "Dropout")
def _identity(make: Builder, node: Source) -> None:
    if any(node.outputs[1:]):
        raise Unsupported("a mask of dropout")
    if node.input(2) and make.value(node.inputs[2], "the mode of dropout").item():
        raise Unsupported("dropout in training")
    make.reshape(node.inputs[0], make.shape(node.inputs[0]), node.outputs[0])


@translates("Cast", "CastLike")
def _cast(make: Builder, node: Source) -> None:
    source, to = node.inputs[0], node.outputs[0]
    if make.tensors[source].dtype == make.tensors[to].dtype:
        make.reshape(source, make.shape(source), to)
    else:
        make.node("Move", source, to=to)


@translates("Clip")
def _clip(make: Builder, node: Source) -> None:
    source, to, dtype = node.inputs[0], node.outputs[0], make.tensors[node.inputs[0]].dtype
    names = {"low": node.input(1), "high": node.input(2)}
    if dtype.is_float and all(not name or make.tensors[name].value is not None for name in names.values()):
        given = {"low": node.get("min"), "high": node.get("max")}
        given |= {key: make.value(name, key).item() for key, name in names.items() if name}
        limits: dict[str, Value] = {key: float(one) for key, one in given.items() if one is not None}
        make.node("Clip", source, to=to, given=limits)
        return
    bounds = [(op, name) for op, name in zip(("Maximum", "Minimum"), names.values(), strict=True) if name]
    for op, name in bounds:
        source = make.node(op, source, name, to=to if name == bounds[-1][1] and op == bounds[-1][0] else "")
    if not bounds:
        make.reshape(source, make.shape(source), to)


@translates("HardSigmoid")
def _hard_sigmoid(make: Builder, node: Source) -> None:
    by, shift = float(node.get("alpha", 0.2)), float(node.get("beta", 0.5))
    make.node("HardSigmoid", node.inputs[0], to=node.outputs[0], given={"by": by, "shift": shift})


@translates("Gelu")
def _gelu(make: Builder, node: Source) -> None:
    form = "tanh" if node.get("approximate", "none") == "tanh" else "erf"
    make.node("Gelu", node.inputs[0], to=node.outputs[0], given={"form": form})
