"""Recurrent networks, step by step."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from morello.models.building import Builder, Source, Unsupported, translates

#: The most steps of a sequence: each has nodes of its own.
_MOST_STEPS = 1024
#: The functions of steps, by default, in the order of the gates.
_FUNCTIONS = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}
_PLAIN = {"Sigmoid", "Tanh", "Relu", "Softplus"}
#: Functions with parameters: their names here, and the defaults of `alpha` and `beta`.
_GIVEN = {"HardSigmoid": (("by", 0.2), ("shift", 0.5)), "LeakyRelu": (("by", 0.01),), "Elu": (("by", 1.0),)}


def _function(make: Builder, node: Source, number: int) -> Callable[[str], str]:
    """Return what adds function `number` of a node."""
    names = node.get("activations")
    names = [name.decode() for name in names] if names else _FUNCTIONS[node.op] * 2
    name = names[number]
    # A list has parameters for the functions that take them alone.
    before = [parameter for other in names[:number] for parameter in _GIVEN.get(other, ())]
    if name not in _PLAIN and name not in _GIVEN:
        raise Unsupported(f"the function {name}")
    given = dict[str, float]()
    for (key, default), listed in zip(_GIVEN.get(name, ()), ("activation_alpha", "activation_beta"), strict=False):
        values = node.get(listed) or []
        given[key] = float(values[len(before)] if len(before) < len(values) else default)

    def add(source: str) -> str:
        clip = node.get("clip", 0.0)
        limited = make.node("Clip", source, given={"low": -clip, "high": clip}) if clip else source
        return make.node(name, limited, given=given)

    return add


def _sum(make: Builder, *names: str) -> str:
    """Add the sum of tensors, without those that are left out."""
    return reduce(lambda one, other: make.node("Add", one, other), filter(None, names))


def _parts(make: Builder, source: str, count: int) -> list[str]:
    """Return the parts of the last dimension."""
    size = make.shape(source)[-1] // count if source else 0
    return [
        make.slice(source, make.rank(source) - 1, at * size, (at + 1) * size) if source else "" for at in range(count)
    ]


@translates("LSTM", "GRU", "RNN")
def _recurrent(make: Builder, node: Source) -> None:
    source, _, repeated = node.inputs[:3]
    if node.get("layout", 0):
        source = make.view("transpose", source, (1, 0, 2))
    steps, batch, width = make.shape(source)
    directions, hidden = make.shape(repeated)[0], make.shape(repeated)[2]
    if steps > _MOST_STEPS:
        raise Unsupported(f"a sequence of more than {_MOST_STEPS} steps")
    if node.input(4) and (make.value(node.inputs[4], "lengths of sequences") != steps).any():
        raise Unsupported("sequences of several lengths")
    if node.get("input_forget", 0):
        raise Unsupported("input_forget")
    rows = make.reshape(source, (-1, width))

    def of(number: int, direction: int, shape: tuple[int, ...] = ()) -> str:
        """Return an input of one direction, empty if it is left out."""
        if not (name := node.input(number)):
            return ""
        if number in (5, 6) and node.get("layout", 0):
            name = make.view("transpose", name, (1, 0, 2))
        return make.reshape(make.slice(name, 0, direction, direction + 1), shape or make.shape(name)[1:])

    outputs: list[list[str]] = []
    ends: list[list[str]] = [[], []]
    for direction in range(directions):
        own, state = of(1, direction), of(2, direction)
        backward = direction == 1 or node.get("direction", "forward") == "reverse"
        gates = make.shape(own)[0]
        bias = of(3, direction, (1, 2 * gates))
        products = make.node("Matmul", rows, make.view("transpose", own, (1, 0)), shape=(steps * batch, gates))
        # The bias of a product with the state is added to that product where a gate multiplies it.
        own_bias, state_bias = _parts(make, bias, 2)
        apart = node.op == "GRU" and node.get("linear_before_reset", 0)
        products = _sum(make, products, own_bias, "" if apart else state_bias)
        first = 0 if direction == 0 else len(_FUNCTIONS[node.op])
        run = _Cell(make, node, first, make.view("transpose", state, (1, 0)), state_bias, of(7, direction))
        h, c = of(5, direction), of(6, direction)
        made: dict[int, str] = {}
        for step in range(steps)[:: -1 if backward else 1]:
            part = make.slice(products, 0, step * batch, (step + 1) * batch)
            h, c = getattr(run, node.op.lower())(part, h, c)
            made[step] = h
        outputs.append([made[step] for step in range(steps)])
        ends[0].append(h)
        ends[1].append(c)
    if node.outputs[0]:
        shape = (1, 1, batch, hidden)
        listed = [make.reshape(outputs[each][step], shape) for step in range(steps) for each in range(directions)]
        # [steps, directions, batch, hidden]
        flat = _joined(make, listed, (steps * directions, 1, batch, hidden))
        whole = make.reshape(flat, (steps, directions, batch, hidden))
        _to(make, node, whole, (2, 0, 1, 3), node.outputs[0])
    for name, parts in zip(node.outputs[1:], ends, strict=False):
        if name:
            listed = [make.reshape(one, (1, batch, hidden)) for one in parts]
            _to(make, node, _joined(make, listed, (directions, batch, hidden)), (1, 0, 2), name)


def _joined(make: Builder, parts: list[str], shape: tuple[int, ...]) -> str:
    return parts[0] if len(parts) == 1 else make.node("Concat", *parts, shape=shape, given={"dim": 0})


def _to(make: Builder, node: Source, source: str, order: tuple[int, ...], to: str) -> None:
    """Make the output a tensor, or with its batch first."""
    if node.get("layout", 0):
        make.view("transpose", source, order, to)
    else:
        make.reshape(source, make.shape(to), to)


class _Cell:
    """A step of a network: functions of its input's products, and of the state before, empty for zeros."""

    def __init__(self, make: Builder, node: Source, first: int, state: str, bias: str, peepholes: str):
        self.make, self.state, self.bias = make, state, bias
        self.apart = node.get("linear_before_reset", 0)
        count = len(_FUNCTIONS[node.op])
        self.functions = [_function(make, node, first + number) for number in range(count)]
        self.peepholes = _parts(make, make.reshape(peepholes, (1, -1)), 3) if peepholes else ["", "", ""]

    def product(self, h: str, weights: str = "") -> str:
        """Add the product of the state; empty for zeros."""
        weights = weights or self.state
        shape = (self.make.shape(h)[0], self.make.shape(weights)[1]) if h else ()
        return self.make.node("Matmul", h, weights, shape=shape) if h else ""

    def rnn(self, x: str, h: str, c: str) -> tuple[str, str]:
        return self.functions[0](_sum(self.make, self.product(h), x)), c

    def lstm(self, x: str, h: str, c: str) -> tuple[str, str]:
        make, (gate, new, out) = self.make, self.functions
        i, o, f, g = _parts(make, _sum(make, self.product(h), x), 4)
        of_i, of_o, of_f = self.peepholes
        with make.step() as outputs:
            added = make.node("Mul", gate(_sum(make, i, self._seen(of_i, c))), new(g))
            kept = make.node("Mul", gate(_sum(make, f, self._seen(of_f, c))), c) if c else ""
            c = _sum(make, kept, added)
            h = make.node("Mul", gate(_sum(make, o, self._seen(of_o, c))), out(c))
            outputs += [h, c]
        return h, c

    def _seen(self, peephole: str, c: str) -> str:
        return self.make.node("Mul", c, peephole) if peephole and c else ""

    def gru(self, x: str, h: str, c: str) -> tuple[str, str]:
        make, (gate, new) = self.make, self.functions
        width = make.shape(x)[1] // 3
        apart = _parts(make, _sum(make, self.product(h), self.bias), 3) if self.apart and (h or self.bias) else []
        if apart:
            z, r, n = _parts(make, x, 3)
        else:
            ends = (make.slice(self.state, 1, 0, 2 * width), make.slice(self.state, 1, 2 * width, 3 * width))
            z, r = _parts(make, _sum(make, self.product(h, ends[0]), make.slice(x, 1, 0, 2 * width)), 2)
            reset = self.product(make.node("Mul", gate(r), h), ends[1]) if h else ""
            n = _sum(make, reset, make.slice(x, 1, 2 * width, 3 * width))
        with make.step() as outputs:
            if apart:
                of_z, of_r, of_n = apart
                z, r = _sum(make, z, of_z), gate(_sum(make, r, of_r))
                n = _sum(make, make.node("Mul", r, of_n), n)
            z, n = gate(z), new(n)
            last = make.node("Sub", h, n) if h else n
            made = make.node("Add" if h else "Sub", n, make.node("Mul", z, last))
            outputs.append(made)
        return made, c
