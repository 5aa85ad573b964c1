"""Parts that a program repeats often are printed once, as functions: compilers take minutes for 10,000 lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import chain

import attrs

from morello.codegen.loops import printed
from morello.codegen.writer import CWriter
from morello.ir.impl import Alloc, Impl, Loop, Node, walk
from morello.ir.index import as_index
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import TensorSpec
from morello.kernels.buffers import View

#: A part of which a program has as many is printed as a function.
_OFTEN = 12


class RepeatedParts:
    """The parts that programs have often: equal steps on equal Specs, limits aside.

    Such a part has no parallel loop, and `on_stack` is true of its tensors: it needs no workspace.
    """

    def __init__(self, programs: Iterable[Impl], on_stack: Callable[[TensorSpec], bool]):
        self._on_stack = on_stack
        self._numbers: dict[Hashable, int] = {}
        self._keys: dict[int, int] = {}
        nodes = [one for one in chain.from_iterable(map(walk, programs)) if printed(one) is one]
        self._counts = Counter(map(self._key, nodes) if len(nodes) >= _OFTEN else ())

    def __contains__(self, part: Impl) -> bool:
        return bool(self._counts) and self._counts[self._key(part)] >= _OFTEN and all(map(self._fits, walk(part)))

    def _key(self, part: Impl) -> int:
        """Return the number of all parts that are equal."""
        if (key := self._keys.get(id(part))) is None:
            step, inner = (part.expansion.step, part.children) if isinstance(part, Node) else (None, ())
            form = part.spec.logical, step, *map(self._key, inner)
            key = self._keys[id(part)] = self._numbers.setdefault(form, len(self._numbers))
        return key

    def _fits(self, node: Impl) -> bool:
        if not isinstance(node, Node) or (isinstance(node.expansion, Loop) and node.expansion.parallel):
            return False
        view = isinstance(node.expansion, Alloc) and node.expansion.view
        return view or all(map(self._on_stack, node.expansion.tensors))


def can_be_parameters(views: Sequence[View]) -> bool:
    """Return True for operands in memory, each of a buffer of its own, whose tiles all have the same strides."""

    def plain(view: View) -> bool:
        fixed = all(as_index(stride).constant is not None for stride in view.buffer.strides)
        return fixed and view.buffer.strided

    return len({view.buffer.name for view in views}) == len(views) and all(map(plain, views))


def as_parameters(
    logical: LogicalSpec, views: Sequence[View], fresh: Callable[[str], str]
) -> tuple[list[View], list[str]]:
    """Return the operands as a function sees them, and the declarations of its parameters."""
    inside: list[View] = []
    head: list[str] = []
    for one, view in zip(logical.declared, views, strict=True):
        buffer = attrs.evolve(view.buffer, name=fresh(one.name), start=0, mask=None)
        inside.append(attrs.evolve(view, buffer=buffer, starts=(0,) * len(view.starts)))
        const = "" if one.writes else "const "
        head.append(f"{const}{buffer.tensor.state.dtype.c_name} *restrict const {buffer.name}")
    return inside, head


def static_function(head: Sequence[str], body: CWriter) -> str:
    """Return the text of a function after its name."""
    function = CWriter()
    with function.block(f"({', '.join(head)})"):
        function.add(body)
    return function.text().rstrip()
